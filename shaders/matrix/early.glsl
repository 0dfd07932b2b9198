// Residuals with which the sums begin, where only factors stand between them: they then come from memory together with the
// input, and nobody waits for them at the end.

bool early() { return has(FLAG_EARLY) && PER == 2; }
#define LATE(flag) (has(flag) && !early())

// What residuals can be divided by, and the sum is then multiplied by: in place of 0 the least number of fp16.
vec4 divisor(vec4 scale) { return mix(scale, vec4(5.9604645e-8), equal(scale, vec4(0.0))); }
#define DIVISOR(scale) (early() ? divisor(scale) : scale)

#if FP16
// What the sums of two quads of a pixel begin with.
void early_pair(uint n, uint quad, uint at, out vec4 low, out vec4 high)
{
    const uint size = p.out_h * p.out_w;
    // By what the sum is multiplied at the end, the residuals are divided here.
    vec4 low_factor = vec4(has(FLAG_SCALED) ? 1.0 / (p.gain * p.scale) : 1.0), high_factor = low_factor;
    if (has(FLAG_OUT_SCALE)) {
        low_factor /= divisor(vec4(out_scale[quad_index(p.out_scale, n, quad, 1, 0)]));
        high_factor /= divisor(vec4(out_scale[quad_index(p.out_scale, n, quad + 1, 1, 0)]));
    }
    uvec4 first = uvec4(0), second = uvec4(0);
    if (has(FLAG_RESIDUAL1))
        first = residual1_units[quad_index(p.residual1, n, quad, size, at) / 2];
    if (has(FLAG_RESIDUAL2))
        second = residual2_units[quad_index(p.residual2, n, quad, size, at) / 2];
    low = low_factor * (p.residual1_scale * vec4(halves(first.xy)) + p.residual2_scale * vec4(halves(second.xy)));
    high = high_factor * (p.residual1_scale * vec4(halves(first.zw)) + p.residual2_scale * vec4(halves(second.zw)));
}

// For conv2d.comp: `sum` of a subgroup whose first pixel is that one. One loop: drivers do not unroll deep nests.
#define BEGIN_EARLY(sum, pixel, part)                                                                                  \
    if (early() && part == 0)                                                                                          \
        [[unroll]] for (uint i = 0; i < ROWS * BLOCKS; i++)                                                            \
    {                                                                                                                  \
        const uint pairs = (BLOCKS + 1) / 2, slot = i / pairs, b = i % pairs * 2, of = slot / 2 * BLOCKS + b;          \
        const uvec2 at = min(pixel + uvec2(me / 4 + slot % 2 * 8, slot / 2), uvec2(p.out_w, p.out_h) - 1);             \
        vec4 low, high;                                                                                                \
        early_pair(n, min(quad_of(first_block + b), p.out_blocks - 2), at.y * p.out_w + at.x, low, high);              \
        [[unroll]] for (uint j = 0; j < 4; j++)                                                                        \
        {                                                                                                              \
            sum_set(sum_element(sum[of], element_at(slot % 2, j)), low[j]);                                            \
            sum_set(sum_element(sum[of + PER - 1], element_at(slot % 2, j)), high[j]);                                 \
        }                                                                                                              \
    }
#else
#define BEGIN_EARLY(sum, pixel, part)
#endif
