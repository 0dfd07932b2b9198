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

struct cli_progress {
    const struct restoration *r;
    const char *label;
    int64_t started_ns;
    pthread_t thread;
    atomic_int over;
};

static void draw(const struct cli_progress *progress)
{
    const struct restoration *r = progress->r;
    const char *slash = strrchr(progress->label, '/'), *label = slash ? slash + 1 : progress->label;
    int tiles = atomic_load(&r->tiles_done), tiles_total = atomic_load(&r->tiles_total);
    int faces = atomic_load(&r->faces_done), faces_total = atomic_load(&r->faces_total);
    int done = tiles + faces, total = tiles_total + faces_total;
    double part = total > 0 ? (double)done / total : 0;
    double seconds = (double)(job_now() - progress->started_ns) / 1e9;
    char bar[BAR + 1], left[32] = "", counts[80] = "";
    for (int i = 0; i < BAR; i++)
        bar[i] = i < (int)(part * BAR) ? '#' : '.';
    bar[BAR] = 0;
    if (part > 0 && part < 1) {
        int remaining = (int)(seconds * (1 - part) / part);
        snprintf(left, sizeof left, "%d:%02d left", remaining / 60, remaining % 60);
    }
    if (tiles_total > 0)
        snprintf(counts, sizeof counts, "  tiles %d/%d", tiles, tiles_total);
    if (faces_total > 0)
        snprintf(counts + strlen(counts), sizeof counts - strlen(counts), "  faces %d/%d", faces, faces_total);
    char line[256];
    snprintf(line, sizeof line, "%.40s [%s] %s%s  %s", label, bar, stage_name((enum stage)atomic_load(&r->stage)),
             counts, left);
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
