# Prints the static functions that a search would not find. A name begins with a word of its file's stem (vk_plan.c: plan_), or with
# a struct that the file or its header defines (struct slot: slot_). Usage: awk -f static_names.awk pass=1 FILES pass=2 FILES
FNR == 1 {
    unit = FILENAME
    sub(/\.[ch]$/, "", unit)
}
pass == 1 {
    if (match($0, /^(static )?struct [a-z0-9_]+ \{/)) {
        name = $(NF - 1)
        structs[unit, name] = 1
    }
    next
}
/^static / {
    line = $0
    while (line !~ /[({;=]/ && (getline more) > 0)
        line = line " " more
    gsub(/__attribute__\(\([a-z_]+(\([^()]*\))?\)\) ?/, "", line)
    if (!match(line, /[A-Za-z0-9_]+\(/) || substr(line, 1, RSTART) ~ /[=[{]/)
        next
    name = substr(line, RSTART, RLENGTH - 1)
    if (name == "_Atomic")
        next
    words = unit
    sub(/.*\//, "", words)
    found = unit == "runtime/cpu/cpu_vector" && name ~ /^vf_/ # the vector's type
    n = split(words, word, "_")
    for (i = 1; i <= n; i++)
        found = found || name ~ "^" word[i] "s?_"
    for (i = index(name, "_"); i > 1 && i <= length(name) && !found; i++)
        found = substr(name, i, 1) == "_" && (unit SUBSEP substr(name, 1, i - 1)) in structs
    if (!found)
        print FILENAME ":" FNR ": " name
}
