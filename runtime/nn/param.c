#include "runtime/nn/param.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

static enum error_code param_create(struct param **out, size_t values, struct error *err)
{
    struct param *p = mem_calloc(1, sizeof *p);
    if (p && values) {
        p->values = mem_calloc(values, sizeof(float));
        if (!p->values) {
            free(p);
            p = NULL;
        }
    }
    *out = p;
    return p ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for %zu parameters", values);
}

enum error_code param_from_tensor(struct param **out, const struct weights_tensor *tensor, const float *row_scale,
                                  size_t rows, struct error *err)
{
    enum error_code code = param_create(out, row_scale ? rows : 0, err);
    if (code)
        return code;
    (*out)->count = tensor->count;
    (*out)->source = tensor;
    if (row_scale) {
        (*out)->rows = rows;
        memcpy((*out)->values, row_scale, rows * sizeof(float));
    }
    return OK;
}

enum error_code param_from_values(struct param **out, const float *values, size_t count, struct error *err)
{
    enum error_code code = param_create(out, count, err);
    if (code)
        return code;
    (*out)->count = count;
    if (values && count)
        memcpy((*out)->values, values, count * sizeof(float));
    return OK;
}

void param_destroy(struct param **param)
{
    if (!*param)
        return;
    free((*param)->values);
    free(*param);
    *param = NULL;
}

void param_read(const struct param *param, float *out)
{
    if (!param->source) {
        if (param->count)
            memcpy(out, param->values, param->count * sizeof(float));
        return;
    }
    weights_read_f32(param->source, out);
    size_t row = param->rows ? param->count / param->rows : 0;
    for (size_t r = 0; r < param->rows; r++)
        for (size_t i = 0; i < row; i++)
            out[r * row + i] *= param->values[r];
}

const void *param_raw(const struct param *param, enum weights_dtype *type)
{
    const struct weights_tensor *source = param->source;
    int64_t stride = 1;
    *type = source ? source->dtype : WEIGHTS_F32;
    if (!source)
        return param->values;
    if (*type != WEIGHTS_F32 && *type != WEIGHTS_F16 && *type != WEIGHTS_BF16)
        return NULL;
    for (int i = source->rank - 1; i >= 0; i--) {
        if (source->shape[i] != 1 && source->stride[i] != stride)
            return NULL;
        stride *= (int64_t)source->shape[i];
    }
    return source->data;
}
