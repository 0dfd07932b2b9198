/* The official shapes with random weights: each appends the tensors of a network.
 * Thread-safety: as random.h. */
#ifndef RUNTIME_MODELS_RANDOM_NETWORKS_H
#define RUNTIME_MODELS_RANDOM_NETWORKS_H

#include "runtime/models/random.h"

void random_rrdbnet(struct random_file *f, int scale, int blocks);
void random_srvgg(struct random_file *f, int scale, int convolutions);
void random_dncnn(struct random_file *f);
void random_restorer(struct random_file *f, bool fbcnn);
void random_span(struct random_file *f);
void random_plksr(struct random_file *f);
void random_cugan(struct random_file *f);
void random_gfpgan(struct random_file *f);
void random_gfpgan_original(struct random_file *f);
void random_restoreformer(struct random_file *f, int more);
void random_codeformer(struct random_file *f);
void random_parsenet(struct random_file *f);
void random_mobilenet(struct random_file *f);
void random_resnet50(struct random_file *f);

#endif
