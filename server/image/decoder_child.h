/* The processes of decoder.c: one that forks, and those forked, each of which decodes one picture. The first is a
 * program of its own with a single thread, because a fork of a process with threads may do hardly anything. Only for
 * decoder.c and main. Thread-safety: runs as the only thread of its process. */
#ifndef SERVER_IMAGE_DECODER_CHILD_H
#define SERVER_IMAGE_DECODER_CHILD_H

#include "server/image/decoder.h"

#define DECODER_COMMAND "decode-for-server" /* the subcommand that runs decoder_child_main; in no list */
#define DECODER_CONTROL 3                   /* the descriptor of its socket */
#define DECODER_BLOBS 6                     /* ICC, EXIF, XMP, the colours' model, IPTC, CMYK */
#define DECODER_NONE UINT64_MAX             /* no such plane */

/* To the one that forks, in datagrams: with begin comes the socket of the new one. */
struct decoder_order {
    uint64_t id;
    bool begin; /* else: kill it, if it is still there */
};

/* To the one that decodes, with two descriptors: the file, and memory for the picture. */
struct decoder_request {
    uint64_t size, max_pixels;
    uint64_t cpu_seconds, memory; /* what it may take; memory beside what it has at its start */
    int page, reduced;
    bool salvage;
    bool disk; /* that memory is a file on a disk */
    enum decoder_fault fault;
};

/* Back. Offsets are of the shared memory. */
struct decoder_answer {
    bool died;  /* the one that forks says so; only status is set */
    int status; /* as waitpid has it */
    enum error_code code;
    char text[640], detail[256];
    struct codec_info info;
    struct codec_damage damage;
    int width, height, channels, bits;
    unsigned notes;
    double density[2];
    uint64_t pixels, alpha;
    struct {
        uint64_t at, size;
    } blobs[DECODER_BLOBS];
};

/* Until the socket closes; the exit status. */
int decoder_child_main(void);

#endif
