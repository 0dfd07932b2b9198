#include "runtime/base/bytes.h"

bool bytes_seek(struct bytes *in, uint64_t at)
{
    if (at > in->size)
        return false;
    in->at = (size_t)at;
    return true;
}

bool bytes_take(struct bytes *in, uint64_t n, const uint8_t **out)
{
    if (n > in->size - in->at)
        return false;
    *out = in->data + in->at;
    in->at += (size_t)n;
    return true;
}

bool bytes_number(struct bytes *in, int n, uint64_t *out)
{
    const uint8_t *p;
    if (!bytes_take(in, (uint64_t)n, &p))
        return false;
    *out = 0;
    for (int i = 0; i < n; i++)
        *out |= (uint64_t)p[i] << 8 * i;
    return true;
}

bool bytes_u8(struct bytes *in, uint8_t *out)
{
    uint64_t v;
    if (!bytes_number(in, 1, &v))
        return false;
    *out = (uint8_t)v;
    return true;
}

bool bytes_u16(struct bytes *in, uint16_t *out)
{
    uint64_t v;
    if (!bytes_number(in, 2, &v))
        return false;
    *out = (uint16_t)v;
    return true;
}

bool bytes_u64(struct bytes *in, uint64_t *out)
{
    return bytes_number(in, 8, out);
}
