/* Checkpoints that look like one of the families but are not, or lie about their sizes: each is refused, at once, and
 * the text says why. They are made of the files of tests/golden/families, with something in the header replaced. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "runtime/models/model.h"

/* The file with each `from` of its header replaced by `to`, which says where tensors lie as before. */
static uint8_t *changed(const char *name, const char *from, const char *to, size_t *size)
{
    struct error err = ERROR_INIT;
    struct file file;
    char path[256];
    int found = 0;
    snprintf(path, sizeof path, "tests/golden/families/%s.safetensors", name);
    assert_int_equal(file_map(&file, path, &err), OK);
    const uint8_t *bytes = file.data;
    uint64_t header = 0, made = 0;
    for (int i = 0; i < 8; i++)
        header |= (uint64_t)bytes[i] << 8 * i;
    uint8_t *out = malloc(file.size + 4096);
    assert_non_null(out);
    for (uint64_t i = 0; i < header;)
        if (strncmp((const char *)bytes + 8 + i, from, strlen(from)) == 0) {
            memcpy(out + 8 + made, to, strlen(to));
            made += strlen(to);
            i += strlen(from);
            found++;
            assert_true(made < header + 4096);
        } else {
            out[8 + made++] = bytes[8 + i++];
        }
    assert_true(found > 0);
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)(made >> 8 * i);
    memcpy(out + 8 + made, bytes + 8 + header, file.size - 8 - header);
    *size = file.size + made - header;
    file_unmap(&file);
    return out;
}

static void they_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *from, *to;
        enum error_code code;
        const char *why;
    } cases[] = {
        /* the VQGAN that RestoreFormer is made of has one norm in its attention */
        {"restoreformer", "attn_1.norm2", "attn_1.other", ERROR_UNSUPPORTED, "not a network that we know"},
        /* a chain of convolutions with slopes between them */
        {"dncnn", "golden.in", "model.1.weight", ERROR_UNSUPPORTED, "with slopes (PReLU)"},
        {"codeformer", "in_proj_bias", "in_proj_other", ERROR_CORRUPT, "in_proj_bias is missing"},
        {"codeformer", "\"position_emb\":{\"dtype\":\"F16\",\"shape\":[256,32]",
         "\"position_emb\":{\"dtype\":\"F16\",\"shape\":[256,16,2]", ERROR_CORRUPT,
         "position_emb is missing or of another size"},
        {"plksr_x2_dysample", "end_conv.weight", "other.weight", ERROR_CORRUPT, "to_img.end_conv.weight is missing"},
        {"plksr_x2", "\"feats.4.", "\"feats.99999999.", ERROR_CORRUPT,
         "2 blocks that ends in feats.99999999, not in feats.4"},
        {"plksr_x2", "feats.1.lk.conv.weight\":{\"dtype\":\"F16\",\"shape\":[2,2,17,17]",
         "feats.1.lk.conv.weight\":{\"dtype\":\"F16\",\"shape\":[1,1,1156,1]", ERROR_UNSUPPORTED, "kernels of 1156 px"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err = ERROR_INIT;
        struct model *model;
        size_t size;
        uint8_t *bytes = changed(cases[i].name, cases[i].from, cases[i].to, &size);
        const enum error_code code = model_open_memory(&model, "mine", bytes, size, NULL, &err);
        if (code != cases[i].code || !strstr(err.text, cases[i].why))
            fail_msg("case %zu: %d: %s", i, (int)code, err.text);
        model_close(&model);
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(they_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
