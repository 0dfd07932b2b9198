#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/file.h"
#include "runtime/base/mem.h"
#include "server/cli/bench.h"

/* FOLDER/NAME.part; a model that was given as a path is named by its last part. */
static enum error_code bench_keep_keep_write(const char *folder, const char *model, const char *part, const void *data,
                                             size_t size, struct error *err)
{
    char path[2048];
    const char *name = strrchr(model, '/') ? strrchr(model, '/') + 1 : model;
    if (snprintf(path, sizeof path, "%s/%s.%s", folder, name, part) >= (int)sizeof path)
        return error_set(err, ERROR_INVALID, "--keep: the folder's name is too long");
    enum error_code code = file_make_folders(folder, 0777, err);
    return code ? code : file_write(path, data, size, err);
}

enum error_code bench_keep_weights(const char *folder, const char *model, const void *data, size_t size,
                                   struct error *err)
{
    return bench_keep_keep_write(folder, model, "safetensors", data, size, err);
}

enum error_code bench_keep_array(const char *folder, const char *model, const char *part, const int shape[4],
                                 const float *values, struct error *err)
{
    enum { HEADER = 128 }; /* magic, version 1.0, length of the rest as 16 bits, a Python literal padded by spaces */
    char name[64];
    size_t bytes = sizeof *values;
    for (int i = 0; i < 4; i++)
        bytes *= (size_t)shape[i]; /* as stored in memory */
    uint8_t *file = mem_alloc(HEADER + bytes, 1);
    if (!file)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for %s's values", model);
    memset(file, ' ', HEADER);
    memcpy(file, "\x93NUMPY\x01\x00", 8);
    file[8] = HEADER - 10;
    file[9] = 0;
    int length = snprintf((char *)file + 10, HEADER - 10,
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d, %d, %d), }", shape[0], shape[1],
                          shape[2], shape[3]);
    file[10 + length] = ' '; /* over the NUL */
    file[HEADER - 1] = '\n';
    memcpy(file + HEADER, values, bytes);
    snprintf(name, sizeof name, "%s.npy", part);
    enum error_code code = bench_keep_keep_write(folder, model, name, file, HEADER + bytes, err);
    free(file);
    return code;
}
