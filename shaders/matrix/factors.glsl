// The way of the weights to the invocations that hold them, for conv2d.comp.

#include "warm.glsl"

const uint AHEAD = PREFETCH / 2;
uvec4 factors[REACH * BLOCKS * PARTS]; // weights on their way from memory

// Where number i of the weights of a step, a column of the kernel and its taps from first_tap on begins.
uint weight_at(uint i, uint step, uint kx, uint first_tap, uint first_block, uint last_block, uint steps)
{
    const uint f = i % BLOCKS, member = BLOCKS == 1 ? first_block & PAIRED : f & PAIRED;
    const uint ky = first_tap + i / BLOCKS;
    const uint unit = min((first_block >> PAIRED) + (f >> PAIRED), last_block >> PAIRED);
    const uint column = ((unit * steps + step) * KERNEL + kx) * KERNEL;
    return ((column + ky << PAIRED) + member) * SUBGROUP * PARTS + gl_SubgroupInvocationID;
}

// Loads the weights of turn `turn`, counted through all steps.
void load_weights(uint turn, uint first_block, uint last_block, uint steps)
{
    const uint step = turn / (KERNEL * TURNS), kx = turn / TURNS % KERNEL, first_tap = turn % TURNS * REACH;
    [[unroll]] for (uint i = 0; i < REACH * BLOCKS && AHEAD != 0; i++) {
        const uint at = weight_at(i, step, kx, first_tap, first_block, last_block, steps);
        [[unroll]] for (uint k = 0; k < PARTS; k++) {
            factors[i * PARTS + k] = uvec4(0);
            if (TURNS == 1 || first_tap + i / BLOCKS < KERNEL)
                factors[i * PARTS + k] = weight[at + k * SUBGROUP];
        }
    }
}

// Those of the turn that is being multiplied, number i of them, which begin at `at`; in fp32 k is 0 or 1.
uvec4 weights_of(uint i, uint k, uint at, uint first_tap)
{
    uvec4 v = uvec4(0);
    if (AHEAD != 0)
        v = factors[i * PARTS + k];
    else if (TURNS == 1 || first_tap + i / BLOCKS < KERNEL)
        v = weight[at + k * SUBGROUP];
    return v;
}

// The turn that this subgroup makes after that one; after its last one, that again.
uint next_of(uint now, uint steps)
{
    const uint each = STEPS / SPLIT * KERNEL * TURNS; // in a row
    const uint next = now + 1 + ((now + 1) % each == 0 ? (SPLIT - 1) * each : 0);
    return next < steps * KERNEL * TURNS ? next : now;
}

// Waits for the weights that were asked for. What is written is written again before anybody reads it.
void warm_wait() { tile[gl_LocalInvocationIndex % (TILE_W * TILE_H * PITCH)].x = warmed_all(); }
