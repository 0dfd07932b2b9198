#include "server/job/speed.h"

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define SPEED_ROWS 256
#define SPEED_HEADER "restored speed 1\n"
#define SPEED_FILE_MAX (SPEED_ROWS * (SPEED_NAME_MAX + 96) + 64)
#define SPEED_SAVE_MS 60000
#define SPEED_LEAST 1e-12 /* seconds a unit; values beyond these are not measurements */
#define SPEED_MOST 1e9
#define SPEED_WEIGHT 0.3    /* weight of a new job after the first few */
#define SPEED_MEAN 0.1      /* the same, of a mean */
#define SPEED_SURPRISE 1.4  /* log of 4: one job changes a known rate by no larger factor */
#define SPEED_SPREAD 0.3    /* at first, as a logarithm */
#define SPEED_UNKNOWN 4.0   /* the factor that a guess may be off by */
#define SPEED_RESIDUAL 0.15 /* at least this part of a job's time goes to the unknown terms */

struct speed_row {
    char name[SPEED_NAME_MAX];
    double rate, spread; /* spread: mean of the absolute logarithm */
    unsigned count;
    uint64_t used; /* when, by the table's count */
};

struct speed_table {
    pthread_mutex_t lock;
    struct speed_row rows[SPEED_ROWS];
    int count;
    uint64_t clock;
    bool changed;
    double saved_ms;
    char path[1200]; /* "": it is not kept */
    char folder[1024];
};

/* --- the file ------------------------------------------------------------------------------------------------------
 */

static bool speed_sane(double rate)
{
    return rate >= SPEED_LEAST && rate <= SPEED_MOST; /* false for NaN */
}

/* "RATE SPREAD COUNT NAME"; false: the line is different. */
static bool speed_parse_line(const char *line, struct speed_row *row)
{
    int name = 0;
    *row = (struct speed_row){0};
    if (sscanf(line, "%lf %lf %u %n", &row->rate, &row->spread, &row->count, &name) < 3 || !name || !line[name] ||
        strlen(line + name) >= sizeof row->name)
        return false;
    strcpy(row->name, line + name);
    return speed_sane(row->rate) && row->spread >= 0 && row->spread < 10 && row->count > 0;
}

/* Reads all lines or none: a file that is damaged in one place may be wrong in others. */
static void speed_parse(struct speed_table *table, char *text)
{
    char *rest = NULL;
    if (strncmp(text, SPEED_HEADER, sizeof SPEED_HEADER - 1) != 0)
        return;
    for (char *line = strtok_r(text + sizeof SPEED_HEADER - 1, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (table->count == SPEED_ROWS || !speed_parse_line(line, &table->rows[table->count++])) {
            log_event(LOG_WARN, "speed", "file=\"%s\" text=\"it is damaged; speeds are measured anew\"", table->path);
            table->count = 0;
            return;
        }
}

static void speed_load(struct speed_table *table)
{
    struct file file;
    struct error err = ERROR_INIT;
    if (file_map(&file, table->path, &err))
        return;
    char *text = file.size && file.size <= SPEED_FILE_MAX && !memchr(file.data, 0, file.size)
                     ? mem_alloc(file.size + 1, 1)
                     : NULL;
    if (text) {
        memcpy(text, file.data, file.size);
        text[file.size] = 0;
        speed_parse(table, text);
    }
    free(text);
    file_unmap(&file);
}

enum error_code speed_open(struct speed_table **out, const char *folder, struct error *err)
{
    struct speed_table *table = *out = mem_calloc(1, sizeof *table);
    if (!table)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the table of speeds");
    pthread_mutex_init(&table->lock, NULL);
    table->saved_ms = log_clock_ms();
    if (folder && *folder) {
        snprintf(table->folder, sizeof table->folder, "%s", folder);
        snprintf(table->path, sizeof table->path, "%s/speed.txt", folder);
        speed_load(table);
    }
    return OK;
}

void speed_save(struct speed_table *table, bool now)
{
    char *text = NULL;
    size_t used = 0;
    struct error err = ERROR_INIT;
    pthread_mutex_lock(&table->lock);
    const double ms = log_clock_ms();
    if (*table->path && table->changed && (now || ms - table->saved_ms >= SPEED_SAVE_MS))
        text = mem_alloc(SPEED_FILE_MAX, 1);
    if (text) {
        used = (size_t)sprintf(text, SPEED_HEADER);
        for (int i = 0; i < table->count; i++) {
            const struct speed_row *row = &table->rows[i];
            used += (size_t)snprintf(text + used, SPEED_FILE_MAX - used, "%.6g %.4g %u %s\n", row->rate, row->spread,
                                     row->count, row->name);
        }
        table->changed = false;
        table->saved_ms = ms;
    }
    pthread_mutex_unlock(&table->lock);
    if (text && (file_make_folders(table->folder, 0777, &err) || file_write(table->path, text, used, &err)))
        log_event(LOG_DEBUG, "speed", "reason=\"%s\"", err.text); /* it is measured again next time */
    free(text);
}

void speed_close(struct speed_table **table)
{
    struct speed_table *old = *table;
    *table = NULL;
    if (!old)
        return;
    speed_save(old, true);
    pthread_mutex_destroy(&old->lock);
    free(old);
}

/* --- what is known -------------------------------------------------------------------------------------------------
 */

/* Under the lock. */
static struct speed_row *speed_find(struct speed_table *table, const char *name)
{
    for (int i = 0; i < table->count; i++)
        if (!strcmp(table->rows[i].name, name)) {
            table->rows[i].used = ++table->clock;
            return &table->rows[i];
        }
    return NULL;
}

/* Under the lock: a row for something new; when all are in use, the one that was not asked for the longest is
 * replaced. */
static struct speed_row *speed_add(struct speed_table *table, const char *name)
{
    struct speed_row *row = &table->rows[0];
    if (table->count < SPEED_ROWS)
        row = &table->rows[table->count++];
    else
        for (int i = 1; i < table->count; i++)
            row = table->rows[i].used < row->used ? &table->rows[i] : row;
    *row = (struct speed_row){.used = ++table->clock, .spread = SPEED_SPREAD};
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

static void speed_read_locked(struct speed_table *table, struct speed_term *terms, int count)
{
    for (int i = 0; i < count; i++) {
        const struct speed_row *row = speed_find(table, terms[i].name);
        terms[i].known = row != NULL;
        terms[i].rate = row ? row->rate : terms[i].guess;
        terms[i].spread = row ? exp(1.5 * row->spread) : SPEED_UNKNOWN;
    }
}

void speed_read(struct speed_table *table, struct speed_term *terms, int count)
{
    pthread_mutex_lock(&table->lock);
    speed_read_locked(table, terms, count);
    pthread_mutex_unlock(&table->lock);
}

static double speed_clamp(double value, double most)
{
    return value > most ? most : value < -most ? -most : value;
}

static void speed_move(struct speed_table *table, const struct speed_term *term, double surprise, double share)
{
    struct speed_row *row = speed_find(table, term->name);
    const double weight = fmax(SPEED_WEIGHT, 1.0 / (row->count + 1)) * share;
    const double rate = row->rate * exp(weight * speed_clamp(surprise, SPEED_SURPRISE));
    row->spread += weight * (fmin(fabs(surprise), SPEED_SURPRISE) - row->spread);
    if (speed_sane(rate))
        row->rate = rate;
    row->count += row->count < 1000;
}

void speed_learn(struct speed_table *table, struct speed_term *terms, int count, double seconds)
{
    double known = 0, unknown = 0, largest = 0;
    if (!(seconds > 0) || !isfinite(seconds))
        return;
    pthread_mutex_lock(&table->lock);
    speed_read_locked(table, terms, count);
    for (int i = 0; i < count; i++) {
        const double part = terms[i].amount * terms[i].rate;
        *(terms[i].known ? &known : &unknown) += part;
        largest = part > largest ? part : largest;
    }
    const double left = fmax(seconds - known, SPEED_RESIDUAL * seconds);
    for (int i = 0; i < count; i++) {
        struct speed_term *term = &terms[i];
        const double rate = unknown > 0 ? term->rate * left / unknown : 0;
        if (!(term->amount > 0))
            continue;
        if (unknown > 0 && !term->known && speed_sane(rate)) {
            struct speed_row *row = speed_add(table, term->name);
            row->rate = rate;
            row->count = 1;
        } else if (!(unknown > 0) && largest > 0) {
            speed_move(table, term, log(seconds / known), term->amount * term->rate / largest);
        }
    }
    speed_read_locked(table, terms, count);
    table->changed = true;
    pthread_mutex_unlock(&table->lock);
}

double speed_mean(struct speed_table *table, const char *name, double guess)
{
    pthread_mutex_lock(&table->lock);
    const struct speed_row *row = speed_find(table, name);
    const double mean = row ? row->rate : guess;
    pthread_mutex_unlock(&table->lock);
    return mean;
}

void speed_learn_mean(struct speed_table *table, const char *name, double guess, double value)
{
    pthread_mutex_lock(&table->lock);
    struct speed_row *row = speed_find(table, name);
    if (!row) {
        row = speed_add(table, name);
        row->rate = guess;
        row->count = 1;
    }
    const double mean = row->rate + fmax(SPEED_MEAN, 1.0 / (row->count + 1)) * (value - row->rate);
    row->rate = fmin(fmax(mean, SPEED_LEAST), SPEED_MOST); /* the file has no zeros */
    row->count += row->count < 1000;
    table->changed = true;
    pthread_mutex_unlock(&table->lock);
}
