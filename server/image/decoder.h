/* Decoding in processes of their own, so that a flaw in a library which reads strangers' files costs one picture: a
 * process without files, network, programs or rights (decoder_child.c) reads one picture and ends. Its pixels come back
 * in memory that both share. Without decoder_start everything is decoded in this process.
 * Thread-safety: decoder_decode may be called from any thread; start and stop while no other does anything here. */
#ifndef SERVER_IMAGE_DECODER_H
#define SERVER_IMAGE_DECODER_H

#include "server/image/codec.h"
#include "server/image/plane_file.h"

/* Starts the process from which those that decode are forked, before this process gives up the right to start programs.
 * program: its file; NULL: this one's. ERROR_IO: it could not be started. */
enum error_code decoder_start(const char *program, struct error *err) MUST_CHECK;
void decoder_stop(void);

/* What a process is made to do instead, for tests. */
enum decoder_fault { DECODER_FINE, DECODER_CRASH, DECODER_HANG, DECODER_BOMB };

struct decoder_job {
    const uint8_t *bytes;
    size_t size;
    int fd; /* of a file that begins with these bytes, which saves a copy of them; -1: none */
    int page;
    uint64_t max_pixels;
    int reduced;              /* of decoder_decode_into: by codec_read_reduced; 0: by nothing */
    bool salvage;             /* as damage of codec_decode_page */
    enum decoder_fault fault; /* DECODER_FINE but in tests */
    /* Asked some times a second whether to go on; what it returns ends the decoding. */
    enum error_code (*check)(void *context, struct error *err);
    void *context;
};

/* As codec_decode_page. ERROR_CORRUPT also when the process died or used more time or memory than such a picture should
 * (*died is true then), ERROR_INTERNAL when there is none to be had. */
enum error_code decoder_decode(const struct decoder_job *job, struct image **out, struct codec_info *info,
                               struct codec_damage *damage, bool *died, struct error *err) MUST_CHECK;

/* The same into an empty file on a disk, open for reading and writing, whose room is taken at once. Of formats that are
 * read row by row (JPEG, PNG) only some rows are in memory at a time. out->fd is the file. ERROR_FULL: the disk has no
 * room for it. */
enum error_code decoder_decode_into(const struct decoder_job *job, int file, struct plane_file *out,
                                    struct error *err) MUST_CHECK;

#endif
