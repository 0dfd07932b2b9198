// The way of the sums to memory, for conv2d.comp: an invocation finishes and writes the elements that it holds itself.
// Of a matrix it holds 4 elements in each of two rows, which are pixels; weights are packed so that those 4 are channels
// side by side, and, where the out matrices come in pairs, those of a pair are 8 channels side by side.

// Which of the elements: number i of the 4 in row `slot`.
uint element_at(uint slot, uint i)
{
    const uint low = i & (1u << SLOT_BIT) - 1;
    return i - low << 1 | slot << SLOT_BIT | low;
}

// The quad of channels that this invocation holds of an out matrix.
uint quad_of(uint block)
{
    const uint own = gl_SubgroupInvocationID % 4;
    return PAIRED != 0 ? block / 2 * 8 + own * 2 + block % 2 : block * 4 + own;
}

// The sum of all parts of four elements of a matrix.
vec4 added(uint place, uint i, uint slot)
{
    vec4 v = vec4(0.0);
    for (uint part = 0; part < SPLIT; part++)
        [[unroll]] for (uint j = 0; j < 4; j++)
            v[j] += sums[(part * PLACES + place) * PART + (i * 8 + element_at(slot, j)) * SUBGROUP +
                         gl_SubgroupInvocationID];
    return v;
}

// What of the finish is the same for all pixels of a quad.
struct quad_finish {
    vec4 scale, bias, slope, shift;
};

quad_finish quad_finish_of(uint n, uint quad)
{
    quad_finish f = quad_finish(vec4(has(FLAG_SCALED) ? p.gain : 1.0), vec4(0.0), vec4(p.slope), vec4(0.0));
#if !FP16
    f.scale /= SPLIT_INPUT * SPLIT_WEIGHT;
#endif
    if (quad >= p.out_blocks)
        return f;
    if (has(FLAG_OUT_SCALE))
        f.scale *= DIVISOR(vec4(out_scale[quad_index(p.out_scale, n, quad, 1, 0)]));
    if (has(FLAG_BIAS))
        f.bias = bias[quad];
    if (ACTIVATION == ACTIVATION_PRELU)
        f.slope = slope[quad];
    if (has(FLAG_SHIFT))
        f.shift = vec4(noise[quad_index(p.noise, n, quad, 1, 0)]);
    return f;
}

// What comes after the sum v of a pixel.
QUAD finish(quad_finish f, vec4 v, uint n, uint quad, uint at, QUAD first, QUAD second)
{
    v = v * f.scale + f.bias;
    if (has(FLAG_NOISE))
        v += p.noise_weight * vec4(noise[quad_index(p.noise, n, 0, p.out_h * p.out_w, at)]).x *
             lane_mask(quad, p.out_channels);
    if (!has(FLAG_ACTIVATION_LAST))
        v = activate(ACTIVATION, v, f.slope);
    if (has(FLAG_SCALED))
        v *= p.scale;
    if (has(FLAG_TRANSFORM))
        return TO_QUAD(v * vec4(first) + vec4(second));
    if (LATE(FLAG_RESIDUAL1))
        v += p.residual1_scale * vec4(first);
    if (LATE(FLAG_RESIDUAL2))
        v += p.residual2_scale * vec4(second);
    if (has(FLAG_SHIFT))
        v += p.residual2_scale * f.shift;
    if (has(FLAG_ACTIVATION_LAST))
        v = activate(ACTIVATION, v, f.slope);
    return TO_QUAD(v);
}

// Whether the quad has residuals that are still to come; what stands for them where it has none.
bool has_residual(uint flag, uint quad)
{
    return LATE(flag) && (!has(FLAG_TRANSFORM) || quad >= p.out_blocks / 2);
}

QUAD no_residual1() { return QUAD(has(FLAG_TRANSFORM) ? 1.0 : 0.0); }

// Where a quad of a pixel goes.
uint place_of(uint n, uint quad, uint at)
{
    const uint size = p.out_h * p.out_w;
    if (SHUFFLE == 1)
        return quad_index(p.y, n, quad, size, at);
    const uint each = p.out_blocks / (SHUFFLE * SHUFFLE), phase = quad / each; // quads of a pixel; which pixel
    const uvec2 pixel = uvec2(at % p.out_w, at / p.out_w) * SHUFFLE + uvec2(phase % SHUFFLE, phase / SHUFFLE);
    return quad_index(p.y, n, quad - phase * each, size * SHUFFLE * SHUFFLE, pixel.y * p.out_w * SHUFFLE + pixel.x);
}

#if !FP16
// Says that a sum is not finite, as those of numbers beyond what split() can take. What follows may hide that: ReLU makes
// NaN 0, and so may what rounds to fp16.
void tell_wild(vec4 v)
{
    if (any(equal(floatBitsToUint(v) & 0x7f800000u, uvec4(0x7f800000u))))
        atomicOr(counters[CHAIN_WILD], 1u);
}
#endif

// One quad of a pixel. With SHUFFLE the residual is the pixel before it became several.
void leave_quad(quad_finish f, vec4 v, uint n, uint quad, uint at)
{
    const uint size = p.out_h * p.out_w;
    QUAD first = no_residual1(), second = QUAD(0.0);
    if (quad >= p.out_blocks)
        return;
#if !FP16
    tell_wild(v);
#endif
    if (has_residual(FLAG_RESIDUAL1, quad))
        first = residual1[quad_index(p.residual1, n, SHUFFLE > 1 ? 0 : quad, size, at)];
    if (has_residual(FLAG_RESIDUAL2, quad))
        second = residual2[quad_index(p.residual2, n, quad, size, at)];
    y[place_of(n, quad, at)] = finish(f, v, n, quad, at, first, second);
}

#if FP16
// Two quads of a pixel that lie side by side in memory.
void leave_pair(quad_finish f[2], vec4 low, vec4 high, uint n, uint quad, uint at)
{
    const uint size = p.out_h * p.out_w;
    uvec4 first = uvec4(packFloat2x16(no_residual1().xy)), second = uvec4(0);
    if (quad >= p.out_blocks)
        return;
    if (has(FLAG_RESIDUAL1) && SHUFFLE > 1) {
        const f16vec4 both = residual1[quad_index(p.residual1, n, 0, size, at)];
        first.xy = uvec2(packFloat2x16(both.xy), packFloat2x16(both.zw));
        first.zw = first.xy;
    } else if (has_residual(FLAG_RESIDUAL1, quad))
        first = residual1_units[quad_index(p.residual1, n, quad, size, at) / 2];
    if (has_residual(FLAG_RESIDUAL2, quad))
        second = residual2_units[quad_index(p.residual2, n, quad, size, at) / 2];
    const f16vec4 a = finish(f[0], low, n, quad, at, halves(first.xy), halves(second.xy));
    const f16vec4 b = finish(f[1], high, n, quad + 1, at, halves(first.zw), halves(second.zw));
    y_units[place_of(n, quad, at) / 2] =
        uvec4(packFloat2x16(a.xy), packFloat2x16(a.zw), packFloat2x16(b.xy), packFloat2x16(b.zw));
}

// Whether two quads of a pixel lie side by side in whatever is written and read; a residual may lie in a tensor with a
// segment of few channels. Of a shuffle they are also those of two pixels with one quad each.
bool in_units()
{
    if (SHUFFLE > 1)
        return group_log(p.y) > 0 || SHUFFLE % 2 == 0;
    return group_log(p.y) > 0 && (!has(FLAG_RESIDUAL1) || group_log(p.residual1) > 0) &&
           (!has(FLAG_RESIDUAL2) || group_log(p.residual2) > 0);
}
#endif
