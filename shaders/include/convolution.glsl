// What the kernels of CONV2D share: their buffers, where the input lies (source.glsl), what comes after the sum. The shader
// has declared the constants UPSAMPLE, ACTIVATION and FLAGS.
#include "common.glsl"

layout(push_constant) uniform push { params_conv2d p; };
WRITES(BIND_Y, y);
READS(BIND_RESIDUAL1, residual1);
READS(BIND_RESIDUAL2, residual2);
READS(BIND_IN_SCALE, in_scale);
READS(BIND_OUT_SCALE, out_scale);
READS(BIND_NOISE, noise);
READS_FLOAT(BIND_BIAS, bias);
READS_FLOAT(BIND_SLOPE, slope);

const uint UNIT = 4; // out quads that lie beside each other in the weights

#include "source.glsl"

vec4 in_factor(uint n, uint quad)
{
    return has(FLAG_IN_SCALE) ? vec4(in_scale[quad_index(p.in_scale, n, quad, 1, 0)]) : vec4(1.0);
}

// Makes a quad of the output of its sum times p.gain.
void finish_gained(vec4 v, uint n, uint block, uint row, uint column)
{
    const uint size = p.out_h * p.out_w, at = row * p.out_w + column;
    if (has(FLAG_OUT_SCALE))
        v *= vec4(out_scale[quad_index(p.out_scale, n, block, 1, 0)]);
    if (has(FLAG_NOISE))
        v += p.noise_weight * vec4(noise[quad_index(p.noise, n, 0, size, at)]).x * lane_mask(block, p.out_channels);
    if (has(FLAG_BIAS))
        v += bias[block];
    const vec4 slopes = ACTIVATION == ACTIVATION_PRELU ? slope[block] : vec4(p.slope);
    if (!has(FLAG_ACTIVATION_LAST))
        v = activate(ACTIVATION, v, slopes);
    v *= p.scale;
    if (has(FLAG_RESIDUAL1))
        v += p.residual1_scale * vec4(residual1[quad_index(p.residual1, n, block, size, at)]);
    if (has(FLAG_RESIDUAL2))
        v += p.residual2_scale * vec4(residual2[quad_index(p.residual2, n, block, size, at)]);
    if (has(FLAG_ACTIVATION_LAST))
        v = activate(ACTIVATION, v, slopes);
    y[quad_index(p.y, n, block, size, at)] = TO_QUAD(v);
}

void finish(vec4 sum, uint n, uint block, uint row, uint column) { finish_gained(sum * p.gain, n, block, row, column); }
