#!/bin/sh
# Builds and runs the test suites: tests/check.sh [SUITE]…, all of them without an argument.
# Prints a line a suite, what fails with what it says, why something was skipped, at the end once more all that failed, and
# at last "N passed, N failed" alone on its line, summed over the single tests. The exit status is 0 only if nothing failed.
set -u
cd "$(dirname "$0")/.." || exit 1
unset MAKEFLAGS MAKELEVEL
export RESTORED_CONFIG=/dev/null               # nor is this machine's configuration read
export CI=1                                    # warnings are errors
export XDG_CACHE_HOME="$PWD/build/cache"       # pipeline caches stay out of the user's
make="${MAKE:-make} --no-print-directory -s -j$(nproc)"
all='build lint shaders unit ops golden asan tsan clang fuzz api chaos browser'
[ $# -eq 0 ] && set -- $all
# A PostgreSQL runs beside all of them, for the tests of what several servers share.
[ "${RESTORED_TEST_POSTGRES-none}" = none ] && RESTORED_TEST_POSTGRES= exec sh tests/postgres.sh sh tests/check.sh "$@"

mkdir -p build/log "$XDG_CACHE_HOME"
passed=0 failed=0
failures=build/log/failures

# failure WHAT <OUTPUT: tells it now and at the end
failure() {
    { echo "FAILED: $1" && cat; } | tee -a "$failures"
}

# count PASSED FAILED: to the suite and to the sum
count() { suite_passed=$((suite_passed + $1)) suite_failed=$((suite_failed + $2)); }

# must COMMAND…: one test, passed if the command succeeds
must() {
    if timeout 1800 "$@" >"$log" 2>&1; then count 1 0; else
        count 0 1
        tail -n 200 "$log" | failure "$*"
        return 1
    fi
}

# The C programs of all suites asked for run in one pool, the longest first: as many at once as there are processors, so
# that the end of a suite leaves none idle. Their results are told suite by suite. Before them go those that compile software
# Vulkan's shaders into the cache that all share: with a sanitizer that takes more than twice as long.
longest='unit/test_worker_pool unit/test_fault unit/test_overlap unit/test_worker_jobs
ops/test_convolutions golden/test_pipeline tsan/test_worker_pool tsan/test_worker_jobs asan/test_fault asan/test_overlap golden/test_networks
golden/test_shapes golden/test_families tsan/test_keeper_shared asan/test_worker_jobs tsan/test_thread asan/test_alloc asan/test_keeper_shared
asan/test_worker_pool asan/test_band asan/test_crowd asan/test_cracks asan/test_restoration asan/test_engine tsan/test_codec_jpeg tsan/test_jpeg_encode'
threads=$(sed -n 's/^THREADS := //p' Makefile) # what tsan runs

# folder SUITE: where its programs are
folder() {
    case $1 in
    asan | tsan) echo "build-$1/tests/unit" ;;
    *) echo "build/tests/$1" ;;
    esac
}

# programs SUITE: the names of its programs
programs() {
    case $1 in
    tsan) printf 'test_%s\n' $threads | sort ;;
    asan) programs unit ;;
    *) for source in tests/"$1"/test_*.c; do basename "$source" .c; done ;;
    esac
}

# run_program SUITE/NAME: its output and its exit status go to build/log/SUITE
run_program() {
    name=${1#*/} suite=${1%/*}
    case $suite in
    ops | golden) export RESTORED_VULKAN_VALIDATION=1 ;;
    tsan) export TSAN_OPTIONS=suppressions=tests/tsan.supp ;;
    esac
    start=$(date +%s)
    timeout 1800 "$(folder "$suite")/$name" >"build/log/$1.log" 2>&1
    echo "$? $(($(date +%s) - start))" >"build/log/$1.status"
}
if [ "${1:-}" = --program ]; then # this script, called by run_pool
    run_program "$2"
    exit
fi
: >"$failures"

# run_pool SUITE…: builds and runs the programs of those of them that have any. What does not build is told by its suite.
run_pool() {
    begun=$(date +%s)
    for each in "$@"; do
        case $each in asan | tsan) $make fixtures build/tests/restored "$each" >/dev/null 2>&1 ;; esac # test_notify starts that server
    done
    built=$(date +%s)
    names=$(for each in "$@"; do
        case $each in unit | ops | golden | asan | tsan) ;; *) continue ;; esac
        rm -rf "build/log/$each"
        mkdir -p "build/log/$each"
        programs "$each" | sed "s|^|$each/|"
    done)
    {
        for name in $longest; do echo "$names" | grep -x "$name"; done
        echo "$names" | grep -vxF "$(printf '%s\n' $longest)"
    } | xargs -r -P "$(nproc)" -n 1 sh tests/check.sh --program
    pool_done=yes
    echo "programs of the suites in C: built in $((built - begun)) s, run in $(($(date +%s) - built)) s"
}

# cmocka SUITE: tells what became of its programs and of the tests that each counts
cmocka() {
    for name in $(programs "$1"); do
        program=$(folder "$1")/$name log=build/log/$1/$name.log status=unknown seconds=0
        [ -e "build/log/$1/$name.status" ] && read -r status seconds <"build/log/$1/$name.status"
        suite_seconds=$((suite_seconds + seconds))
        ok=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
        bad=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
        ok=${ok:-0} bad=${bad:-0}
        if [ "$status" != 0 ] || [ "$bad" -ne 0 ] || [ "$ok" -eq 0 ]; then
            # A program that crashed, or ran no test at all and did not say why, is a failure of its own.
            if [ "$status" = 0 ] && [ "$bad" -eq 0 ] && grep -q -e '^skip' -e '^\[  SKIPPED \]' "$log"; then :; else
                [ "$bad" -eq 0 ] && bad=1
                grep -v -e '^\[ RUN  ' -e '^\[  *OK \]' "$log" | tail -n 200 | failure "$program (exit status $status)"
            fi
        fi
        count "$ok" "$bad"
        grep -e '^skip' -e '^\[  SKIPPED \] [a-zA-Z_]' "$log" | sed 's/^\[  SKIPPED \] /skipped /' | sort | uniq -c | sed "s|^ *\([0-9]*\) |  $name, \1 time(s): |"
    done
}

# node_tests FILE…: node's test runner; four files at once where there are two processors: most of them wait, for a lease or a
# time limit. Browsers do not wait, and one of their tests measures: node's own number
node_tests() {
    several=''
    [ "$suite" != browser ] && [ "$(nproc)" -le 2 ] && node --help | grep -q -e --test-concurrency && several=--test-concurrency=4
    timeout 1800 node --test $several --test-reporter=tap "$@" >"$log" 2>&1
    status=$?
    ok=$(sed -n 's/^# pass \([0-9]*\)$/\1/p' "$log")
    bad=$(awk '/^# (fail|cancelled) [0-9]+$/ { sum += $3 } END { print sum + 0 }' "$log") # cancelled: took too long
    ok=${ok:-0}
    [ $status -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    [ "$ok" -eq 0 ] && [ "$bad" -eq 0 ] && bad=1
    if [ "$bad" -ne 0 ]; then
        # what node tells of each that failed, from its name to the end of its block; all of it if there is none
        sed -n '/^ *not ok /,/^ *\.\.\.$/p' "$log" | grep . || tail -n 200 "$log"
    fi >build/log/bad
    [ "$bad" -eq 0 ] || failure "$suite" <build/log/bad
    count "$ok" "$bad"
    sed -n 's/^ *ok [0-9]* - \(.*# SKIP.*\)$/  \1/p' "$log"
}

# Manual pages and completion, too: tests that install would make them at the same time.
suite_build() { must $make restored tests shaders fixtures build/man/.made build/completion/restored; }
suite_lint() { must sh tests/lint/lint.sh && cat "$log"; }
suite_shaders() {
    for spirv in build/shaders/*.spv; do
        case $spirv in */matrix_*) continue ;; esac # Debian 12's validator does not know cooperative matrices
        must spirv-val --target-env vulkan1.1 "$spirv"
    done
}
suite_unit() { cmocka unit; }
suite_ops() { cmocka ops; }
suite_golden() { cmocka golden; }
suite_asan() { must $make fixtures && must $make asan && cmocka asan; }
suite_tsan() { must $make fixtures && must $make tsan && cmocka tsan; }
suite_clang() { must $make clang; }
suite_fuzz() { must $make fuzz-replay && grep -v '^\./lib/jxl/' "$log"; } # Debian's libjxl tells what it thinks of a file
suite_api() { must $make tests/node_modules/.made; node_tests tests/api/*.test.mjs; }
suite_chaos() {
    node_tests tests/chaos/*.test.mjs
    must node tests/chaos/cluster.mjs && grep '^skipped' "$log" # five minutes of several machines
    if [ "${RESTORED_FULL:-}" = 1 ]; then # the mixed requests once more, to a server with ASan and UBSan
        must $make asan-server &&
            RESTORED_BINARY=$PWD/build-asan/tests/restored node_tests tests/chaos/mix.test.mjs
    fi
}
suite_browser() { must $make tests/node_modules/.made && node_tests tests/browser/*.test.mjs; }

for suite in "$@"; do
    case " $all " in *" $suite "*) ;; *) echo "no suite $suite; there are: $all" >&2; exit 2 ;; esac
done
case " $* " in *' build '* | ' asan ' | ' tsan ' | ' clang ' | ' lint ' | ' fuzz ') ;; *) set -- build "$@" ;; esac

pool_done=''
for suite in "$@"; do
    case $suite in unit | ops | golden | asan | tsan) [ "$pool_done" ] || run_pool "$@" ;; esac
    log=build/log/$suite.log suite_passed=0 suite_failed=0 suite_seconds=0 start=$(date +%s)
    suite_"$suite"
    # programs in C beside each other: the sum of their times
    printf '%-8s %5d passed, %d failed (%d s)\n' "$suite" $suite_passed $suite_failed $((suite_seconds + $(date +%s) - start))
    passed=$((passed + suite_passed)) failed=$((failed + suite_failed))
    [ "$suite" = build ] && [ $suite_failed -ne 0 ] && break # nothing else can be right
done
[ "$failed" -eq 0 ] || { echo "what failed, once more:" && cat "$failures"; }
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
