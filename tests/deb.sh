#!/bin/sh
# `make check-deb`: the package on a clean Debian 12 with systemd as its first process, in a container that this makes:
# installed, running as a service and sandboxed, reloaded, watched, used, upgraded, removed, purged without a trace.
# As root, with debootstrap, systemd-container and a network for the packages; build-debian12 is kept for the next time.
set -eu
cd "$(dirname "$0")/.."
deb=$1
base=$(pwd)/build-debian12 root=$(pwd)/build-debian12-test
fail() { echo "check-deb: $*" >&2; exit 1; }
for tool in debootstrap systemd-nspawn; do command -v $tool >/dev/null || fail "$tool is not installed"; done
[ "$(id -u)" -eq 0 ] || fail 'this takes root'
if [ ! -e "$base/.made" ]; then
    rm -rf "$base"
    debootstrap --variant=minbase --include=systemd,init,dbus,curl,ca-certificates,apt-utils bookworm "$base" >build/debian12.log ||
        fail "see build/debian12.log"
    touch "$base/.made"
fi
leader=
stop() {
    [ -z "$leader" ] || kill -KILL "$leader" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf --one-file-system "$root"
}
trap stop EXIT
rm -rf --one-file-system "$root"
cp -a "$base" "$root"
cp "$deb" "$root/root/restored.deb"
cp static/sample.jpg "$root/root/sample.jpg"

# Without a running systemd: what the package needs comes from the network, and it is enabled, but not started.
echo '== install'
systemd-nspawn --quiet --register=no --keep-unit --console=pipe --resolv-conf=replace-host -D "$root" sh -ec '
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends /root/restored.deb >/dev/null
    restored --version
    systemctl is-enabled restored
    id restored
    find / -xdev -newer /.made \( -path /proc -o -path /sys -o -path /var/cache/apt -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /var/log \) -prune -o -user restored -print' </dev/null

# A network of its own, so that port 8080 is its own, too.
echo '== boot'
systemd-nspawn --quiet --register=no --keep-unit --console=pipe --private-network --boot -D "$root" </dev/null >build/debian12-boot.log 2>&1 &
nspawn=$!
for _ in $(seq 300); do
    leader=$(cat /proc/$nspawn/task/*/children 2>/dev/null | tr ' ' '\n' | head -n 1)
    [ "$leader" ] && nsenter -t "$leader" -a systemctl is-system-running --wait >/dev/null 2>&1 && break
    sleep 0.2
done
inside() { nsenter -t "$leader" -a env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root sh -ec "$*"; }
inside 'systemctl is-active restored' || { inside 'systemctl status restored; journalctl -u restored | tail -30'; fail 'it is not active'; }
inside 'systemctl show -p Type,NotifyAccess,User,StatusText,WatchdogUSec,NRestarts restored'

echo '== use'
inside '
    for i in $(seq 100); do curl -fs http://127.0.0.1:8080/readyz >/dev/null && break; sleep 0.2; done
    curl -fsS http://127.0.0.1:8080/healthz; echo
    curl -fsS -o /root/out.jpg -F image=@/root/sample.jpg http://127.0.0.1:8080/v1/restore
    ls -l /root/out.jpg
    restored healthcheck
    ls -ld /var/lib/restored /var/cache/restored
    pid=$(systemctl show -p MainPID --value restored)
    grep -e NoNewPrivs -e Seccomp: -e CapEff -e Uid /proc/$pid/status
    sed -i "s/^log_level.*/log_level = debug/" /etc/restored/restored.conf
    systemctl reload restored
    sleep 1
    systemctl is-active restored
    journalctl -u restored -o cat | grep reloaded
    systemd-analyze security restored | tail -n 1
    touch /var/lib/restored/kept'

# A thread of HTTP that hangs: the watchdog ends the process, and systemd starts it again.
echo '== watchdog'
inside 'mkdir -p /run/systemd/system/restored.service.d && printf "[Service]\nWatchdogSec=2\n" >/run/systemd/system/restored.service.d/watchdog.conf
    systemctl daemon-reload && systemctl restart restored'
pid=$(inside 'systemctl show -p MainPID --value restored')
inside 'sleep 5; systemctl show -p NRestarts --value restored' | grep -qx 0 || fail 'the watchdog ends a server that is well'
thread=$(inside "grep -l MHD-worker /proc/$pid/task/*/comm | head -n 1 | cut -d / -f 5")
# seen from outside, since a debugger is not part of a clean system
outside=$(grep -l "^NSpid:.*[[:space:]]$thread\$" /proc/[0-9]*/task/[0-9]*/status 2>/dev/null | head -n 1 | cut -d / -f 5)
[ "$outside" ] || fail 'the thread was not found'
python3 -c "
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
assert libc.ptrace(0x4206, $outside, 0, 0) == 0, os.strerror(ctypes.get_errno())  # PTRACE_SEIZE
assert libc.ptrace(0x4207, $outside, 0, 0) == 0  # PTRACE_INTERRUPT
time.sleep(8)
"
inside '
    for i in $(seq 100); do [ "$(systemctl show -p NRestarts --value restored)" = 0 ] || break; sleep 0.2; done
    for i in $(seq 100); do systemctl is-active --quiet restored && break; sleep 0.2; done
    systemctl is-active restored
    systemctl show -p NRestarts restored
    journalctl -u restored -o cat | grep -i watchdog'
[ "$(inside 'systemctl show -p NRestarts --value restored')" != 0 ] || fail 'the watchdog did nothing'
inside 'rm -r /run/systemd/system/restored.service.d; systemctl daemon-reload'

echo '== upgrade, remove, purge'
inside '
    dpkg -i --force-confold /root/restored.deb >/dev/null
    systemctl is-active restored
    test -e /var/lib/restored/kept
    grep -x "log_level = debug" /etc/restored/restored.conf
    dpkg -r restored >/dev/null
    ! systemctl is-active restored
    test -e /etc/restored/restored.conf && test -e /var/lib/restored/kept
    dpkg -i --force-confold /root/restored.deb >/dev/null
    systemctl is-active restored
    dpkg -P restored >/dev/null
    ! getent passwd restored
    ! systemctl is-active restored
    ! systemctl is-enabled restored 2>/dev/null
    left=$(find / -xdev \( -path /proc -o -path /sys -o -path /root -o -path /var/log -o -path /run/log \) -prune -o -name "*restored*" ! -path "*/apt/*" -print)
    [ -z "$left" ] || { echo "left: $left"; exit 1; }'
echo 'check-deb: passed'
