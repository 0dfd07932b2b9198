#!/bin/sh
# Runs every fuzzer of a built folder for some seconds, as many at once as there are processors, and several on one reader where
# there are more processors than readers (they share what they find).
# Usage: tests/fuzz/fuzz.sh [SECONDS [FOLDER [PROCESSES]]]     60, build-fuzz, one a processor
# It needs FOLDER/fuzz and FOLDER/corpus (make fuzz-build) and no compiler. What makes a reader fail is kept in FOLDER/found/NAME-…,
# what a fuzzer printed in FOLDER/found/NAME.N.log. Exits with 1 if a reader failed.
seconds=${1:-60} folder=${2:-build-fuzz} processes=${3:-$(nproc)}
set -- "$folder"/fuzz/fuzz_*
each=$((processes / $#))
[ "$each" -ge 1 ] || each=1
for fuzzer; do
    name=${fuzzer##*/}
    mkdir -p "$folder/found/$name"
    n=0
    while [ $((n += 1)) -le $each ]; do echo "$name $n"; done
done | xargs -P "$processes" -L 1 sh -c '
    found=$0/found/$2 log=$0/found/$2.$3.log
    if "$0/fuzz/$2" -max_total_time="$1" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$found-" \
        "$found" "$0/corpus/$2" >"$log" 2>&1; then
        echo "$2 $3: $(sed -n "s/^stat::number_of_executed_units: *//p" "$log") inputs"
    else
        echo "$2 $3 FAILED: $log"
        grep -e ERROR -e "runtime error" -e "Test unit written" "$log"
        exit 1
    fi' "$folder" "$seconds" || exit 1
