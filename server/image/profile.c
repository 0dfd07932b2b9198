#include "server/image/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "server/image/colour.h"
#include "server/image/icc.h"
#include "server/image/profile_private.h"

#ifdef RESTORED_LCMS

bool profile_known(void)
{
    return true;
}

static void profile_curve(const cmsToneCurve *curve, float out[COLOUR_STEPS])
{
    for (int i = 0; i < COLOUR_STEPS; i++)
        out[i] = cmsEvalToneCurveFloat(curve, (float)i / (COLOUR_STEPS - 1));
}

/* Y of a profile that maps gray to L*. */
static float profile_lightness(float l)
{
    const float f = (100 * l + 16) / 116;
    return f > 6.0f / 29 ? f * f * f : (f - 4.0f / 29) * 3 * (6.0f / 29) * (6.0f / 29);
}

/* false: the profile is not of that kind. */
static bool profile_model(cmsHPROFILE profile, struct colour *out)
{
    static const cmsTagSignature curves[] = {cmsSigRedTRCTag, cmsSigGreenTRCTag, cmsSigBlueTRCTag};
    static const cmsTagSignature colorants[] = {cmsSigRedColorantTag, cmsSigGreenColorantTag, cmsSigBlueColorantTag};
    if (out->channels == 1) {
        const cmsToneCurve *curve = cmsReadTag(profile, cmsSigGrayTRCTag);
        if (!curve)
            return false;
        profile_curve(curve, out->curve[0]);
        for (int i = 0; i < COLOUR_STEPS && cmsGetPCS(profile) == cmsSigLabData; i++)
            out->curve[0][i] = profile_lightness(out->curve[0][i]);
        return colour_complete(out);
    }
    if (!cmsIsMatrixShaper(profile))
        return false;
    for (int c = 0; c < 3; c++) {
        const cmsToneCurve *curve = cmsReadTag(profile, curves[c]);
        const cmsCIEXYZ *xyz = cmsReadTag(profile, colorants[c]);
        if (!curve || !xyz)
            return false;
        profile_curve(curve, out->curve[c]);
        for (int k = 0; k < 3; k++)
            out->matrix[3 * k + c] = (float)(colour_of_xyz[3 * k] * xyz->X + colour_of_xyz[3 * k + 1] * xyz->Y +
                                             colour_of_xyz[3 * k + 2] * xyz->Z);
    }
    return colour_complete(out);
}

static cmsHTRANSFORM profile_transform(cmsHPROFILE from, cmsUInt32Number in, cmsUInt32Number out)
{
    cmsHPROFILE srgb = cmsCreate_sRGBProfile();
    cmsHTRANSFORM transform =
        srgb ? cmsCreateTransform(from, in, srgb, out, INTENT_PERCEPTUAL, cmsFLAGS_NOCACHE) : NULL;
    if (srgb)
        cmsCloseProfile(srgb);
    return transform;
}

static void profile_drop(struct image *image, unsigned note)
{
    free(image->icc.data);
    image->icc = (struct image_blob){0};
    image->notes |= note;
}

/* A picture of RGB whose profile is of tables. */
static bool profile_convert(struct image *image, cmsHPROFILE profile)
{
    const cmsUInt32Number form = COLORSPACE_SH(PT_RGB) | CHANNELS_SH(3) | BYTES_SH((cmsUInt32Number)image->bits / 8);
    const size_t row = 3 * (size_t)image->width * (size_t)(image->bits / 8);
    cmsHTRANSFORM transform = profile_transform(profile, form, form);
    for (int y = 0; transform && y < image->height; y++) {
        uint8_t *at = (uint8_t *)image->pixels + (size_t)y * row;
        cmsDoTransform(transform, at, at, (cmsUInt32Number)image->width);
    }
    if (transform)
        cmsDeleteTransform(transform);
    return transform != NULL;
}

enum error_code profile_apply(struct image *image, struct error *err)
{
    enum error_code code = OK;
    if (!image->icc.data || (image->channels == 3 && icc_is_srgb(image->icc.data, image->icc.size)))
        return OK;
    cmsHPROFILE profile = cmsOpenProfileFromMem(image->icc.data, (cmsUInt32Number)image->icc.size);
    if (!profile) {
        profile_drop(image, IMAGE_NOTE_ICC_DAMAGED);
        return OK;
    }
    struct colour *model = mem_calloc(1, sizeof *model);
    if (!model) {
        code = error_set(err, ERROR_NO_MEMORY, "out of memory for a colour profile");
    } else if (cmsGetColorSpace(profile) != (image->channels == 1 ? cmsSigGrayData : cmsSigRgbData)) {
        profile_drop(image, IMAGE_NOTE_ICC_DROPPED);
    } else {
        model->channels = image->channels;
        if (profile_model(profile, model)) {
            if (!colour_is_srgb(model))
                code = image_blob_set(&image->colour, model, sizeof *model, err);
        } else if (image->channels == 3 && profile_convert(image, profile)) {
            profile_drop(image, IMAGE_NOTE_ICC_CONVERTED);
        } else {
            profile_drop(image, IMAGE_NOTE_ICC_DAMAGED);
        }
    }
    free(model);
    cmsCloseProfile(profile);
    return code;
}

enum error_code profile_save(cmsHPROFILE profile, struct image_blob *out, struct error *err)
{
    cmsUInt32Number size = 0;
    bool done = profile && cmsSaveProfileToMem(profile, NULL, &size) && (out->data = mem_alloc(size, 1)) &&
                cmsSaveProfileToMem(profile, out->data, &size);
    if (profile)
        cmsCloseProfile(profile);
    if (!done) {
        free(out->data);
        *out = (struct image_blob){0};
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a colour profile");
    }
    out->size = size;
    return OK;
}

enum error_code profile_srgb(struct image_blob *out, struct error *err)
{
    return profile_save(cmsCreate_sRGBProfile(), out, err);
}

static const double profile_srgb_xy[8] = {0.3127, 0.329, 0.64, 0.33, 0.3, 0.6, 0.15, 0.06};

enum error_code profile_of_primaries(struct image *image, const double xy[8], double gamma, struct error *err)
{
    static const cmsFloat64Number srgb[5] = {2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045};
    bool other = gamma != 0, sense = gamma >= 0 && gamma < 10;
    for (int i = 0; i < 8; i++) {
        other = other || fabs(xy[i] - profile_srgb_xy[i]) > 0.004;
        sense = sense && xy[i] >= -0.1 && xy[i] < 1.1 && (i % 2 == 0 || xy[i] > 1e-5); /* ProPhoto's blue is that low */
    }
    if (image->channels != 3 || image->icc.data || !other || !sense)
        return OK;
    const cmsCIExyY white = {xy[0], xy[1], 1};
    const cmsCIExyYTRIPLE primaries = {{xy[2], xy[3], 1}, {xy[4], xy[5], 1}, {xy[6], xy[7], 1}};
    cmsToneCurve *curve = gamma > 0 ? cmsBuildGamma(NULL, gamma) : cmsBuildParametricToneCurve(NULL, 4, srgb);
    cmsToneCurve *const curves[3] = {curve, curve, curve};
    cmsHPROFILE profile = curve ? cmsCreateRGBProfile(&white, &primaries, curves) : NULL;
    if (curve)
        cmsFreeToneCurve(curve);
    return profile ? profile_save(profile, &image->icc, err) : OK;
}

enum error_code profile_of_codes(struct image *image, unsigned primaries, unsigned transfer, struct error *err)
{
    static const double p3[8] = {0.3127, 0.329, 0.68, 0.32, 0.265, 0.69, 0.15, 0.06},
                        dci[8] = {0.314, 0.351, 0.68, 0.32, 0.265, 0.69, 0.15, 0.06},
                        bt2020[8] = {0.3127, 0.329, 0.708, 0.292, 0.17, 0.797, 0.131, 0.046};
    const double *xy = primaries == 12 ? p3 : primaries == 11 ? dci : primaries == 9 ? bt2020 : profile_srgb_xy;
    const double gamma = transfer == 4 ? 2.2 : transfer == 5 ? 2.8 : transfer == 8 ? 1 : transfer == 17 ? 2.6 : 0;
    if (transfer == 16 || transfer == 18) /* PQ, HLG */
        return OK;
    return profile_of_primaries(image, xy, gamma, err);
}

#else

enum error_code profile_of_primaries(struct image *image, const double xy[8], double gamma, struct error *err)
{
    (void)image;
    (void)xy;
    (void)gamma;
    (void)err;
    return OK;
}

enum error_code profile_of_codes(struct image *image, unsigned primaries, unsigned transfer, struct error *err)
{
    (void)image;
    (void)primaries;
    (void)transfer;
    (void)err;
    return OK;
}

bool profile_known(void)
{
    return false;
}

enum error_code profile_apply(struct image *image, struct error *err)
{
    (void)image;
    (void)err;
    return OK;
}

enum error_code profile_srgb(struct image_blob *out, struct error *err)
{
    (void)out;
    return error_set(err, ERROR_UNSUPPORTED, "profile: this build was made without lcms2");
}

#endif
