/* bench_image PICTURE [PNG-LEVELS]: what reading and writing pictures takes, on one core and on all, beside libjpeg and
 * libpng as they come. What is written is the picture, enlarged twice by Lanczos. PNG-LEVELS: such as 0,1,6. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>
#include <png.h>

#include "runtime/base/file.h"
#include "runtime/base/thread.h"
#include "server/image/codec.h"
#include "server/image/resize.h"

#define RUNS 3

struct bench {
    struct file file;
    struct image *picture, *large;
    struct codec_options options;
    size_t bytes; /* of the result */
};

static _Noreturn void fail(const char *text)
{
    fprintf(stderr, "bench_image: %s\n", text);
    exit(1);
}

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void own_decode(struct bench *bench)
{
    struct error err = ERROR_INIT;
    image_destroy(&bench->picture);
    if (codec_decode(bench->file.data, bench->file.size, 0, &bench->picture, NULL, &err))
        fail(err.text);
}

static void own_encode(struct bench *bench, enum image_format format)
{
    struct error err = ERROR_INIT;
    struct codec_output out;
    if (codec_encode(bench->large, format, bench->options, &out, &err))
        fail(err.text);
    bench->bytes = out.size;
    free(out.bytes);
}

static void own_jpeg(struct bench *bench)
{
    own_encode(bench, IMAGE_JPEG);
}

static void own_png(struct bench *bench)
{
    own_encode(bench, IMAGE_PNG);
}

static JSAMPROW row_of(const struct image *image, int y)
{
    return (JSAMPROW)image->pixels + (size_t)y * (size_t)image->width * (size_t)image->channels;
}

static void libjpeg_decode(struct bench *bench)
{
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, bench->file.data, bench->file.size);
    jpeg_read_header(&jpeg, TRUE);
    jpeg_start_decompress(&jpeg);
    JSAMPROW row = malloc((size_t)jpeg.output_width * (size_t)jpeg.output_components);
    while (jpeg.output_scanline < jpeg.output_height)
        jpeg_read_scanlines(&jpeg, &row, 1);
    jpeg_destroy_decompress(&jpeg);
    free(row);
}

static void libjpeg_encode(struct bench *bench)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long size = 0;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &bytes, &size);
    jpeg.image_width = (JDIMENSION)bench->large->width;
    jpeg.image_height = (JDIMENSION)bench->large->height;
    jpeg.input_components = bench->large->channels;
    jpeg.in_color_space = bench->large->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, bench->options.quality, TRUE);
    jpeg.comp_info[0].h_samp_factor = jpeg.comp_info[0].v_samp_factor = 1; /* all chroma, as ours at 95 */
    jpeg_start_compress(&jpeg, TRUE);
    for (int y = 0; y < bench->large->height; y++) {
        JSAMPROW row = row_of(bench->large, y);
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    bench->bytes = size;
    free(bytes);
}

static void count_bytes(png_structp png, png_bytep bytes, size_t size)
{
    (void)bytes;
    *(size_t *)png_get_io_ptr(png) += size;
}

static void flush_nothing(png_structp png)
{
    (void)png;
}

static void libpng_encode(struct bench *bench)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    bench->bytes = 0;
    png_set_write_fn(png, &bench->bytes, count_bytes, flush_nothing);
    png_set_IHDR(png, info, (png_uint_32)bench->large->width, (png_uint_32)bench->large->height, 8,
                 bench->large->channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, 0, 0);
    png_write_info(png, info);
    for (int y = 0; y < bench->large->height; y++)
        png_write_row(png, row_of(bench->large, y));
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
}

/* The least of a few runs: processor time on one core, which other programs hardly change, and time on all. */
static void row(struct bench *bench, const char *name, void (*run)(struct bench *), bool own, bool writes)
{
    double one = 0, all = 0;
    for (int i = 0; i < 2 * RUNS; i++) {
        if (i >= RUNS && !own)
            break;
        thread_set_count(i < RUNS ? 1 : 0);
        clockid_t clock = i < RUNS ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
        double start = now(clock);
        run(bench);
        double ms = now(clock) - start, *least = i < RUNS ? &one : &all;
        *least = i % RUNS == 0 || ms < *least ? ms : *least;
    }
    printf("| %s | %.1f | ", name, one);
    printf(own ? "%.1f | " : "– | ", all);
    printf(writes ? "%zu |\n" : "– |\n", bench->bytes);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct bench bench = {.options = CODEC_OPTIONS_INIT};
    struct error err = ERROR_INIT;
    struct view_u8 from, to;
    if (argc < 2 || argc > 3)
        fail("usage: bench_image PICTURE [PNG-LEVELS]");
    if (file_map(&bench.file, argv[1], &err))
        fail(err.text);
    own_decode(&bench);
    if (image_reduce(bench.picture, false, &err) ||
        image_create(&bench.large, 2 * bench.picture->width, 2 * bench.picture->height, 3, 8, false, &err))
        fail(err.text);
    from = image_view(bench.picture);
    to = image_view(bench.large);
    if (resize_smooth_u8(&to, &from, RESIZE_LANCZOS4, &err))
        fail(err.text);
    printf("| %s, %d×%d, written as %d×%d | ms of one core | ms, %d threads | bytes |\n|---|---|---|---|\n", argv[1],
           bench.picture->width, bench.picture->height, bench.large->width, bench.large->height, thread_count());
    if (bench.picture->format == IMAGE_JPEG)
        row(&bench, "read JPEG, libjpeg", libjpeg_decode, false, false);
    row(&bench, bench.picture->format == IMAGE_JPEG ? "read JPEG" : "read PNG", own_decode, true, false);
    row(&bench, "write JPEG, libjpeg", libjpeg_encode, false, true);
    row(&bench, "write JPEG", own_jpeg, true, true);
    row(&bench, "write PNG, libpng", libpng_encode, false, true);
    for (const char *level = argc > 2 ? argv[2] : "0,1,2,6"; *level; level += strcspn(level, "0123456789")) {
        char name[40], *end;
        bench.options.png_level = (int)strtol(level, &end, 10);
        if (end == level)
            fail("PNG-LEVELS: numbers with commas between");
        snprintf(name, sizeof name, "write PNG, png_level=%d", bench.options.png_level);
        row(&bench, name, own_png, true, true);
        level = end;
    }
    image_destroy(&bench.picture);
    image_destroy(&bench.large);
    file_unmap(&bench.file);
    return 0;
}
