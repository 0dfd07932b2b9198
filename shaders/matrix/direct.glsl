// The way of the input and the weights to the invocations that hold them, for direct.comp.

uint own, start, plane;  // quad of this invocation in a group, or tap in 4; the image's first quad, quads of its groups
uint pixels[SLOTS];      // of the output; beyond its end the last one, which is then made more than once
uint offsets[SLOTS];     // KERNEL 1: where the pixel's quad of the first group lies
ivec2 corners[SLOTS];    // else: where its first tap lies

void find_pixels(uint n, uint first)
{
    own = gl_SubgroupInvocationID % 4;
    start = image_start(p.x, n);
    plane = p.in_h * p.in_w * 4;
    [[unroll]] for (uint i = 0; i < SLOTS; i++) {
        const uint at = min(first + i * 8 + gl_SubgroupInvocationID / 4, p.out_h * p.out_w - 1);
        const uint row = at / p.out_w, column = at - row * p.out_w;
        pixels[i] = at;
        offsets[i] = start + (STRIDE == 1 ? at : (row * p.in_w + column) * STRIDE) * 4 + own;
        corners[i] = ivec2(column, row) * int(STRIDE) - int(PAD);
    }
}

uvec2 input_of(uint i, uint step)
{
    if (KERNEL == 1)
        return x[offsets[i] + step * plane];
    const bool picture = has(FLAG_PLANAR);
    const uint tap = step % (KERNEL * KERNEL);
    ivec2 at = corners[i] + ivec2(picture ? uvec2(step % GROUPS * 4 + own, step / GROUPS)
                                          : uvec2(tap / KERNEL, tap % KERNEL));
    const ivec2 last = ivec2(p.in_w, p.in_h) - 1;
    if (has(FLAG_REFLECT))
        at = clamp(min(abs(at), 2 * last - abs(at)), ivec2(0), last);
    else if (uint(at.x) >= p.in_w || uint(at.y) >= p.in_h)
        return uvec2(0);
    const uint pixel = at.y * p.in_w + at.x;
    return x[start + (picture ? pixel : step / (KERNEL * KERNEL) * plane + pixel * 4 + own)];
}

uvec2 inputs[AHEAD * SLOTS]; // on their way from memory
uvec4 factors[AHEAD * BLOCKS];
vec4 scales[AHEAD];

// Begins to load what step `step` multiplies; beyond the last step, zeros.
void fetch(uint n, uint first_block, uint d, uint step, uint steps)
{
    const uint from = min(step, steps - 1), last_block = (p.out_blocks + 3) / 4 - 1;
    if (has(FLAG_IN_SCALE))
        scales[d] = vec4(in_scale[quad_index(p.in_scale, n, from / (KERNEL * KERNEL) * 4 + own, 1, 0)]);
    [[unroll]] for (uint i = 0; i < SLOTS; i++)
        inputs[d * SLOTS + i] = input_of(i, from);
    [[unroll]] for (uint b = 0; b < BLOCKS; b++) {
        const uint member = BLOCKS == 1 ? first_block & PAIRED : b & PAIRED;
        const uint unit = min((first_block >> PAIRED) + (b >> PAIRED), last_block >> PAIRED);
        factors[d * BLOCKS + b] = uvec4(0);
        if (step < steps)
            factors[d * BLOCKS + b] = weight[((unit * steps + step << PAIRED) + member) * SUBGROUP + gl_SubgroupInvocationID];
    }
}
