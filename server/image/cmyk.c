#include "server/image/cmyk.h"

#define CMYK_PROFILE 128 /* bytes at least */

bool cmyk_known(const struct image *image)
{
    return image->cmyk.data && image->cmyk.size >= sizeof(struct cmyk_table) + CMYK_PROFILE && image->channels == 3 &&
           !image->alpha;
}

int cmyk_bits(const struct image *image)
{
    const struct cmyk_table *table = (const struct cmyk_table *)(const void *)image->cmyk.data;
    return table->bits == 16 ? 16 : 8;
}

struct image_blob cmyk_profile(const struct image *image)
{
    return (struct image_blob){image->cmyk.data + sizeof(struct cmyk_table),
                               image->cmyk.size - sizeof(struct cmyk_table)};
}

/* Tetrahedral: grays are mixed of grays alone. rgb: 0..65535. */
static void cmyk_pixel(const struct cmyk_table *table, const unsigned rgb[3], float ink[4])
{
    static const size_t strides[3] = {CMYK_GRID * CMYK_GRID, CMYK_GRID, 1};
    int order[3] = {0, 1, 2}; /* by part, the largest first */
    size_t at = 0;
    float part[3], before = 1;
    for (int c = 0; c < 3; c++) {
        const float place = (float)rgb[c] * ((CMYK_GRID - 1) / 65535.0f);
        const int node = place < CMYK_GRID - 1 ? (int)place : CMYK_GRID - 2;
        part[c] = place - (float)node;
        at += (size_t)node * strides[c];
        for (int k = c; k > 0 && part[order[k]] > part[order[k - 1]]; k--) {
            const int other = order[k];
            order[k] = order[k - 1];
            order[k - 1] = other;
        }
    }
    for (int k = 0; k < 4; k++)
        ink[k] = 0;
    for (int corner = 0; corner < 4; corner++) {
        const float next = corner < 3 ? part[order[corner]] : 0;
        for (int k = 0; k < 4; k++)
            ink[k] += (before - next) * (float)table->ink[at][k];
        before = next;
        at += corner < 3 ? strides[order[corner]] : 0;
    }
}

void cmyk_row(const struct image *image, int y, int bits, bool inverted, void *to)
{
    const struct cmyk_table *table = (const struct cmyk_table *)(const void *)image->cmyk.data;
    const size_t width = (size_t)image->width, first = 3 * width * (size_t)y;
    for (size_t x = 0; x < width; x++) {
        unsigned rgb[3];
        float ink[4];
        for (size_t c = 0; c < 3; c++)
            rgb[c] = image->bits == 16 ? ((const uint16_t *)image->pixels)[first + 3 * x + c]
                                       : ((const uint8_t *)image->pixels)[first + 3 * x + c] * 257u;
        cmyk_pixel(table, rgb, ink);
        for (size_t k = 0; k < 4; k++) {
            const float part = ink[k] < 0           ? 0
                               : ink[k] > CMYK_FULL ? 1
                                                    : ink[k] / CMYK_FULL,
                        value = 65535 * (inverted ? 1 - part : part);
            if (bits == 16)
                ((uint16_t *)to)[4 * x + k] = (uint16_t)(value + 0.5f);
            else
                ((uint8_t *)to)[4 * x + k] = (uint8_t)(value / 257 + 0.5f);
        }
    }
}
