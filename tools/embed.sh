#!/bin/sh
# tools/embed.sh TABLE FILE…: prints assembly that embeds the files, and a table of that name of {name, start, end} that
# ends with zeros. A file's name in the table is its path below static/, or else its last path component.
table=$1
shift
echo '.section .rodata'
i=0
for f in "$@"; do
    case /$f in */static/*) name=${f##*static/} ;; *) name=${f##*/} ;; esac
    printf '.balign 16\nembed_%d: .incbin "%s"\nembed_%d_end: .byte 0\nembed_%d_name: .asciz "%s"\n' $i "$f" $i $i "$name"
    i=$((i + 1))
done
echo '.section .data.rel.ro,"aw"'
echo '.balign 8'
echo ".globl $table"
echo "$table:"
n=0
while [ $n -lt $i ]; do
    echo ".quad embed_${n}_name, embed_$n, embed_${n}_end"
    n=$((n + 1))
done
echo '.quad 0, 0, 0'
echo '.section .note.GNU-stack,"",%progbits'
