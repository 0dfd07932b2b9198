// Which elements of a B matrix (16 rows of 16) each invocation holds: y[invocation * 8 + i] = row * 16 + column of its
// element i. Weights are packed in this order, so that each invocation loads its own in one go. Then the same of a matrix
// of sums, which each invocation writes to memory itself, and of an A matrix, which direct.comp fills itself.
#version 450
#include "matrix.glsl"

layout(local_size_x = SUBGROUP) in;
layout(std430, set = 0, binding = BIND_Y) writeonly buffer y_buffer { uint y[]; };

shared float16_t numbers[SIZE * SIZE];
shared float wide[SIZE * SIZE];

void main()
{
    FLOAT_TYPES;
    for (uint i = gl_LocalInvocationIndex; i < SIZE * SIZE; i += SUBGROUP)
        numbers[i] = float16_t(wide[i] = float(i));
    barrier();
    matrix_b m = matrix_load_b(numbers[0], 0, SIZE, 0x20);
    matrix_sum s = matrix_load_sum(wide[0], 0, SIZE, 0x20);
    matrix_a a = matrix_load_a_halves(numbers[0], 0, SIZE, 0x20);
    for (uint i = 0; i < 8; i++) {
        y[gl_SubgroupInvocationID * 8 + i] = uint(matrix_get(matrix_element(m, i)));
        y[(SUBGROUP + gl_SubgroupInvocationID) * 8 + i] = uint(sum_get(sum_element(s, i)));
        y[(2 * SUBGROUP + gl_SubgroupInvocationID) * 8 + i] = uint(matrix_get(matrix_a_element(a, i)));
    }
}
