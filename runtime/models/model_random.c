#include "runtime/models/model_random.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/models/random_networks.h"

const struct model_random model_randoms[] = {
    {"rrdbnet_x4", "RealESRGAN_x4plus", 128, 128},
    {"rrdbnet_x2", "RealESRGAN_x2plus", 128, 128},
    {"rrdbnet_x4_6b", "RealESRGAN_x4plus_anime_6B", 128, 128},
    {"srvgg_x4_32", "realesr-general-x4v3", 128, 128},
    {"srvgg_x4_16", "realesr-animevideov3", 256, 256},
    {"gfpgan", "GFPGANv1.3", 512, 512},
    {"gfpgan_v1", "GFPGANv1", 512, 512},
    {"restoreformer", "RestoreFormer", 512, 512},
    {"restoreformer_plus", "RestoreFormer++", 512, 512},
    {"codeformer", "CodeFormer, w 0.5", 512, 512},
    {"retinaface_r50", "detection_Resnet50_Final", 640, 640},
    {"retinaface_mobilenet", "detection_mobilenet0.25_Final", 640, 640},
    {"parsenet", "parsing_parsenet", 512, 512},
    {"span_x4", "4x-spanx4-ch48", 128, 128},
    {"plksr_x4", "4xNomosWebPhoto_RealPLKSR", 64, 64},
    {"cugan_x2", "Real-CUGAN up2x", 128, 128},
    {"dncnn", "dncnn_color_blind", 128, 128},
    {"drunet", "drunet_color", 128, 128},
    {"fbcnn", "fbcnn_color", 128, 128},
};
const int model_random_count = sizeof model_randoms / sizeof model_randoms[0];

static bool random_list(struct random_file *f, const char *name)
{
    if (!strcmp(name, "rrdbnet_x4"))
        random_rrdbnet(f, 4, 23);
    else if (!strcmp(name, "rrdbnet_x2"))
        random_rrdbnet(f, 2, 23);
    else if (!strcmp(name, "rrdbnet_x4_6b"))
        random_rrdbnet(f, 4, 6);
    else if (!strcmp(name, "srvgg_x4_32"))
        random_srvgg(f, 4, 32);
    else if (!strcmp(name, "srvgg_x4_16"))
        random_srvgg(f, 4, 16);
    else if (!strcmp(name, "gfpgan"))
        random_gfpgan(f);
    else if (!strcmp(name, "gfpgan_v1"))
        random_gfpgan_original(f);
    else if (!strcmp(name, "restoreformer") || !strcmp(name, "restoreformer_plus"))
        random_restoreformer(f, strcmp(name, "restoreformer") != 0);
    else if (!strcmp(name, "codeformer"))
        random_codeformer(f);
    else if (!strcmp(name, "retinaface_r50"))
        random_resnet50(f);
    else if (!strcmp(name, "retinaface_mobilenet"))
        random_mobilenet(f);
    else if (!strcmp(name, "parsenet"))
        random_parsenet(f);
    else if (!strcmp(name, "span_x4"))
        random_span(f);
    else if (!strcmp(name, "plksr_x4"))
        random_plksr(f);
    else if (!strcmp(name, "cugan_x2"))
        random_cugan(f);
    else if (!strcmp(name, "dncnn"))
        random_dncnn(f);
    else if (!strcmp(name, "drunet") || !strcmp(name, "fbcnn"))
        random_restorer(f, !strcmp(name, "fbcnn"));
    return f->count > 0;
}

enum error_code model_random_file(const char *name, uint8_t **bytes, size_t *size, struct error *err)
{
    struct random_file *f = mem_calloc(1, sizeof *f);
    *bytes = NULL;
    *size = 0;
    if (!f)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for random weights");
    enum error_code code = OK;
    if (random_list(f, name))
        code = random_write(f, bytes, size, err);
    else
        code = error_set(err, ERROR_NOT_FOUND, "there is no built-in network \"%s\"", name);
    free(f);
    return code;
}
