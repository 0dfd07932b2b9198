#!/bin/sh
# Downloads checkpoints named in config/models.conf to models/official, resumes what was cut short, and verifies SHA-256.
# Usage: tools/models.sh [NAME | default | all]…      (default: those that the options' defaults mean)
#   MODELS_MIRROR  a directory or URL that holds the files, instead of where their authors publish them
#   MODELS_DIR     where they go (models/official)
#   MODELS_CONF    the list (config/models.conf)
# A file appears under its name only when it is whole and verified; until then it is NAME.pth.part.
# One that fails does not stop the others; the exit status is 1 if any failed.
set -u
cd "$(dirname "$0")/.." || exit 1
conf=${MODELS_CONF:-config/models.conf}
dir=${MODELS_DIR:-models/official}
mirror=${MODELS_MIRROR:-}
[ $# -eq 0 ] && set -- default

sum() { sha256sum "$1" | cut -d ' ' -f 1; }
size() { stat -c %s "$1"; }

# True if $1 is the file published: the hash where there is one, else the size; with neither there is nothing to compare.
verified() {
    if [ -n "$sha256" ]; then
        [ "$(sum "$1")" = "$sha256" ]
    elif [ -n "$bytes" ]; then
        [ "$(size "$1")" = "$bytes" ]
    fi
}

# Percent-encodes what would end or break a file URL's path.
encode() { printf %s "$1" | sed 's/%/%25/g; s/ /%20/g; s/#/%23/g; s/?/%3F/g; s/\[/%5B/g; s/\]/%5D/g; s/{/%7B/g; s/}/%7D/g'; }

source_of() {
    case "$mirror" in
    '') printf %s "$url" ;;
    *://*) printf %s "${mirror%/}/$file" ;;
    *) printf 'file://%s/%s' "$(encode "$(cd "$mirror" && pwd)")" "$(encode "$file")" ;;
    esac
}

# Appends to $part what it lacks; curl's exit status, and the HTTP status in $http.
download() {
    http=$(curl --fail --location --show-error --retry 3 --connect-timeout 30 $progress --continue-at - \
        --write-out '%{http_code}' --output "$part" "$from")
}

fetch() {
    target=$dir/$file part=$dir/$file.part from=$(source_of) resumed=
    if [ -f "$target" ]; then
        verified "$target" && { echo "$file: already there"; return 0; }
        echo "$file: the file in $dir is not the published one, replacing it"
    fi
    mkdir -p "$dir" || return 1
    if [ -s "$part" ]; then
        resumed=yes
        echo "$file: resuming at $(size "$part") bytes from $from"
    else
        echo "$file: downloading from $from"
    fi
    download
    status=$?
    # 33, 36, 416: it cannot be resumed there, or nothing is left to send. Anything else but 0 may do better next time.
    case "$status/$http" in 0/* | 33/* | 36/* | */416)
        if [ -n "$resumed" ] && ! verified "$part"; then
            echo "$file: what was there does not fit, starting again"
            rm -f "$part"
            download
            status=$?
        elif [ -n "$resumed" ]; then
            status=0
        fi ;;
    esac
    if [ $status -ne 0 ]; then
        echo "$file: not downloaded from $from (curl: $status)$([ -s "$part" ] && echo "; the same command resumes it")" >&2
        return 1
    fi
    if ! verified "$part"; then
        echo "$file: wrong content from $from: sha256 $(sum "$part"), expected ${sha256:-$bytes bytes}; removed" >&2
        rm -f "$part"
        return 1
    fi
    mv -f "$part" "$target" || return 1
    if [ -n "$sha256" ]; then echo "$file: verified"; else echo "$file: no hash is published for it; its sha256 is $(sum "$target")"; fi
}

# One line a model: NAME|file|url|sha256|bytes|default
table=$(awk '
    function flush() { if (name != "" && v["url"] != "") print name "|" v["file"] "|" v["url"] "|" v["sha256"] "|" v["bytes"] "|" v["default"] }
    /^[ \t]*(#|$)/ { next }
    /^\[/ { flush(); split("", v); name = substr($0, 2, index($0, "]") - 2); next }
    { i = index($0, "="); k = substr($0, 1, i - 1); x = substr($0, i + 1); gsub(/^[ \t]+|[ \t]+$/, "", k); gsub(/^[ \t]+|[ \t]+$/, "", x); v[k] = x }
    END { flush() }' "$conf") || exit 1

if [ -n "$mirror" ]; then
    case "$mirror" in *://*) ;; *) [ -d "$mirror" ] || { echo "MODELS_MIRROR: no directory $mirror" >&2; exit 1; } ;; esac
fi
for wanted in "$@"; do
    case "$wanted" in default | all) continue ;; esac
    printf '%s\n' "$table" | cut -d '|' -f 1 | grep -qxF -- "$wanted" && continue
    echo "no model $wanted in $conf; it has:" $(printf '%s\n' "$table" | cut -d '|' -f 1) >&2
    exit 1
done
progress=--silent
[ -t 2 ] && progress=--progress-bar

failed=
while IFS='|' read -r name file url sha256 bytes default; do
    for wanted in "$@"; do
        [ "$wanted" = all ] || [ "$wanted" = "$name" ] || { [ "$wanted" = default ] && [ "$default" = true ]; } || continue
        fetch </dev/null || failed="$failed $file"
        break
    done
done <<END
$table
END
if [ -n "$failed" ]; then
    echo "not complete:$failed" >&2
    exit 1
fi
