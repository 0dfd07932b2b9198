#!/bin/sh
# Three PostgreSQL that are one: a primary and two standbys, each commit on two of them. For nodes.mjs, which does what a manager
# such as Patroni does. NODES_DIR is the folder of all, NODES_PORT the first node's port; the next ones follow.
#   sh nodes.sh init | standby N OF | start N | kill N | promote N | follow N OF
set -eu

for bin in "$(pg_config --bindir 2>/dev/null)" $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -rV); do
    [ -x "$bin/initdb" ] && break
done
[ -x "$bin/initdb" ] || exit 77
as_postgres() {
    if [ "$(id -u)" -eq 0 ]; then setpriv --reuid=postgres --regid=postgres --init-groups "$@"; else "$@"; fi
}
data() { echo "$NODES_DIR/node$1"; }
port() { echo $((NODES_PORT + $1)); }
start() {
    as_postgres "$bin/pg_ctl" -D "$(data "$1")" -w -t 60 -l "$(data "$1").log" -o "-p $(port "$1")" start >/dev/null
}
primary() { echo "host=127.0.0.1 port=$(port "$2") user=postgres application_name=node$1"; }
sql() { psql -X -A -t -q -v ON_ERROR_STOP=1 -d "postgresql://postgres@127.0.0.1:$(port "$1")/postgres" -c "$2"; }

case $1 in
init)
    [ "$(id -u)" -eq 0 ] && chown postgres "$NODES_DIR"
    chmod 755 "$NODES_DIR"
    as_postgres "$bin/initdb" -D "$(data 0)" -U postgres -A trust -E UTF8 --locale=C -N >"$NODES_DIR/init" 2>&1
    cat >>"$(data 0)/postgresql.conf" <<END
listen_addresses = '127.0.0.1'
unix_socket_directories = '$NODES_DIR'
max_connections = 150
shared_buffers = 32MB
fsync = off
full_page_writes = off
wal_keep_size = 256MB
synchronous_standby_names = 'ANY 1 (node0, node1, node2)'
END
    start 0 ;;
standby) # from nothing, whatever it was before: a primary that was replaced must not go on
    rm -rf "$(data "$2")"
    as_postgres "$bin/pg_basebackup" -D "$(data "$2")" -d "$(primary "$2" "$3")" -c fast -X stream
    echo "primary_conninfo = '$(primary "$2" "$3")'" >>"$(data "$2")/postgresql.auto.conf"
    : >"$(data "$2")/standby.signal"
    [ "$(id -u)" -eq 0 ] && chown postgres "$(data "$2")/standby.signal"
    start "$2" ;;
start) start "$2" ;;
kill)
    pid=$(head -n 1 "$(data "$2")/postmaster.pid")
    kill -9 "$pid" && while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done ;;
promote) sql "$2" 'SELECT pg_promote(true, 60)' ;;
follow) sql "$2" "ALTER SYSTEM SET primary_conninfo = '$(primary "$2" "$3")'" && sql "$2" 'SELECT pg_reload_conf()' ;;
stop)
    for n in 0 1 2; do as_postgres "$bin/pg_ctl" -D "$(data $n)" -m immediate stop >/dev/null 2>&1 || true; done
    rm -rf "$NODES_DIR" ;;
esac
