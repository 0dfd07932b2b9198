#!/bin/sh
# make bench, make bench-gpu: tests/bench/bench.sh RESTORED cpu|gpu|default
# The set of networks and the whole pipeline on one device, as markdown, and PyTorch beside them where it is installed.
# BENCH_PICTURE is the pipeline's picture, BENCH_ARGS goes to every `restored bench`.
set -eu
cd "$(dirname "$0")/../.."
restored=$1
kind=$2
shared=${RESTORED_SHARED:-../shared}
out=build/bench
mkdir -p "$out"

case $kind in
cpu) device='--device cpu' ;;
gpu)
    device=
    if "$restored" devices --json | grep -q '"default": *"cpu"'; then
        echo 'make bench-gpu: there is no GPU that restored can use here; restored devices says what there is' >&2
        exit 1
    fi
    ;;
*) device= ;;
esac

echo "$(date -u '+%Y-%m-%d %H:%M') UTC, $(nproc) cores of $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1), load $(cut -d' ' -f1 /proc/loadavg)"
echo
# shellcheck disable=SC2086 # both are lists of words
"$restored" bench $device ${BENCH_ARGS:-}

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
    "$restored" bench --pipeline "$picture" $device $models --ext $format ${BENCH_ARGS:-}
done

printf '\nReading and writing pictures:\n'
build/bench_image "$picture"

printf '\n'
python=${PYTHON:-python3}
if "$python" -c 'import torch' 2>/dev/null; then
    "$python" tests/bench/bench_torch.py "$kind"
else
    echo "PyTorch: not here ($python has no torch)"
fi
