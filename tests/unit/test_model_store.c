/* The model store on folders made here of the fixtures' checkpoints: what is found, what stands for what, what is said
 * of the missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "server/pipeline/model_store_private.h"
#include "tests/common/models.h"
#include "tests/common/shared.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR);
    snprintf(folder, sizeof folder, "/tmp/test_model_store.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* A link in the folder to a fixture checkpoint. */
static void put(const char *fixture, const char *name)
{
    char from[512], to[512], *absolute;
    snprintf(from, sizeof from, "%s/%s.safetensors", shared_fixtures(), fixture);
    snprintf(to, sizeof to, "%s/%s", folder, name);
    absolute = realpath(from, NULL);
    if (!absolute)
        fail_msg("%s is not there: make fixtures", from);
    if (symlink(absolute, to) != 0)
        fail_msg("%s: cannot be made", to);
    free(absolute);
}

static void put_folder(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0777), 0);
}

static void refuse(const struct model_store *store, enum model_role role, const char *wanted, enum error_code code,
                   const char *const *says)
{
    const struct model_entry *entry;
    struct error err = ERROR_INIT;
    assert_int_equal(model_store_resolve(store, role, wanted, &entry, &err), code);
    assert_null(entry);
    for (; *says; says++)
        if (!strstr(err.text, *says))
            fail_msg("\"%s\" does not say \"%s\"", err.text, *says);
}
#define SAYS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_empty(void **state)
{
    (void)state;
    struct model_store *store = models_of(folder, NULL);
    struct error err = ERROR_INIT;
    const struct model_missing *missing;
    assert_int_equal(model_store_count(store), 0);
    assert_int_equal(model_store_ready(store, &err), ERROR_NOT_FOUND);
    refuse(store, ROLE_FACE, NULL, ERROR_NOT_FOUND, SAYS("GFPGANv1.3.pth", folder, "restored models get default"));
    refuse(store, ROLE_DETECTOR, "", ERROR_NOT_FOUND,
           SAYS("detection_Resnet50_Final.pth", folder, "restored models get default"));
    assert_null(models_resolve(store, ROLE_PARSER, NULL));
    assert_null(models_resolve(store, ROLE_UPSCALER, NULL));
    assert_null(models_resolve(store, ROLE_UPSCALER, "none"));
    assert_null(models_resolve(store, ROLE_FACE, "none"));
    refuse(store, ROLE_DETECTOR, "none", ERROR_INVALID, SAYS("detector"));
    refuse(store, ROLE_FACE, "1.4", ERROR_INVALID,
           SAYS("version", "1.4", "GFPGANv1.4.pth", folder, "restored models get GFPGANv1.4"));
    refuse(store, ROLE_FACE, "nobody", ERROR_INVALID, SAYS("version: nobody", "nobody.pth", folder));
    refuse(store, ROLE_FACE, "1", ERROR_INVALID, SAYS("GFPGANv1.pth", folder, "restored models get GFPGANv1"));
    refuse(store, ROLE_FACE, "RestoreFormer", ERROR_INVALID, SAYS("RestoreFormer.pth", folder));
    refuse(store, ROLE_FACE, "CodeFormer", ERROR_INVALID, SAYS("codeformer.pth", folder, "put your own file there"));
    refuse(store, ROLE_FACE, "RealESRGAN_x2plus", ERROR_INVALID, SAYS("is not a face network"));
    size_t count = model_store_missing(store, &missing);
    bool default_face = false;
    for (size_t i = 0; i < count; i++) {
        default_face = default_face ||
                       (strcmp(missing[i].name, "GFPGANv1.3") == 0 && strcmp(missing[i].file, "GFPGANv1.3.pth") == 0 &&
                        strcmp(missing[i].get, "restored models get default") == 0);
    }
    assert_true(default_face);
    model_store_destroy(&store);
    assert_null(store);
}

static void test_official_names(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    put("face", "GFPGANv1.4.safetensors");
    put_folder("official");
    put("detector", "official/detection_mobilenet0.25_Final.safetensors");
    put("parser", "official/parsing_parsenet.safetensors");
    put("upscaler", "official/RealESRGAN_x4plus.safetensors");
    put("srvgg_x2", "other.safetensors");
    struct model_store *store = models_of(folder, NULL);
    assert_int_equal(model_store_count(store), 5);
    if (model_store_ready(store, &err))
        fail_msg("%s", err.text);
    /* the default files are not there, other official ones are */
    assert_string_equal(models_resolve(store, ROLE_FACE, NULL)->name, "GFPGANv1.4");
    assert_string_equal(models_resolve(store, ROLE_DETECTOR, "")->name, "detection_mobilenet0.25_Final");
    assert_string_equal(models_resolve(store, ROLE_DETECTOR, "mobilenet0.25")->name, "detection_mobilenet0.25_Final");
    assert_string_equal(models_resolve(store, ROLE_PARSER, NULL)->name, "parsing_parsenet");
    assert_string_equal(models_resolve(store, ROLE_UPSCALER, NULL)->name, "RealESRGAN_x4plus");
    assert_string_equal(models_resolve(store, ROLE_FACE, "1.4")->name, "GFPGANv1.4");
    assert_string_equal(models_resolve(store, ROLE_FACE, "GFPGANv1.4.pth")->name, "GFPGANv1.4");
    /* a file that is none of these is used only when named */
    assert_string_equal(models_resolve(store, ROLE_UPSCALER, "other")->name, "other");
    refuse(store, ROLE_UPSCALER, "realesrgan", ERROR_INVALID,
           SAYS("RealESRGAN_x2plus.pth", "restored models get default"));
    refuse(store, ROLE_FACE, "other", ERROR_INVALID, SAYS("other is not a face network but an upscaler"));
    for (size_t i = 0; i < model_store_count(store); i++) {
        const struct model_entry *e = model_store_at(store, i);
        assert_true(e->recognised);
        assert_int_equal(e->is_default, strcmp(e->name, "other") != 0);
        assert_string_equal(e->sha256, "");
        assert_string_equal(e->known_as, ""); /* of another size than the official file */
    }
    model_store_destroy(&store);
}

static void test_configured(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    put("face", "GFPGANv1.3.safetensors");
    put("face", "mine.safetensors");
    put("detector", "finder.pt"); /* the bytes decide what a file is */
    struct model_defaults defaults = {.name = {"finder", "mine.safetensors", NULL, "none"}};
    struct model_store *store = models_of(folder, &defaults);
    assert_string_equal(models_resolve(store, ROLE_FACE, NULL)->name, "mine");
    assert_string_equal(models_resolve(store, ROLE_FACE, "1.3")->name, "GFPGANv1.3");
    assert_string_equal(models_resolve(store, ROLE_DETECTOR, NULL)->name, "finder");
    assert_null(models_resolve(store, ROLE_UPSCALER, NULL));
    model_store_destroy(&store);
    defaults.name[ROLE_UPSCALER] = "gone";
    store = models_of(folder, &defaults);
    refuse(store, ROLE_UPSCALER, NULL, ERROR_NOT_FOUND, SAYS("default_bg_upsampler: gone", folder));
    assert_int_equal(model_store_ready(store, &err), ERROR_NOT_FOUND);
    model_store_destroy(&store);
    defaults.name[ROLE_UPSCALER] = "mine"; /* it is the configuration that is wrong, not the request */
    store = models_of(folder, &defaults);
    refuse(store, ROLE_UPSCALER, NULL, ERROR_NOT_FOUND,
           SAYS("default_bg_upsampler: mine is not an upscaler but a face network"));
    model_store_destroy(&store);
}

static void test_odd_folders(void **state)
{
    (void)state;
    char path[512];
    struct error err = ERROR_INIT;
    put_folder("a");
    put_folder("a/b");
    put("srvgg_x2", "a/b/deep.safetensors");
    put("srvgg_x4", "a/twin.safetensors");
    put("srvgg_x1", "twin.safetensors"); /* nearer the top: this one counts */
    snprintf(path, sizeof path, "%s/a/b/loop", folder);
    assert_int_equal(symlink("../..", path), 0);
    snprintf(path, sizeof path, "%s/readme.txt", folder);
    assert_int_equal(file_write(path, "x", 1, &err), OK);
    snprintf(path, sizeof path, "%s/broken.pth", folder);
    assert_int_equal(file_write(path, "not a checkpoint", 16, &err), OK);
    snprintf(path, sizeof path, "%s/GFPGANv1.3.pth", folder); /* a download cut short */
    assert_int_equal(file_write(path, "PK\3\4", 4, &err), OK);
    struct model_store *store = models_of(folder, NULL);
    assert_int_equal(model_store_count(store), 4);
    assert_string_equal(models_resolve(store, ROLE_UPSCALER, "deep")->name, "deep");
    assert_int_equal(models_resolve(store, ROLE_UPSCALER, "deep")->info.scale, 2);
    assert_int_equal(models_resolve(store, ROLE_UPSCALER, "twin")->info.scale, 1);
    refuse(store, ROLE_UPSCALER, "broken", ERROR_INVALID, SAYS("broken cannot be used"));
    refuse(store, ROLE_FACE, NULL, ERROR_NOT_FOUND, SAYS("GFPGANv1.3.pth", "cannot be used"));
    /* where it lies is for people at this machine */
    for (int i = 0; i < 2; i++) {
        const struct model_entry *entry;
        error_clear(&err);
        assert_int_not_equal(
            model_store_resolve(store, i ? ROLE_FACE : ROLE_UPSCALER, i ? NULL : "broken", &entry, &err), OK);
        const char *place = strstr(err.text, folder);
        assert_non_null(place);
        assert_true(err.local > 0 && place >= err.text + err.local);
    }
    model_store_destroy(&store);
}

/* A copy of a fixture checkpoint under this name; `wrong`: with one tensor's name misspelt, so that all that a header
 * can say of a damaged file is wrong with it. */
static void put_copy(const char *fixture, const char *name, bool wrong)
{
    char from[512], to[512], new[512];
    struct file file;
    struct error err = ERROR_INIT;
    snprintf(from, sizeof from, "%s/%s.safetensors", shared_fixtures(), fixture);
    snprintf(to, sizeof to, "%s/%s", folder, name);
    snprintf(new, sizeof new, "%s/.new", folder);
    if (file_map(&file, from, &err))
        fail_msg("%s", err.text);
    uint8_t *bytes = malloc(file.size);
    assert_non_null(bytes);
    memcpy(bytes, file.data, file.size);
    uint8_t *bias = memmem(bytes, file.size, "conv2.bias\"", strlen("conv2.bias\""));
    assert_non_null(bias);
    if (wrong)
        memcpy(bias, "conv2.bios", strlen("conv2.bios"));
    assert_int_equal(file_write(new, bytes, file.size, &err), OK);
    assert_int_equal(rename(new, to), 0);
    free(bytes);
    file_unmap(&file);
}

static void test_damaged(void **state)
{
    (void)state;
    put_copy("upscaler", "RealESRGAN_x2plus.safetensors", true);
    put_copy("rrdb_x4", "RealESRGAN_x4plus.safetensors", false);
    put_copy("rrdb_x4", "mine.safetensors", true);
    struct model_store *store = models_of(folder, NULL);
    assert_int_equal(model_store_count(store), 3);
    /* the official default is damaged: another official file takes its place */
    assert_string_equal(models_resolve(store, ROLE_UPSCALER, NULL)->name, "RealESRGAN_x4plus");
    refuse(store, ROLE_UPSCALER, "mine", ERROR_INVALID,
           SAYS("bg_upsampler: mine cannot be used: mine.safetensors: RRDBNet: tensor ", "conv2.bias is missing"));
    for (size_t i = 0; i < 3; i++) {
        const struct model_entry *e = model_store_at(store, i);
        const char *why = model_store_unread(e);
        assert_int_equal(why == NULL, strcmp(e->name, "RealESRGAN_x4plus") == 0);
        if (why && strncmp(why, "RRDBNet: tensor ", strlen("RRDBNet: tensor ")) != 0)
            fail_msg("%s", why);
    }
    put_copy("rrdb_x4", "mine.safetensors", false);
    const struct model_entry *mine = NULL;
    struct error err = ERROR_INIT;
    for (int i = 0; i < 1200 && !mine; i++, usleep(50000)) { /* the store looks once a second */
        error_clear(&err);
        (void)!model_store_resolve(store, ROLE_UPSCALER, "mine", &mine, &err);
    }
    assert_non_null(mine);
    assert_null(model_store_unread(mine));
    model_store_destroy(&store);
}

static void test_hash(void **state)
{
    (void)state;
    char path[512];
    struct error err = ERROR_INIT;
    snprintf(path, sizeof path, "%s/abc.pth", folder);
    assert_int_equal(file_write(path, "abc", 3, &err), OK);
    snprintf(path, sizeof path, "%s/empty.pth", folder);
    assert_int_equal(file_write(path, "", 0, &err), OK);
    struct model_store *store = models_of(folder, NULL);
    assert_int_equal(model_store_count(store), 2);
    model_store_hash(store);
    /* FIPS 180-4's example, and the hash of nothing */
    assert_string_equal(model_store_at(store, 0)->sha256,
                        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_string_equal(model_store_at(store, 1)->sha256,
                        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    model_store_destroy(&store);
}

/* The embedded starter models: defaults where nothing official is there, each role by itself. */
static void test_starters(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    static const char *const names[] = {"detector", "face_64", "srvgg_x2"};
    struct file files[3];
    for (int i = 0; i < 3; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s.safetensors", shared_fixtures(), names[i]);
        if (file_map(&files[i], path, &err))
            fail_msg("%s", err.text);
    }
#define BYTES(i) files[i].data, files[i].data + files[i].size
    const struct embed_file embedded[] = {{"starter_detector.safetensors", BYTES(0)},
                                          {"starter_face.safetensors", BYTES(1)},
                                          {"starter_upsampler_x2.safetensors", BYTES(2)},
                                          {NULL, NULL, NULL}};
    struct model_defaults defaults = {.starters = embedded};
    struct model_store *store = models_of(folder, &defaults);
    assert_int_equal(model_store_count(store), 3);
    if (model_store_ready(store, &err))
        fail_msg("%s", err.text);
    const struct model_entry *face = models_resolve(store, ROLE_FACE, NULL);
    assert_string_equal(face->name, "starter_face");
    assert_string_equal(face->path, "embedded:starter_face.safetensors");
    assert_true(face->starter && face->is_default && face->bytes == files[1].size);
    assert_int_equal(face->info.face_size, 64);
    assert_ptr_equal(models_resolve(store, ROLE_FACE, "starter"), face);
    assert_ptr_equal(models_resolve(store, ROLE_FACE, "starter_face.safetensors"), face);
    assert_string_equal(models_resolve(store, ROLE_UPSCALER, "starter")->name, "starter_upsampler_x2");
    assert_string_equal(models_resolve(store, ROLE_DETECTOR, "")->name, "starter_detector");
    assert_null(models_resolve(store, ROLE_PARSER, NULL));
    refuse(store, ROLE_PARSER, "starter", ERROR_INVALID, SAYS("starter_parser.safetensors"));
    refuse(store, ROLE_FACE, "starter_detector", ERROR_INVALID, SAYS("not a face network but a detector"));
    model_store_hash(store);
    assert_int_equal(strlen(face->sha256), 64);
    char hash[65];
    memcpy(hash, face->sha256, sizeof hash);

    struct model *model = NULL; /* it runs from memory */
    if (model_store_open(&model, face, &err))
        fail_msg("%s", err.text);
    assert_int_equal(model_info(model)->face_size, 64);
    model_close(&model);
    model_store_destroy(&store);

    /* an official file for drawings goes behind them */
    put("srvgg_x4", "realesr-animevideov3.safetensors");
    store = models_of(folder, &defaults);
    assert_string_equal(models_resolve(store, ROLE_UPSCALER, NULL)->name, "starter_upsampler_x2");
    model_store_destroy(&store);
    store = models_of(folder, NULL);
    assert_string_equal(models_resolve(store, ROLE_UPSCALER, NULL)->name, "realesr-animevideov3");
    model_store_destroy(&store);
    char special[512];
    snprintf(special, sizeof special, "%s/realesr-animevideov3.safetensors", folder);
    assert_int_equal(unlink(special), 0);

    /* an official file takes its role alone, and a folder's file of a starter's name goes before the embedded one */
    put("face", "GFPGANv1.4.safetensors");
    put("srvgg_x4", "starter_upsampler_x2.safetensors");
    put("face_64", "mine.safetensors");
    store = models_of(folder, &defaults);
    assert_string_equal(models_resolve(store, ROLE_FACE, NULL)->name, "GFPGANv1.4");
    assert_string_equal(models_resolve(store, ROLE_DETECTOR, NULL)->name, "starter_detector");
    const struct model_entry *upscaler = models_resolve(store, ROLE_UPSCALER, NULL);
    assert_true(upscaler->starter && !upscaler->content && upscaler->info.scale == 4);
    model_store_hash(store);
    assert_string_equal(models_resolve(store, ROLE_FACE, "mine")->sha256, hash); /* the same bytes, from a file */
    assert_false(models_resolve(store, ROLE_FACE, "mine")->starter);
    model_store_destroy(&store);

    /* without them a starter model in a folder works when named */
    store = models_of(folder, NULL);
    assert_null(models_resolve(store, ROLE_UPSCALER, NULL));
    assert_ptr_not_equal(models_resolve(store, ROLE_UPSCALER, "starter"), NULL);
    refuse(store, ROLE_DETECTOR, NULL, ERROR_NOT_FOUND, SAYS("detection_Resnet50_Final.pth"));
    model_store_destroy(&store);
    for (int i = 0; i < 3; i++)
        file_unmap(&files[i]);
}

/* A fixture's tensors under other metadata, as "mine.safetensors" in the folder. */
static void put_with_metadata(const char *fixture, const char *metadata)
{
    char path[512];
    struct file file;
    struct error err = ERROR_INIT;
    snprintf(path, sizeof path, "%s/%s.safetensors", shared_fixtures(), fixture);
    if (file_map(&file, path, &err))
        fail_msg("%s", err.text);
    static const char had[] = "{\"__metadata__\":{\"format\":\"pt\"}", begin[] = "{\"__metadata__\":";
    const size_t old = sizeof had - 1, new = sizeof begin - 1 + strlen(metadata), size = file.size - old + new;
    assert_memory_equal(file.data + 8, had, old);
    uint64_t length;
    memcpy(&length, file.data, sizeof length); /* tests run on little-endian machines */
    length += new - old;
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, begin, sizeof begin - 1);
    memcpy(bytes + 8 + sizeof begin - 1, metadata, strlen(metadata));
    memcpy(bytes + 8 + new, file.data + 8 + old, file.size - 8 - old);
    snprintf(path, sizeof path, "%s/mine.safetensors", folder);
    assert_int_equal(file_write(path, bytes, size, &err), OK);
    free(bytes);
    file_unmap(&file);
}

static void test_cards(void **state)
{
    (void)state;
    put_with_metadata("srvgg_x2", "{\"name\":\"Small one\",\"licence\":\"CC0-1.0\",\"commit\":\"12ab\","
                                  "\"data\":\"five photos\",\"format\":\"pt\"}");
    struct model_store *store = models_of(folder, NULL);
    const struct model_entry *e = models_resolve(store, ROLE_UPSCALER, "mine");
    assert_string_equal(e->card.name, "Small one");
    assert_string_equal(e->card.commit, "12ab");
    assert_string_equal(e->card.data, "five photos");
    assert_string_equal(e->licence, "CC0-1.0");
    assert_false(e->starter);
    model_store_destroy(&store);

    /* what would move a terminal's cursor, end a line or turn text around is shown as ? */
    put_with_metadata("srvgg_x2", "{\"name\":\"a\\u001b[2Jb\\nc\\u202ed\",\"licence\":\"\",\"data\":\"\\t\"}");
    store = models_of(folder, NULL);
    e = models_resolve(store, ROLE_UPSCALER, "mine");
    assert_string_equal(e->card.name, "a?[2Jb?c???d");
    assert_string_equal(e->card.data, "?");
    assert_string_equal(e->licence, "");
    model_store_destroy(&store);

    /* a long text is cut, and a great many keys are passed over */
    size_t many = 20000, n = 0;
    char *text = malloc(2000000 + many * 16);
    assert_non_null(text);
    n += (size_t)sprintf(text, "{");
    for (size_t i = 0; i < many; i++)
        n += (size_t)sprintf(text + n, "\"k%zu\":\"v\",", i);
    n += (size_t)sprintf(text + n, "\"data\":\"");
    memset(text + n, 'x', 600000); /* a header has at most 1 MiB, the keys included */
    sprintf(text + n + 600000, "\"}");
    put_with_metadata("srvgg_x2", text);
    free(text);
    store = models_of(folder, NULL);
    e = models_resolve(store, ROLE_UPSCALER, "mine");
    assert_int_equal(strlen(e->card.data), sizeof e->card.data - 1);
    assert_string_equal(e->card.name, "");
    model_store_destroy(&store);

    /* metadata of another type than the format's makes the file unusable, and says so */
    static const char *const wrong[] = {"[]",
                                        "7",
                                        "{\"name\":7}",
                                        "{\"name\":{\"name\":\"x\"}}",
                                        "{\"name\":null}",
                                        "{\"name\":\"a\",\"name\":\"b\"}",
                                        "{\"name\":\"a\\u0000b\"}"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        put_with_metadata("srvgg_x2", wrong[i]);
        store = models_of(folder, NULL);
        refuse(store, ROLE_UPSCALER, "mine", ERROR_INVALID, SAYS("mine cannot be used"));
        model_store_destroy(&store);
    }
}

/* A model and its sessions are opened once, and kept. */
static void test_set(void **state)
{
    (void)state;
    struct device *device = NULL;
    struct model_set *set = NULL;
    struct session *first = NULL, *second = NULL;
    const struct model_info *info = NULL;
    struct error err = ERROR_INIT;
    put("srvgg_x2", "up.safetensors");
    struct model_store *store = models_of(folder, NULL);
    const struct model_entry *entry = models_resolve(store, ROLE_UPSCALER, "up");
    if (device_open(&device, "reference", NULL, &err) || model_set_create(&set, store, device, &err) ||
        model_set_session(set, entry, PRECISION_AUTO, &first, &info, &err) ||
        model_set_session(set, entry, PRECISION_FP32, &second, &info, &err))
        fail_msg("%s", err.text);
    assert_ptr_equal(first, second); /* auto is fp32 there */
    assert_int_equal(info->scale, 2);
    float in[3 * 4 * 4] = {0.5f}, out[3 * 8 * 8];
    const float *inputs[1] = {in};
    float *outputs[1] = {out};
    struct session_shape shape = {.n = 1, .h = 4, .w = 4};
    struct run_options options = {0};
    assert_int_equal(session_run(first, &shape, inputs, outputs, &options, &err), OK);
    model_set_trim(set, NULL);
    assert_int_equal(session_run(first, &shape, inputs, outputs, &options, &err), OK);
    model_set_destroy(&set);
    device_close(&device);
    model_store_destroy(&store);
}

/* A model is open once, for all who hold it; the defaults are, from when the store is told to open them. */
static void test_hold(void **state)
{
    (void)state;
    const struct model *a = NULL, *b = NULL, *broken = NULL;
    struct model_defaults defaults = {.name = {[ROLE_UPSCALER] = "up", [ROLE_FACE] = "face"}};
    struct error err = ERROR_INIT;
    put("srvgg_x2", "up.safetensors");
    put("srvgg_x4", "other.safetensors");
    put("face_64", "face.safetensors");
    struct model_store *store = models_of(folder, &defaults);
    const struct model_entry *up = models_resolve(store, ROLE_UPSCALER, NULL),
                             *other = models_resolve(store, ROLE_UPSCALER, "other");
    const struct model_entry *face = models_resolve(store, ROLE_FACE, NULL);
    char path[96];
    snprintf(path, sizeof path, "%s/face.safetensors", folder);
    assert_int_equal(unlink(path), 0); /* gone after it was found */
    model_store_open_defaults(store);
    assert_int_equal(model_store_hold(&a, up, &err), OK);
    assert_int_equal(model_store_hold(&b, up, &err), OK);
    assert_non_null(a);
    assert_ptr_equal(a, b);
    assert_int_equal(model_info(a)->scale, 2);
    model_store_release(up);
    model_store_release(up);
    assert_int_equal(model_store_hold(&b, up, &err), OK); /* the store holds it, or it is reopened */
    assert_int_equal(model_info(b)->scale, 2);
    model_store_release(up);
    assert_int_equal(model_store_hold(&a, other, &err), OK);
    assert_int_equal(model_info(a)->scale, 4);
    model_store_release(other);
    assert_int_equal(model_store_hold(&broken, face, &err), ERROR_NOT_FOUND);
    assert_null(broken);
    model_store_destroy(&store);
}

static void add_name(void *context, const char *name)
{
    strcat(strcat(context, name), " ");
}

/* What was fetched for jobs that name it is no default, though an official file; and what options may call it. */
static void test_fetched(void **state)
{
    (void)state;
    char fetched[160], path[192], names[512] = "";
    put_folder("models");
    put_folder("fetched");
    put("face_64", "models/mine.safetensors");
    put("face_64", "fetched/GFPGANv1.safetensors");
    snprintf(fetched, sizeof fetched, "%s/fetched", folder);
    snprintf(path, sizeof path, "%s/models", folder);
    struct model_defaults defaults = {.name = {[ROLE_FACE] = "mine"}, .fetched = fetched};
    struct model_store *store = models_of(path, &defaults);
    const struct model_entry *entry = models_resolve(store, ROLE_FACE, "1");
    assert_true(entry->fetched && !entry->is_default);
    assert_string_equal(models_resolve(store, ROLE_FACE, NULL)->name, "mine");
    model_store_names(store, entry, add_name, names);
    assert_string_equal(names, "GFPGANv1 GFPGANv1 GFPGANv1 1 ");
    model_store_destroy(&store);
    defaults.name[ROLE_FACE] = NULL;
    store = models_of(path, &defaults);
    refuse(store, ROLE_FACE, NULL, ERROR_NOT_FOUND, SAYS("choose one"));
    model_store_destroy(&store);
}

static void check_known(const struct model_store *store, const char *name, const char *known_as, const char *licence)
{
    for (size_t i = 0; i < model_store_count(store); i++) {
        const struct model_entry *e = model_store_at(store, i);
        if (strcmp(e->name, name) != 0)
            continue;
        assert_string_equal(e->known_as, known_as);
        assert_string_equal(e->licence, licence);
        return;
    }
    fail_msg("%s is not there", name);
}

/* An official name alone brings no licence to a file of another size, role or, once it is known, hash. */
static void test_known(void **state)
{
    (void)state;
    static const char other[] = "unknown (only named like GFPGANCleanv1-NoCE-C2)";
    put("face", "GFPGANv1.4.safetensors");
    put("face", "GFPGANCleanv1-NoCE-C2.safetensors"); /* its size is not in the list */
    put("face", "GFPGANv1.safetensors");              /* nor its hash */
    put("srvgg_x2", "codeformer.safetensors");
    put("upscaler", "mine.safetensors");
    struct model_store *store = models_of(folder, NULL);
    for (int hashed = 0; hashed < 2; hashed++) {
        check_known(store, "GFPGANv1.4", "", "unknown (only named like GFPGANv1.4)");
        check_known(store, "GFPGANCleanv1-NoCE-C2", hashed ? "" : "GFPGANCleanv1-NoCE-C2",
                    hashed ? other : "Apache-2.0");
        check_known(store, "GFPGANv1", "GFPGANv1", "Apache-2.0");
        check_known(store, "codeformer", "", "unknown (only named like codeformer)");
        check_known(store, "mine", "", "");
        model_store_hash(store);
    }
    for (size_t i = 0; i < store->section_count; i++) /* as if the fixture were the official file */
        if (!strcmp(store->sections[i].name, "RealESRGAN_x2plus"))
            memcpy(store->sections[i].sha256, models_resolve(store, ROLE_UPSCALER, "mine")->sha256, 65);
    model_store_hash(store);
    check_known(store, "mine", "RealESRGAN_x2plus", "BSD-3-Clause");
    model_store_destroy(&store);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_empty),       IN_FOLDER(test_official_names), IN_FOLDER(test_configured),
        IN_FOLDER(test_odd_folders), IN_FOLDER(test_hash),           IN_FOLDER(test_fetched),
        IN_FOLDER(test_set),         IN_FOLDER(test_hold),           IN_FOLDER(test_starters),
        IN_FOLDER(test_cards),       IN_FOLDER(test_damaged),        IN_FOLDER(test_known),
    };
    return cmocka_run_group_tests_name("model store", tests, NULL, NULL);
}
