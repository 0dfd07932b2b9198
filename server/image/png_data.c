#include "server/image/png_data.h"

#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"

#define STRIP_BYTES ((size_t)512 << 10) /* of rows, at least one */
#define WAVE 32                         /* strips that are in memory at once */
#define WINDOW 32768                    /* how far back deflate looks */
#define FILTERS 5

struct strip {
    uint8_t *bytes; /* NULL: memory ran out */
    size_t size, raw;
    uLong adler; /* of the filtered rows */
};

struct wave {
    const struct png_data *data;
    int rows, first; /* a strip's rows; the wave's first strip */
    int last;        /* the picture's last strip */
    struct strip strips[WAVE];
};

/* ---- filters (PNG 1.2, 6) ---- */

/* x - predictor. above and the pixel to the left are zeros where there are none: line and above begin one pixel after
 * zeros. */
static void png_data_sub(uint8_t *restrict to, const uint8_t *restrict x, size_t pixel, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)(x[i] - *(x + i - pixel));
}

static void png_data_up(uint8_t *restrict to, const uint8_t *restrict x, const uint8_t *restrict above, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)(x[i] - above[i]);
}

static void png_data_average(uint8_t *restrict to, const uint8_t *restrict x, const uint8_t *restrict above,
                             size_t pixel, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)(x[i] - ((*(x + i - pixel) + above[i]) >> 1));
}

static void png_data_paeth(uint8_t *restrict to, const uint8_t *restrict x, const uint8_t *restrict above, size_t pixel,
                           size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int16_t a = *(x + i - pixel), b = above[i], c = *(above + i - pixel);
        int16_t pa = (int16_t)(b - c), pb = (int16_t)(a - c), pc = (int16_t)(pa + pb);
        pa = (int16_t)(pa < 0 ? -pa : pa);
        pb = (int16_t)(pb < 0 ? -pb : pb);
        pc = (int16_t)(pc < 0 ? -pc : pc);
        int16_t bc = pb <= pc ? b : c, least = pb <= pc ? pb : pc;
        to[i] = (uint8_t)(x[i] - (pa <= least ? a : bc));
    }
}

/* The usual measure of how well a filtered row will pack: the sum of its bytes taken as signed. */
static uint64_t png_data_cost(const uint8_t *row, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n;) {
        uint32_t part = 0; /* narrow sums vectorise better */
        for (size_t end = n - i < 1 << 20 ? n : i + (1 << 20); i < end; i++)
            part += row[i] < 128 ? row[i] : 256u - row[i];
        sum += part;
    }
    return sum;
}

/* Filters x with the best filter into to[1 + n], the filter's number first; tries: FILTERS rows of scratch. */
static void png_data_filter(uint8_t *to, const uint8_t *x, const uint8_t *above, size_t pixel, size_t n, uint8_t *tries)
{
    uint64_t least = UINT64_MAX;
    int best = 0;
    memcpy(tries, x, n);
    png_data_sub(tries + n, x, pixel, n);
    png_data_up(tries + 2 * n, x, above, n);
    png_data_average(tries + 3 * n, x, above, pixel, n);
    png_data_paeth(tries + 4 * n, x, above, pixel, n);
    for (int f = 0; f < FILTERS; f++) {
        uint64_t cost = png_data_cost(tries + (size_t)f * n, n);
        if (cost < least) {
            least = cost;
            best = f;
        }
    }
    to[0] = (uint8_t)best;
    memcpy(to + 1, tries + (size_t)best * n, n);
}

/* ---- strips ---- */

/* Rows [from, to) filtered, one after the other. */
static bool png_data_rows(const struct png_data *data, int from, int to, uint8_t *out)
{
    size_t n = data->stride, line = data->pixel + n;
    uint8_t *work = mem_calloc(2 * line + FILTERS * n, 1), *x = work, *above = work + line;
    if (!work)
        return false;
    if (from > 0 && data->level > 0)
        data->row(data->context, from - 1, above + data->pixel);
    for (int y = from; y < to; y++, out += 1 + n) {
        data->row(data->context, y, x + data->pixel);
        if (data->level == 0) {
            out[0] = 0;
            memcpy(out + 1, x + data->pixel, n);
            continue;
        }
        png_data_filter(out, x + data->pixel, above + data->pixel, data->pixel, n, work + 2 * line);
        uint8_t *swap = x;
        x = above;
        above = swap;
    }
    free(work);
    return true;
}

/* Deflates raw[size]; the `before` bytes in front of it are what the decoder has seen last. */
static bool png_data_deflate(const struct png_data *data, const uint8_t *raw, size_t size, size_t before, bool last,
                             struct strip *strip)
{
    z_stream z = {0};
    int strategy = data->level == 1 ? Z_RLE : data->level == 0 ? Z_DEFAULT_STRATEGY : Z_FILTERED;
    if (deflateInit2(&z, data->level, Z_DEFLATED, -15, 8, strategy) != Z_OK)
        return false;
    before = before < WINDOW ? before : WINDOW;
    bool ok = !before || deflateSetDictionary(&z, raw - before, (uInt)before) == Z_OK;
    size_t room = deflateBound(&z, (uLong)size) + 16; /* and the empty block that ends a strip */
    strip->bytes = ok ? mem_alloc(room, 1) : NULL;
    for (size_t at = 0, step; strip->bytes && at < size; at += step) { /* zlib counts in unsigned int */
        step = size - at < 1u << 30 ? size - at : 1u << 30;
        z.next_in = (Bytef *)(uintptr_t)(raw + at);
        z.avail_in = (uInt)step;
        z.next_out = strip->bytes + strip->size;
        z.avail_out = room - strip->size < 1u << 31 ? (uInt)(room - strip->size) : 1u << 31;
        uInt before_out = z.avail_out;
        bool end = at + step == size;
        int got = deflate(&z, end ? last ? Z_FINISH : Z_SYNC_FLUSH : Z_NO_FLUSH);
        strip->size += before_out - z.avail_out;
        ok = ok && z.avail_in == 0 && z.avail_out > 0 && (end && last ? got == Z_STREAM_END : got == Z_OK);
    }
    deflateEnd(&z);
    return ok && strip->bytes;
}

static void png_data_strip(void *context, int item)
{
    struct wave *wave = context;
    const struct png_data *data = wave->data;
    struct strip *strip = &wave->strips[item];
    int number = wave->first + item, begin = number * wave->rows, end = begin + wave->rows;
    end = end < data->height ? end : data->height;
    size_t n = data->stride + 1;
    /* Rows before the strip are filtered once more, for deflate to look back at; runs do not look back. */
    int back = data->level > 1 ? (int)((WINDOW + n - 1) / n) : 0;
    back = back < begin ? back : begin;
    uint8_t *raw = mem_alloc((size_t)(end - begin + back), n);
    bool ok = raw && png_data_rows(data, begin - back, end, raw);
    if (ok) {
        size_t before = (size_t)back * n;
        strip->raw = (size_t)(end - begin) * n;
        strip->adler = adler32_z(1, raw + before, strip->raw);
        ok = png_data_deflate(data, raw + before, strip->raw, before, number == wave->last, strip);
    }
    if (!ok) {
        free(strip->bytes);
        strip->bytes = NULL;
    }
    free(raw);
}

enum error_code png_data_encode(const struct png_data *data, bool (*write)(void *user, const uint8_t *, size_t),
                                void *user, struct error *err)
{
    static const uint8_t header[2] = {0x78, 0x01}; /* deflate with a window of 32 KiB; no dictionary */
    struct wave *wave = mem_calloc(1, sizeof *wave);
    bool ok = wave && write(user, header, sizeof header);
    uLong adler = 1;
    if (wave) {
        wave->data = data;
        wave->rows = data->stride < STRIP_BYTES ? (int)(STRIP_BYTES / (data->stride + 1)) : 1;
        wave->last = (data->height - 1) / wave->rows;
    }
    for (; ok && wave->first <= wave->last; wave->first += WAVE) {
        int left = wave->last - wave->first + 1, count = left < WAVE ? left : WAVE;
        memset(wave->strips, 0, sizeof wave->strips);
        thread_for(count, png_data_strip, wave);
        for (int i = 0; i < count; i++) {
            struct strip *strip = &wave->strips[i];
            ok = ok && strip->bytes && write(user, strip->bytes, strip->size);
            adler = adler32_combine(adler, strip->adler, (z_off_t)strip->raw);
            free(strip->bytes);
        }
        const int begin = wave->first * wave->rows, end = begin + count * wave->rows;
        if (data->passed)
            data->passed(data->context, begin, end < data->height ? end : data->height);
    }
    free(wave);
    const uint8_t check[4] = {(uint8_t)(adler >> 24), (uint8_t)(adler >> 16), (uint8_t)(adler >> 8), (uint8_t)adler};
    ok = ok && write(user, check, sizeof check);
    return ok ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for the PNG writer");
}
