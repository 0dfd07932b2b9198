// The transforms of winograd.comp, F(4x4, 3x3) of Lavin and Gray, from and to shared memory.

// Six numbers of a row of the patch, transformed across, as row `row` of the tile's positions.
void put_row(uint row, uint channel, uint tile, vec4 a, vec2 b)
{
    const float p0 = b.x - 4 * a.z, q0 = a.w - 4 * a.y, p1 = b.x - a.z, q1 = 2 * (a.w - a.y);
    const float v[6] = {4 * a.x - 5 * a.z + b.x, p0 + q0, p0 - q0, p1 + q1, p1 - q1, 4 * a.y - 5 * a.w + b.y};
    [[unroll]] for (uint i = 0; i < 6; i++)
        values[(row * 6 + i) * APART + (channel * TILES + tile) / 4][tile % 4] = v[i];
}

// Two of the six rows of a tile's positions, of one channel: rows 1 and 2, 3 and 4, or 0 and 5.
void transform(uint item)
{
    const uint rows = item / (TILES * CHANNELS), channel = item / TILES % CHANNELS, tile = item % TILES;
    const uint from = channel * PLANE + tile / ACROSS * 4 * PITCH + tile % ACROSS;
    vec4 a[6];
    vec2 b[6];
    [[unroll]] for (uint i = 0; i < 6; i++) {
        if (rows == 2 || (i > 0 && i < 5)) {
            a[i] = pixels[from + i * PITCH];
            b[i] = pixels[from + i * PITCH + 1].xy;
        }
    }
    if (rows == 2) {
        put_row(0, channel, tile, 4 * a[0] - 5 * a[2] + a[4], 4 * b[0] - 5 * b[2] + b[4]);
        put_row(5, channel, tile, 4 * a[1] - 5 * a[3] + a[5], 4 * b[1] - 5 * b[3] + b[5]);
    } else {
        const float f = rows == 0 ? 4 : 1, g = rows == 0 ? 1 : 2, h = rows == 0 ? 4 : 2;
        const vec4 p = a[4] - f * a[2], q = g * a[3] - h * a[1];
        const vec2 r = b[4] - f * b[2], s = g * b[3] - h * b[1];
        put_row(rows * 2 + 1, channel, tile, p + q, r + s);
        put_row(rows * 2 + 2, channel, tile, p - q, r - s);
    }
}

// Two rows of the 4x4 pixels of a tile, of one out channel of the chunk.
void transform_back(uint item)
{
    const uint lower = item / (TILES * CHANNELS), channel = item / TILES % CHANNELS, tile = item % TILES;
    vec2 rows[6]; // of the two rows, the products of one column of positions
    [[unroll]] for (uint i = 0; i < 6; i++) {
        float m[6];
        [[unroll]] for (uint k = 0; k < 6; k++)
            m[k] = values[(k * 6 + i) * APART + (channel * TILES + tile) / 4][tile % 4];
        const float s0 = m[1] + m[2], d0 = m[1] - m[2], s1 = m[3] + m[4], d1 = m[3] - m[4];
        rows[i] = lower == 0 ? vec2(m[0] + s0 + s1, d0 + 2 * d1) : vec2(s0 + 4 * s1, d0 + 8 * d1 + m[5]);
    }
    const vec2 s0 = rows[1] + rows[2], d0 = rows[1] - rows[2], s1 = rows[3] + rows[4], d1 = rows[3] - rows[4];
    const vec2 columns[4] = {rows[0] + s0 + s1, d0 + 2 * d1, s0 + 4 * s1, d0 + 8 * d1 + rows[5]};
    [[unroll]] for (uint i = 0; i < 8; i++)
        pixels[(channel / 4 * 16 + lower * 8 + i) * (TILES + 1) + tile][channel % 4] = columns[i % 4][i / 4];
}
