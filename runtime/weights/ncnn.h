/* ncnn's models, a .param (the layers) and a .bin (their weights, without names), as upscayl, realesrgan-ncnn-vulkan
 * and realcugan-ncnn-vulkan ship them: RRDBNet, SRVGGNetCompact and Real-CUGAN. The layers are compared with what these
 * networks compute, however they are spelt, and the tensors get the names that the networks' checkpoints have. Anything
 * else is refused: UNSUPPORTED, the text names the layer. Files of Real-CUGAN pro have its range of values within their
 * weights, and so are read as any other.
 * Thread-safety: no shared state. */
#ifndef RUNTIME_WEIGHTS_NCNN_H
#define RUNTIME_WEIGHTS_NCNN_H

#include "runtime/weights/catalogue.h"

/* Fills the catalogue, whose data are the .bin, by this .param. UNSUPPORTED, CORRUPT, TOO_LARGE, NO_MEMORY. A resize
 * behind the network is left out: the picture gets its size from who asks for it. */
enum error_code ncnn_read(struct catalogue *catalogue, const char *text, size_t size, struct error *err) MUST_CHECK;

#endif
