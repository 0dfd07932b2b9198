/* HEIC and AVIF by libheif, which crops and turns pictures as their files say; EXIF's orientation has no say there. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/spill.h"
#include "runtime/base/thread.h"
#include "server/image/codec_row.h"
#include "server/image/heif_header.h"
#include "server/image/icc.h"
#include "server/image/profile.h"

#ifdef RESTORED_HEIF
#include <libheif/heif.h>
#endif

#define HEIF_SIDE 32768       /* what libheif reads */
#define HEIF_PIXELS 100000000 /* that are written: the library takes some 40 bytes for each */
#define HEIF_SPEED 8          /* of 0 to 9: a fifth of the time of the usual 6 */
#define HEIF_THREADS 16
#define HEIF_LOOK 1024 /* bytes of the first box in which brands are looked for */

/* Whether the first box names one of these brands, 4 bytes each. */
static bool codec_heif_has_brand(const uint8_t *bytes, size_t size, const char *brands)
{
    if (size < 16 || memcmp(bytes + 4, "ftyp", 4) != 0)
        return false;
    const size_t end = (size_t)codec_big(bytes, 4);
    for (size_t at = 8; at + 4 <= end && at + 4 <= size && at < HEIF_LOOK; at += at == 8 ? 8 : 4) /* 12: a version */
        for (const char *brand = brands; *brand; brand += 4)
            if (memcmp(bytes + at, brand, 4) == 0)
                return true;
    return false;
}

static bool codec_heif_matches_avif(const uint8_t *bytes, size_t size)
{
    return codec_heif_has_brand(bytes, size, "avifavis");
}

static bool codec_heif_matches_heic(const uint8_t *bytes, size_t size)
{
    return !codec_heif_matches_avif(bytes, size) &&
           codec_heif_has_brand(bytes, size, "heicheixheimheishevchevxmif1msf1");
}

static enum error_code codec_heif_probe(const uint8_t *bytes, size_t size, int page, struct codec_info *out,
                                        struct error *err)
{
    struct heif_header header;
    const struct codec_row *row = codec_heif_matches_avif(bytes, size) ? &codec_avif : &codec_heic;
    if (!heif_header_read(bytes, size, page, &header))
        return codec_damaged(err, row->title, "no header");
    out->pages = header.pages;
    if (page > header.pages)
        return OK;
    if (!header.width || !header.height || header.bits < 1 || header.bits > 16)
        return codec_damaged(err, row->title, "no size");
    if (header.width > INT32_MAX || header.height > INT32_MAX)
        return error_set(err, ERROR_TOO_LARGE, "the picture has %u×%u pixels", header.width, header.height);
    *out = (struct codec_info){.format = row->format,
                               .bits = header.bits > 8 ? 16 : 8,
                               .channels = 3 + header.alpha,
                               .alpha = header.alpha,
                               .pages = header.pages};
    codec_set_size(out, header.width, header.height, 1);
    return OK;
}

#ifdef RESTORED_HEIF

struct heif_task {
    const struct codec_row *row;
    struct heif_context *context;
    struct heif_image_handle *handle;
    struct heif_image *pixels;
    struct image *image;
    struct error *err;
};

static enum error_code codec_heif_failed(const struct heif_task *t, struct heif_error error)
{
    if (error.code == heif_error_Memory_allocation_error)
        return error_set(t->err, ERROR_NO_MEMORY, "out of memory for the picture");
    if (error.code == heif_error_Unsupported_feature || error.code == heif_error_Unsupported_filetype) {
        error_set(t->err, ERROR_UNSUPPORTED, "this is %s of a kind that libheif cannot read here", t->row->title);
        error_detail(t->err, "%s", error.message);
        return ERROR_UNSUPPORTED;
    }
    return codec_damaged(t->err, t->row->title, error.message);
}

/* The rows that libheif made, as ours. */
static void codec_heif_fill(struct image *image, const uint8_t *rows, size_t stride)
{
    const size_t line = (size_t)image->width * 3 * (size_t)(image->bits / 8);
    for (size_t y = 0; y < (size_t)image->height; y++, rows += stride)
        if (image->alpha)
            codec_interleave(image, y, (uint8_t *)(uintptr_t)rows, false);
        else
            memcpy((uint8_t *)image->pixels + y * line, rows, line);
}

static enum error_code codec_heif_pixels(struct heif_task *t, const struct codec_info *info)
{
    const bool deep = info->bits == 16;
    const enum heif_chroma chroma =
        deep ? (info->alpha ? heif_chroma_interleaved_RRGGBBAA_LE : heif_chroma_interleaved_RRGGBB_LE)
             : (info->alpha ? heif_chroma_interleaved_RGBA : heif_chroma_interleaved_RGB);
    struct heif_decoding_options *options = heif_decoding_options_alloc();
    if (!options)
        return error_set(t->err, ERROR_NO_MEMORY, "out of memory for the picture");
    if (options->version >= 3)
        options->strict_decoding = 1;
    const struct heif_error error = heif_decode_image(t->handle, &t->pixels, heif_colorspace_RGB, chroma, options);
    heif_decoding_options_free(options);
    if (error.code)
        return codec_heif_failed(t, error);
    int stride;
    const uint8_t *rows = heif_image_get_plane_readonly(t->pixels, heif_channel_interleaved, &stride);
    const int bits = heif_image_get_bits_per_pixel_range(t->pixels, heif_channel_interleaved);
    if (!rows || heif_image_get_width(t->pixels, heif_channel_interleaved) != info->width ||
        heif_image_get_height(t->pixels, heif_channel_interleaved) != info->height || (deep && (bits < 9 || bits > 16)))
        return codec_damaged(t->err, t->row->title, "its header promised something else");
    enum error_code code = image_create(&t->image, info->width, info->height, 3, info->bits, info->alpha, t->err);
    if (code)
        return code;
    codec_heif_fill(t->image, rows, (size_t)stride);
    if (deep && bits < 16)
        codec_widen(t->image, bits);
    if (info->alpha && heif_image_handle_is_premultiplied_alpha(t->handle))
        codec_unpremultiply(t->image);
    return OK;
}

/* The first block of that type; EXIF begins with how far away its TIFF block is. */
static enum error_code codec_heif_block(struct heif_task *t, const char *type, struct image_blob *out)
{
    heif_item_id id;
    const bool exif = strcmp(type, "Exif") == 0;
    const int count = heif_image_handle_get_number_of_metadata_blocks(t->handle, NULL);
    heif_item_id *ids = count > 0 ? mem_calloc((size_t)count, sizeof *ids) : NULL;
    bool found = false;
    const int listed = ids ? heif_image_handle_get_list_of_metadata_block_IDs(t->handle, NULL, ids, count) : 0;
    for (int i = 0; i < listed && !found; i++) {
        const char *of = heif_image_handle_get_metadata_type(t->handle, ids[i]),
                   *content = heif_image_handle_get_metadata_content_type(t->handle, ids[i]);
        id = ids[i];
        found = exif ? of && strcmp(of, "Exif") == 0 : content && strcmp(content, "application/rdf+xml") == 0;
    }
    free(ids);
    const size_t size = found ? heif_image_handle_get_metadata_size(t->handle, id) : 0;
    uint8_t *bytes = size ? mem_alloc(size, 1) : NULL;
    if (size && !bytes)
        return error_set(t->err, ERROR_NO_MEMORY, "out of memory for a picture's metadata");
    enum error_code code = OK;
    if (size && !heif_image_handle_get_metadata(t->handle, id, bytes).code) {
        const uint64_t skip = exif ? size >= 4 ? 4 + codec_big(bytes, 4) : size : 0;
        if (skip < size)
            code = image_blob_set(out, bytes + skip, size - (size_t)skip, t->err);
    }
    free(bytes);
    return code;
}

/* Colours that are said in numbers, where there is no profile. */
static enum error_code codec_heif_codes(struct heif_task *t)
{
    struct heif_color_profile_nclx *codes = NULL;
    enum error_code code = OK;
    if (t->image->icc.data || heif_image_handle_get_nclx_color_profile(t->handle, &codes).code || !codes)
        return OK;
    code =
        profile_of_codes(t->image, (unsigned)codes->color_primaries, (unsigned)codes->transfer_characteristics, t->err);
    heif_nclx_color_profile_free(codes);
    return code;
}

static enum error_code codec_heif_metadata(struct heif_task *t)
{
    struct image *image = t->image;
    const size_t size = heif_image_handle_get_raw_color_profile_size(t->handle);
    if (size) {
        if (!(image->icc.data = mem_alloc(size, 1)))
            return error_set(t->err, ERROR_NO_MEMORY, "out of memory for a picture's profile");
        image->icc.size = size;
        if (heif_image_handle_get_raw_color_profile(t->handle, image->icc.data).code) {
            free(image->icc.data);
            image->icc = (struct image_blob){0};
        }
    }
    enum error_code code = codec_heif_codes(t);
    if (!code)
        code = codec_heif_block(t, "Exif", &image->exif);
    return code ? code : codec_heif_block(t, "mime", &image->xmp);
}

static enum error_code codec_heif_decode(const uint8_t *bytes, size_t size, const struct codec_info *info,
                                         struct image **out, struct error *err)
{
    struct heif_header header;
    struct heif_task t = {.row = info->format == IMAGE_AVIF ? &codec_avif : &codec_heic, .err = err};
    if (!heif_header_read(bytes, size, info->page, &header))
        return codec_damaged(err, t.row->title, "no header");
    if (!(t.context = heif_context_alloc()))
        return error_set(err, ERROR_NO_MEMORY, "out of memory for the picture");
    heif_context_set_max_decoding_threads(t.context, thread_count());
    struct heif_error error = heif_context_read_from_memory_without_copy(t.context, bytes, size, NULL);
    if (!error.code)
        error = heif_context_get_image_handle(t.context, header.item, &t.handle);
    enum error_code code = error.code ? codec_heif_failed(&t, error) : codec_heif_pixels(&t, info);
    if (!code)
        code = codec_heif_metadata(&t);
    if (t.pixels)
        heif_image_release(t.pixels);
    if (t.handle)
        heif_image_handle_release(t.handle);
    heif_context_free(t.context);
    if (code)
        image_destroy(&t.image);
    *out = t.image;
    return code;
}

static struct heif_error codec_heif_take(struct heif_context *context, const void *data, size_t size, void *buffer)
{
    (void)context;
    return codec_buffer_add(buffer, data, size)
               ? (struct heif_error){heif_error_Ok, heif_suberror_Unspecified, "fine"}
               : (struct heif_error){heif_error_Memory_allocation_error, heif_suberror_Unspecified, "no memory"};
}

/* Half the chroma, as cameras have it, is hard to see below a quality of 90. */
static struct heif_error codec_heif_tune(struct heif_encoder *encoder, struct codec_options options)
{
    const int threads = thread_count() < HEIF_THREADS ? thread_count() : HEIF_THREADS;
    struct heif_error error = heif_encoder_set_lossy_quality(encoder, options.quality);
    if (!error.code)
        error = heif_encoder_set_parameter_string(encoder, "chroma", options.quality >= 90 ? "444" : "420");
    if (!error.code)
        error = heif_encoder_set_parameter_integer(encoder, "speed", HEIF_SPEED);
    if (!error.code)
        error = heif_encoder_set_parameter_integer(encoder, "threads", threads);
    return error;
}

/* Our rows as libheif's picture. */
static struct heif_error codec_heif_give(const struct image *image, struct heif_image **out)
{
    const enum heif_chroma chroma = image->alpha ? heif_chroma_interleaved_RGBA : heif_chroma_interleaved_RGB;
    struct heif_error error = heif_image_create(image->width, image->height, heif_colorspace_RGB, chroma, out);
    if (!error.code)
        error = heif_image_add_plane(*out, heif_channel_interleaved, image->width, image->height, 8);
    if (!error.code && icc_space(image->icc.data, image->icc.size) == ICC_RGB)
        error = heif_image_set_raw_color_profile(*out, "prof", image->icc.data, image->icc.size);
    int stride = 0;
    uint8_t *rows = error.code ? NULL : heif_image_get_plane(*out, heif_channel_interleaved, &stride);
    for (int y = 0; rows && y < image->height; y++)
        codec_row_8(image, y, rows + (size_t)y * (size_t)stride);
    return error;
}

static struct heif_error codec_heif_write(struct heif_context *context, struct heif_encoder *encoder,
                                          const struct image *image, struct codec_buffer *file)
{
    struct heif_image *pixels = NULL;
    struct heif_image_handle *handle = NULL;
    struct heif_writer writer = {.writer_api_version = 1, .write = codec_heif_take};
    struct heif_error error = codec_heif_give(image, &pixels);
    if (!error.code)
        error = heif_context_encode_image(context, pixels, encoder, NULL, &handle);
    if (!error.code && image->exif.size)
        error = heif_context_add_exif_metadata(context, handle, image->exif.data, (int)image->exif.size);
    if (!error.code && image->xmp.size)
        error = heif_context_add_XMP_metadata(context, handle, image->xmp.data, (int)image->xmp.size);
    if (!error.code)
        error = heif_context_write(context, &writer, file);
    if (handle)
        heif_image_handle_release(handle);
    if (pixels)
        heif_image_release(pixels);
    return error;
}

static enum error_code codec_heif_encode(const struct image *image, struct codec_options options,
                                         struct codec_output *out, struct error *err)
{
    struct codec_buffer file = {0};
    struct heif_encoder *encoder = NULL;
    struct heif_context *context = heif_context_alloc();
    struct heif_error error = {heif_error_Memory_allocation_error, heif_suberror_Unspecified, "no memory"};
    if (context)
        error = heif_context_get_encoder_for_format(context, heif_compression_AV1, &encoder);
    if (!error.code)
        error = codec_heif_tune(encoder, options);
    if (!error.code)
        error = codec_heif_write(context, encoder, image, &file);
    enum error_code code = OK;
    if (error.code) {
        code = error_set(err, error.code == heif_error_Memory_allocation_error ? ERROR_NO_MEMORY : ERROR_INTERNAL,
                         "the AVIF of %d×%d pixels could not be written", image->width, image->height);
        error_detail(err, "%s", error.message);
        spill_free(file.bytes);
    } else {
        *out = (struct codec_output){file.bytes, file.size,
                                     (image->icc.data && icc_space(image->icc.data, image->icc.size) != ICC_RGB
                                          ? (unsigned)IMAGE_NOTE_ICC_DROPPED
                                          : 0u) |
                                         (image->bits == 16 ? (unsigned)IMAGE_NOTE_BITS_REDUCED : 0u)};
    }
    if (encoder)
        heif_encoder_release(encoder);
    if (context)
        heif_context_free(context);
    return code;
}

#endif

const struct codec_row codec_avif = {.format = IMAGE_AVIF,
                                     .extension = "avif",
                                     .media_type = "image/avif",
                                     .title = "an AVIF picture",
                                     .library = "libheif",
                                     .lossy = true,
                                     .matches = codec_heif_matches_avif,
#ifdef RESTORED_HEIF
                                     .max_side = HEIF_SIDE,
                                     .max_pixels = HEIF_PIXELS,
                                     .encode = codec_heif_encode,
                                     .decode = codec_heif_decode,
#endif
                                     .probe = codec_heif_probe};

const struct codec_row codec_heic = {.format = IMAGE_HEIC,
                                     .extension = "heic",
                                     .media_type = "image/heic",
                                     .title = "a HEIC picture",
                                     .library = "libheif",
                                     .lossy = true,
                                     .matches = codec_heif_matches_heic,
#ifdef RESTORED_HEIF
                                     .decode = codec_heif_decode,
#endif
                                     .probe = codec_heif_probe};
