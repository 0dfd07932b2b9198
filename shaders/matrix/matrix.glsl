// Cooperative matrices of 16x16 (VK_KHR_cooperative_matrix), spelt as SPIR-V instructions: the GLSL compiler of Debian 12
// does not know GL_KHR_cooperative_matrix. A subgroup holds a matrix, its elements spread over its invocations.
// FLOAT16_ID and FLOAT32_ID are the numbers that the compiler gives those two types; tools/matrix.sh finds them out. The
// types must come before any matrix, so main() begins with FLOAT_TYPES.
// Source of the numbers: SPIR-V, SPV_KHR_cooperative_matrix.
#extension GL_EXT_spirv_intrinsics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#pragma use_vulkan_memory_model
#include "common.glsl"
#if FP16
#undef TO_QUAD // in fp16, two at a time
#define TO_QUAD(v) clamp(f16vec4(v), f16vec4(-65504.0), f16vec4(65504.0))
#endif

#define SUBGROUP 32 // invocations, and so 8 elements of a matrix each
#define FLOAT_TYPES float16_t first_half = float16_t(0.0); float first_float = 0.0

const uint SCOPE_SUBGROUP = 3, SIZE = 16, USE_A = 0, USE_B = 1, USE_SUM = 2;

#define MATRIX extensions = ["SPV_KHR_cooperative_matrix"], capabilities = [6022]
#define matrix_a spirv_type(MATRIX, id = 4456, FLOAT16_ID, SCOPE_SUBGROUP, SIZE, SIZE, USE_A)
#define matrix_b spirv_type(MATRIX, id = 4456, FLOAT16_ID, SCOPE_SUBGROUP, SIZE, SIZE, USE_B)
#define matrix_sum spirv_type(MATRIX, id = 4456, FLOAT32_ID, SCOPE_SUBGROUP, SIZE, SIZE, USE_SUM)
#define half_pointer spirv_type(id = 32, 7, FLOAT16_ID) // OpTypePointer Function
#define float_pointer spirv_type(id = 32, 7, FLOAT32_ID)

// From and to an array in memory, order 0: row by row; stride: array elements from row to row; operand 0x20:
// NonPrivatePointer.
spirv_instruction(MATRIX, id = 4457) matrix_a matrix_load_a(spirv_by_reference uvec4 at, uint order, uint stride, spirv_literal uint operand);
spirv_instruction(MATRIX, id = 4457) matrix_a matrix_load_a_halves(spirv_by_reference float16_t at, uint order, uint stride, spirv_literal uint operand);
spirv_instruction(MATRIX, id = 4457) matrix_sum matrix_load_sum(spirv_by_reference float at, uint order, uint stride, spirv_literal uint operand);
spirv_instruction(MATRIX, id = 4457) matrix_b matrix_load_b(spirv_by_reference float16_t at, uint order, uint stride, spirv_literal uint operand);
spirv_instruction(MATRIX, id = 4459) matrix_sum matrix_multiply_add(matrix_a a, matrix_b b, matrix_sum c);
spirv_instruction(id = 80) matrix_sum matrix_splat(float v); // OpCompositeConstruct
spirv_instruction(id = 129) matrix_sum matrix_add(matrix_sum a, matrix_sum b); // OpFAdd

// An invocation's own elements of a matrix: OpAccessChain, OpStore, OpLoad.
spirv_instruction(id = 65) half_pointer matrix_element(spirv_by_reference matrix_b m, uint i);
spirv_instruction(id = 65) half_pointer matrix_a_element(spirv_by_reference matrix_a m, uint i);
spirv_instruction(id = 62) void matrix_set(half_pointer element, float16_t v);
spirv_instruction(id = 61) float16_t matrix_get(half_pointer element);
spirv_instruction(id = 65) float_pointer sum_element(spirv_by_reference matrix_sum m, uint i);
spirv_instruction(id = 62) void sum_set(float_pointer element, float v);
spirv_instruction(id = 61) float sum_get(float_pointer element);

// Gives an invocation its 8 elements of a B matrix.
#define HOLD(m, v)                                                                                                     \
    [[unroll]] for (uint j = 0; j < 4; j++)                                                                            \
    {                                                                                                                  \
        const f16vec2 both = unpackFloat2x16(v[j]);                                                                    \
        matrix_set(matrix_element(m, j * 2), both.x);                                                                  \
        matrix_set(matrix_element(m, j * 2 + 1), both.y);                                                              \
    }
