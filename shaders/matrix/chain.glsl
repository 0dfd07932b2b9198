// Waiting for the rows that are needed of another convolution's output, in place of a barrier (vk_chain.h), for
// conv2d.comp. For each CHAIN_BAND rows there is a counter of the workgroups that have written their part.
// What one convolution of a chain writes and another reads goes past the caches of single processors: those buffers are
// `queuefamilycoherent`.
layout(std430, set = 0, binding = BIND_COUNTERS) buffer counters_buffer { uint counters[]; };

const uint POLLS = 1u << 20; // a second, or nearly

// The workgroup as one: what one invocation has heard all have, and what all have written the one that tells it has.
void chain_barrier()
{
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
}

// Waits for rows [first - 1, end + 1) of the output of the convolution before. All invocations of the workgroup call it.
void chain_wait(uint first, uint end)
{
    if (p.chain_wait == 0)
        return;
    if (gl_LocalInvocationIndex == 0) {
        const uint row = p.chain_row & (1u << CHAIN_ROWS_BIT) - 1, log = p.chain_row >> CHAIN_ROWS_BIT;
        const uint last = (min(end, p.out_h - 1)) / CHAIN_BAND;
        for (uint band = (max(first, 1) - 1) / CHAIN_BAND; band <= last; band++) {
            const uint rows = min(p.out_h - band * CHAIN_BAND, CHAIN_BAND);
            const uint needed = row * (rows + (1u << log) - 1 >> log);
            uint polls = 0;
            while (atomicLoad(counters[p.chain_wait + band], gl_ScopeQueueFamily, gl_StorageSemanticsBuffer,
                              gl_SemanticsAcquire) < needed) {
                if (++polls == POLLS || polls % 1024 == 0 && atomicLoad(counters[CHAIN_LATE], gl_ScopeQueueFamily,
                                                                       gl_StorageSemanticsBuffer, gl_SemanticsRelaxed) != 0) {
                    atomicStore(counters[CHAIN_LATE], 1u, gl_ScopeQueueFamily, gl_StorageSemanticsBuffer,
                                gl_SemanticsRelaxed);
                    break;
                }
            }
        }
    }
    chain_barrier();
}

// Says that the workgroup has written its part of the output, from that row on.
void chain_tell(uint row)
{
    if (p.chain_own == 0)
        return;
    chain_barrier();
    if (gl_LocalInvocationIndex == 0)
        atomicAdd(counters[p.chain_own + row / CHAIN_BAND], 1u, gl_ScopeQueueFamily, gl_StorageSemanticsBuffer,
                  gl_SemanticsRelease);
}
