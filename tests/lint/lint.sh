#!/bin/sh
# The layering, naming and completeness laws that a grep can hold. Prints what breaks them; exit status 1 if any does.
cd "$(dirname "$0")/../.." || exit 1
broken=0
fail() { echo "lint: $*"; broken=1; }

# Direction: which includes ("" = a file of the repository) a folder may have, as prefixes. Never upward, never sideways.
allow() {
    folder=$1
    shift
    files=$(ls $folder 2>/dev/null)
    [ -z "$files" ] && return
    pattern=$(printf '%s|' "$@")
    found=$(grep -nE '^#include "' $files /dev/null | grep -vE "#include \"(${pattern%|})")
    [ -z "$found" ] || fail "includes that point the wrong way:
$found"
}
base='runtime/base/'
nn='runtime/nn/'
weights='runtime/weights/'
backend='runtime/backend/'
allow 'runtime/base/*.[ch]' $base
allow 'runtime/weights/*.[ch]' $base $weights
allow 'runtime/nn/*.[ch]' $base $weights $nn
allow 'runtime/backend/*.[ch]' $base $nn $backend
allow 'runtime/cpu/*.[ch]' $base $nn $backend runtime/cpu/ shaders/include/
allow 'runtime/vulkan/*.[ch]' $base $nn $backend runtime/vulkan/ shaders/include/
allow 'runtime/*.[ch]' $base $nn $weights $backend 'runtime/[a-z_]*\.h'
allow 'runtime/models/*.[ch]' $base $nn $weights $backend 'runtime/[a-z_]*\.h' runtime/models/
allow 'server/image/*.[ch]' $base server/image/
allow 'server/pipeline/*.[ch]' $base $backend 'runtime/[a-z_]*\.h' runtime/models/ $weights server/image/ server/pipeline/ 'server/version\.h'
allow 'server/store/*.[ch]' $base server/store/
allow 'server/job/*.[ch]' $base server/store/ $backend 'runtime/[a-z_]*\.h' runtime/models/ server/image/ server/pipeline/ server/job/ 'server/[a-z_]*\.h'
allow 'server/http/*.[ch]' $base server/store/ $backend runtime/models/ server/image/ server/pipeline/ server/job/ server/http/ 'server/[a-z_]*\.h'
allow 'server/compat/*.[ch]' $base server/store/ $backend runtime/models/ server/image/ server/pipeline/ server/job/ server/http/ server/compat/ 'server/[a-z_]*\.h'
allow 'server/*.[ch]' $base $backend 'runtime/[a-z_]*\.h' server/
allow 'server/cli/*.[ch]' $base $backend 'runtime/[a-z_]*\.h' runtime/models/ $weights server/

# Libraries stay where they are at home.
home() { # home HEADER FOLDER…: only these include it
    header=$1
    shift
    found=$(grep -rlE "#include <$header" runtime server --include='*.[ch]' | grep -vE "^($(printf '%s|' "$@")-)")
    [ -z "$found" ] || fail "<$header is not for: $found"
}
home vulkan/ runtime/vulkan/
home microhttpd server/http/ server/compat/
home '(png|jpeglib|webp/|tiffio|libheif/|jxl/|openjpeg|lcms2)' server/image/
home jansson server/ runtime/weights/
home sqlite3 server/store/
home archive server/http/
home curl/ server/cli/ server/store/ server/compat/
home gnutls/ server/http/

# A stem is one .c with its .h, once in the whole tree: it is the prefix of its symbols.
repeated=$(find runtime server -name '*.[ch]' | sed 's/\.[ch]$//' | sort -u | sed 's|.*/||' | sort | uniq -d)
[ -z "$repeated" ] || fail "stems that stand twice: $repeated"

# A static function is found by its name: it begins with a word of the stem, or with a struct of the file.
sources=$(find runtime server -name '*.[ch]')
unnamed=$(awk -f tests/lint/static_names.awk pass=1 $sources pass=2 $sources)
[ -z "$unnamed" ] || fail "static functions whose names want a prefix:
$unnamed"

# An operator stands in four places.
for op in $(sed -n '/^enum op_kind {/,/}/s/^ *OP_\([A-Z0-9_]*\),$/\1/p' runtime/nn/op.h); do
    [ "$op" = KIND_COUNT ] && continue
    name=$(echo "$op" | tr A-Z a-z)
    grep -q "\[OP_$op\]" runtime/nn/op.c || fail "OP_$op has no row in runtime/nn/op.c"
    grep -q "OP_$op\b" runtime/cpu/*.c || fail "OP_$op has no kernel in runtime/cpu"
    grep -q "OP_$op\b" runtime/vulkan/*.c 2>/dev/null || fail "OP_$op is not in runtime/vulkan"
    ls shaders/"$name"*.comp >/dev/null 2>&1 || fail "OP_$op has no shader shaders/$name*.comp"
    grep -q "OP_$op\b" tests/ops/*.c 2>/dev/null || fail "OP_$op has no case in tests/ops"
done

# Headers say what they are for and who may call them.
for header in $(find runtime server tests -name '*.h' -not -path '*/node_modules/*'); do
    head -n 20 "$header" | grep -q 'Thread-safety:' || fail "$header has no line Thread-safety:"
    guard=$(echo "$header" | tr 'a-z/.-' 'A-Z___')
    grep -q "^#ifndef $guard$" "$header" || fail "$header: its guard should be $guard"
done

# Sizes: 600 lines, a shader 200, a folder's README 60.
for file in $(find runtime server tests shaders -name '*.[ch]' -o -name '*.comp' | grep -v node_modules); do
    lines=$(wc -l <"$file")
    case "$file" in *.comp) limit=200 ;; *) limit=600 ;; esac
    [ "$lines" -le $limit ] || fail "$file has $lines lines (limit $limit)"
done
for file in server/README.md runtime/README.md shaders/README.md tests/README.md; do
    [ -e "$file" ] || { fail "$file is missing"; continue; }
    [ "$(wc -l <"$file")" -le 60 ] || fail "$file is longer than 60 lines"
done

# Each source is in the map of its folder, or of the one above.
for file in $(find runtime server -name '*.c') $(ls static/js/*.js); do
    stem=$(basename "${file%.*}")
    cat "$(dirname "$file")/README.md" "${file%%/*}/README.md" 2>/dev/null | grep -qw "$stem" || fail "$file is in no README.md"
done

# The page keeps to its Content-Security-Policy: nothing inline but one sheet, nothing from elsewhere.
[ "$(grep -c '<style' static/index.html)" -eq 1 ] || fail "static/index.html: the policy knows one inline sheet, written <style>"
grep -nE '<script>|<style[^>]|style="| on[a-z]+="|https?://' static/index.html && fail "static/index.html: inline or foreign content"

# The build leaves out lines of the scripts that are nothing but a comment, so no text of theirs may have several lines.
torn=$(awk '!/^ *\/\/ / && gsub(/`/, "") % 2 { print FILENAME ":" FNR }' static/js/*.js)
[ -z "$torn" ] || fail "texts of several lines, of which the build may take some for comments: $torn"

[ $broken -eq 0 ] && echo "lint: clean"
exit $broken
