/* What a restoration will take, before it begins: seconds, memory, tiles. The amount of work follows from the picture's
 * size and the options; the time, from the speed that this device has shown before (speed.h), in jobs or at least in a
 * trial (trial.h), else from a guess.
 * Thread-safety: as speed.h; the other functions are without state. */
#ifndef SERVER_JOB_ESTIMATE_H
#define SERVER_JOB_ESTIMATE_H

#include "server/job/speed.h"
#include "server/pipeline/pipeline.h"

/* The group that a part of the time belongs to: times are measured for each group. If a device works on several stages
 * at once, all of them are one group. */
enum estimate_group {
    GROUP_DECODE,
    GROUP_REPAIR,
    GROUP_DETECT,
    GROUP_FACES,
    GROUP_PARSE,
    GROUP_BACKGROUND,
    GROUP_ENCODE,
    GROUP_COUNT
};

struct estimate {
    double seconds, low, high;  /* once it has begun */
    double groups[GROUP_COUNT]; /* of `seconds` */
    double faces;               /* that it counts with */
    double device_seconds;      /* of these, seconds with the device, for which others wait */
    double queue_seconds;       /* before it begins; of worker_pool_estimate */
    uint64_t memory;            /* bytes at most: pictures, result, what the networks work in */
    int tiles;                  /* of the background; 0: no network computes it */
    int width, height;          /* of the result; 0: there is none */
    int device;                 /* its number; of worker_pool_estimate */
    bool measured;              /* all but a small part comes from this device's own speed */
};

/* What will be done, and where. */
struct estimate_request {
    const struct restoration *r;             /* its options, limits, in_info and output_format */
    const struct model_entry *const *models; /* ROLE_COUNT of them, as pipeline_check_size gives them */
    const struct device_info *device;
    enum precision precision;
    int faces; /* faces to restore; negative: unknown */
};

void estimate_predict(struct speed_table *table, const struct estimate_request *request, struct estimate *out);

/* How much of a restoration is done, 0..1, after so many seconds on its device, with the parts weighed by what was
 * predicted. *left: seconds until it is over, by the prediction at first and more and more by its own pace; negative:
 * nothing was predicted. */
double estimate_progress(const struct estimate *estimate, const struct restoration *r, double elapsed, double *left);

/* A restoration is done, and request->r has its times and faces: later estimates use them. A disturbed one (computed
 * again in fp32, or in smaller tiles) teaches nothing. */
void estimate_learn(struct speed_table *table, const struct estimate_request *request);

/* Whether anything is known of a device's speed; and what a trial found out about it, where nothing is. */
bool estimate_knows(struct speed_table *table, const struct device_info *device, enum precision precision);
void estimate_seed(struct speed_table *table, const struct device_info *device, enum precision precision, double gmacs,
                   double seconds);

/* The most host memory that a picture takes on its way through the pipeline, in bytes: the decoded picture, the result,
 * and the encoded result. channels and bits are the file's. */
uint64_t estimate_picture_bytes(int width, int height, int channels, int bits, const struct options *options);

#endif
