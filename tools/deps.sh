#!/bin/sh
# Installs with apt-get what is missing of the packages named below, and nothing when all is there.
# Usage: tools/deps.sh build|run|check
# An entry PACKAGE:COMMAND is satisfied by the command, wherever it came from; a bare PACKAGE by the installed package.
build='gcc:cc libc6-dev make:make libmicrohttpd-dev libvulkan-dev libjansson-dev libpng-dev libjpeg-dev nettle-dev libgnutls28-dev
    libcurl4-gnutls-dev:curl-config libsqlite3-dev libpq-dev:pg_config libarchive-dev libwebp-dev libtiff-dev libheif-dev libjxl-dev libopenjp2-7-dev liblcms2-dev
    pkgconf:pkg-config ca-certificates glslc:glslc'
run="$build mesa-vulkan-drivers"
check="$run spirv-tools:spirv-val vulkan-validationlayers libcmocka-dev clang:clang libclang-rt-dev nodejs:node npm:npm python3:python3
    chromium:chromium firefox-esr:firefox-esr curl:curl systemd:systemd-analyze mandoc:mandoc gccgo:gccgo webp:cwebp libheif-examples:heif-enc libjxl-tools:cjxl
    libtiff-tools:tiffcp libopenjp2-tools:opj_compress imagemagick:mogrify libimage-exiftool-perl:exiftool postgresql:pg_ctlcluster"

case "$1" in
build) wanted=$build ;;
run) wanted=$run ;;
check) wanted=$check ;;
*) echo "usage: $0 build|run|check" >&2; exit 2 ;;
esac

missing=
machine=$(dpkg --print-architecture 2>/dev/null)
for entry in $wanted; do
    package=${entry%%:*}
    case "$entry" in *:*) command -v "${entry#*:}" >/dev/null 2>&1 && continue ;; esac
    # A package may be there for several architectures; this machine's counts.
    case " $(dpkg-query -W -f '${db:Status-Status}:${Architecture} ' "$package" 2>/dev/null)" in
    *" installed:$machine "* | *' installed:all '*) continue ;;
    esac
    missing="$missing $package"
done

# The tests' runner and its tap reporter are node's own, since 18.15.
check_node() {
    [ "$1" != check ] || node --test-reporter=tap -e 0 >/dev/null 2>&1 && return
    echo "restored: the tests need node 18.15 or newer; $(command -v node) is $(node --version 2>&1)" >&2
    exit 1
}
[ -z "$missing" ] && { check_node "$1"; exit; }

as_root=
if ! command -v apt-get >/dev/null 2>&1; then
    echo "restored: please install these (Debian's names), there is no apt-get here:$missing" >&2
    exit 1
elif [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "restored: missing packages, and neither root nor sudo to install them. As root: apt-get install$missing" >&2
        exit 1
    fi
    as_root=sudo
fi
echo "Installing:$missing"
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
if ! { $as_root env DEBIAN_FRONTEND=noninteractive apt-get update &&
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
    cat "$log" >&2
    echo "restored: apt-get could not install:$missing" >&2
    exit 1
fi
check_node "$1"
