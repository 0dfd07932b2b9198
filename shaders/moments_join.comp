// GROUP_NORM of op.h, from the moments of parts: what moments_apply.comp needs of each quad, [image][quad][3]: its mean, its
// factor and its shift. A workgroup joins those of one group, or of the groups that share a quad, of one image.
#version 450
#include "moments.glsl"

layout(constant_id = 0) const uint QUADS = 1; // of the workgroup
layout(constant_id = 1) const uint EACH = 4;  // channels of a group
layout(constant_id = 2) const uint CHANNELS = 4;
layout(constant_id = 4) const uint FLAGS = 0; // FLAG_IN_SCALE: there are weights
layout(constant_id = 5) const uint BLOCKS = 1; // quads of y: those behind the last group are padding

WRITES_FLOAT(BIND_Y, y);
READS_FLOAT(BIND_X, x);
READS_FLOAT(BIND_RESIDUAL1, like);
READS_FLOAT(BIND_WEIGHT, weight);
READS_FLOAT(BIND_BIAS, bias);

// The total of every invocation's sum, in each lane that of the lane's group.
vec4 total(vec4 sum)
{
    add_up(sum, 1);
    const vec4 v = partial[0];
    if (EACH >= 4)
        return vec4(v.x + v.y + v.z + v.w);
    return EACH == 2 ? vec4(vec2(v.x + v.y), vec2(v.z + v.w)) : v;
}

#define JOIN(moments, mean, variance)                                                                                  \
    {                                                                                                                  \
        const uint begin = (gl_WorkGroupID.z * BLOCKS + first) * parts(), count = QUADS * parts();                     \
        vec4 sum = vec4(0.0);                                                                                          \
        for (uint i = gl_LocalInvocationID.x; i < count; i += PIXEL_GROUP)                                             \
            sum += moments[(begin + i) * 2] * float(part_size(i % parts()));                                           \
        mean = total(sum) * p.mean_factor;                                                                             \
        sum = vec4(0.0);                                                                                               \
        for (uint i = gl_LocalInvocationID.x; i < count; i += PIXEL_GROUP) {                                           \
            const vec4 d = moments[(begin + i) * 2] - mean;                                                            \
            sum += moments[(begin + i) * 2 + 1] + d * d * float(part_size(i % parts()));                               \
        }                                                                                                              \
        variance = total(sum) * p.variance_factor;                                                                     \
    }

void main()
{
    const uint first = (gl_WorkGroupID.x + p.first_group) * QUADS;
    vec4 mean, variance, to_mean = vec4(0.0), factor;
    JOIN(x, mean, variance)
    factor = inversesqrt(variance + p.epsilon);
    if ((FLAGS & FLAG_RESIDUAL1) != 0) {
        JOIN(like, to_mean, variance)
        factor *= sqrt(variance + p.epsilon);
    }
    const uint last = (first + QUADS) * 4 >= CHANNELS ? BLOCKS : first + QUADS;
    for (uint i = first + gl_LocalInvocationID.x; i < last; i += PIXEL_GROUP) {
        vec4 by = factor * lane_mask(i, CHANNELS), shift = to_mean * lane_mask(i, CHANNELS);
        if ((FLAGS & FLAG_IN_SCALE) != 0)
            by *= weight[i];
        if ((FLAGS & FLAG_BIAS) != 0)
            shift += bias[i];
        const uint to = (gl_WorkGroupID.z * BLOCKS + i) * 3;
        y[to] = mean;
        y[to + 1] = by;
        y[to + 2] = shift;
    }
}
