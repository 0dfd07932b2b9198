#include "server/pipeline/licence.h"

#include <stdio.h>
#include <string.h>

#include "runtime/weights/weights.h"

bool licence_non_commercial(const char *name)
{
    static const char *const words[] = {"-nc-",           "-nc ",          "by-nc",         "by nc",
                                        "noncommercial",  "non-commercial", "non commercial", "not for commercial",
                                        "no commercial",  "personal use",  "research only", "research use",
                                        "research purposes", "s-lab"};
    const size_t n = strlen(name);
    if (n > 3 && !strcasecmp(name + n - 3, "-nc"))
        return true;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasestr(name, words[i]))
            return true;
    return false;
}

const char *licence_mark(const char *name)
{
    return licence_non_commercial(name) && !strcasestr(name, "non-commercial") ? " (non-commercial)" : "";
}

void licence_told(const struct weights *weights, char *out, size_t size)
{
    static const char *const keys[] = {"licence", "license", "modelspec.license"};
    const char *text = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !(text && *text); i++)
        text = weights_metadata(weights, keys[i]);
    snprintf(out, size, "%s", text ? text : "");
    for (char *p = out; *p; p++)
        *p = *p >= 0x20 && *p < 0x7f ? *p : '?';
}

const char *licence_of_network(const char *architecture)
{
    return strcmp(architecture, "CodeFormer") == 0 ? "S-Lab-1.0, non-commercial" : "";
}
