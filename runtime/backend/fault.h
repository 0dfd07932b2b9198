/* Faults on demand, for tests: a layer between the interface of devices and any backend, and calls inside the backends'
 * allocators and queues, which fail where a spec says so. Compiled with RESTORED_FAULTS defined (the test programs,
 * build/tests/restored, make debug); elsewhere nothing of it is left.
 * Thread-safety: any thread; but for fault_set, which wants no device at work. */
#ifndef RUNTIME_BACKEND_FAULT_H
#define RUNTIME_BACKEND_FAULT_H

#include <stdbool.h>

#include "runtime/backend/backend.h"

/* A spec is a list of faults, each a word, with spaces or ';' between them:
 *
 *   KIND@POINT:N[,OPTION]...   the N-th event (from 1) that fits the options fails, once in the life of the process
 *   fp16[,device=ID]           the device says that it has fp16 and prefers it, whatever it computes in
 *
 *   KIND@POINT  no_memory or lost @open (of a device), @plan (plan_create), @run (plan_run); no_memory@alloc (device
 *               memory, in the backend); lost@submit (to a queue of Vulkan); nan or flat @run (the first output);
 *               slow@run (it takes FAULT_SLOW_MS longer)
 *   OPTION      repeat         every event from the N-th on
 *               until=M        the events N to M
 *               device=ID      on this device ("cpu", "vulkan:0", "reference"); else on any
 *               plan=TEXT      of plan and run: plans with this in their name, which is the model's file
 *               precision=P    of plan and run: plans in fp16 or fp32
 *               over=PX        of plan and run: plans whose input is larger than so many pixels
 *
 * A device that was lost stays lost until it is opened anew. */
#define FAULT_ENVIRONMENT "RESTORED_FAULTS"
#define FAULT_SLOW_MS 500

/* Replaces the spec, which is $RESTORED_FAULTS at first, and all counts; NULL or "": no faults. Devices that are opened
 * from now on have them; one that had none at all when it was opened stays without. ERROR_INVALID says what is wrong
 * with a spec, and leaves none. */
enum error_code fault_set(const char *spec, struct error *err) MUST_CHECK;

/* Of the spec's fault `index`: how many events fitted it so far; and of all faults, how many events failed. */
unsigned long fault_seen(int index);
unsigned long fault_injected(void);

#ifdef RESTORED_FAULTS

/* For device_open: puts the layer around a device that was opened, or fails and closes it. */
enum error_code fault_open(struct device **device, struct error *err) MUST_CHECK;

/* For a backend, where it allocates device memory and where it submits: true if this one is to fail. id: the device's.
 */
bool fault_allocation(const char *id);
bool fault_submit(const char *id);

#else

static inline enum error_code fault_open(struct device **device, struct error *err)
{
    (void)device;
    (void)err;
    return OK;
}
static inline bool fault_allocation(const char *id)
{
    (void)id;
    return false;
}
static inline bool fault_submit(const char *id)
{
    (void)id;
    return false;
}

#endif
#endif
