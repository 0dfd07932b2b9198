/* What restored restore writes: the files of a restoration in the reference's layout, and the lines about them.
 * Thread-safety: for the main thread. */
#ifndef SERVER_CLI_CLI_OUTPUT_H
#define SERVER_CLI_CLI_OUTPUT_H

#include <jansson.h>
#include <stdio.h>

#include "server/pipeline/pipeline.h"

/* Where the picture NAME goes below the folder: restored_imgs/NAME.ext, with aligned restored_faces/NAME_00.png, with
 * the options' suffix. format: of the result; if the input's extension is one of it, that spelling is kept. ERROR_INVALID
 * when that is too long. */
enum error_code cli_output_path(char *out, size_t size, const char *folder, const char *name,
                                const struct options *options, enum image_format format, const char *input,
                                struct error *err) MUST_CHECK;

/* Whether the folder holds results of that name: a picture of any format, or a face. */
bool cli_output_taken(const char *folder, const char *name, const struct options *options);

/* Creates the folder (that of the file, if the output is a file) and tries to write into it, before any work is done.
 * ERROR_IO says why that failed. */
enum error_code cli_output_check(const char *path, bool is_file, const struct options *options,
                                 struct error *err) MUST_CHECK;

#define CLI_OUTPUT_SIZE 32 /* bytes of such a text with its final 0 */
/* "12 MB", or, of less than one, "340 kB": never 0 of something. */
void cli_output_size(char out[CLI_OUTPUT_SIZE], double bytes);

/* Warns on stderr when the folder's disk has less than `bytes` free. */
void cli_output_warn_space(const char *folder, double bytes);

/* Writes the picture to that file. ERROR_INVALID when that would overwrite the input. */
enum error_code cli_output_file(const struct restoration *r, const char *input, const char *path,
                                struct error *err) MUST_CHECK;

/* Writes the mask of what was filled: to masks/NAME.png below the folder, or (folder NULL) to NAME_mask.png, where name
 * is the result's path, whose extension is left out. If nothing was filled, removes the mask of an earlier result,
 * unless that is the input or the mask that was sent (NULL: none was). */
enum error_code cli_output_mask(const struct restoration *r, const char *input, const char *sent, const char *folder,
                                const char *name, struct error *err) MUST_CHECK;

/* Writes the picture to stdout. */
enum error_code cli_output_stdout(const struct restoration *r, struct error *err) MUST_CHECK;

/* Writes the picture to `path`, of cli_output_path, and then the faces to restored_faces/, cropped_faces/ and cmp/
 * below the folder. ERROR_INVALID when that would overwrite the input. */
enum error_code cli_output_folder(const struct restoration *r, const char *input, const char *name, const char *folder,
                                  const char *path, struct error *err) MUST_CHECK;

/* Prints "input -> written", fit for a terminal: file names may have any characters. */
void cli_output_names(FILE *out, const char *input, const char *written);

/* Prints one line that says what happened to a file. */
void cli_output_line(FILE *out, const struct restoration *r, const char *input, const char *written, double seconds);

/* The report as one line of JSON, with "file" and "written". */
void cli_output_json(FILE *out, const struct restoration *r, const char *input, const char *written);

#endif
