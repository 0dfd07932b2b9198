#!/bin/sh
# make bench, make bench-gpu: tests/bench/bench.sh RESTORED cpu|gpu|default
# The set of networks and the whole pipeline on one device, as markdown; PyTorch's networks in turns with ours where it is
# installed and has a device of that kind. BENCH_PICTURE is the pipeline's picture, BENCH_ARGS goes to every
# `restored bench`, TORCH_ARGS to bench_torch.py.
set -eu
cd "$(dirname "$0")/../.."
restored=$1
kind=$2
shared=${RESTORED_SHARED:-../shared}
out=build/bench
mkdir -p "$out"

side=$kind
if [ "$kind" != cpu ]; then
    side=gpu
    if "$restored" devices --json | grep -q '"default": *"cpu"'; then side=cpu; fi
fi
case $kind in
cpu) device='--device cpu' ;;
gpu)
    device=
    if [ "$side" = cpu ]; then
        echo 'make bench-gpu: there is no GPU that restored can use here; restored devices says what there is' >&2
        exit 1
    fi
    ;;
*) device= ;;
esac

echo "$(date -u '+%Y-%m-%d %H:%M') UTC, $(nproc) cores of $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1), load $(cut -d' ' -f1 /proc/loadavg)"
echo
status=0
python=${PYTHON:-python3}
torch=$("$python" -c 'import torch; print("gpu" if torch.cuda.is_available() else "cpu")' 2>/dev/null) || torch=none
# shellcheck disable=SC2086 # lists of words
if [ "$torch" = none ] || [ "$side $torch" = 'gpu cpu' ]; then
    "$restored" bench $device ${BENCH_ARGS:-}
    if [ "$torch" = none ]; then
        printf '\nPyTorch: not here (%s has no torch)\n' "$python"
    else
        printf '\nPyTorch: it sees no GPU here\n'
    fi
else
    "$python" tests/bench/bench_torch.py "$restored" $side ${TORCH_ARGS:-} -- ${BENCH_ARGS:-} || status=$?
fi

# The picture: 1920×1080 with four faces, the sample and its mirror image. The models: those installed, else small ones
# that stand in for them.
picture=${BENCH_PICTURE:-}
if [ -z "$picture" ] && command -v convert >/dev/null; then
    picture=$out/four_faces.jpg
    convert static/sample.jpg \( +clone -flop \) +append -resize 1920x -background gray -gravity center \
        -extent 1920x1080 -quality 92 "$picture"
fi
picture=${picture:-build/fixtures/two.png}
models=
rest=$(echo "${BENCH_ARGS:-}" | sed 's/--layers[^ ]*//') # a pipeline has none
if ! "$restored" bench --pipeline "$picture" $device --runs 1 >/dev/null 2>"$out/why"; then
    if [ -e "$shared/models/gfpgan_tiny.pth" ]; then
        models="--models $shared/models --detector detection_mobilenet0.25_distilled -v gfpgan_tiny
            --default_parser parsing_parsenet_tiny --bg_upsampler realesr-animevideov3"
    else
        models='--models build/fixtures --detector detector --version face --default_parser parser --bg_upsampler upscaler'
    fi
    printf '\nNo models of its own (%s); so with: %s\n' "$(head -c 120 "$out/why")..." "$(echo $models)"
fi
for format in jpg png; do
    printf '\nThe whole pipeline, to %s:\n' $format
    "$restored" bench --pipeline "$picture" $device $models --ext $format $rest
done

printf '\nReading and writing pictures:\n'
build/bench_image "$picture"
exit $status
