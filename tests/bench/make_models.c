/* make_models FOLDER: what starting up is measured with, files of the official sizes and names with random weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/file.h"
#include "runtime/models/model_random.h"

static const char *const networks[] = {"rrdbnet_x2", "gfpgan", "retinaface_r50", "parsenet"};

static const char *official(const char *name)
{
    for (int i = 0; i < model_random_count; i++)
        if (!strcmp(model_randoms[i].name, name))
            return model_randoms[i].what;
    return name;
}

int main(int argc, char **argv)
{
    struct error err = ERROR_INIT;
    if (argc != 2 || argv[1][0] == '-') {
        fprintf(stderr, "make_models FOLDER: the official networks with random weights, 600 MB\n");
        return 2;
    }
    enum error_code code = file_make_folders(argv[1], 0777, &err);
    for (size_t i = 0; !code && i < sizeof networks / sizeof networks[0]; i++) {
        char path[1024];
        uint8_t *bytes;
        size_t size;
        snprintf(path, sizeof path, "%.900s/%s.safetensors", argv[1], official(networks[i]));
        code = model_random_file(networks[i], &bytes, &size, &err);
        if (!code)
            code = file_write(path, bytes, size, &err);
        free(bytes);
    }
    if (code)
        fprintf(stderr, "make_models: %s\n", err.text);
    return code != OK;
}
