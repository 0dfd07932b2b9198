// The way of the weights to the invocations that hold them, for conv2d.comp.

const uint AHEAD = PREFETCH / 2;
uvec4 factors[REACH * BLOCKS * PARTS]; // weights on their way from memory

// Loads number i of the weights of turn `at`, counted through all steps.
void load_weights(uint i, uint first_block, uint at, uint steps)
{
    const uint f = i % BLOCKS, member = BLOCKS == 1 ? first_block & PAIRED : f & PAIRED;
    const uint ky = at % TURNS * REACH + i / BLOCKS, last_block = (p.out_blocks + 3) / 4 - 1;
    const uint unit = min((first_block >> PAIRED) + (f >> PAIRED), last_block >> PAIRED);
    const uint column = (unit * steps * KERNEL + at / TURNS) * KERNEL;
    const uint from = ((column + ky << PAIRED) + member) * SUBGROUP * PARTS + gl_SubgroupInvocationID;
    [[unroll]] for (uint k = 0; k < PARTS; k++) {
        factors[i * PARTS + k] = uvec4(0);
        if (TURNS == 1 || ky < KERNEL)
            factors[i * PARTS + k] = weight[from + k * SUBGROUP];
    }
}

// The turn that this subgroup makes after that one; after its last one, that again.
uint next_of(uint now, uint part, uint steps)
{
    const uint each = STEPS / SPLIT * KERNEL * TURNS; // in a row
    const uint next = now + 1 + ((now + 1) % each == 0 ? (SPLIT - 1) * each : 0);
    return next < steps * KERNEL * TURNS ? next : now;
}
