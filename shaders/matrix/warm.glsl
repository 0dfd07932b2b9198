// A large layer's weights would come from memory one after the other, each when it is needed: so the first workgroups
// together ask for all of them at once, each for a share, before they wait for anything else.

const bool WARMS = (FLAGS & FLAG_WARM) != 0;
const uint WARM = 8;            // parts of 32 bytes that an invocation asks for
const uint WARM_GROUPS = 256;   // workgroups: about as many as run at once

uint warmed[WARM];

// units: those of all weights.
void warm_weights(uint units)
{
    const uint parts = units / 2, groups = min(gl_NumWorkGroups.x * gl_NumWorkGroups.y, WARM_GROUPS);
    const uint each = (parts + groups - 1) / groups;
    const uint begin = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * each;
    [[unroll]] for (uint i = 0; i < WARM; i++) {
        const uint of = i * SUBGROUP * SUBGROUPS + gl_LocalInvocationIndex;
        warmed[i] = 0;
        if (WARMS && gl_WorkGroupID.z == 0 && of < each && begin + of < parts)
            warmed[i] = weight[(begin + of) * 2].x;
    }
}

// Something made of all of them, which is not known before they are there.
uint warmed_all()
{
    uint all = 0;
    [[unroll]] for (uint i = 0; i < WARM; i++)
        all ^= warmed[i];
    return all;
}

// Units of a layer's weights: `each` of 16 in channels by 16 out channels.
uint weight_units(uint each) { return (((p.out_blocks + 3) / 4 + PAIRED) >> PAIRED << PAIRED) * each * SUBGROUP; }
