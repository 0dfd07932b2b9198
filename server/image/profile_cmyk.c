/* The table of cmyk.h, made from a picture's profile; and its inks read as 16 bits of a wide RGB. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "server/image/cmyk.h"
#include "server/image/profile.h"
#include "server/image/profile_private.h"

#ifdef RESTORED_LCMS

#define CMYK_PROFILE_MOST ((size_t)16 << 20) /* bytes of a profile that goes into the result */
#define CMYK_STEPS 6                         /* of Newton's method, for each node */
#define CMYK_NEAR 0.03                       /* ink by which slopes are measured */
#define CMYK_STEP_MOST 0.25                  /* ink that a step changes at most */
#define CMYK_BEYOND 0.4                      /* ink beyond none and beyond full at most */
#define CMYK_DAMPING 2e-5                    /* of a step where inks change little */
#define CMYK_TURNS 4                         /* towards the inks that are least beyond what there is */
#define CMYK_FLAT 1e-12
#define CMYK_OUTSIDE 0.12 /* a node that is this far from what inks can do is the profile's matter */
#define CMYK_UNIT (COLORSPACE_SH(PT_CMYK) | CHANNELS_SH(4) | BYTES_SH(2))

struct profile {
    cmsHTRANSFORM transform;
};

/* An RGB that is wide enough for all inks, with L*'s curve, whose steps look equal. The primaries are eciRGB's, which
 * was made to hold what is printed. */
static cmsHPROFILE cmyk_wide(void)
{
    static const cmsFloat64Number lightness[5] = {3, 100.0 / 116, 16.0 / 116, 27.0 * 100 / 24389, 0.08};
    const cmsCIExyY white = {0.3457, 0.3585, 1};
    const cmsCIExyYTRIPLE primaries = {{0.67, 0.33, 1}, {0.21, 0.71, 1}, {0.14, 0.08, 1}};
    cmsToneCurve *curve = cmsBuildParametricToneCurve(NULL, 4, lightness);
    cmsToneCurve *const curves[3] = {curve, curve, curve};
    cmsHPROFILE profile = curve ? cmsCreateRGBProfile(&white, &primaries, curves) : NULL;
    if (curve)
        cmsFreeToneCurve(curve);
    return profile;
}

/* ---- the way back ------------------------------------------------------------------------------------------------ */

/* A row of the table's nodes. */
struct cmyk_nodes {
    cmsHTRANSFORM look, back; /* inks to the wide RGB, and where to begin */
    uint16_t rgb[CMYK_GRID][3];
    double ink[CMYK_GRID][4];
    uint16_t inks[5][CMYK_GRID][4], seen[5][CMYK_GRID][3]; /* at the nodes' inks, and with more or less of each */
};

static double cmyk_within(double value, double least, double most)
{
    return value < least ? least : value > most ? most : value;
}

static double cmyk_near(double ink)
{
    return ink + CMYK_NEAR > 1 ? -CMYK_NEAR : CMYK_NEAR;
}

static void cmyk_see(struct cmyk_nodes *nodes, int count)
{
    for (int side = 0; side < count; side++)
        for (int i = 0; i < CMYK_GRID; i++)
            for (int k = 0; k < 4; k++) {
                const double ink = cmyk_within(nodes->ink[i][k], 0, 1);
                nodes->inks[side][i][k] = (uint16_t)((ink + (side == k + 1 ? cmyk_near(ink) : 0)) * 65535 + 0.5);
            }
    cmsDoTransform(nodes->look, nodes->inks, nodes->seen, (cmsUInt32Number)(CMYK_GRID * count));
}

/* Solves a x = b for a symmetric a, of three; false: it cannot be. */
static bool cmyk_solve(const double a[3][3], const double b[3], double x[3])
{
    const double c0 = a[1][1] * a[2][2] - a[1][2] * a[2][1], c1 = a[1][2] * a[2][0] - a[1][0] * a[2][2],
                 c2 = a[1][0] * a[2][1] - a[1][1] * a[2][0], det = a[0][0] * c0 + a[0][1] * c1 + a[0][2] * c2;
    if (!(fabs(det) > 1e-18))
        return false;
    x[0] =
        (b[0] * c0 + b[1] * (a[0][2] * a[2][1] - a[0][1] * a[2][2]) + b[2] * (a[0][1] * a[1][2] - a[0][2] * a[1][1])) /
        det;
    x[1] =
        (b[0] * c1 + b[1] * (a[0][0] * a[2][2] - a[0][2] * a[2][0]) + b[2] * (a[0][2] * a[1][0] - a[0][0] * a[1][2])) /
        det;
    x[2] =
        (b[0] * c2 + b[1] * (a[0][1] * a[2][0] - a[0][0] * a[2][1]) + b[2] * (a[0][0] * a[1][1] - a[0][1] * a[1][0])) /
        det;
    return true;
}

/* Four inks make three channels, so there is a line of inks that look the same. If some are beyond none or full, the
 * node moves on it to where they are least so (least squares): an ink below none cannot be printed, but those that make
 * up for it would. */
static void cmyk_return(const double slope[3][4], double ink[4])
{
    double along[4], by = 0;
    for (int k = 0; k < 4; k++) {
        const int a = k == 0, b = k <= 1 ? 2 : 1, c = k <= 2 ? 3 : 2;
        along[k] = (k & 1 ? -1 : 1) * (slope[0][a] * (slope[1][b] * slope[2][c] - slope[1][c] * slope[2][b]) -
                                       slope[0][b] * (slope[1][a] * slope[2][c] - slope[1][c] * slope[2][a]) +
                                       slope[0][c] * (slope[1][a] * slope[2][b] - slope[1][b] * slope[2][a]));
    }
    for (int turn = 0; turn < CMYK_TURNS; turn++) {
        double first = 0, second = 0;
        for (int k = 0; k < 4; k++) {
            const double value = ink[k] + by * along[k], beyond = value - cmyk_within(value, 0, 1);
            first += beyond * along[k];
            second += beyond != 0 ? along[k] * along[k] : 0;
        }
        if (!(second > CMYK_FLAT))
            break;
        by -= first / second;
    }
    for (int k = 0; k < 4; k++)
        ink[k] = cmyk_within(ink[k] + by * along[k], -CMYK_BEYOND, 1 + CMYK_BEYOND);
}

/* One step of a node: the least change of its inks that should give its colour. Beyond none and full ink the look goes
 * on as a plane, so that what lies between a node inside of what inks can do and one outside is right, too. */
static void cmyk_step(struct cmyk_nodes *nodes, int i)
{
    double slope[3][4], missing[3], square[3][3], by[3], *ink = nodes->ink[i];
    for (int c = 0; c < 3; c++) {
        missing[c] = ((double)nodes->rgb[i][c] - nodes->seen[0][i][c]) / 65535;
        for (int k = 0; k < 4; k++) {
            const double at = cmyk_within(ink[k], 0, 1);
            slope[c][k] = ((double)nodes->seen[k + 1][i][c] - nodes->seen[0][i][c]) / 65535 / cmyk_near(at);
            missing[c] -= slope[c][k] * (ink[k] - at);
        }
    }
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) {
            square[a][b] = a == b ? CMYK_DAMPING : 0;
            for (int k = 0; k < 4; k++)
                square[a][b] += slope[a][k] * slope[b][k];
        }
    if (!cmyk_solve(square, missing, by))
        return;
    for (int k = 0; k < 4; k++) {
        const double change = slope[0][k] * by[0] + slope[1][k] * by[1] + slope[2][k] * by[2];
        ink[k] =
            cmyk_within(ink[k] + cmyk_within(change, -CMYK_STEP_MOST, CMYK_STEP_MOST), -CMYK_BEYOND, 1 + CMYK_BEYOND);
    }
    cmyk_return(slope, ink);
}

static void cmyk_fill_row(struct cmyk_nodes *nodes, int16_t (*to)[4])
{
    uint16_t start[CMYK_GRID][4];
    cmsDoTransform(nodes->back, nodes->rgb, start, CMYK_GRID);
    for (int i = 0; i < CMYK_GRID; i++)
        for (int k = 0; k < 4; k++)
            nodes->ink[i][k] = start[i][k] / 65535.0;
    for (int step = 0; step < CMYK_STEPS; step++) {
        cmyk_see(nodes, 5);
        for (int i = 0; i < CMYK_GRID; i++)
            cmyk_step(nodes, i);
    }
    cmyk_see(nodes, 1);
    for (int i = 0; i < CMYK_GRID; i++) {
        double off = 0;
        for (int c = 0; c < 3; c++)
            off = fmax(off, fabs((double)nodes->rgb[i][c] - nodes->seen[0][i][c]) / 65535);
        for (int k = 0; k < 4; k++)
            to[i][k] = (int16_t)lrint((off < CMYK_OUTSIDE ? nodes->ink[i][k] : start[i][k] / 65535.0) * CMYK_FULL);
    }
}

static int cmyk_apart = 1;

void profile_cmyk_sparse(int apart)
{
    cmyk_apart = apart;
}

static void cmyk_fill(struct cmyk_table *table, struct cmyk_nodes *nodes)
{
    uint16_t place[CMYK_GRID];
    for (int i = 0; i < CMYK_GRID; i++)
        place[i] = (uint16_t)((i * 65535 + (CMYK_GRID - 1) / 2) / (CMYK_GRID - 1));
    for (int r = 0; r < CMYK_GRID; r += cmyk_apart)
        for (int g = 0; g < CMYK_GRID; g += cmyk_apart) {
            for (int b = 0; b < CMYK_GRID; b++) {
                nodes->rgb[b][0] = place[r];
                nodes->rgb[b][1] = place[g];
                nodes->rgb[b][2] = place[b];
            }
            cmyk_fill_row(nodes, &table->ink[(r * CMYK_GRID + g) * CMYK_GRID]);
        }
}

/* ---- a profile --------------------------------------------------------------------------------------------------- */

static cmsHTRANSFORM cmyk_transform(cmsHPROFILE from, cmsUInt32Number in, cmsHPROFILE to, cmsUInt32Number out)
{
    return from && to ? cmsCreateTransform(from, in, to, out, INTENT_PERCEPTUAL, cmsFLAGS_NOCACHE) : NULL;
}

/* The table, with the profile behind it. */
static enum error_code cmyk_table_make(struct image_blob *out, cmsHPROFILE profile, cmsHPROFILE wide, const void *icc,
                                       size_t size, int bits, struct error *err)
{
    struct cmyk_table *table = mem_calloc(1, sizeof *table + size); /* rows that are not made are without ink */
    struct cmyk_nodes *nodes = mem_alloc(1, sizeof *nodes);
    enum error_code code = table && nodes ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for a colour profile");
    if (code == OK) {
        table->bits = bits;
        nodes->look = cmyk_transform(profile, CMYK_UNIT, wide, TYPE_RGB_16);
        nodes->back = cmyk_transform(wide, TYPE_RGB_16, profile, CMYK_UNIT);
        if (nodes->look && nodes->back) {
            cmyk_fill(table, nodes);
            memcpy(table + 1, icc, size);
            *out = (struct image_blob){(uint8_t *)table, sizeof *table + size};
            table = NULL;
        }
        if (nodes->look)
            cmsDeleteTransform(nodes->look);
        if (nodes->back)
            cmsDeleteTransform(nodes->back);
    }
    free(table);
    free(nodes);
    return code;
}

/* What makes a picture of wide colours; nothing is set if the profile does not work both ways. */
static enum error_code cmyk_make_wide(struct profile_cmyk *out, cmsHPROFILE profile, const void *icc, size_t size,
                                      int bits, struct error *err)
{
    if (size > CMYK_PROFILE_MOST || !cmsIsIntentSupported(profile, INTENT_PERCEPTUAL, LCMS_USED_AS_OUTPUT))
        return OK;
    cmsHPROFILE wide = cmyk_wide();
    enum error_code code = OK;
    if (wide)
        code = cmyk_table_make(&out->cmyk, profile, wide, icc, size, bits, err);
    if (code == OK && out->cmyk.data) {
        out->wide = true;
        code = profile_save(wide, &out->icc, err);
    } else if (wide) {
        cmsCloseProfile(wide);
    }
    return code;
}

enum error_code profile_cmyk_open(struct profile_cmyk *out, const void *icc, size_t size,
                                  const struct profile_inks *inks, struct error *err)
{
    cmsHPROFILE from = size <= UINT32_MAX ? cmsOpenProfileFromMem(icc, (cmsUInt32Number)size) : NULL;
    enum error_code code = OK;
    *out = (struct profile_cmyk){.profile = NULL};
    if (from && cmsGetColorSpace(from) == cmsSigCmykData) {
        code = inks->back ? cmyk_make_wide(out, from, icc, size, inks->bits, err) : OK;
        out->profile = code == OK ? mem_calloc(1, sizeof *out->profile) : NULL;
        if (code == OK && !out->profile)
            code = error_set(err, ERROR_NO_MEMORY, "out of memory for a colour profile");
    }
    if (out->profile) {
        const cmsUInt32Number bytes = BYTES_SH((cmsUInt32Number)inks->bits / 8);
        cmsHPROFILE to = out->wide ? cmyk_wide() : cmsCreate_sRGBProfile();
        out->profile->transform =
            cmyk_transform(from,
                           COLORSPACE_SH(PT_CMYK) | CHANNELS_SH(4) | bytes | EXTRA_SH((cmsUInt32Number)inks->extra) |
                               FLAVOR_SH(inks->inverted ? 1u : 0u),
                           to, COLORSPACE_SH(PT_RGB) | CHANNELS_SH(3) | (out->wide ? BYTES_SH(2) : bytes));
        if (to)
            cmsCloseProfile(to);
    }
    if (from)
        cmsCloseProfile(from);
    if (code != OK || (out->profile && !out->profile->transform))
        profile_cmyk_close(out);
    return code;
}

void profile_cmyk_row(const struct profile_cmyk *cmyk, const void *from, void *to, int pixels)
{
    cmsDoTransform(cmyk->profile->transform, from, to, (cmsUInt32Number)pixels);
}

void profile_cmyk_close(struct profile_cmyk *cmyk)
{
    if (cmyk->profile && cmyk->profile->transform)
        cmsDeleteTransform(cmyk->profile->transform);
    free(cmyk->profile);
    free(cmyk->icc.data);
    free(cmyk->cmyk.data);
    *cmyk = (struct profile_cmyk){.profile = NULL};
}

#else

enum error_code profile_cmyk_open(struct profile_cmyk *out, const void *icc, size_t size,
                                  const struct profile_inks *inks, struct error *err)
{
    (void)icc;
    (void)size;
    (void)inks;
    (void)err;
    *out = (struct profile_cmyk){.profile = NULL};
    return OK;
}

void profile_cmyk_row(const struct profile_cmyk *cmyk, const void *from, void *to, int pixels)
{
    (void)cmyk;
    (void)from;
    (void)to;
    (void)pixels;
}

void profile_cmyk_close(struct profile_cmyk *cmyk)
{
    (void)cmyk;
}

void profile_cmyk_sparse(int apart)
{
    (void)apart;
}

#endif

void profile_cmyk_apply(struct profile_cmyk *cmyk, struct image *image)
{
    free(image->icc.data);
    free(image->cmyk.data);
    image->icc = cmyk->icc;
    image->cmyk = cmyk->cmyk;
    cmyk->icc = cmyk->cmyk = (struct image_blob){0};
    image->notes |= cmyk->profile ? IMAGE_NOTE_CMYK_PROFILE : IMAGE_NOTE_CMYK;
}
