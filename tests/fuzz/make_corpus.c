/* Writes what the fuzzers start from: make_corpus FOLDER makes FOLDER/fuzz_*, each with small files that open and some
 * that should not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>
#ifdef RESTORED_LCMS
#include <lcms2.h>
#endif

#include "server/store/store.h"
#include "tests/common/checkpoint_writer.h"
#include "tests/common/picture_writer.h"

/* A literal with its zero bytes, without the one behind it. */
#define PUT(out, literal) checkpoint_put(out, literal, sizeof literal - 1)

static const char *folder;
static const float numbers[24] = {1, -2, 0.5f, 3e5f, 1e-6f};
static const struct checkpoint_tensor tensors[] = {
    {"module.conv.weight", 3, {2, 3, 4}, numbers}, {"conv.bias", 1, {5}, numbers}, {"scale", 0, {0}, numbers}};

/* Saves the buffer as FOLDER/fuzzer/name and empties it. */
static void save(struct checkpoint_buffer *buffer, const char *fuzzer, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, fuzzer);
    mkdir(folder, 0777);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/%s/%s", folder, fuzzer, name);
    if (!checkpoint_save(buffer, path))
        exit(1);
    checkpoint_free(buffer);
}

/* The pickle of a dictionary with every dtype, and views of all kinds, on storages that each have 48 bytes. */
static void put_views(struct checkpoint_buffer *out, bool legacy)
{
    static const struct checkpoint_view views[] = {
        {"FloatStorage", "0", 12, 0, 2, {3, 4}, {4, 1}},
        {"FloatStorage", "0", 12, 1, 2, {4, 2}, {1, 4}},
        {"FloatStorage", "0", 12, 11, 3, {2, 1, 2}, {0, 5, 0}},
        {"HalfStorage", "1", 24, 0, 3, {2, 3, 4}, {1, 8, 2}},
        {"BFloat16Storage", "2", 24, 4, 1, {7}, {3}},
        {"DoubleStorage", "3", 6, 0, 1, {6}, {1}},
        {"CharStorage", "4", 48, 0, 1, {48}, {1}},
        {"ShortStorage", "5", 24, 23, 0, {0}, {0}},
        {"IntStorage", "6", 12, 0, 2, {0, 7}, {7, 1}},
        {"LongStorage", "7", 6, 0, 1, {3}, {2}},
        {"ByteStorage", "8", 48, 0, 4, {2, 2, 2, 2}, {8, 4, 2, 1}},
        {"BoolStorage", "9", 48, 0, 1, {48}, {1}},
    };
    checkpoint_pickle_start(out);
    checkpoint_pickle_op(out, '}');
    checkpoint_pickle_op(out, '(');
    checkpoint_pickle_text(out, "epoch");
    checkpoint_pickle_int(out, INT64_C(1) << 40);
    checkpoint_pickle_text(out, "lr");
    PUT(out, "G\0\0\0\0\0\0\0\0");
    checkpoint_pickle_text(out, "list");
    PUT(out, "](NK\1\x88"
             "eq\1");
    checkpoint_pickle_text(out, "state_dict");
    checkpoint_pickle_global(out, "collections", "OrderedDict");
    PUT(out, ")Rq\0(");
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
        checkpoint_pickle_text(out, (char[]){(char)('a' + i), '\0'});
        checkpoint_pickle_tensor(out, &views[i], legacy);
    }
    checkpoint_pickle_text(out, "parameter");
    checkpoint_pickle_global(out, "torch._utils", "_rebuild_parameter");
    checkpoint_pickle_tensor(out, &views[0], legacy);
    PUT(out, "\x88)\x87R");
    PUT(out, "u}b"); /* attributes, as _metadata */
    PUT(out, "u.");
}

static void put_views_zip(struct checkpoint_buffer *out, bool wide)
{
    struct checkpoint_zip zip = {.wide = wide};
    struct checkpoint_buffer pickle = {0};
    put_views(&pickle, false);
    checkpoint_zip_add(&zip, "v/data.pkl", pickle.data, pickle.size);
    checkpoint_zip_add(&zip, "v/byteorder", "little", 6);
    for (int i = 0; i < 10; i++)
        checkpoint_zip_add(&zip, (char[]){'v', '/', 'd', 'a', 't', 'a', '/', (char)('0' + i), '\0'}, numbers, 48);
    checkpoint_zip_add(&zip, "v/version", "3\n", 2);
    checkpoint_zip_finish(&zip, out);
    checkpoint_free(&pickle);
}

static void put_pickle_zip(struct checkpoint_buffer *out, const char *pickle, size_t size)
{
    struct checkpoint_zip zip = {0};
    checkpoint_zip_add(&zip, "p/data.pkl", pickle, size);
    checkpoint_zip_finish(&zip, out);
}

static void make_zip(void)
{
    struct checkpoint_buffer out = {0};
    checkpoint_torch_zip(&out, tensors, 3, CHECKPOINT_F32, "params_ema");
    save(&out, "fuzz_pth_zip", "floats");
    checkpoint_torch_zip(&out, tensors, 3, CHECKPOINT_F16, NULL);
    save(&out, "fuzz_pth_zip", "halves");
    put_views_zip(&out, false);
    save(&out, "fuzz_pth_zip", "views");
    put_views_zip(&out, true);
    save(&out, "fuzz_pth_zip", "views-zip64");
    put_pickle_zip(&out, "\x80\x02}.", 4);
    save(&out, "fuzz_pth_zip", "empty");
    static const char system[] = "\x80\x02"
                                 "cos\nsystem\nX\x04\0\0\0true\x85R.";
    put_pickle_zip(&out, system, sizeof system - 1);
    save(&out, "fuzz_pth_zip", "broken-global");
    checkpoint_torch_zip(&out, tensors, 3, CHECKPOINT_F32, "params");
    out.size -= 30;
    save(&out, "fuzz_pth_zip", "broken-cut");
}

static void make_legacy(void)
{
    struct checkpoint_buffer out = {0};
    checkpoint_torch_legacy(&out, tensors, 3, CHECKPOINT_F32, "params_ema");
    save(&out, "fuzz_pth_legacy", "floats");
    checkpoint_torch_legacy(&out, tensors, 3, CHECKPOINT_F16, NULL);
    save(&out, "fuzz_pth_legacy", "halves");
    static const uint8_t counts[] = {12, 24, 24, 6, 48, 24, 12, 6, 48, 48};
    checkpoint_legacy_start(&out, true);
    put_views(&out, true);
    checkpoint_pickle_start(&out);
    PUT(&out, "](");
    for (int i = 0; i < 10; i++)
        checkpoint_pickle_text(&out, (char[]){(char)('0' + i), '\0'});
    PUT(&out, "e.");
    for (int i = 0; i < 10; i++) {
        checkpoint_put_le(&out, counts[i], 8);
        checkpoint_put(&out, numbers, 48);
    }
    save(&out, "fuzz_pth_legacy", "views");
    checkpoint_legacy_start(&out, false);
    save(&out, "fuzz_pth_legacy", "broken-big-endian");
    checkpoint_torch_legacy(&out, tensors, 3, CHECKPOINT_F32, "params");
    out.size -= 30;
    save(&out, "fuzz_pth_legacy", "broken-cut");
}

static void put_safetensors(struct checkpoint_buffer *out, const char *json, size_t data_bytes)
{
    checkpoint_put_le(out, strlen(json), 8);
    checkpoint_put(out, json, strlen(json));
    checkpoint_put(out, numbers, data_bytes);
}

static void make_safetensors(void)
{
    struct checkpoint_buffer out = {0};
    checkpoint_safetensors(&out, tensors, 3, CHECKPOINT_F32);
    save(&out, "fuzz_safetensors", "floats");
    checkpoint_safetensors(&out, tensors, 3, CHECKPOINT_F16);
    save(&out, "fuzz_safetensors", "halves");
    put_safetensors(&out,
                    "{\"__metadata__\":{\"format\":\"pt\",\"x\":\"\\u00e9\"},"
                    "\"a\":{\"dtype\":\"F64\",\"shape\":[2,1],\"data_offsets\":[0,16]},"
                    "\"b\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[16,24]},"
                    "\"c\":{\"dtype\":\"I32\",\"shape\":[0,9],\"data_offsets\":[24,24]},"
                    "\"d\":{\"dtype\":\"I16\",\"shape\":[4],\"data_offsets\":[24,32]},"
                    "\"e\":{\"dtype\":\"I8\",\"shape\":[8],\"data_offsets\":[32,40]},"
                    "\"f\":{\"dtype\":\"BOOL\",\"shape\":[8],\"data_offsets\":[40,48]},"
                    "\"g\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[48,56]},"
                    "\"h\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[56,64]}}",
                    64);
    save(&out, "fuzz_safetensors", "dtypes");
    put_safetensors(&out, "{}", 0);
    save(&out, "fuzz_safetensors", "empty");
    put_safetensors(&out, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8);
    save(&out, "fuzz_safetensors", "broken-hole");
    put_safetensors(&out, "{\"a\":[[[[[[]]]]]],\"a\":1e999}", 0);
    save(&out, "fuzz_safetensors", "broken-json");
}

static void make_pictures(void)
{
    static const struct picture_png pngs[] = {
        {0, 1, true, false}, {2, 8, false, false}, {3, 4, true, true}, {4, 8, false, true}, {6, 16, false, true}};
    static const uint8_t turned[26] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, 6};
    static uint8_t samples[24 * 17 * 4];
    char name[32];
    struct checkpoint_buffer file;
    for (size_t i = 0; i < sizeof samples; i++)
        samples[i] = (uint8_t)(i * 37 >> 2 & 0x33); /* nothing beyond the palette */
    for (int i = 0; i < PICTURE_JPEG_KINDS; i++) {
        int channels = picture_jpeg_kinds[i].channels;
        const struct view_u8 view = {samples, 24, 17, channels, 24 * (size_t)channels};
        file = picture_writer_jpeg(&picture_jpeg_kinds[i], view, turned, sizeof turned);
        snprintf(name, sizeof name, "jpeg%d", i);
        save(&file, "fuzz_codec", name);
    }
    for (size_t i = 0; i < sizeof pngs / sizeof pngs[0]; i++) {
        file = picture_writer_png(&pngs[i], 7, 9, samples, 60);
        snprintf(name, sizeof name, "png%zu", i);
        save(&file, "fuzz_codec", name);
    }
    file = picture_writer_header(60000, 60000);
    save(&file, "fuzz_codec", "broken-huge");
    PUT(&file, "no picture at all");
    save(&file, "fuzz_codec", "broken-text");
}

#define FORM "multipart/form-data; boundary=\"a part\"; charset=utf-8\n"
#define PART(header, data) "--a part\r\nContent-Disposition: form-data; " header "\r\n\r\n" data "\r\n"

static void make_forms(void)
{
    struct checkpoint_buffer file = {0};
    PUT(&file, FORM PART("name=\"upscale\"", "2") PART("name=suffix", "")
                   PART("name=\"image\"; filename=\"a\\\"b%22.png\"\r\nContent-Type: image/png",
                        "\x89PNG\r\n\x1a\n\0\r\n--a par\r\r\n--\r\n") "--a part--\r\n");
    save(&file, "fuzz_multipart", "three");
    PUT(&file, "multipart/form-data;boundary=-\npreamble\r\n--- \t\r\nA: b\r\nContent-Transfer-Encoding: 8bit\r\n"
               "content-disposition:form-data;name=image;filename*=x\r\n\r\n--\r\n-----epilogue\r\n---\r\n");
    save(&file, "fuzz_multipart", "short");
    PUT(&file, FORM PART("name=\"image\"", "picture") "--a part");
    save(&file, "fuzz_multipart", "broken-cut");
    PUT(&file, FORM PART("name=\"image", "picture") "--a part--");
    save(&file, "fuzz_multipart", "broken-quote");
    PUT(&file, "multipart/form-data\n--x--");
    save(&file, "fuzz_multipart", "broken-type");
}

/* JSON with files in base64: short ones, and ones that are too long for a text. */
static void make_bodies(void)
{
#define BASE64_64 "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYPhf"
#define BASE64_640 BASE64_64 BASE64_64 BASE64_64 BASE64_64 BASE64_64 BASE64_64 BASE64_64 BASE64_64 BASE64_64 BASE64_64
    struct checkpoint_buffer file = {0};
    PUT(&file,
        "{\"image\": \"data:image\\/png;base64," BASE64_640 "\", \"upscaling_resize\": 2.5, \"upscaler_1\": \"None\"}");
    save(&file, "fuzz_compat", "uri");
    PUT(&file, "{\"imageList\": [{\"data\": \"" BASE64_640 "AA==\", \"name\": \"a\"},\n {\"data\": \"" BASE64_640
               "\\u0041AAA\"}, {\"data\":\"AAAA\"}]}");
    save(&file, "fuzz_compat", "list");
    PUT(&file, "{\"input\": {\"img\": [0], \"scale\": 2}, \"id\": \"a\\\"b\"}");
    save(&file, "fuzz_compat", "mark");
    PUT(&file, "{\"webhook\": \"https://h.example:8443/a?b#c\", \"webhook_events_filter\": [\"start\", \"logs\"]}");
    save(&file, "fuzz_compat", "webhook");
    PUT(&file, "{\"webhook\": \"https://h.example:8443@other.example/\"}");
    save(&file, "fuzz_compat", "webhook-user");
    PUT(&file, "{\"image\": \"" BASE64_640 "*\"}");
    save(&file, "fuzz_compat", "broken-base64");
    PUT(&file, "[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]");
    save(&file, "fuzz_compat", "broken-depth");
}

static void make_texts(void)
{
    struct checkpoint_buffer file = {0};
    PUT(&file, "image/png;q=0.5, */*;q=0.1\nF\xc3\xb6to \"1\".jpg\n2001:db8::1, 10.0.0.1\nlocalhost:8080");
    save(&file, "fuzz_header", "accept");
    PUT(&file, "10.0.0.0/8,::1\n192.0.2.7, 10.1.2.3\nfor=\"[2001:db8::1]:80\";proto=http\nsame-origin");
    save(&file, "fuzz_header", "proxies");
    PUT(&file, "https://photos.example.com\nhttps://photos.example.com,http://nas:8080\ncross-site\nnavigate");
    save(&file, "fuzz_header", "origins");
    PUT(&file, "upscale=2.5\nweight=0.3333333333333333\nfaces=0,2,7\nseed=18446744073709551615\next=png\nbatch=a.b-c\n"
               "async=yes\npriority=low\nbg_tile=auto\nsuffix=\xc3\xb6\ndevice=cpu");
    save(&file, "fuzz_options", "fields");
    PUT(&file, "upscale=1.0000000000000002\nweight=0.000000050037614");
    save(&file, "fuzz_options", "small");
    PUT(&file, "detector=resnet50\nprecision=fp16");
    save(&file, "fuzz_options", "detect");
    PUT(&file,
        "{\"detect\":false,\"faces_out\":true,\"elsewhere\":true,\"weights\":[1000,0,1],\"options\":{\"upscale\":2.0,"
        "\"aligned\":true,\"quality\":90,\"version\":\"\"}}");
    save(&file, "fuzz_options", "broken-record");
    PUT(&file, "II*\0\x08\0\0\0\x02\0\x0f\x01\x02\0\x04\0\0\0abc\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0");
    save(&file, "fuzz_exif", "little");
    PUT(&file, "MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0\0\0\0\0");
    save(&file, "fuzz_exif", "big");
    PUT(&file,
        "# comment\nlisten = [::1]:0\nworkers=2\nbody_limit = 3MiB # more\nprecision = fp16\nstarter_models = no\n");
    save(&file, "fuzz_config", "file");
    PUT(&file, "listen 8080\nworker = 1\n");
    save(&file, "fuzz_config", "broken-file");
    PUT(&file,
        "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2024-11-05\"}}\n"
        "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"tools/call\",\"params\":{\"name\":\"restore\",\"arguments\":"
        "{\"path\":\"a.png\",\"output\":\"b.jpg\",\"upscale\":1.5,\"parse\":false},\"_meta\":{\"progressToken\":1}}}\n"
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{\"name\":\"detect\",\"arguments\":"
        "{\"image\":\"data:image/png;base64,iVBORw0KGgo=\",\"min_score\":0.5}}}\n"
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":\"a\"}}\n[]\n");
    save(&file, "fuzz_mcp", "calls");
}

static void make_targets(void)
{
    struct checkpoint_buffer file = {0};
    PUT(&file, "/v1/estimate?width=1920&height=1080&face_count=2&upscale=2&ext=png");
    save(&file, "fuzz_target", "numbers");
    PUT(&file,
        "http://localhost:8080/v1/jobs/0123456789abcdef0123456789abcdef/faces/3?width=1&height=2&&suffix=%c3%B6+a&");
    save(&file, "fuzz_target", "absolute");
    PUT(&file, "/v1/estimate?width=1920&height=1080&upscale%00=2");
    save(&file, "fuzz_target", "broken-zero");
    PUT(&file, "/v1/estimate?width=1920&height");
    save(&file, "fuzz_target", "broken-empty");
    PUT(&file, "/v1/estimates?width=1920&height=1080");
    save(&file, "fuzz_target", "broken-path");
}

static void make_tokens(void)
{
    struct checkpoint_buffer file = {0};
    PUT(&file, "# tokens\nanna 0123456789abcdef jobs=3 megapixels=12.5\nanna fedcba9876543210 megapixels=12.5 jobs=3\n"
               "ops -._~+/-._~+/abcd== admin # all\r\n\n");
    save(&file, "fuzz_tokens", "named");
    PUT(&file, "aaaaaaaaaaaaaaaa\n\tbbbbbbbbbbbbbbbb");
    save(&file, "fuzz_tokens", "unnamed");
    PUT(&file, "anna 0123456789abcdef\nbert 0123456789abcdef\n");
    save(&file, "fuzz_tokens", "broken-twice");
    PUT(&file, "anna 0123456789abcdef jobs=0\n");
    save(&file, "fuzz_tokens", "broken-number");
    PUT(&file, "anna short\n");
    save(&file, "fuzz_tokens", "broken-short");
}

static void must(bool fine)
{
    if (fine)
        return;
    fprintf(stderr, "make_corpus: a store of jobs could not be made\n");
    exit(1);
}

/* Eight jobs, in every state; d4 runs and d5 to d7 wait. */
static void put_jobs(struct store *store)
{
    struct error err = ERROR_INIT;
    enum store_inserted what;
    char existing[33], key[16];
    bool found;
    for (int i = 0; i < 8; i++) {
        struct store_job job = {.client = "a", .created = 1000 + i, .seconds = 1, .options = "{}"};
        snprintf(job.id, sizeof job.id, "d%d", i);
        snprintf(job.token, sizeof job.token, "%s", i % 2 ? "t" : "");
        snprintf(job.batch, sizeof job.batch, "%s", i % 3 ? "b" : "");
        snprintf(key, sizeof key, "k%d", i);
        must(!store_insert(store, &job, key, (const uint8_t[32]){0}, &what, existing, &err));
    }
    for (int i = 0; i < 5; i++) {
        struct store_job job;
        must(!store_claim(store, "me", 2000, 3000, 9000, 3, &job, &found, NULL, NULL, &err) && found);
        job.state = i == 1 ? STORE_FAILED : i == 2 ? STORE_CANCELLED : STORE_DONE;
        job.expires = 4000 + i;
        job.report = calloc(1, i == 3 ? 700 : 20); /* one of several pages */
        must(job.report);
        memset(job.report, 'r', i == 3 ? 699 : 19);
        must(i == 4 || (!store_finish(store, &job, "me", &found, &err) && found));
        store_job_clear(&job);
    }
}

/* FOLDER/fuzz_store/name; then what this SQL says. With small pages, so that there are few bytes to change. */
static void make_store(const char *name, bool jobs, const char *sql)
{
    char path[4096];
    struct store *store;
    struct error err = ERROR_INIT;
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/fuzz_store", folder);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/fuzz_store/%s", folder, name);
    unlink(path);
    must(!store_open(&store, path, &err));
    if (jobs)
        put_jobs(store);
    store_close(&store);
    must(!sqlite3_open(path, &db));
    must(!sqlite3_exec(db, "PRAGMA journal_mode = DELETE; PRAGMA page_size = 512; VACUUM; PRAGMA journal_mode = WAL",
                       NULL, NULL, NULL));
    must(!sqlite3_exec(db, sql, NULL, NULL, NULL));
    must(!sqlite3_close(db));
}

static void make_stores(void)
{
    make_store("empty", false, "");
    make_store("jobs", true, "");
    make_store("broken-newer", false, "PRAGMA user_version = 5");
    make_store("broken-foreign", false, "PRAGMA application_id = 0");
    make_store("broken-state", true, "PRAGMA ignore_check_constraints = ON; UPDATE jobs SET state = 9 WHERE id = 'd5'");
}

/* kind: the first byte of fuzz_profile's input */
static void save_profile(uint8_t kind, const void *profile, size_t size, const char *name)
{
    struct checkpoint_buffer file = {0};
    checkpoint_put(&file, &kind, 1);
    checkpoint_put(&file, profile, size);
    save(&file, "fuzz_profile", name);
}
#ifdef RESTORED_LCMS
static void put_profile(uint8_t kind, cmsHPROFILE profile, const char *name)
{
    static uint8_t bytes[1 << 16];
    cmsUInt32Number size = 0;
    must(profile && cmsSaveProfileToMem(profile, NULL, &size) && size <= sizeof bytes &&
         cmsSaveProfileToMem(profile, bytes, &size));
    cmsCloseProfile(profile);
    save_profile(kind, bytes, size, name);
}
/* One whose colours are a table of its inks' corners. */
static cmsHPROFILE table_profile(cmsColorSpaceSignature space, cmsUInt32Number inks)
{
    cmsUInt16Number table[3 << 4];
    cmsHPROFILE profile = cmsCreateProfilePlaceholder(NULL);
    cmsPipeline *pipeline = cmsPipelineAlloc(NULL, inks, 3);
    for (cmsUInt32Number i = 0; i < 3u << inks; i++)
        table[i] = (cmsUInt16Number)(i % 3 == 0 ? 65535 - 4000 * i / 3 : 32768 + 900 * i);
    must(profile && pipeline &&
         cmsPipelineInsertStage(pipeline, cmsAT_BEGIN, cmsStageAllocCLut16bit(NULL, 2, inks, 3, table)));
    cmsSetDeviceClass(profile, cmsSigOutputClass);
    cmsSetColorSpace(profile, space);
    cmsSetPCS(profile, cmsSigLabData);
    cmsSetProfileVersion(profile, 2.4);
    must(cmsWriteTag(profile, cmsSigAToB0Tag, pipeline));
    cmsPipelineFree(pipeline);
    must((pipeline = cmsPipelineAlloc(NULL, 3, inks)) &&
         cmsPipelineInsertStage(pipeline, cmsAT_BEGIN, cmsStageAllocCLut16bit(NULL, 2, 3, inks, table)) &&
         cmsWriteTag(profile, cmsSigBToA0Tag, pipeline));
    cmsPipelineFree(pipeline);
    return profile;
}
static void make_profiles(void)
{
    cmsToneCurve *curve = cmsBuildGamma(NULL, 2.2);
    const cmsCIExyYTRIPLE wide = {{0.64, 0.33, 1}, {0.21, 0.71, 1}, {0.15, 0.06, 1}};
    cmsToneCurve *const curves[3] = {curve, curve, curve};
    put_profile(1, cmsCreateGrayProfile(cmsD50_xyY(), curve), "gray");
    put_profile(2, cmsCreateRGBProfile(cmsD50_xyY(), &wide, curves), "matrix");
    put_profile(3, cmsCreate_sRGBProfile(), "srgb");
    put_profile(3, table_profile(cmsSigRgbData, 3), "table");
    put_profile(4, table_profile(cmsSigCmykData, 4), "cmyk");
    put_profile(29, table_profile(cmsSigCmykData, 4), "cmyk-deep");
    put_profile(32, table_profile(cmsSigCmykData, 4), "cmyk-back");
    put_profile(0, cmsCreate_sRGBProfile(), "broken-channels");
    cmsFreeToneCurve(curve);
}
#endif

/* A convolution, which is SRVGGNetCompact of no depth; and one with a layer that nobody knows. */
static void make_ncnn(void)
{
    static const char start[] = "7767517\n7 8\nInput i 0 1 data\nSplit s 1 2 data a b\n";
    static const char end[] = "PReLU p 1 1 c d 0=3\nConvolution g 1 1 d e 0=3 1=3 4=1 5=1 6=81 9=0\n"
                              "BinaryOp p 2 1 e b out 0=0\n";
    static const char *const middles[] = {
        "Convolution f 1 1 a c 0=3 1=3 4=1 5=1 6=81\nNoop n 1 1 c c2 -23301=2,0.5,1\n",
        "Convolution f 1 1 a c0 0=3 1=3 4=1 5=1 6=81\n"
        "Split t 1 1 c0 c\n"};
    static const uint8_t weights[4 + 162 + 2 + 12] = {0x47, 0x6b, 0x30, 0x01}; /* halves */
    for (int i = 0; i < 2; i++) {
        struct checkpoint_buffer out = {0};
        checkpoint_put(&out, start, strlen(start));
        checkpoint_put(&out, middles[i], strlen(middles[i]));
        checkpoint_put(&out, end, strlen(end) + 1);
        checkpoint_put(&out, weights, sizeof weights);
        checkpoint_put(&out, numbers, 12);
        checkpoint_put(&out, weights, sizeof weights);
        save(&out, "fuzz_ncnn", i ? "chain" : "broken-layer");
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    folder = argv[1];
    make_zip();
    make_legacy();
    make_safetensors();
    make_ncnn();
    make_pictures();
    make_forms();
    make_stores();
    make_bodies();
    make_texts();
    make_targets();
    make_tokens();
#ifdef RESTORED_LCMS
    make_profiles();
#endif
    save_profile(2, "no profile", 10, "broken-text");
    return 0;
}
