#!/bin/sh
# templates.sh OUT NAME.jinja... - the named chat templates as a table in C, in this order.
set -eu
out=$1
shift
names() # a, b or c
{
    for file; do
        printf '%s\n' "$(basename "$file" .jinja)"
    done | sed 'H; 1h; $!d; x; s/\n/, /g; s/\(.*\), /\1 or /'
}
{
    printf '#include "inputs/chat/named.h"\n\nconst sheaf__named_program sheaf__named_programs[] = {\n'
    for file; do
        printf '{ "%s",\n' "$(basename "$file" .jinja)"
        sed 's/\\/\\\\/g; s/"/\\"/g; s/?/\\?/g; s/^/"/; s/$/\\n"/' "$file"
        printf '},\n'
    done
    printf '};\nconst char sheaf__named_names[] = "%s";\n' "$(names "$@")"
    printf 'const int sheaf__named_count = sizeof sheaf__named_programs / sizeof *sheaf__named_programs;\n'
} >"$out"
