/* What a licence's name tells.
 * Thread-safety: a function without state. */
#ifndef SERVER_PIPELINE_LICENCE_H
#define SERVER_PIPELINE_LICENCE_H

#include <stdbool.h>

/* Whether a licence of that name forbids commercial use: "CC-BY-NC-SA-4.0" and others of that family, "S-Lab 1.0",
 * and what says "non-commercial" itself. */
bool licence_non_commercial(const char *name);

/* " (non-commercial)", to be printed after such a name, unless the name says so in this word; else "". */
const char *licence_mark(const char *name);

/* The licence that all published weights of a network have (struct model_info's architecture), whatever a file is
 * called; "": they differ. CodeFormer's is S-Lab License 1.0 (LICENSE of sczhou/CodeFormer). */
const char *licence_of_network(const char *architecture);

#endif
