#!/bin/sh
# Builds and runs the test suites: tests/check.sh [SUITE]…, all of them without an argument.
# Prints a line a suite, the output of what fails, why something was skipped, and at last "N passed, N failed" alone on
# its line, summed over the single tests. The exit status is 0 only if nothing failed.
set -u
cd "$(dirname "$0")/.." || exit 1
unset MAKEFLAGS MAKELEVEL
export RESTORED_CONFIG=/dev/null               # nor is this machine's configuration read
export CI=1                                    # warnings are errors
export XDG_CACHE_HOME="$PWD/build/cache"       # pipeline caches stay out of the user's
make="${MAKE:-make} --no-print-directory -s -j$(nproc)"
all='build lint shaders unit ops golden asan tsan clang fuzz api chaos browser'
[ $# -eq 0 ] && set -- $all

mkdir -p build/log "$XDG_CACHE_HOME"
passed=0 failed=0

# count PASSED FAILED: to the suite and to the sum
count() { suite_passed=$((suite_passed + $1)) suite_failed=$((suite_failed + $2)); }

# must COMMAND…: one test, passed if the command succeeds
must() {
    if timeout 1800 "$@" >"$log" 2>&1; then count 1 0; else
        count 0 1
        echo "FAILED: $*"
        cat "$log"
        return 1
    fi
}

# cmocka DIRECTORY: every program built from its test_*.c, or those in $only, and the tests that each counts. As many run at once
# as there are processors, the longest first; what is told afterwards is in the order of their names.
longest='test_alloc test_fault test_overlap test_worker_pool test_graphs test_vulkan test_restoration'
cmocka() {
    logs=build/log/$suite
    rm -rf "$logs"
    mkdir -p "$logs"
    names=''
    for source in tests/"${1#*/tests/}"/test_*.c; do
        [ -e "$source" ] || continue
        name=$(basename "$source" .c)
        [ "${only:-}" ] && case " $only " in *" $name "*) ;; *) continue ;; esac
        names="$names $name"
    done
    {
        for name in $longest; do case " $names " in *" $name "*) echo "$name" ;; esac; done
        for name in $names; do case " $longest " in *" $name "*) ;; *) echo "$name" ;; esac; done
    } | xargs -r -P "$(nproc)" -I NAME sh -c 'timeout 1800 "$1/NAME" >"$2/NAME.log" 2>&1; echo $? >"$2/NAME.status"' - "$1" "$logs"
    for name in $names; do
        program=$1/$name log=$logs/$name.log
        status=$(cat "$logs/$name.status" 2>/dev/null || echo unknown)
        ok=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
        bad=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
        ok=${ok:-0} bad=${bad:-0}
        if [ "$status" != 0 ] || [ "$bad" -ne 0 ] || [ "$ok" -eq 0 ]; then
            # A program that crashed, or ran no test at all and did not say why, is a failure of its own.
            if [ "$status" = 0 ] && [ "$bad" -eq 0 ] && grep -q -e '^skip' -e '^\[  SKIPPED \]' "$log"; then :; else
                [ "$bad" -eq 0 ] && bad=1
                echo "FAILED: $program (exit status $status)"
                cat "$log"
            fi
        fi
        count "$ok" "$bad"
        grep -e '^skip' -e '^\[  SKIPPED \] [a-zA-Z_]' "$log" | sed 's/^\[  SKIPPED \] /skipped /' | sort | uniq -c | sed "s|^ *\([0-9]*\) |  $name, \1 time(s): |"
    done
}

# node_tests FILE…: node's test runner, as many files at once as there are processors (its own choice is one fewer)
node_tests() {
    several=''
    node --help | grep -q -e --test-concurrency && several=--test-concurrency=$(nproc)
    timeout 1800 node --test $several --test-reporter=tap "$@" >"$log" 2>&1
    status=$?
    ok=$(sed -n 's/^# pass \([0-9]*\)$/\1/p' "$log")
    bad=$(sed -n 's/^# fail \([0-9]*\)$/\1/p' "$log")
    ok=${ok:-0} bad=${bad:-0}
    [ $status -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    [ "$ok" -eq 0 ] && [ "$bad" -eq 0 ] && bad=1
    if [ "$bad" -ne 0 ]; then
        echo "FAILED: node --test $*"
        cat "$log"
    fi
    count "$ok" "$bad"
    sed -n 's/^ *ok [0-9]* - \(.*# SKIP.*\)$/  \1/p' "$log"
}

suite_build() { must $make restored tests shaders fixtures; }
suite_lint() { must sh tests/lint/lint.sh && cat "$log"; }
suite_shaders() {
    for spirv in build/shaders/*.spv; do
        case $spirv in */matrix_*) continue ;; esac # Debian 12's validator does not know cooperative matrices
        must spirv-val --target-env vulkan1.1 "$spirv"
    done
}
suite_unit() { cmocka build/tests/unit; }
suite_ops() { RESTORED_VULKAN_VALIDATION=1 cmocka build/tests/ops; }
suite_golden() { RESTORED_VULKAN_VALIDATION=1 cmocka build/tests/golden; }
suite_asan() { must $make fixtures && must $make asan && cmocka build-asan/tests/unit; }
suite_tsan() {
    must $make fixtures && must $make tsan &&
        TSAN_OPTIONS=suppressions=tests/tsan.supp only='test_queue test_events test_devices test_worker_pool test_codec_jpeg test_jpeg_encode test_thread' \
            cmocka build-tsan/tests/unit
}
suite_clang() { must $make clang; }
suite_fuzz() { must $make fuzz-replay && cat "$log"; }
suite_api() { node_tests tests/api/*.test.mjs; }
suite_chaos() { node_tests tests/chaos/*.test.mjs; }
suite_browser() { must $make tests/node_modules/.made && node_tests tests/browser/*.test.mjs; }

for suite in "$@"; do
    case " $all " in *" $suite "*) ;; *) echo "no suite $suite; there are: $all" >&2; exit 2 ;; esac
done
case " $* " in *' build '* | ' asan ' | ' tsan ' | ' clang ' | ' lint ' | ' fuzz ') ;; *) set -- build "$@" ;; esac

for suite in "$@"; do
    log=build/log/$suite.log suite_passed=0 suite_failed=0 start=$(date +%s)
    suite_"$suite"
    printf '%-8s %5d passed, %d failed (%d s)\n' "$suite" $suite_passed $suite_failed $(($(date +%s) - start))
    passed=$((passed + suite_passed)) failed=$((failed + suite_failed))
    [ "$suite" = build ] && [ $suite_failed -ne 0 ] && break # nothing else can be right
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
