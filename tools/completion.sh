#!/bin/sh
# Completion for bash from what the program itself says: tools/completion.sh PROGRAM MODELS.conf prints the script.
# Commands and options are those of --help. The values of an option are the words that its help lists, as in "(auto, png or
# jpg)" or "text or json: ...", true and false where one of them is its default; and files where it takes any.
set -eu
program=$1
commands=$("$program" --help | sed -n 's/^  restored \([a-z]*\) .*/\1/p')
models=$(sed -n 's/^\[\(.*\)\]$/\1/p' "$2")

# Lines "COMMAND OPTION VALUE..." from help's lines of options.
options() { # options COMMAND, help on stdin
    awk -v command="$1" '
    function words(list,    part, count, i, out) {
        count = split(list, part, /, | or /)
        for (i = 1; i <= count; i++) { sub(/^or /, "", part[i]); if (part[i] ~ /^[A-Za-z0-9_.]+$/) out = out " " part[i] }
        return out
    }
    function values(name, what, help) {
        if (help ~ /\[(true|false)\]$/ && help !~ /auto, true or false/) return " true false"
        if (what ~ /DIR|FILE|PATH|PICTURE/ || name ~ /_(dir|file|cert|key)$/) return " FILES"
        sub(/ \[[^]]*\]$/, "", help)
        if (match(help, /\([^()]*\)$/)) return words(substr(help, RSTART + 1, RLENGTH - 2))
        sub(/:.*/, "", help)
        return help ~ /^([a-z0-9]+, )*[a-z0-9]+ or [a-z0-9]+$/ ? words(help) : ""
    }
    function option(name, what, help) { if (name != "--KEY" && !seen[name]++) print command, name values(name, what, help) }
    /^  -/ {
        row = substr($0, 3)
        match(row, /   */)
        what = substr(row, 1, RSTART - 1)
        help = substr(row, RSTART + RLENGTH)
        count = split(what, part, /[ ,]+/)
        for (i = 1; i <= count; i++) if (part[i] ~ /^-/) option(part[i], what, help)
    }
    # those that stand in the usage lines alone
    $0 == "" { body = 1 }
    !body { for (i = 1; i <= NF; i++) if ($i ~ /^\[--/) { gsub(/\[|\]/, "", $i); option($i, $(i + 1), "") } }'
}

all=$(
    for command in $commands; do "$program" "$command" --help | options "$command"; done
    "$program" models get --help | options models-get
    "$program" models add --help | options models-add
    "$program" models publish --help | options models-publish
)

cat <<END
# Completion of restored for bash, made by tools/completion.sh.
# What stands behind each option: its values, FILES, or nothing that is known.
_restored_options='
$all
'
_restored_commands='$(echo $commands)'
_restored_models='$(echo $models)'
END
cat <<'END'

# Lines of a command; every key of the configuration is an option of all.
_restored_rows() {
    printf '%s' "$_restored_options" | while read -r command rest; do [ "$command" != "$1" ] || printf '%s\n' "$rest"; done
}

_restored() {
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} words row
    COMPREPLY=()
    if [ "$COMP_CWORD" = 1 ]; then
        COMPREPLY=($(compgen -W "$_restored_commands --help --version" -- "$word"))
        return
    fi
    # bash takes "--key=value" apart
    if [ "$word" = = ]; then
        word=
    elif [ "$previous" = = ]; then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    case "$COMP_CWORD $command ${COMP_WORDS[2]}" in
    '2 '*) ;;
    *' models get') command=models-get ;;
    *' models add') command=models-add ;;
    *' models publish') command=models-publish ;;
    esac
    case $previous in
    -*)
        row=$(_restored_rows "$command"; _restored_rows serve)
        row=$(printf '%s\n' "$row" | sed -n "s/^$previous //p" | head -n 1)
        if [ "$row" = FILES ]; then
            COMPREPLY=($(compgen -f -- "$word"))
            compopt -o filenames 2>/dev/null
            return
        elif [ "$row" ] && [ "${word#-}" = "$word" ]; then
            COMPREPLY=($(compgen -W "$row" -- "$word"))
            # a flag stands alone as well
            [ "$row" = 'true false' ] && [ -z "$word" ] || return
        fi
        ;;
    esac
    case $word in
    -*)
        words=$(_restored_rows "$command" | cut -d ' ' -f 1)
        COMPREPLY=($(compgen -W "$words --help --config" -- "$word"))
        [ ${#COMPREPLY[@]} != 0 ] || COMPREPLY=($(compgen -W "$(_restored_rows serve | cut -d ' ' -f 1)" -- "$word"))
        ;;
    *)
        case $command in
        models) [ "$COMP_CWORD" != 2 ] || COMPREPLY+=($(compgen -W 'get add publish' -- "$word")) ;;
        models-get) COMPREPLY+=($(compgen -W "default all $_restored_models" -- "$word")) ;;
        models-add | models-publish | restore | watch)
            COMPREPLY+=($(compgen -f -- "$word"))
            compopt -o filenames 2>/dev/null
            ;;
        esac
        ;;
    esac
}
complete -F _restored restored
END
