#include "server/compat/intake.h"

#include <ctype.h>
#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/mem.h"

#define INTAKE_PIECE 4096 /* characters that are decoded at a time */
#define INTAKE_KEY 40     /* characters of a field's name that stand in an error */

/* Decodes the text of one file. */
struct intake_decoder {
    struct base64_decode_ctx base64;
    struct body *to;
    bool in_data;           /* behind the comma of a data URI, or there is none */
    char head[INTAKE_HEAD]; /* what came before that is known */
    size_t head_size;
    char piece[INTAKE_PIECE];
    size_t piece_size;
};

struct intake {
    struct spool *spool;
    uint64_t limit, received;
    char *rest;
    size_t rest_size, depth;
    enum { INTAKE_OUTSIDE, INTAKE_IN_TEXT, INTAKE_IN_FILE } state;
    size_t begin;     /* of the text in the rest */
    size_t key;       /* of the text before the last colon, there; 0: there is none */
    int escape;       /* in a text: 1 behind a backslash, 2 to 5 in \uXXXX; else 0 */
    unsigned unicode; /* of those digits so far */
    struct intake_decoder decoder;
    struct body files[INTAKE_FILES];
    int count;
};

/* --- base64 --------------------------------------------------------------------------------------------------------
 */

static void intake_decode_begin(struct intake_decoder *decoder, struct body *to)
{
    base64_decode_init(&decoder->base64);
    decoder->to = to;
    decoder->in_data = false;
    decoder->head_size = decoder->piece_size = 0;
}

bool intake_is_address(const char *text, size_t size)
{
    return (size >= 5 && !strncasecmp(text, "http:", 5)) || (size >= 6 && !strncasecmp(text, "https:", 6));
}

static enum error_code intake_decode_piece(struct intake_decoder *decoder, struct error *err)
{
    uint8_t bytes[BASE64_DECODE_LENGTH(INTAKE_PIECE)];
    size_t size = sizeof bytes;
    if (!base64_decode_update(&decoder->base64, &size, bytes, decoder->piece_size, decoder->piece))
        return intake_is_address(decoder->piece, decoder->piece_size) /* with its colon it is no base64 */
                   ? error_set(err, ERROR_INVALID,
                               "this server fetches no pictures from addresses; send the picture "
                               "itself, as a data URI or in base64")
                   : error_set(err, ERROR_INVALID, "a picture is not in base64");
    decoder->piece_size = 0;
    return body_append(decoder->to, bytes, size, err);
}

static enum error_code intake_decode_byte(struct intake_decoder *decoder, char c, struct error *err)
{
    decoder->piece[decoder->piece_size++] = c;
    return decoder->piece_size == INTAKE_PIECE ? intake_decode_piece(decoder, err) : OK;
}

/* What has come so far is no data URI. */
static enum error_code intake_decode_plain(struct intake_decoder *decoder, struct error *err)
{
    enum error_code code = OK;
    decoder->in_data = true;
    for (size_t i = 0; i < decoder->head_size && code == OK; i++)
        code = intake_decode_byte(decoder, decoder->head[i], err);
    return code;
}

static enum error_code intake_decode(struct intake_decoder *decoder, char c, struct error *err)
{
    static const char scheme[] = "data:", ending[] = ";base64";
    if (decoder->in_data)
        return intake_decode_byte(decoder, c, err);
    if (c == ',') {
        const size_t size = decoder->head_size;
        decoder->in_data = true;
        return size >= 12 && !strncasecmp(decoder->head + size - 7, ending, 7)
                   ? OK
                   : error_set(err, ERROR_INVALID, "a picture is in a data URI without \";base64\"");
    }
    if (decoder->head_size == INTAKE_HEAD)
        return error_set(err, ERROR_INVALID, "the beginning of a picture's data URI is too long");
    decoder->head[decoder->head_size++] = c;
    const size_t size = decoder->head_size;
    if (size < 6 && tolower((unsigned char)c) != scheme[size - 1])
        return intake_decode_plain(decoder, err);
    return OK;
}

static enum error_code intake_decode_end(struct intake_decoder *decoder, struct error *err)
{
    enum error_code code = decoder->in_data ? OK : intake_decode_plain(decoder, err);
    if (code == OK)
        code = intake_decode_piece(decoder, err);
    if (code == OK && !base64_decode_final(&decoder->base64))
        code = error_set(err, ERROR_INVALID, "a picture's base64 is cut short");
    return code;
}

/* --- JSON ----------------------------------------------------------------------------------------------------------
 */

enum error_code intake_create(struct intake **out, struct spool *spool, uint64_t limit, struct error *err)
{
    struct intake *intake = *out = mem_calloc(1, sizeof *intake);
    if (intake)
        intake->rest = mem_alloc(INTAKE_REST + 1, 1);
    if (!intake || !intake->rest) {
        intake_destroy(out);
        return error_set(err, ERROR_NO_MEMORY, "no memory for a request");
    }
    intake->spool = spool;
    intake->limit = limit;
    return OK;
}

void intake_destroy(struct intake **intake)
{
    struct intake *old = *intake;
    *intake = NULL;
    for (int i = 0; old && i < old->count; i++)
        body_clear(&old->files[i]);
    if (old)
        free(old->rest);
    free(old);
}

static enum error_code intake_keep(struct intake *intake, char c, struct error *err)
{
    if (intake->rest_size == INTAKE_REST)
        return error_set(err, ERROR_TOO_LARGE, "the JSON without its pictures is over the limit of %zu KiB",
                         INTAKE_REST / 1024);
    intake->rest[intake->rest_size++] = c;
    return OK;
}

/* One byte of a text as it stands in JSON; the character that it completes goes to the file. */
static enum error_code intake_file_byte(struct intake *intake, char c, struct error *err)
{
    static const char names[] = "nrtbf", values[] = "\n\r\t\b\f";
    if (!intake->escape && c == '\\') {
        intake->escape = 1;
        return OK;
    }
    if (intake->escape == 1) {
        const char *name = c ? strchr(names, c) : NULL;
        intake->unicode = 0;
        intake->escape = c == 'u' ? 2 : 0;
        return intake->escape ? OK : intake_decode(&intake->decoder, name ? values[name - names] : c, err);
    }
    if (intake->escape) {
        if (!isxdigit((unsigned char)c))
            return error_set(err, ERROR_INVALID, "it is not JSON: there is a wrong \\u in the text");
        intake->unicode = 16 * intake->unicode +
                          (unsigned)(isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10);
        if (++intake->escape < 6)
            return OK;
        intake->escape = 0;
        return intake_decode(&intake->decoder, intake->unicode < 128 ? (char)intake->unicode : '!', err);
    }
    return intake_decode(&intake->decoder, c, err);
}

/* The text is too long for one: what there is of it was the beginning of a file. */
static enum error_code intake_become_file(struct intake *intake, struct error *err)
{
    char text[INTAKE_ADDRESS + 8];
    const size_t size = intake->rest_size - intake->begin - 1;
    if (intake->count == INTAKE_FILES)
        return error_set(err, ERROR_TOO_LARGE, "there are more than %d pictures", INTAKE_FILES);
    memcpy(text, intake->rest + intake->begin + 1, size);
    intake->rest_size = intake->begin;
    char mark[16];
    const int length = snprintf(mark, sizeof mark, "[%d]", intake->count);
    enum error_code code = OK;
    for (int i = 0; i < length && code == OK; i++)
        code = intake_keep(intake, mark[i], err);
    intake->files[intake->count].spool = intake->spool;
    intake_decode_begin(&intake->decoder, &intake->files[intake->count++]);
    intake->state = INTAKE_IN_FILE;
    intake->escape = 0;
    for (size_t i = 0; i < size && code == OK; i++)
        code = intake_file_byte(intake, text[i], err);
    return code;
}

static enum error_code intake_text_byte(struct intake *intake, char c, struct error *err)
{
    enum error_code code = intake_keep(intake, c, err);
    if (intake->escape)
        intake->escape = 0;
    else if (c == '\\')
        intake->escape = 1;
    else if (c == '"')
        intake->state = INTAKE_OUTSIDE;
    const size_t size = intake->rest_size - intake->begin;
    if (code == OK && intake->state == INTAKE_IN_TEXT && size > INTAKE_TEXT &&
        (size > INTAKE_ADDRESS || !intake_is_address(intake->rest + intake->begin + 1, size - 1)))
        code = intake_become_file(intake, err);
    return code;
}

/* A picture is wrong: the error names its field, if the name is an ordinary one. */
static void intake_name_field(const struct intake *intake, struct error *err)
{
    const char *key = intake->rest + intake->key + 1, *end = key;
    while (isalnum((unsigned char)*end) || *end == '_')
        end++;
    struct error named = ERROR_INIT;
    if (!intake->key || *end != '"' || end - key > INTAKE_KEY)
        return;
    error_set(&named, err->code, "%.*s: %s", (int)(end - key), key, err->text);
    *err = named;
}

static enum error_code intake_outside_byte(struct intake *intake, char c, struct error *err)
{
    if (c && strchr(" \t\r\n", c)) /* one is enough to keep two words apart */
        return !intake->rest_size || intake->rest[intake->rest_size - 1] == ' ' ? OK : intake_keep(intake, ' ', err);
    if (!intake->rest_size && c != '{' && c != '[') /* a form, say */
        return error_set(err, ERROR_INVALID, "the body is not JSON: it has to begin with {");
    if (c == '"') {
        intake->state = INTAKE_IN_TEXT;
        intake->begin = intake->rest_size;
        intake->escape = 0;
    } else if (c == '{' || c == '[') {
        if (++intake->depth > INTAKE_DEPTH)
            return error_set(err, ERROR_INVALID, "the JSON is more than %d deep", INTAKE_DEPTH);
    } else if ((c == '}' || c == ']') && intake->depth) {
        intake->depth--;
    } else if (c == ':') {
        intake->key = intake->begin;
    }
    return intake_keep(intake, c, err);
}

enum error_code intake_feed(struct intake *intake, const char *data, size_t size, struct error *err)
{
    enum error_code code = OK;
    intake->received += size;
    if (intake->received > intake->limit) {
        char limit[ERROR_BYTES_MAX];
        return error_set(err, ERROR_TOO_LARGE, "the body is over the limit of %s", error_bytes(limit, intake->limit));
    }
    for (size_t i = 0; i < size && code == OK; i++) {
        if (intake->state == INTAKE_OUTSIDE)
            code = intake_outside_byte(intake, data[i], err);
        else if (intake->state == INTAKE_IN_TEXT)
            code = intake_text_byte(intake, data[i], err);
        else if (data[i] == '"' && !intake->escape) {
            code = intake_decode_end(&intake->decoder, err);
            if (!code)
                intake->state = INTAKE_OUTSIDE;
        } else
            code = intake_file_byte(intake, data[i], err);
    }
    if (code == ERROR_INVALID && intake->state == INTAKE_IN_FILE)
        intake_name_field(intake, err);
    return code;
}

enum error_code intake_finish(struct intake *intake, json_t **out, struct error *err)
{
    json_error_t wrong;
    *out = NULL;
    if (intake->state == INTAKE_IN_FILE)
        return error_set(err, ERROR_INVALID, "the body is not JSON: it ends in the middle of a text");
    *out =
        intake->rest_size ? json_loadb(intake->rest, intake->rest_size, JSON_REJECT_DUPLICATES, &wrong) : json_object();
    if (!*out && intake->rest_size)
        return error_set(err, ERROR_INVALID, "the body is not JSON: %.80s", wrong.text);
    return *out ? OK : error_set(err, ERROR_NO_MEMORY, "no memory for a request");
}

enum error_code intake_file(struct intake *intake, const json_t *value, const char *name, struct body *out,
                            struct error *err)
{
    struct error why = ERROR_INIT;
    *out = (struct body){.spool = intake->spool};
    if (json_is_array(value) && json_array_size(value) == 1 && json_is_integer(json_array_get(value, 0))) {
        const json_int_t file = json_integer_value(json_array_get(value, 0));
        if (file < 0 || file >= intake->count || !intake->files[file].size)
            return error_set(err, ERROR_INVALID, "%s: it is a list of numbers, and not text in base64", name);
        *out = intake->files[file];
        intake->files[file] = (struct body){.spool = intake->spool};
        return OK;
    }
    const char *text = json_string_value(value);
    if (!text)
        return error_set(err, ERROR_INVALID, "%s: it has to be a picture, as text in base64", name);
    enum error_code code = OK;
    intake_decode_begin(&intake->decoder, out);
    for (; *text && code == OK; text++)
        code = intake_decode(&intake->decoder, *text, &why);
    if (code == OK)
        code = intake_decode_end(&intake->decoder, &why);
    if (code)
        body_clear(out);
    return code ? error_set(err, code, "%s: %s", name, why.text) : OK;
}
