// The way of a chunk of input channels to shared memory, for conv2d.comp: the pixels of the tile with its border, read
// where the padded, upsampled input has them, multiplied by in_scale.

// Where a coordinate of the padded, upsampled input lies in the input; outside: -1 (zero padding).
int source(int at, uint size)
{
    int last = int(size * UPSAMPLE) - 1;
    if (has(FLAG_REFLECT)) {
        at = abs(at);
        at = clamp(at > last ? 2 * last - at : at, 0, last);
    }
    return at < 0 || at > last ? -1 : at / int(UPSAMPLE);
}

// Each invocation copies the same unit of 8 channels of every PIXELS-th pixel: where those pixels lie from the first one
// of the channels' group.
uint offsets[COPIES];

void find_pixels(uvec2 origin)
{
    [[unroll]] for (uint i = 0; i < COPIES; i++) {
        const uint at = gl_LocalInvocationIndex / UNITS + i * PIXELS;
        const int row = source(int(origin.y * STRIDE + at / TILE_W) - int(PAD), p.in_h);
        const int column = source(int(origin.x * STRIDE + at % TILE_W) - int(PAD), p.in_w);
        offsets[i] = row < 0 || column < 0 ? OUTSIDE : (uint(row) * p.in_w + uint(column) << group_log(p.x)) / 2;
    }
}

uvec4 units[COPIES]; // on their way from global to shared memory
uint copied_quad() { return gl_LocalInvocationIndex % UNITS * 2; }

void load_chunk(uint n, uint step)
{
    const uint quad = step * 4 + copied_quad(), from = quad_index(p.x, n, quad, p.in_h * p.in_w, 0) / 2;
    [[unroll]] for (uint i = 0; i < COPIES; i++) {
        units[i] = uvec4(0);
        if (offsets[i] != OUTSIDE && quad < p.in_blocks)
            units[i] = x[from + offsets[i]];
    }
}

f16vec4 halves(uint low, uint high) { return f16vec4(unpackFloat2x16(low), unpackFloat2x16(high)); }

void store_chunk(uint n, uint step)
{
    vec4 low_scale = vec4(1.0), high_scale = vec4(1.0);
    const uint quad = step * 4 + copied_quad();
    if (has(FLAG_IN_SCALE) && quad < p.in_blocks) {
        low_scale = vec4(in_scale[quad_index(p.in_scale, n, quad, 1, 0)]);
        high_scale = vec4(in_scale[quad_index(p.in_scale, n, quad + 1, 1, 0)]);
    }
    [[unroll]] for (uint i = 0; i < COPIES; i++) {
        const uint at = gl_LocalInvocationIndex / UNITS + i * PIXELS;
        f16vec4 low = halves(units[i].x, units[i].y), high = halves(units[i].z, units[i].w);
        if (has(FLAG_IN_SCALE)) {
            low = TO_QUAD(vec4(low) * low_scale);
            high = TO_QUAD(vec4(high) * high_scale);
        }
        if (at < TILE_W * TILE_H) {
            tile[at * PITCH + copied_quad()] = low;
            tile[at * PITCH + copied_quad() + 1] = high;
        }
    }
}
