/* The layers of Real-CUGAN's files for ncnn (realcugan-ncnn-vulkan 395302c, models). */
#include <string.h>

#include "runtime/weights/ncnn_terms.h"

/* In the order in which the network, and so the file, has them. */
static const char *const cugan_names[] = {"unet1.conv1.conv.0",
                                          "unet1.conv1.conv.2",
                                          "unet1.conv1_down",
                                          "unet1.conv2.conv.0",
                                          "unet1.conv2.conv.2",
                                          "unet1.conv2.seblock.conv1",
                                          "unet1.conv2.seblock.conv2",
                                          "unet1.conv2_up",
                                          "unet1.conv3",
                                          "unet1.conv_bottom",
                                          "unet2.conv1.conv.0",
                                          "unet2.conv1.conv.2",
                                          "unet2.conv1_down",
                                          "unet2.conv2.conv.0",
                                          "unet2.conv2.conv.2",
                                          "unet2.conv2.seblock.conv1",
                                          "unet2.conv2.seblock.conv2",
                                          "unet2.conv2_down",
                                          "unet2.conv3.conv.0",
                                          "unet2.conv3.conv.2",
                                          "unet2.conv3.seblock.conv1",
                                          "unet2.conv3.seblock.conv2",
                                          "unet2.conv3_up",
                                          "unet2.conv4.conv.0",
                                          "unet2.conv4.conv.2",
                                          "unet2.conv4.seblock.conv1",
                                          "unet2.conv4.seblock.conv2",
                                          "unet2.conv4_up",
                                          "unet2.conv5",
                                          "unet2.conv_bottom",
                                          "conv_final"};

/* "nose" files are without the blocks that scale channels. */
static bool cugan_has(const struct ncnn *n, int name)
{
    return n->mean_count > 0 || !strstr(cugan_names[name], ".seblock.");
}

/* The next convolution of x, which gets the next name. */
static int cugan_plain(struct ncnn *n, int *conv, enum ncnn_conv kind, int x)
{
    int name = 0;
    for (int left = *conv; left > 0 || !cugan_has(n, name); name++)
        left -= cugan_has(n, name);
    if (*conv < n->conv_count)
        n->names[*conv] = cugan_names[name];
    return ncnn_next(n, conv, kind, x, "Real-CUGAN");
}

static int cugan_conv(struct ncnn *n, int *conv, enum ncnn_conv kind, int x)
{
    return terms_leaky(&n->terms, cugan_plain(n, conv, kind, x), 0.1f);
}

static int cugan_pair(struct ncnn *n, int *conv, int x)
{
    return cugan_conv(n, conv, NCNN_CONV_3_1_0, cugan_conv(n, conv, NCNN_CONV_3_1_0, x));
}

/* Two convolutions, and the channels times the factors that their means give. */
static int cugan_gated(struct ncnn *n, int *conv, int x)
{
    x = cugan_pair(n, conv, x);
    if (!n->mean_count)
        return x;
    const int mean = terms_of(&n->terms, TERM_MEAN, x, 0),
              small = terms_leaky(&n->terms, cugan_plain(n, conv, NCNN_CONV_1_1_0, mean), 0),
              factors = terms_of(&n->terms, TERM_SIGMOID, cugan_plain(n, conv, NCNN_CONV_1_1_0, small), 0);
    return terms_pair(&n->terms, TERM_MULTIPLY, x, factors);
}

/* x made twice as large, and of `skip` what is as large as that. */
static int cugan_up(struct ncnn *n, int *conv, int x, int skip, int crop)
{
    const int up = cugan_conv(n, conv, NCNN_DECONV_2_2_0, x);
    return terms_pair(&n->terms, TERM_ADD, terms_of(&n->terms, TERM_CROP, skip, crop), up);
}

static int cugan_first(struct ncnn *n, int *conv, int x)
{
    const int whole = cugan_pair(n, conv, x);
    x = cugan_gated(n, conv, cugan_conv(n, conv, NCNN_CONV_2_2_0, whole));
    x = cugan_conv(n, conv, NCNN_CONV_3_1_0, cugan_up(n, conv, x, whole, 4));
    const bool thrice = *conv < n->conv_count && ncnn_conv_kind(n->convs[*conv]) == NCNN_DECONV_5_3_2;
    return cugan_plain(n, conv, thrice ? NCNN_DECONV_5_3_2 : NCNN_DECONV_4_2_3, x);
}

static int cugan_second(struct ncnn *n, int *conv, int x)
{
    const int whole = cugan_pair(n, conv, x), half = cugan_gated(n, conv, cugan_conv(n, conv, NCNN_CONV_2_2_0, whole));
    x = cugan_gated(n, conv, cugan_conv(n, conv, NCNN_CONV_2_2_0, half));
    x = cugan_gated(n, conv, cugan_up(n, conv, x, half, 4));
    x = cugan_conv(n, conv, NCNN_CONV_3_1_0, cugan_up(n, conv, x, whole, 16));
    return cugan_plain(n, conv, NCNN_CONV_3_1_0, x);
}

int ncnn_cugan(struct ncnn *n)
{
    int conv = 0;
    const int first = cugan_first(n, &conv, terms_make(&n->terms, (struct term){.kind = TERM_PICTURE})),
              second = cugan_second(n, &conv, first);
    int x = terms_pair(&n->terms, TERM_ADD, second, terms_of(&n->terms, TERM_CROP, first, 20));
    if (n->result >= 0 && n->terms.list[n->result].kind == TERM_SHUFFLE) {
        x = cugan_plain(n, &conv, NCNN_CONV_3_1_0, x);
        x = terms_of(&n->terms, TERM_SHUFFLE, terms_of(&n->terms, TERM_CROP, x, 1), 2);
    }
    return conv == n->conv_count ? x : -1;
}
