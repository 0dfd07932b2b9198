#!/bin/sh
# A PostgreSQL of the tests' own: sh tests/postgres.sh COMMAND… starts one in a temporary folder, on a free port of
# 127.0.0.1 and a socket, runs the command with RESTORED_TEST_POSTGRES=URL, and stops and removes it. Where no PostgreSQL is
# installed, the command runs without one, after a line that says so; it tells its tests to skip what needs one.
# Within the command, `sh tests/postgres.sh --kill` ends the server as kill -9 does, and `--start` starts it again.
# fsync is off, because a killed process leaves the system's cache; RESTORED_TEST_POSTGRES_FSYNC=on turns it on.
# TEST_POSTGRES_MORE has more lines for postgresql.conf, TEST_POSTGRES_IN the folder
# for its own (/tmp).
set -u

# as_postgres COMMAND…: the server refuses to run as root
as_postgres() {
    if [ "$(id -u)" -eq 0 ]; then setpriv --reuid=postgres --regid=postgres --init-groups "$@"; else "$@"; fi
}

start() {
    as_postgres "$bin/pg_ctl" -D "$RESTORED_TEST_POSTGRES_DIR/data" -w -t 60 -l "$RESTORED_TEST_POSTGRES_DIR/log" \
        -o "-p $RESTORED_TEST_POSTGRES_PORT" start >/dev/null 2>&1
}

for bin in "$(pg_config --bindir 2>/dev/null)" $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -rV); do
    [ -x "$bin/initdb" ] && break
done

case ${1-} in
--kill)
    pid=$(head -n 1 "$RESTORED_TEST_POSTGRES_DIR/data/postmaster.pid") || exit 1
    kill -9 "$pid" && while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
    exit ;;
--start) # those that the killed one has left end first; until then its memory is in use
    for _ in $(seq 60); do start && exit 0; sleep 0.5; done
    cat "$RESTORED_TEST_POSTGRES_DIR/log" >&2
    exit 1 ;;
esac

if [ ! -x "$bin/initdb" ]; then
    echo "no PostgreSQL is installed (postgresql): tests that need one are skipped" >&2
    exec "$@"
fi
dir=$(mktemp -d "${TEST_POSTGRES_IN:-/tmp}/restored_postgres_XXXXXX") || exit 1
export RESTORED_TEST_POSTGRES_DIR="$dir"
[ "$(id -u)" -eq 0 ] && chown postgres "$dir"
chmod 755 "$dir"
finish() {
    as_postgres "$bin/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null 2>&1
    rm -rf "$dir"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
as_postgres "$bin/initdb" -D "$dir/data" -U postgres -A trust -E UTF8 --locale=C -N >"$dir/init" 2>&1 || {
    cat "$dir/init" >&2
    exit 1
}
cat >>"$dir/data/postgresql.conf" <<END
listen_addresses = '127.0.0.1'
unix_socket_directories = '$dir'
max_connections = 200
shared_buffers = 32MB
fsync = ${RESTORED_TEST_POSTGRES_FSYNC:-off}
full_page_writes = ${RESTORED_TEST_POSTGRES_FSYNC:-off}
${TEST_POSTGRES_MORE:-}
END
# Another run may have taken the same port in between: then another one is tried.
try=0
export RESTORED_TEST_POSTGRES_PORT=$((20000 + ($$ * 7919) % 12000))
until start; do
    try=$((try + 1))
    RESTORED_TEST_POSTGRES_PORT=$((20000 + ($$ * 7919 + try * 101) % 12000))
    [ $try -lt 20 ] || { cat "$dir/log" >&2; exit 1; }
done
export RESTORED_TEST_POSTGRES="postgresql://postgres@127.0.0.1:$RESTORED_TEST_POSTGRES_PORT/postgres"
"$@"
