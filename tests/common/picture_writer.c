#include "tests/common/picture_writer.h"

#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>
#include <png.h>
#include <zlib.h>

const struct picture_jpeg picture_jpeg_kinds[PICTURE_JPEG_KINDS] = {
    {.channels = 3},
    {.channels = 3, .progressive = true},
    {.channels = 3, .plain = true, .restart_rows = 2},
    {.channels = 1},
    {.channels = 1, .progressive = true},
    {.channels = 4, .plain = true},
    {.channels = 4, .progressive = true},
    {.channels = 4, .plain = true, .no_adobe = true},
    {.channels = 3, .scans = true},
};

struct checkpoint_buffer picture_writer_jpeg(const struct picture_jpeg *kind, struct view_u8 view, const void *exif,
                                             size_t exif_size)
{
    static const jpeg_scan_info scans[3] = {{1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    unsigned char *out = NULL;
    unsigned long size = 0;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &out, &size);
    jpeg.image_width = (JDIMENSION)view.width;
    jpeg.image_height = (JDIMENSION)view.height;
    jpeg.input_components = view.channels;
    jpeg.in_color_space = kind->channels == 1 ? JCS_GRAYSCALE : kind->channels == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&jpeg);
    if (kind->plain)
        jpeg_set_colorspace(&jpeg, jpeg.in_color_space);
    else if (kind->channels == 4)
        jpeg_set_colorspace(&jpeg, JCS_YCCK);
    jpeg_set_quality(&jpeg, 100, TRUE);
    jpeg.restart_in_rows = kind->restart_rows;
    if (kind->progressive)
        jpeg_simple_progression(&jpeg);
    if (kind->scans) {
        jpeg.scan_info = scans;
        jpeg.num_scans = 3;
    }
    if (kind->no_adobe)
        jpeg.write_Adobe_marker = FALSE;
    jpeg_start_compress(&jpeg, TRUE);
    if (exif) {
        jpeg_write_m_header(&jpeg, JPEG_APP0 + 1, (unsigned)exif_size + 6);
        for (size_t i = 0; i < exif_size + 6; i++)
            jpeg_write_m_byte(&jpeg, i < 6 ? "Exif\0"[i] : ((const uint8_t *)exif)[i - 6]);
    }
    for (int y = 0; y < view.height; y++) {
        JSAMPROW row = view.data + (size_t)y * view.stride;
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    struct checkpoint_buffer file = {0};
    checkpoint_put(&file, out, size);
    free(out);
    return file;
}

const uint8_t picture_palette[4][3] = {{255, 0, 0}, {0, 250, 1}, {2, 3, 245}, {9, 90, 190}};
const uint8_t picture_palette_alpha[2] = {0, 128};

static void picture_writer_put(png_structp png, png_bytep data, size_t size)
{
    checkpoint_put(png_get_io_ptr(png), data, size);
}

struct checkpoint_buffer picture_writer_png(const struct picture_png *kind, int width, int height, uint8_t *rows,
                                            size_t stride)
{
    static const png_color_16 transparent = {.gray = 1, .red = 1, .green = 2, .blue = 3};
    struct checkpoint_buffer file = {0};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_bytep table[64];
    png_color palette[4];
    bool indexed = kind->type == PNG_COLOR_TYPE_PALETTE;
    for (int y = 0; y < height; y++)
        table[y] = rows + (size_t)y * stride;
    for (int i = 0; i < 4; i++)
        palette[i] = (png_color){picture_palette[i][0], picture_palette[i][1], picture_palette[i][2]};
    png_set_write_fn(png, &file, picture_writer_put, NULL);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, kind->depth, kind->type, kind->interlaced, 0, 0);
    if (indexed)
        png_set_PLTE(png, info, palette, kind->depth == 1 ? 2 : 4);
    if (kind->transparent)
        png_set_tRNS(png, info, picture_palette_alpha, indexed ? 2 : 0, &transparent);
    png_write_info(png, info);
    png_write_image(png, table);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    return file;
}

static void picture_writer_u32(struct checkpoint_buffer *out, uint32_t v)
{
    const uint8_t bytes[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
    checkpoint_put(out, bytes, 4);
}

void picture_writer_chunk(struct checkpoint_buffer *out, const char *name, const void *data, size_t size)
{
    picture_writer_u32(out, (uint32_t)size);
    size_t at = out->size;
    checkpoint_put(out, name, 4);
    checkpoint_put(out, data, size);
    picture_writer_u32(out, (uint32_t)crc32(0, out->data + at, (uInt)size + 4));
}

struct checkpoint_buffer picture_writer_header(uint32_t width, uint32_t height)
{
    struct checkpoint_buffer file = {0}, header = {0};
    checkpoint_put(&file, "\x89PNG\r\n\x1a\n", 8);
    picture_writer_u32(&header, width);
    picture_writer_u32(&header, height);
    checkpoint_put(&header, "\x08\x02\0\0\0", 5);
    picture_writer_chunk(&file, "IHDR", header.data, header.size);
    checkpoint_free(&header);
    return file;
}
