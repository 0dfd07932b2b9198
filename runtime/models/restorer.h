/* What the networks that keep a picture's size have in common: DnCNN, DRUNet and FBCNN (names as in KAIR, whose blocks
 * all three are made of). A gray network is given the luma, and what it changes is added to every channel, so that a
 * coloured picture keeps its colours and a gray one stays gray.
 * Thread-safety: as model_build.h. */
#ifndef RUNTIME_MODELS_RESTORER_H
#define RUNTIME_MODELS_RESTORER_H

#include "runtime/models/model_build.h"

#define RESTORER_NOISE 15 /* of 255: the noise level that a network is told where nobody says another */

/* A picture on its way through such a network. */
struct restorer {
    struct view picture; /* RGB */
    struct view x;       /* as the network is given it */
    struct view pair;    /* gray: segment 0 is for the network's result, segment 1 the luma */
    int channels;        /* of the network's picture: 1 or 3 */
};

/* Channels of the network's picture, 1 or 3, by its first and last tensor; *level: there is one more in, the noise
 * level. 0: neither, with err set where the name of the network is given. */
int restorer_channels(int in, int out, bool *level, const char *network, struct error *err);

/* The input. level: with a channel that is the noise level everywhere. */
void restorer_begin(struct model_build *b, const struct session_shape *shape, int channels, bool level,
                    struct restorer *r);

/* Where the network's last convolution writes its picture. */
struct view restorer_result(struct model_build *b, struct restorer *r);

/* After it. */
void restorer_end(struct model_build *b, const struct restorer *r);

/* A convolution with a bias if the file has one. */
struct node *restorer_conv(struct model_build *b, const char *name, struct view x, struct view out, int kernel);

/* name.first and so on, `count` of them; the last one adds `skip`. */
struct view restorer_blocks(struct model_build *b, const char *name, int first, int count, struct view x,
                            struct view skip);

/* A 2×2 convolution with stride 2. */
struct view restorer_halve(struct model_build *b, const char *name, struct view x);

#endif
