#!/bin/sh
# Builds the program from two copies of the tree, in folders of other names and with other build folders, and compares them.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for copy in first another/place; do
    mkdir -p "$work/$copy"
    git ls-files -z | xargs -0 cp --parents -t "$work/$copy"
    ${MAKE:-make} --no-print-directory -s -j"$(nproc)" -C "$work/$copy" BUILD="build-$(basename "$copy")" restored
done
cmp "$work/first/restored" "$work/another/place/restored"
echo "the same $(wc -c <"$work/first/restored") bytes from two folders"
