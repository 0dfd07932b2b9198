#!/bin/sh
# Compiles a shader that uses cooperative matrices: tools/matrix.sh SHADER OUTPUT FP16
# Compilers before glslang 13 have no such type. shaders/matrix/matrix.glsl declares it by its SPIR-V, in which the type
# of the elements is named by the number that the compiler gives it. So: compile with numbers that are probably right,
# read the real ones from the result, compile again, and see that they have not moved.
set -eu
shader=$1
output=$2
fp16=$3 # 0 or 1: how activations are stored

compile() { # FLOAT16_ID FLOAT32_ID
    glslc --target-env=vulkan1.1 -DFP16="$fp16" -DFLOAT16_ID="$1" -DFLOAT32_ID="$2" -I shaders/include -o "$output" "$shader"
}

types() { # the numbers of the 16-bit and the 32-bit float (OpTypeFloat is 22), in that order
    od -An -v -tu4 -w4 "$output" | awk '
        { word[NR] = $1 }
        END {
            for (i = 6; i <= NR; i += int(word[i] / 65536))
                if (word[i] % 65536 == 22) id[word[i + 2]] = word[i + 1]
            print id[16], id[32]
        }'
}

trap 'rm -f "$output"' EXIT
compile 6 10
found=$(types)
compile "${found% *}" "${found#* }"
if [ "$(types)" != "$found" ]; then
    echo "$shader: the numbers of the float types moved from $found to $(types); begin main() with FLOAT_TYPES" >&2
    exit 1
fi
trap - EXIT
