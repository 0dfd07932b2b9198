#include "server/image/similarity.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define SIMILARITY_MAX_POINTS 64

const double similarity_template[5][2] = {{192.98138, 239.94708},
                                          {318.90277, 240.1936},
                                          {256.63416, 314.01935},
                                          {201.26117, 371.41043},
                                          {313.08905, 371.15118}};

double similarity_oval(double x, double y)
{
    const double u = (x - 256) / 125, v = (y - 295) / 165;
    return sqrt(u * u + v * v);
}

/* Least squares over the points with use[i] (NULL: all): centred, a and b are two dot products. */
static bool similarity_solve(const double from[][2], const double to[][2], const bool *use, int n, double matrix[6])
{
    double mean[4] = {0}, count = 0, spread = 0, a = 0, b = 0;
    for (int i = 0; i < n; i++) {
        if (use && !use[i])
            continue;
        mean[0] += from[i][0];
        mean[1] += from[i][1];
        mean[2] += to[i][0];
        mean[3] += to[i][1];
        count++;
    }
    if (count < 2)
        return false;
    for (int k = 0; k < 4; k++)
        mean[k] /= count;
    for (int i = 0; i < n; i++) {
        if (use && !use[i])
            continue;
        double x = from[i][0] - mean[0], y = from[i][1] - mean[1], u = to[i][0] - mean[2], v = to[i][1] - mean[3];
        spread += x * x + y * y;
        a += x * u + y * v;
        b += x * v - y * u;
    }
    a /= spread;
    b /= spread;
    const double result[6] = {a, -b, mean[2] - a * mean[0] + b * mean[1], b, a, mean[3] - b * mean[0] - a * mean[1]};
    for (int k = 0; k < 6; k++)
        if (!isfinite(result[k]))
            return false;
    if (a == 0 && b == 0) /* the destination points coincide: nothing to invert */
        return false;
    memcpy(matrix, result, sizeof result);
    return true;
}

bool similarity_fit(const double from[][2], const double to[][2], int n, double matrix[6])
{
    return similarity_solve(from, to, NULL, n, matrix);
}

/* cv::RNG: multiply with carry. */
static uint32_t similarity_random(uint64_t *state)
{
    *state = (*state & 0xffffffffu) * 4164903690u + (*state >> 32);
    return (uint32_t)*state;
}

/* The similarity through two point pairs. */
static void similarity_pair(const double f[2], const double g[2], const double t[2], const double u[2], double m[6])
{
    double dx = f[0] - g[0], dy = f[1] - g[1], du = t[0] - u[0], dv = t[1] - u[1];
    double scale = 1. / (dx * dx + dy * dy), cross = f[0] * g[1] - g[0] * f[1];
    double a = scale * (du * dx + dv * dy), b = scale * (dv * dx - du * dy);
    double x = scale * (dv * cross - (t[0] * g[1] - u[0] * f[1]) * dy - (t[0] * g[0] - u[0] * f[0]) * dx);
    double y = scale * (-du * cross - (t[1] * g[0] - u[1] * f[0]) * dx - (t[1] * g[1] - u[1] * f[1]) * dy);
    const double result[6] = {a, -b, x, b, a, y};
    memcpy(m, result, sizeof result);
}

/* Squared errors, in float as there. */
static void similarity_errors(const double from[][2], const double to[][2], int n, const double m[6], float *errors)
{
    float f[6];
    for (int k = 0; k < 6; k++)
        f[k] = (float)m[k];
    for (int i = 0; i < n; i++) {
        float x = (float)from[i][0], y = (float)from[i][1];
        float a = f[0] * x + f[1] * y + f[2] - (float)to[i][0], b = f[3] * x + f[4] * y + f[5] - (float)to[i][1];
        errors[i] = a * a + b * b;
    }
}

static float similarity_median(const float *errors, int n)
{
    float sorted[SIMILARITY_MAX_POINTS];
    for (int i = 0; i < n; i++) {
        int k = i;
        for (; k > 0 && sorted[k - 1] > errors[i]; k--)
            sorted[k] = sorted[k - 1];
        sorted[k] = errors[i];
    }
    return sorted[n / 2];
}

/* Constants of OpenCV 4.6's ptsetreg.cpp: confidence 0.99, 45 % outliers assumed, two points a sample, the generator
 * seeded with 2^64-1, and the usual robust deviation 1.4826*(1 + 5/(n-2)) times 2.5. */
bool similarity_fit_lmeds(const double from[][2], const double to[][2], int n, double matrix[6])
{
    assert(n >= 3 && n <= SIMILARITY_MAX_POINTS);
    double f[SIMILARITY_MAX_POINTS][2], t[SIMILARITY_MAX_POINTS][2], best[6] = {0};
    float errors[SIMILARITY_MAX_POINTS], best_median = INFINITY;
    bool inlier[SIMILARITY_MAX_POINTS];
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 2; k++) {
            f[i][k] = (float)from[i][k];
            t[i][k] = (float)to[i][k];
        }
    uint64_t state = UINT64_MAX;
    long rounds = lrint(log(1 - 0.99) / log(1 - (1 - 0.45) * (1 - 0.45)));
    for (long round = 0; round < rounds; round++) {
        double m[6];
        uint32_t i = similarity_random(&state) % (uint32_t)n, j;
        do
            j = similarity_random(&state) % (uint32_t)n;
        while (j == i);
        similarity_pair(f[i], f[j], t[i], t[j], m);
        similarity_errors(f, t, n, m, errors);
        float median = similarity_median(errors, n);
        if (median < best_median) {
            best_median = median;
            memcpy(best, m, sizeof best);
        }
    }
    if (!isfinite(best_median))
        return false;
    double sigma = 2.5 * 1.4826 * (1 + 5. / (n - 2)) * sqrt((double)best_median);
    sigma = sigma < .001 ? .001 : sigma;
    similarity_errors(f, t, n, best, errors);
    for (int i = 0; i < n; i++)
        inlier[i] = errors[i] <= (float)(sigma * sigma);
    return similarity_solve(f, t, inlier, n, matrix);
}

void similarity_invert(const double matrix[6], double inverse[6])
{
    double d = matrix[0] * matrix[4] - matrix[1] * matrix[3];
    d = d != 0 ? 1. / d : 0;
    double a11 = matrix[4] * d, a12 = -matrix[1] * d, a21 = -matrix[3] * d, a22 = matrix[0] * d;
    const double result[6] = {a11, a12, -a11 * matrix[2] - a12 * matrix[5],
                              a21, a22, -a21 * matrix[2] - a22 * matrix[5]};
    memcpy(inverse, result, sizeof result);
}
