#!/bin/sh
# Manual pages from what the program itself says: tools/man.sh PROGRAM FOLDER writes restored.1, restored-serve.1 and so on,
# one for each command that --help lists, for `models get`, `models add` and `models publish`.
set -eu
program=$1 folder=$2
mkdir -p "$folder"
version=$("$program" --version)
commands=$("$program" --help | sed -n 's/^  restored \([a-z]*\) .*/\1/p')

# Of help's form: usage lines, an empty line, paragraphs, then lines of two spaces and an option or command, at least two
# spaces, what it is, with more of that below its beginning; what stands deeper is a table; paragraphs may follow.
page() { # page NAME TITLE, help on stdin
    awk -v name="$1" -v title="$2" -v version="$version" -v all="restored $(echo $commands | sed 's/[a-z]*/restored-&/g')" '
    function text(s) { gsub(/\\/, "\\e", s); gsub(/-/, "\\-", s); return s ~ /^[.\047]/ ? "\\&" s : s }
    function section(s) { if (s != in_section) print ".SH " s; else if (gap) print ".PP"; in_section = s; gap = 0 }
    BEGIN {
        printf ".TH %s 1 \"\" \"%s\" \"restored\"\n.nh\n.ad l\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", toupper(name), version, text(name), text(title)
        if (name == "restored") print ".B restored\n.I COMMAND\n[\n.I OPTION\n]..."
    }
    !body && $0 == "" { body = 1; next }
    !body && name == "restored" { next }
    !body { if (NR > 1) print ".br"; match($0, /^restored( (models (get|add|publish)|[a-z]+))?/); print ".B " text(substr($0, 1, RLENGTH)); print text(substr($0, RLENGTH + 2)); next }
    $0 == "" { gap = 1; next }
    /^  [^ ]/ {
        section(name == "restored" ? "COMMANDS" : "OPTIONS")
        listed = 1
        row = substr($0, 3)
        match(row, /   */)
        column = 2 + RSTART + RLENGTH
        what = substr(row, 1, RSTART - 1)
        if (name == "restored") { sub(/ /, "-", what); what = text(what) "\\fR(1)" } else what = text(what)
        print ".TP\n\\fB" what "\\fR"
        print text(substr(row, column - 2))
        next
    }
    /^   / { match($0, /^ */); if (RLENGTH + 1 > column) print ".br"; print text(substr($0, RLENGTH + 1)); next }
    { section(listed ? "NOTES" : "DESCRIPTION"); print text($0) }
    END {
        print ".SH SEE ALSO"
        count = split(all " restored-models-get restored-models-add restored-models-publish", pages, " ")
        for (i = 1; i <= count; i++) if (pages[i] != name) printf "%s.BR %s (1)", (shown++ ? ",\n" : ""), text(pages[i])
        print ""
    }' >"$folder/$1.1.part"
    mv "$folder/$1.1.part" "$folder/$1.1"
}

"$program" --help | page restored "$("$program" --help | sed -n '1s/^[^:]*: //p')"
for command in $commands; do
    "$program" "$command" --help | page "restored-$command" "$("$program" --help | sed -n "s/^  restored $command  *//p")"
done
"$program" models get --help | page restored-models-get 'download official models'
"$program" models add --help | page restored-models-add 'take a model of yours'
"$program" models publish --help | page restored-models-publish 'put models where other servers fetch them'
