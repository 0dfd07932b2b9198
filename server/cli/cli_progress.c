#include "server/cli/cli_progress.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "runtime/base/mem.h"
#include "server/job/job.h"

#define PROGRESS_MS 200          /* between two lines */
#define PROGRESS_NAME 40         /* columns of a name at most */
#define PROGRESS_COLUMNS 80      /* where the terminal does not say */
#define PROGRESS_FACES_SHARE 0.3 /* of the bar, where a background is upsampled too */

struct cli_progress {
    const struct restoration *r;
    const char *name;
    const struct cli_batch *batch;
    bool background; /* it may be upsampled; known before its tiles are */
    double part;     /* drawn so far */
    int drawn;       /* columns of the line on the screen */
    int64_t started_ns;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool over;
};

static double cli_progress_ratio(const int count[2])
{
    return count[1] > 0 ? (double)count[0] / count[1] : 0;
}

double cli_progress_part(enum stage stage, bool background, const int faces[2], const int tiles[2])
{
    if (stage > STAGE_BACKGROUND) /* pasting and encoding are short */
        return 1;
    double share = !background ? 1 : faces[1] > 0 ? PROGRESS_FACES_SHARE : 0;
    return share * cli_progress_ratio(faces) + (1 - share) * cli_progress_ratio(tiles);
}

double cli_progress_left(const struct cli_batch *batch, double elapsed, double part)
{
    double whole = part > 0 ? elapsed / part : -1; /* of this picture */
    double rate = batch->done > 0                       ? batch->seconds / batch->done
                  : whole >= 0 && batch->megapixels > 0 ? whole / batch->megapixels
                                                        : -1;
    if (rate < 0)
        return -1;
    if (whole < 0)
        whole = rate * batch->megapixels;
    double own = whole > elapsed ? whole - elapsed : 0;
    return own + rate * batch->left;
}

/* ---- columns ---- */

/* The next UTF-8 character; invalid bytes and control characters become '?'. Returns its number of bytes. */
static size_t cli_progress_character(const char *text, wchar_t *out)
{
    const unsigned char *p = (const unsigned char *)text;
    const size_t size = p[0] < 0x80 ? 1 : p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc2 ? 2 : 0;
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned code = size == 1 ? p[0] : p[0] & (0x7fu >> size);
    *out = L'?';
    if (!size || p[0] >= 0xf5)
        return 1;
    for (size_t i = 1; i < size; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 1;
        code = code << 6 | (p[i] & 0x3fu);
    }
    if (code < least[size] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 1;
    if (code >= 0x20 && !(code >= 0x7f && code < 0xa0))
        *out = (wchar_t)code;
    return size;
}

/* 0, 1 or 2 columns, by C.UTF-8 in any locale. Unknown characters count as two. */
static int cli_progress_columns(wchar_t character)
{
    if (character < 0x7f)
        return 1;
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    if (!utf8)
        return 2;
    locale_t before = uselocale(utf8);
    int columns = wcwidth(character);
    uselocale(before);
    freelocale(utf8);
    return columns < 0 ? 2 : columns;
}

int cli_progress_width(const char *text)
{
    int width = 0;
    wchar_t character;
    for (; *text; text += cli_progress_character(text, &character)) {
        cli_progress_character(text, &character);
        width += cli_progress_columns(character);
    }
    return width;
}

/* Appends characters of text, without its first `skip` columns, up to that many columns. Returns the columns. */
static int cli_progress_copy(char *out, size_t size, const char *text, int skip, int columns)
{
    size_t used = strlen(out);
    int at = 0, width = 0;
    wchar_t character;
    for (size_t bytes; *text; text += bytes) {
        bytes = cli_progress_character(text, &character);
        const int wide = cli_progress_columns(character);
        if (at >= skip && (width + wide > columns || used + bytes + 1 > size))
            break;
        if (at >= skip) {
            memcpy(out + used, character == L'?' ? "?" : text, character == L'?' ? 1 : bytes);
            used += character == L'?' ? 1 : bytes;
            width += wide;
        }
        at += wide;
    }
    out[used] = 0;
    return width;
}

/* The name in at most that many columns: its beginning, "..." and its end. */
static void cli_progress_shorten(char *out, size_t size, const char *name, int columns)
{
    const int width = cli_progress_width(name);
    *out = 0;
    if (width <= columns) {
        cli_progress_copy(out, size, name, 0, columns);
        return;
    }
    const int kept = columns - 3, end = kept / 2;
    if (kept < 2) {
        cli_progress_copy(out, size, name, 0, columns);
        return;
    }
    cli_progress_copy(out, size, name, 0, kept - end);
    snprintf(out + strlen(out), size - strlen(out), "...");
    cli_progress_copy(out, size, name, width - end, end);
}

/* ---- the line ---- */

static void cli_progress_time(char out[48], const char *before, double seconds, const char *after)
{
    const int all = seconds < 1e8 ? (int)seconds : 99999999, hours = all / 3600, minutes = all / 60 % 60;
    *out = 0;
    if (seconds >= 0 && hours)
        snprintf(out, 48, "  %s%d:%02d:%02d%s", before, hours, minutes, all % 60, after);
    else if (seconds >= 0)
        snprintf(out, 48, "  %s%d:%02d%s", before, minutes, all % 60, after);
}

/* What to leave out when the line would be too wide; the first that fits is used. */
static const struct cli_progress_level {
    int name; /* the least columns of the name, if it has as many */
    bool stage, counts, words;
} cli_progress_levels[] = {{12, true, true, true},
                           {10, true, false, true},
                           {8, false, false, true},
                           {4, false, false, false},
                           {0, false, false, false}};
#define PROGRESS_LEVELS (int)(sizeof cli_progress_levels / sizeof *cli_progress_levels)

/* The bar's length depends only on the terminal, so that it does not jump when other parts grow. */
static void cli_progress_bar(char out[32], int columns, double part)
{
    const int length = columns >= 100 ? 24 : columns >= 70 ? 16 : columns >= 48 ? 10 : 0;
    if (!length) {
        snprintf(out, 32, "%d%%", (int)(part * 100));
        return;
    }
    out[0] = '[';
    for (int i = 0; i < length; i++)
        out[1 + i] = i < (int)(part * length) ? '#' : '.';
    snprintf(out + 1 + length, 32 - 1 - (size_t)length, "]");
}

const char *cli_progress_line(char *out, size_t size, int columns, const struct cli_progress_view *view)
{
    char number[64] = "", left[48], counts[80] = "", bar[32], rest[256], line[1024], name[512];
    const bool batch = view->count > 1;
    const double part = view->part < 0 ? 0 : view->part > 1 ? 1 : view->part;
    if (batch)
        snprintf(number, sizeof number, "%zu of %zu  ", view->number, view->count);
    if (view->faces[1] > 0)
        snprintf(counts, sizeof counts, "  faces %d/%d", view->faces[0], view->faces[1]);
    if (view->tiles[1] > 0)
        snprintf(counts + strlen(counts), sizeof counts - strlen(counts), "  tiles %d/%d", view->tiles[0],
                 view->tiles[1]);
    cli_progress_bar(bar, columns, part);
    const int whole = cli_progress_width(view->name), wanted = whole < PROGRESS_NAME ? whole : PROGRESS_NAME;
    int room = 0;
    for (int i = 0; i < PROGRESS_LEVELS; i++) {
        const struct cli_progress_level *level = &cli_progress_levels[i];
        const int least = wanted < level->name ? wanted : level->name;
        cli_progress_time(left, batch && level->words ? "all " : "", batch ? view->all_left : view->seconds,
                          level->words ? " left" : "");
        snprintf(rest, sizeof rest, "%s%s%s%s%s", bar, level->stage ? " " : "", level->stage ? view->stage : "",
                 level->counts ? counts : "", left);
        room = level->name ? columns - (int)strlen(number) - (int)strlen(rest) - 1 : 0;
        if (room >= least)
            break;
    }
    cli_progress_shorten(name, sizeof name, view->name, room > wanted ? wanted : room > 0 ? room : 0);
    snprintf(line, sizeof line, "%s%s%s%s", number, name, *name ? " " : "", rest);
    *out = 0;
    cli_progress_copy(out, size, line, 0, columns > 0 ? columns : 0);
    return out;
}

static int cli_progress_terminal(void)
{
    struct winsize window;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : PROGRESS_COLUMNS;
}

/* Clears the line. A terminal that became narrower may have wrapped it into several. */
static int cli_progress_clear(const struct cli_progress *progress, char *out, size_t size, int columns)
{
    const int rows = progress->drawn > columns ? (progress->drawn - 1) / columns : 0;
    return rows ? snprintf(out, size, "\033[%dA\r\033[J", rows) : snprintf(out, size, "\r\033[K");
}

static void cli_progress_draw(struct cli_progress *progress)
{
    const struct restoration *r = progress->r;
    struct cli_progress_view view = {
        .name = progress->name,
        .number = progress->batch->number,
        .count = progress->batch->count,
        .stage = stage_name((enum stage)atomic_load(&r->stage)),
        .tiles = {atomic_load(&r->tiles_done), atomic_load(&r->tiles_total)},
        .faces = {atomic_load(&r->faces_done), atomic_load(&r->faces_total)},
    };
    double part = cli_progress_part((enum stage)atomic_load(&r->stage), progress->background, view.faces, view.tiles);
    if (part < progress->part) /* tiles that did not fit are done again, smaller */
        part = progress->part;
    view.part = progress->part = part;
    const double elapsed = (double)(job_now() - progress->started_ns) / 1e9;
    view.seconds = part > 0 && part < 1 ? elapsed * (1 - part) / part : -1;
    view.all_left = cli_progress_left(progress->batch, elapsed, part);

    const int columns = cli_progress_terminal();
    char out[1280], line[1024];
    int used = cli_progress_clear(progress, out, sizeof out, columns);
    /* one column stays free, because many terminals go to the next row when the last one is written; they are also told
     * not to wrap, in case they take a character for wider than we do */
    cli_progress_line(line, sizeof line, columns - 1, &view);
    used += snprintf(out + used, sizeof out - (size_t)used, "\033[?7l%s\033[?7h", line);
    progress->drawn = cli_progress_width(line);
    fwrite(out, 1, (size_t)used, stderr);
}

static void *cli_progress_run(void *argument)
{
    struct cli_progress *progress = argument;
    pthread_mutex_lock(&progress->lock);
    while (!progress->over) {
        struct timespec until;
        cli_progress_draw(progress);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += PROGRESS_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&progress->wake, &progress->lock, &until);
    }
    pthread_mutex_unlock(&progress->lock);
    return NULL;
}

struct cli_progress *cli_progress_begin(const struct restoration *r, const char *label, const struct cli_batch *batch)
{
    struct cli_progress *progress = isatty(STDERR_FILENO) ? mem_calloc(1, sizeof *progress) : NULL;
    if (!progress)
        return NULL;
    const char *slash = strrchr(label, '/');
    progress->r = r;
    progress->name = slash ? slash + 1 : label;
    progress->batch = batch;
    progress->background = !r->options.aligned && strcmp(r->options.bg_upsampler, "none") != 0;
    progress->started_ns = job_now();
    pthread_mutex_init(&progress->lock, NULL);
    pthread_cond_init(&progress->wake, NULL);
    if (pthread_create(&progress->thread, NULL, cli_progress_run, progress)) {
        free(progress);
        return NULL;
    }
    return progress;
}

void cli_progress_end(struct cli_progress **progress)
{
    struct cli_progress *old = *progress;
    *progress = NULL;
    if (!old)
        return;
    pthread_mutex_lock(&old->lock);
    old->over = true;
    pthread_cond_signal(&old->wake);
    pthread_mutex_unlock(&old->lock);
    pthread_join(old->thread, NULL);
    char out[64];
    int used = cli_progress_clear(old, out, sizeof out, cli_progress_terminal());
    fwrite(out, 1, (size_t)used, stderr);
    pthread_mutex_destroy(&old->lock);
    pthread_cond_destroy(&old->wake);
    free(old);
}
