#!/bin/sh
# make bench-load: tests/bench/load.sh RESTORED MODELS
# Pictures a second of a server with a full queue, on one device, two, four and so on to all of the best kind there are,
# and of PyTorch beside it on one, where $PYTHON (python3) has it. Both run the networks in the folder MODELS, of the
# official sizes with random weights (make_models). BENCH_PICTURE is the picture, BENCH_FACES how many faces the detector
# is made to find in it (4), BENCH_ARGS goes to `restored bench`.
set -eu
cd "$(dirname "$0")/../.."
restored=$1
models=$2
python=${PYTHON:-python3}
picture=${BENCH_PICTURE:-build/bench/load.jpg}
if [ ! -e "$picture" ]; then
    "$restored" restore static/sample.jpg -o "$picture" -s 2 --version none --bg_upsampler none --quality 92 >/dev/null
fi
torch=
"$python" -c 'import torch' 2>/dev/null && torch=yes
echo "$(date -u '+%Y-%m-%d %H:%M') UTC, $(nproc) cores of $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1), load $(cut -d' ' -f1 /proc/loadavg)"
echo
detector=
if [ -n "$torch" ]; then
    "$python" tests/bench/pipeline_torch.py "$picture" --models "$models" --calibrate "${BENCH_FACES:-4}" --pictures 0
else
    detector='--detector starter' # random weights find no faces
fi
# shellcheck disable=SC2086 # lists of words
"$restored" bench --load "$picture" --models "$models" $detector ${BENCH_ARGS:-}
echo
if [ -n "$torch" ]; then
    "$python" tests/bench/pipeline_torch.py "$picture" --models "$models" ${TORCH_ARGS:-}
else
    echo "PyTorch: not here ($python has no torch)"
fi
