/* How fast a device computes convolutions as the networks have them: measured once when nothing else is known of its
 * speed, so that the first estimates are of this device.
 * Thread-safety: by the thread that the device belongs to. */
#ifndef RUNTIME_TRIAL_H
#define RUNTIME_TRIAL_H

#include "runtime/backend/backend.h"

struct trial {
    double gmacs, seconds; /* the work, 10^9 multiply-accumulates, and how long it took */
};

/* Takes some hundredths of a second. ERROR_DEVICE_LOST: the device must be opened again. Other errors, such as
 * NO_MEMORY, say only that its speed stays unknown. */
enum error_code trial_run(struct device *device, enum precision precision, struct trial *out,
                          struct error *err) MUST_CHECK;

#endif
