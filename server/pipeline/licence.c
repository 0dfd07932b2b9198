#include "server/pipeline/licence.h"

#include <string.h>

bool licence_non_commercial(const char *name)
{
    static const char *const words[] = {"-nc-",           "-nc ",           "by-nc", "by nc",        "noncommercial",
                                        "non-commercial", "non commercial", "s-lab", "research only"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasestr(name, words[i]))
            return true;
    return false;
}

const char *licence_mark(const char *name)
{
    return licence_non_commercial(name) && !strcasestr(name, "non-commercial") ? " (non-commercial)" : "";
}

const char *licence_of_network(const char *architecture)
{
    return strcmp(architecture, "CodeFormer") == 0 ? "S-Lab-1.0, non-commercial" : "";
}
