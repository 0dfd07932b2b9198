#include "server/cli/cli_progress.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "server/job/job.h"

#define DRAW_MS 200
#define BAR 24
#define FACES_SHARE 0.3 /* of the bar, where a background is upsampled too */

struct cli_progress {
    const struct restoration *r;
    const char *label;
    bool background; /* it may be upsampled; known before its tiles are */
    double part;     /* drawn so far */
    int64_t started_ns;
    pthread_t thread;
    atomic_int over;
};

static double ratio(const int count[2])
{
    return count[1] > 0 ? (double)count[0] / count[1] : 0;
}

double cli_progress_part(enum stage stage, bool background, const int faces[2], const int tiles[2])
{
    if (stage > STAGE_BACKGROUND) /* pasting and encoding are short */
        return 1;
    double share = !background ? 1 : faces[1] > 0 ? FACES_SHARE : 0;
    return share * ratio(faces) + (1 - share) * ratio(tiles);
}

static void draw(struct cli_progress *progress)
{
    const struct restoration *r = progress->r;
    const char *slash = strrchr(progress->label, '/'), *label = slash ? slash + 1 : progress->label;
    const int tiles[] = {atomic_load(&r->tiles_done), atomic_load(&r->tiles_total)};
    const int faces[] = {atomic_load(&r->faces_done), atomic_load(&r->faces_total)};
    enum stage stage = (enum stage)atomic_load(&r->stage);
    double part = cli_progress_part(stage, progress->background, faces, tiles);
    if (part < progress->part) /* tiles that did not fit are done again, smaller */
        part = progress->part;
    progress->part = part;
    double seconds = (double)(job_now() - progress->started_ns) / 1e9;
    char bar[BAR + 1], left[32] = "", counts[80] = "";
    for (int i = 0; i < BAR; i++)
        bar[i] = i < (int)(part * BAR) ? '#' : '.';
    bar[BAR] = 0;
    if (part > 0 && part < 1) {
        int remaining = (int)(seconds * (1 - part) / part);
        snprintf(left, sizeof left, "%d:%02d left", remaining / 60, remaining % 60);
    }
    if (faces[1] > 0)
        snprintf(counts, sizeof counts, "  faces %d/%d", faces[0], faces[1]);
    if (tiles[1] > 0)
        snprintf(counts + strlen(counts), sizeof counts - strlen(counts), "  tiles %d/%d", tiles[0], tiles[1]);
    char line[256];
    snprintf(line, sizeof line, "%.40s [%s] %s%s  %s", label, bar, stage_name(stage), counts, left);
    fprintf(stderr, "\r\033[K%s", line);
}

static void *run(void *argument)
{
    struct cli_progress *progress = argument;
    while (!atomic_load(&progress->over)) {
        draw(progress);
        usleep(DRAW_MS * 1000);
    }
    return NULL;
}

struct cli_progress *cli_progress_begin(const struct restoration *r, const char *label)
{
    struct cli_progress *progress = isatty(STDERR_FILENO) ? mem_calloc(1, sizeof *progress) : NULL;
    if (!progress)
        return NULL;
    progress->r = r;
    progress->label = label;
    progress->background = !r->options.aligned && strcmp(r->options.bg_upsampler, "none") != 0;
    progress->started_ns = job_now();
    if (pthread_create(&progress->thread, NULL, run, progress)) {
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
    atomic_store(&old->over, 1);
    pthread_join(old->thread, NULL);
    fprintf(stderr, "\r\033[K");
    free(old);
}
