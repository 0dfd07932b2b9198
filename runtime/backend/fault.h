/* Faults on demand, for tests: a layer between the interface of devices and any backend, and calls inside the backends'
 * allocators and queues, which fail where a spec says so. Compiled in only with RESTORED_FAULTS defined (the test
 * programs, build/tests/restored, make debug).
 * Thread-safety: any thread, except fault_set, which needs all devices to be idle. */
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
 *               slow@run (it takes FAULT_SLOW_MS longer); slow@plan (FAULT_SLOW_PLAN_S); hang@run (it does nothing
 *               until it is cancelled); crash, hang or bomb @decode (of the process that decodes a picture)
 *   OPTION      repeat         every event from the N-th on
 *               ms=T           of slow@run: T instead of FAULT_SLOW_MS
 *               until=M        the events N to M
 *               device=ID      on this device ("cpu", "vulkan:0", "reference"); else on any
 *               plan=TEXT      of plan and run: plans with this in their name, which is the model's file
 *               precision=P    of plan and run: plans in fp16 or fp32
 *               over=PX        of plan and run: plans whose input is larger than so many pixels
 *
 * A device that was lost stays lost until it is opened again. */
#define FAULT_ENVIRONMENT "RESTORED_FAULTS"
#define FAULT_SLOW_MS 500
#define FAULT_SLOW_PLAN_S 3

/* Replaces the spec ($RESTORED_FAULTS at first) and resets all counts; NULL or "": no faults. Devices opened from now
 * on have the faults; a device opened without a spec stays without. ERROR_INVALID says what is wrong with a spec, and
 * leaves none in force. */
enum error_code fault_set(const char *spec, struct error *err) MUST_CHECK;

/* How many events matched the spec's fault `index` so far; and how many events failed through all faults. */
unsigned long fault_seen(int index);
unsigned long fault_injected(void);

enum fault_decoding { FAULT_DECODE_NONE, FAULT_DECODE_CRASH, FAULT_DECODE_HANG, FAULT_DECODE_BOMB };

#ifdef RESTORED_FAULTS

/* For device_open: wraps an open device in the layer, or fails and closes it. */
enum error_code fault_open(struct device **device, struct error *err) MUST_CHECK;

/* For a backend, where it allocates device memory or submits work: true if this one is to fail. id: the device's. */
bool fault_allocation(const char *id);
bool fault_submit(const char *id);

/* Where a picture is decoded: what is to become of the process that does it. */
enum fault_decoding fault_decode(void);

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
static inline enum fault_decoding fault_decode(void)
{
    return FAULT_DECODE_NONE;
}

#endif
#endif
