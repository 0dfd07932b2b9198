/* Fetches files from the network or another folder with libcurl: resumes interrupted downloads, and checks a file
 * before giving it its name. Only for the command line: the server fetches nothing.
 * Thread-safety: for the main thread. */
#ifndef SERVER_CLI_DOWNLOAD_H
#define SERVER_CLI_DOWNLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

/* of official files: download.offline */
#define DOWNLOAD_OFFLINE "restored models get --mirror DIR takes the official files from a folder"

struct download {
    const char *url;    /* https:// or file:// */
    bool any_http;      /* http:// is allowed, too: the user gave the address */
    const char *folder; /* the destination; created if it does not exist */
    const char *file;   /* its name there; FILE.part until it is complete and checked */
    const char *offline; /* what may be done without a connection */
    const char *sha256; /* lower case hexadecimal; "": not known */
    uint64_t bytes;     /* 0: not known */
    char found[65];     /* out: its SHA-256 */
};

/* Whether the folder already holds the complete file, as published. */
bool download_is_there(struct download *download);

/* Downloads it and, if stderr is a terminal, shows the progress in one line there. A broken connection is resumed a few
 * times, and what arrived is kept for the next call. ERROR_IO says what failed (no connection, an answer of 404, no
 * space); ERROR_CORRUPT: the content differs from what was published, and was removed; ERROR_BUSY: another process is
 * downloading it. */
enum error_code download_get(struct download *download, struct error *err) MUST_CHECK;

/* The address as it may be shown and kept: without a name and password, and without what follows '?' or '#', where
 * tokens stand. */
void download_shown(char *out, size_t size, const char *url);

/* file:// with the folder's absolute path and the file's name, or URL/FILE for a mirror that contains "://".
 * ERROR_NOT_FOUND: there is no such folder. */
enum error_code download_mirror_url(char *out, size_t size, const char *mirror, const char *file,
                                    struct error *err) MUST_CHECK;

#endif
