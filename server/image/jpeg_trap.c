#include "server/image/jpeg_trap.h"

#include <jerror.h>

static enum error_code jpeg_trap_code(int message)
{
    switch (message) {
    case JERR_OUT_OF_MEMORY:
        return ERROR_NO_MEMORY;
    case JERR_IMAGE_TOO_BIG:
        return ERROR_TOO_LARGE;
    case JERR_BAD_PRECISION:   /* 12 bit */
    case JERR_SOF_UNSUPPORTED: /* lossless, hierarchical */
    case JERR_ARITH_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
        return ERROR_UNSUPPORTED;
    default:
        return ERROR_CORRUPT;
    }
}

static _Noreturn void jpeg_trap_fail(j_common_ptr common, enum error_code code)
{
    struct jpeg_trap *trap = (struct jpeg_trap *)common->err;
    char text[JMSG_LENGTH_MAX];
    common->err->format_message(common, text);
    if (code == ERROR_CORRUPT) { /* libjpeg's messages mean little to the picture's owner */
        trap->code = error_set(trap->err, code, "the JPEG is damaged or cut short");
        error_detail(trap->err, "%s", text);
    } else {
        trap->code = error_set(trap->err, code, "%s: %s",
                               code == ERROR_UNSUPPORTED ? "this kind of JPEG is not supported" : "JPEG", text);
    }
    longjmp(trap->jump, 1);
}

static void jpeg_trap_error(j_common_ptr common)
{
    jpeg_trap_fail(common, jpeg_trap_code(common->err->msg_code));
}

static void jpeg_trap_keep(j_common_ptr common)
{
    struct jpeg_trap *trap = (struct jpeg_trap *)common->err;
    if (trap->damage || !common->is_decompressor)
        return;
    trap->damage = common->err->msg_code;
    trap->scan = ((j_decompress_ptr)common)->input_scan_number;
    trap->mcu_row = ((j_decompress_ptr)common)->input_iMCU_row;
}

/* libjpeg goes on after damage and paints gray; we do not, unless asked to. The warnings that we ignore lose no pixel:
 * stray bytes between markers (many cameras write them), an unusual version number or profile, odd but harmless scan
 * parameters. */
static void jpeg_trap_message(j_common_ptr common, int level)
{
    switch (common->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR:
    case JWRN_BOGUS_ICC:
    case JWRN_NOT_SEQUENTIAL:
        return;
    default:
        if (level < 0 && ((struct jpeg_trap *)common->err)->lenient)
            jpeg_trap_keep(common);
        else if (level < 0)
            jpeg_trap_fail(common, ERROR_CORRUPT);
    }
}

static void jpeg_trap_silent(j_common_ptr common)
{
    (void)common;
}

struct jpeg_error_mgr *jpeg_trap_set(struct jpeg_trap *trap, struct error *err)
{
    trap->err = err;
    trap->code = OK;
    trap->lenient = false;
    trap->damage = 0;
    jpeg_std_error(&trap->manager);
    trap->manager.error_exit = jpeg_trap_error;
    trap->manager.emit_message = jpeg_trap_message;
    trap->manager.output_message = jpeg_trap_silent;
    return &trap->manager;
}
