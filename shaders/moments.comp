// The moments of parts of a picture, for GROUP_NORM and MEAN of pictures that one workgroup would be long at. A workgroup
// takes a part of a group of quads in the order of memory: each invocation goes through one quad's pixels by MOMENTS_RUN
// at a time, whose own moments it joins to those before (Chan, Golub & LeVeque 1983), so that no sum grows large.
#version 450
#include "moments.glsl"

layout(constant_id = 0) const uint BLOCKS = 1;
layout(constant_id = 1) const uint SQUARES = 1; // 0: only means are wanted
layout(constant_id = 2) const uint FLAGS = 0;   // FLAG_NOISE: of values times the map's

WRITES_FLOAT(BIND_Y, y);
READS(BIND_X, x);
READS(BIND_NOISE, noise);

void main()
{
    const uint me = gl_LocalInvocationID.x, part = gl_WorkGroupID.x + p.first_group, n = gl_WorkGroupID.z;
    const uint log = group_log(p.x), width = 1u << log, quad = (gl_WorkGroupID.y << log) + (me & (width - 1));
    const uint step = PIXEL_GROUP >> log, end = part * p.chunk + part_size(part);
    const uint from = quad_index(p.x, n, quad, p.size, 0);
    vec4 mean = vec4(0.0), squares = vec4(0.0);
    float count = 0.0;
    for (uint first = part * p.chunk + (me >> log); first < end; first += step * MOMENTS_RUN) {
        vec4 v[MOMENTS_RUN], sum = vec4(0.0), rest = vec4(0.0);
        [[unroll]] for (uint i = 0; i < MOMENTS_RUN; i++) {
            const uint at = first + i * step;
            v[i] = at < end ? vec4(x[from + (at << log)]) : vec4(0.0);
            if ((FLAGS & FLAG_NOISE) != 0 && at < end)
                v[i] *= vec4(noise[quad_index(p.like, n, 0, p.size, at)]).x;
            sum += v[i];
        }
        const float own = float(min(uint(MOMENTS_RUN), (end - first + step - 1) / step)), all = count + own;
        const vec4 own_mean = sum / own, d = own_mean - mean;
        if (SQUARES != 0) {
            [[unroll]] for (uint i = 0; i < MOMENTS_RUN; i++) {
                const vec4 e = v[i] - own_mean;
                rest += first + i * step < end ? e * e : vec4(0.0);
            }
            squares += rest + d * d * (count * own / all);
        }
        mean += d * (own / all);
        count = all;
    }
    add_up(mean * count, width);
    const vec4 whole = partial[me & (width - 1)] / float(part_size(part)), d = mean - whole;
    const uint to = ((n * BLOCKS + quad) * parts() + part) * (1 + SQUARES);
    if (SQUARES != 0) {
        add_up(squares + d * d * count, width);
        if (me < width)
            y[to + 1] = partial[me];
    }
    if (me < width)
        y[to] = whole;
}
