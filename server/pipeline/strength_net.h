/* How much of a restoration is nearest to the truth: a small network, fitted to faces of known truth.
 * Thread-safety: pure. */
#ifndef SERVER_PIPELINE_STRENGTH_NET_H
#define SERVER_PIPELINE_STRENGTH_NET_H

/* The first nine are measures of the whole face, the others of a cell (strength.c). */
enum { STRENGTH_NET_INPUTS = 12 };

/* 0..1: how much is used. */
double strength_net(const double in[STRENGTH_NET_INPUTS]);

#endif
