// CONV2D of op.h for GPUs. A workgroup makes a tile of pixels by out channels; its invocations divide columns, strips of
// rows and out quads among them, and each makes ROWS pixels, one under the other, of QUADS quads. For each chunk of input
// channels the tile's input, with its border, and the weights are copied to shared memory; a column of the input, once
// loaded into registers, serves every row and tap that needs it.
// PACKED 1: multiplies and adds in packed fp16, whose sums of at most 36 products go on in fp32.
// weight: [16 out channels][in quad][ky][kx][in lane] quads of out lanes; lanes that are padding hold zeros.
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in; // columns, strips, shares of the out quads
layout(constant_id = 3) const uint ROWS = 4;
layout(constant_id = 4) const uint QUADS = 2;
layout(constant_id = 5) const uint STEPS = 1; // in quads of a chunk
layout(constant_id = 6) const uint KERNEL = 3;
layout(constant_id = 7) const uint STRIDE = 1;
layout(constant_id = 8) const uint PAD = 1;
layout(constant_id = 9) const uint UPSAMPLE = 1;
layout(constant_id = 10) const uint ACTIVATION = 0;
layout(constant_id = 11) const uint FLAGS = 0;
#include "convolution.glsl"
READS(BIND_X, x);
READS(BIND_WEIGHT, weight);

#if PACKED
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define PAIR f16vec2
#define REAL4 f16vec4
#define TO_REAL4 TO_QUAD
#else
#define PAIR vec2
#define REAL4 vec4
#define TO_REAL4(v) (v)
#endif

const uint THREADS = gl_WorkGroupSize.x * gl_WorkGroupSize.y * gl_WorkGroupSize.z;
const uint APART = KERNEL == 1 ? 1 : STRIDE; // a 1x1 convolution copies only the pixels that it needs
const uint TILE_W = (gl_WorkGroupSize.x - 1) * APART + KERNEL;
const uint TILE = ((gl_WorkGroupSize.y * ROWS - 1) * APART + KERNEL) * TILE_W; // quads of the input, of a step
const uint COPIES = (TILE + THREADS - 1) / THREADS;                            // of each invocation
const uint TAPS = KERNEL * KERNEL * 4; // rows of weights, of a step
const uint OUT = gl_WorkGroupSize.z * QUADS, OUT_WIDTH = OUT < UNIT ? OUT : UNIT; // quads of the tile, and of a row of weights
const uint WEIGHTS = STEPS * TAPS * OUT;
const uint WEIGHT_COPIES = (WEIGHTS + THREADS - 1) / THREADS;
const uint SPAN = (ROWS - 1) * APART + KERNEL; // input rows that an invocation needs
const uint CHAIN = KERNEL > 9 ? 1 : 9 / KERNEL; // columns whose products are added up in fp16
const uint OUTSIDE = 0xffffffffu;

shared REAL4 tile[STEPS * TILE];
shared REAL4 weight_tile[WEIGHTS];

// Where the pixels that this invocation copies lie, from the first one of their channels.
uint offsets[COPIES];

void find_pixels(uvec2 origin)
{
    [[unroll]] for (uint i = 0; i < COPIES; i++) {
        const uint at = gl_LocalInvocationIndex + i * THREADS;
        const uvec2 from = origin * STRIDE + uvec2(at % TILE_W, at / TILE_W) * (STRIDE / APART);
        const int row = source(int(from.y) - int(PAD), p.in_h), column = source(int(from.x) - int(PAD), p.in_w);
        offsets[i] = row < 0 || column < 0 ? OUTSIDE : uint(row) * p.in_w + uint(column) << group_log(p.x);
    }
}

// On their way from global to shared memory.
REAL4 pixels[STEPS * COPIES], weights[WEIGHT_COPIES];

void load_chunk(uint n, uint chunk)
{
    [[unroll]] for (uint s = 0; s < STEPS; s++) {
        const uint plane = quad_index(p.x, n, min(chunk + s, p.in_blocks - 1), p.in_h * p.in_w, 0);
        [[unroll]] for (uint i = 0; i < COPIES; i++)
            pixels[s * COPIES + i] = offsets[i] == OUTSIDE ? REAL4(0.0) : REAL4(x[plane + offsets[i]]);
    }
    const uint first = gl_WorkGroupID.y * OUT, units = (p.out_blocks + UNIT - 1) / UNIT;
    [[unroll]] for (uint i = 0; i < WEIGHT_COPIES; i++) {
        const uint at = gl_LocalInvocationIndex + i * THREADS, line = at / OUT_WIDTH;
        const uint unit = min(first / UNIT + line / (STEPS * TAPS), units - 1);
        const uint row = min(chunk * TAPS + line % (STEPS * TAPS), p.in_blocks * TAPS - 1);
        weights[i] = REAL4(weight[(unit * p.in_blocks * TAPS + row) * UNIT + first % UNIT + at % OUT_WIDTH]);
    }
}

void store_chunk(uint n, uint chunk)
{
    [[unroll]] for (uint s = 0; s < STEPS; s++) {
        [[unroll]] for (uint i = 0; i < COPIES; i++) {
            const uint at = gl_LocalInvocationIndex + i * THREADS;
            REAL4 v = pixels[s * COPIES + i];
            if (has(FLAG_IN_SCALE))
                v = TO_REAL4(vec4(v) * in_factor(n, min(chunk + s, p.in_blocks - 1)));
            if (at < TILE)
                tile[s * TILE + at] = v;
        }
    }
    [[unroll]] for (uint i = 0; i < WEIGHT_COPIES; i++) {
        const uint at = gl_LocalInvocationIndex + i * THREADS;
        if (at < WEIGHTS)
            weight_tile[at] = weights[i];
    }
}

void main()
{
    const uvec3 local = gl_LocalInvocationID, size = gl_WorkGroupSize;
    const uint group = gl_WorkGroupID.x + p.first_group, n = gl_WorkGroupID.z;
    const uvec2 origin = uvec2(group % p.tiles_x * size.x, group / p.tiles_x * size.y * ROWS);
    const uvec2 at = origin + uvec2(local.x, local.y * ROWS);
    const uint first_quad = gl_WorkGroupID.y * OUT + local.z * QUADS;

    PAIR chain[ROWS * QUADS * 2];
    [[unroll]] for (uint i = 0; i < ROWS * QUADS * 2; i++)
        chain[i] = PAIR(0.0);
    vec4 sum[ROWS * QUADS];
    [[unroll]] for (uint i = 0; i < ROWS * QUADS; i++)
        sum[i] = vec4(0.0);

    find_pixels(origin);
    for (uint chunk = 0; chunk < p.in_blocks; chunk += STEPS) {
        load_chunk(n, chunk);
        barrier();
        store_chunk(n, chunk);
        barrier();
        const uint steps = min(STEPS, p.in_blocks - chunk);
        [[dont_unroll]] for (uint step = 0; step < steps; step++) {
            [[unroll]] for (uint kx = 0; kx < KERNEL; kx++) {
                const uint from = step * TILE + (local.y * ROWS * TILE_W + local.x) * APART + kx;
                REAL4 column[SPAN];
                [[unroll]] for (uint r = 0; r < SPAN; r++)
                    column[r] = tile[from + r * TILE_W];
                [[unroll]] for (uint tap = 0; tap < KERNEL * 4; tap++) {
                    const uint ky = tap / 4, lane = tap % 4, row = step * TAPS + (ky * KERNEL + kx) * 4 + lane;
                    [[unroll]] for (uint o = 0; o < QUADS; o++) {
                        const uint quad = local.z * QUADS + o;
                        const REAL4 w = weight_tile[(quad / UNIT * STEPS * TAPS + row) * OUT_WIDTH + quad % UNIT];
                        [[unroll]] for (uint r = 0; r < ROWS; r++) {
                            const PAIR v = PAIR(column[r * APART + ky][lane]);
                            const uint to = (r * QUADS + o) * 2;
                            chain[to] = fma(w.xy, v, chain[to]);
                            chain[to + 1] = fma(w.zw, v, chain[to + 1]);
                        }
                    }
                }
                if (PACKED != 0 && (kx + 1 == KERNEL ? KERNEL > 1 || step + 1 == steps : (kx + 1) % CHAIN == 0)) {
                    [[unroll]] for (uint to = 0; to < ROWS * QUADS; to++) {
                        sum[to] += vec4(chain[to * 2], chain[to * 2 + 1]);
                        chain[to * 2] = chain[to * 2 + 1] = PAIR(0.0);
                    }
                }
            }
        }
    }

    // What follows the sum is long: unrolled, it made compilers give up and keep the sums in memory.
    [[dont_unroll]] for (uint r = 0; r < ROWS; r++) {
        [[unroll]] for (uint o = 0; o < QUADS; o++) {
            vec4 total = vec4(0.0);
            [[unroll]] for (uint row = 0; row < ROWS; row++) {
                const uint i = row * QUADS + o;
                if (row == r)
                    total = PACKED != 0 ? sum[i] : vec4(chain[i * 2], chain[i * 2 + 1]);
            }
            if (at.y + r < p.out_h && at.x < p.out_w && first_quad + o < p.out_blocks)
                finish(total, n, first_quad + o, at.y + r, at.x);
        }
    }
}
