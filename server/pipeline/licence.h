/* What is known of a file's licence, and what a licence's name tells.
 * Thread-safety: functions without state. */
#ifndef SERVER_PIPELINE_LICENCE_H
#define SERVER_PIPELINE_LICENCE_H

#include <stdbool.h>
#include <stddef.h>

struct weights;

/* Whether a licence of that name forbids commercial use: "CC-BY-NC-SA-4.0" and others of that family, "S-Lab 1.0",
 * "NVIDIA Source Code License-NC", and what says "non-commercial", "personal use" or "research only" itself. */
bool licence_non_commercial(const char *name);

/* " (non-commercial)", to be printed after such a name, unless the name says so in this word; else "". */
const char *licence_mark(const char *name);

/* What the file says of its licence: `licence`, `license` or `modelspec.license` of its metadata, in plain ASCII; "":
 * nothing. */
void licence_told(const struct weights *weights, char *out, size_t size);

/* The licence that all published weights of a network have (struct model_info's architecture), whatever a file is
 * called; "": they differ. CodeFormer's is S-Lab License 1.0 (LICENSE of sczhou/CodeFormer). */
const char *licence_of_network(const char *architecture);

#endif
