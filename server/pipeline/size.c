#include "server/pipeline/size.h"

#include <limits.h>
#include <math.h>

bool size_asked(const struct options *options)
{
    return options->width || options->height || options->max_side;
}

enum error_code size_check(const struct options *options, struct error *err)
{
    static const char *const fits[] = {"inside", "cover", "fill"};
    if (!size_asked(options))
        return options->fit ? error_set(err, ERROR_INVALID, "fit: %s needs width and height", fits[options->fit]) : OK;
    const char *name = options->width ? "width" : options->height ? "height" : "max_side";
    if (options->upscaled)
        return error_set(err, ERROR_INVALID, "upscale: it cannot be combined with %s, which decides the size, too",
                         name);
    if (options->max_side && (options->width || options->height))
        return error_set(err, ERROR_INVALID, "max_side: it cannot be combined with %s", name);
    if (options->fit && !(options->width && options->height))
        return error_set(err, ERROR_INVALID, "fit: %s needs width and height, and there is only %s", fits[options->fit],
                         name);
    if (options->compat || options->aligned)
        return error_set(err, ERROR_INVALID, "%s: it cannot be combined with %s=true", name,
                         options->compat ? "compat" : "aligned");
    return OK;
}

static int size_side(double side)
{
    return side < 1 ? 1 : (int)fmin(round(side), INT_MAX);
}

void size_of(const struct options *options, int width, int height, struct size *out)
{
    if (!size_asked(options)) {
        out->kept_width = out->width = (int)fmin(width * options->upscale, INT_MAX);
        out->kept_height = out->height = (int)fmin(height * options->upscale, INT_MAX);
        return;
    }
    const bool box = options->width && options->height;
    double x = (double)options->width / width, y = (double)options->height / height;
    if (options->max_side)
        x = y = (double)options->max_side / (width > height ? width : height);
    else if (!box)
        x = y = x > 0 ? x : y;
    else if (options->fit != FIT_FILL)
        x = y = options->fit == FIT_COVER ? fmax(x, y) : fmin(x, y);
    out->width = size_side(width * x);
    out->height = size_side(height * y);
    out->kept_width = box && options->fit == FIT_COVER ? options->width : out->width;
    out->kept_height = box && options->fit == FIT_COVER ? options->height : out->height;
}
