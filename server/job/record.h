/* The JSON texts of a stored job: what was asked for, what became of it, and where its pictures lie in its output's
 * file. Thread-safety: functions without state. */
#ifndef SERVER_JOB_RECORD_H
#define SERVER_JOB_RECORD_H

#include "server/job/job.h"
#include "server/store/spool.h"

/* Among what a job needs: its body has a second picture that the result is blended with, or a mask with transparency. A
 * server that does not offer this would do without. */
#define RECORD_BLENDS "#blend"
/* And an option that is newer than shared stores, where it is not at its default. */
#define RECORD_OPTION "#option %s"
bool record_is_newer(const char *option);

/* The options and the owner's other settings of a restoration; free(). NULL when memory is out. Options that are newer
 * than shared stores are left out at their defaults, so that an older worker does the job. */
char *record_options(const struct restoration *r);
/* The models that its options name, and what else a server must know, for store_offer: a JSON array of texts, free();
 * NULL: none. */
char *record_needs(const struct restoration *r);

/* A restoration with these settings, without a picture. ERROR_CORRUPT: the text is not one of record_options. */
enum error_code record_restoration(const char *text, const struct limits *limits, struct restoration **out,
                                   struct error *err) MUST_CHECK;

/* restoration_report as text; free(). NULL when memory is out. */
char *record_report(const struct restoration *r);

/* An error, and whether the picture could be read before it; free(). NULL when memory is out. */
char *record_error(const struct error *err, bool decoded);
void record_read_error(const char *text, struct error *err, bool *decoded);

/* Writes a finished job's pictures one after the other: the result, the mask, then each face's crop and restored
 * picture. parts: a JSON array that tells where each of them lies: {kind ("result", "mask", "crop", "restored"), face,
 * number, type, extension, offset, size}, and the result's etag; free(). Nothing is written, and parts is "[]", for a
 * detection. */
enum error_code record_output(const struct job *job, struct spool_file *file, char **parts,
                              struct error *err) MUST_CHECK;

/* One of these pictures. */
struct record_part {
    char kind[12], type[64], extension[16];
    char etag[40];         /* "": it has none */
    int face, number;      /* -1: it is no face's */
    uint64_t offset, size; /* in the output's file */
};

/* Reads that list back into an array; free(). Returns how many there are; 0: none, or the text is no such list. */
size_t record_parts(const char *text, struct record_part **out);
/* The first picture of that kind, and of that face unless it is negative; false: there is none. */
bool record_part(const char *text, const char *kind, int face, struct record_part *out);

#endif
