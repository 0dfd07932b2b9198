/* What restored restore writes: the files of a restoration in the reference's layout, and what it says about them.
 * Thread-safety: for the main thread. */
#ifndef SERVER_CLI_CLI_OUTPUT_H
#define SERVER_CLI_CLI_OUTPUT_H

#include <jansson.h>

#include "server/pipeline/pipeline.h"

/* A path's last part without its extension. Returns out. */
const char *cli_output_stem(const char *path, char *out, size_t size);

/* Writes the picture as that one file; what was written into `written`. ERROR_INVALID when that would overwrite the
 * input. */
enum error_code cli_output_file(const struct restoration *r, const char *input, const char *path, char *written,
                                size_t size, struct error *err) MUST_CHECK;

/* Writes restored_imgs/, restored_faces/, cropped_faces/ and cmp/ below the folder; with aligned no restored_imgs. The
 * picture's path (aligned: the face's) into `written`. */
enum error_code cli_output_folder(const struct restoration *r, const char *input, const char *name, const char *folder,
                                  char *written, size_t size, struct error *err) MUST_CHECK;

/* One line on stdout: what became of a file; its notes below. */
void cli_output_line(const struct restoration *r, const char *input, const char *written, double seconds);

/* The report as one line of JSON, with "file" and "written". */
void cli_output_json(const struct restoration *r, const char *input, const char *written);

#endif
