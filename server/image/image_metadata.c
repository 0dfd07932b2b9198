/* What goes with a picture's pixels: metadata, and notes of what was lost. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "server/image/image.h"

void image_blob_clear(struct image_blob *blob)
{
    free(blob->data);
    *blob = (struct image_blob){0};
}

static void image_metadata_move(struct image_blob *to, struct image_blob *from)
{
    if (to->data)
        return;
    *to = *from;
    *from = (struct image_blob){0};
}

void image_move_metadata(struct image *to, struct image *from)
{
    image_metadata_move(&to->icc, &from->icc);
    image_metadata_move(&to->exif, &from->exif);
    image_metadata_move(&to->xmp, &from->xmp);
    image_metadata_move(&to->iptc, &from->iptc);
    image_metadata_move(&to->colour, &from->colour);
    image_metadata_move(&to->cmyk, &from->cmyk);
    memcpy(to->density, from->density, sizeof to->density);
    to->format = from->format;
    to->notes |= from->notes;
}

enum error_code image_blob_set(struct image_blob *blob, const void *data, size_t size, struct error *err)
{
    assert(!blob->data);
    if (size == 0)
        return OK;
    blob->data = mem_alloc(size, 1);
    if (!blob->data)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a picture's metadata (%zu bytes)", size);
    memcpy(blob->data, data, size);
    blob->size = size;
    return OK;
}

void image_strip(struct image *image)
{
    image_blob_clear(&image->exif);
    image_blob_clear(&image->xmp);
    image_blob_clear(&image->iptc);
}

enum error_code image_copy_metadata(struct image *to, const struct image *from, struct error *err)
{
    image_blob_clear(&to->icc);
    image_blob_clear(&to->exif);
    image_blob_clear(&to->xmp);
    image_blob_clear(&to->iptc);
    image_blob_clear(&to->cmyk);
    memcpy(to->density, from->density, sizeof to->density);
    to->format = from->format;
    to->notes |= from->notes;
    enum error_code code = image_blob_set(&to->icc, from->icc.data, from->icc.size, err);
    if (code == OK)
        code = image_blob_set(&to->exif, from->exif.data, from->exif.size, err);
    if (code == OK)
        code = image_blob_set(&to->xmp, from->xmp.data, from->xmp.size, err);
    if (code == OK)
        code = image_blob_set(&to->iptc, from->iptc.data, from->iptc.size, err);
    if (code == OK)
        code = image_blob_set(&to->cmyk, from->cmyk.data, from->cmyk.size, err);
    return code;
}

static const struct {
    unsigned note;
    const char *code, *text;
} image_metadata_notes[] = {
    {IMAGE_NOTE_BITS_REDUCED, "bits-reduced", "16-bit samples were reduced to 8 bits"},
    {IMAGE_NOTE_GRAY, "gray-to-rgb", "the gray picture was turned into RGB"},
    {IMAGE_NOTE_CMYK, "cmyk-plain", "CMYK colours were converted to RGB without a colour profile"},
    {IMAGE_NOTE_ICC_KEPT, "profile-kept",
     "the picture's ICC profile is not sRGB; its values were used as they are and the profile is kept"},
    {IMAGE_NOTE_ICC_DROPPED, "profile-dropped", "an ICC profile that does not fit the result was dropped"},
    {IMAGE_NOTE_FLATTENED, "flattened", "transparency was flattened on white, since the output format has none"},
    {IMAGE_NOTE_EXIF_DROPPED, "exif-dropped", "the EXIF data is too large for the output format and was dropped"},
    {IMAGE_NOTE_XMP_DROPPED, "xmp-dropped", "the XMP data is too large for the output format and was dropped"},
    {IMAGE_NOTE_GAMMA, "gamma", "the picture's gamma was converted to sRGB's"},
    {IMAGE_NOTE_EXIF_PARTLY, "exif-partly",
     "of the EXIF data only the main texts are kept, such as artist, camera and date"},
    {IMAGE_NOTE_ICC_DAMAGED, "profile-damaged",
     "the picture's ICC profile is damaged; its colours were taken for sRGB's"},
    {IMAGE_NOTE_ICC_CONVERTED, "profile-converted",
     "the picture was converted to sRGB, because its ICC profile works one way only"},
    {IMAGE_NOTE_CMYK_PROFILE, "cmyk-profile", "CMYK colours were converted to sRGB by the picture's ICC profile"},
    {IMAGE_NOTE_CMYK_KEPT, "cmyk-kept", "CMYK colours were converted to sRGB and back by the picture's ICC profile"},
    {IMAGE_NOTE_BASELINE, "not-progressive",
     "a progressive JPEG of more than 64 megapixels would take too much memory, so it is an ordinary one"},
    {IMAGE_NOTE_IPTC_DROPPED, "iptc-dropped", "the IPTC data has no place in the output format and was dropped"},
};

static int image_metadata_row(unsigned note)
{
    int row = 0;
    while (row < IMAGE_NOTE_COUNT && image_metadata_notes[row].note != note)
        row++;
    return row;
}

const char *image_note_text(unsigned note)
{
    const int row = image_metadata_row(note);
    return row < IMAGE_NOTE_COUNT ? image_metadata_notes[row].text : NULL;
}

const char *image_note_code(unsigned note)
{
    const int row = image_metadata_row(note);
    return row < IMAGE_NOTE_COUNT ? image_metadata_notes[row].code : NULL;
}
