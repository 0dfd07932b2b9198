#!/bin/sh
# Restores one picture by a server: examples/restore.sh PHOTO RESULT [OPTION=VALUE]...
# The server is that of RESTORED_URL, and RESTORED_TOKEN is sent if it is set.
set -eu
[ $# -ge 2 ] || { echo "usage: $0 PHOTO RESULT [OPTION=VALUE]..." >&2; exit 2; }
url=${RESTORED_URL:-http://127.0.0.1:8080} photo=$1 result=$2
shift 2
for option in "$@"; do
    case $option in *=*) ;; *) echo "$option: an option is written OPTION=VALUE" >&2; exit 2 ;; esac
    set -- "$@" --form-string "$option"
    shift
done
# The token goes in by stdin: what is on a command line, every user of the machine sees (ps).
token() { [ -z "${RESTORED_TOKEN:-}" ] || printf 'Authorization: Bearer %s\n' "$RESTORED_TOKEN"; }
# A full queue answers 429 and says when to come again, which --retry obeys. The file gets its name when it is whole; of a
# failure it holds the reason.
if ! token | curl --silent --show-error --fail-with-body --retry 5 --output "$result.part" \
    --header @- --form "image=@$photo" "$@" "$url/v1/restore"; then
    [ ! -s "$result.part" ] || sed -n 's/\\"/"/g; s/^ *"detail": "\(.*\)",\{0,1\}$/\1/p' "$result.part" >&2
    rm -f "$result.part"
    echo "$photo was not restored by $url" >&2
    exit 1
fi
mv "$result.part" "$result"
