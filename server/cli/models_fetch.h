/* Official models whose file cannot be checked alone while it is downloaded: those without a published SHA-256, and
 * ncnn's pairs, whose SHA-256 is that of both files, one behind the other.
 * Thread-safety: for the main thread. */
#ifndef SERVER_CLI_MODELS_FETCH_H
#define SERVER_CLI_MODELS_FETCH_H

#include "server/pipeline/model_conf.h"

/* Whether a model has to be fetched this way. */
bool models_fetch_apart(const struct model_section *section);

/* Whether both files of a pair are in the folder, as published. */
bool models_fetch_is_there(const struct model_section *section, const char *folder);

/* Downloads it to .get in the folder: the files get their names when they are known to be good. That is, their SHA-256
 * is the published one; or there is none, and the network is recognised and gives finite results in a tiny run on the
 * CPU. Says what was done on stdout. mirror: as download_mirror_url, or NULL. Errors: those of download_get; CORRUPT:
 * another content; what model_open and model_trial say. After all but those of the transfer nothing is left of it. */
enum error_code models_fetch(const struct model_section *section, const char *mirror, const char *folder,
                             struct error *err) MUST_CHECK;

#endif
