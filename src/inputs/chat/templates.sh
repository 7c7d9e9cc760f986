#!/bin/sh
# templates.sh OUT NAME.jinja... - the named chat templates as a table in C, in this order.
set -eu
out=$1
shift
{
    printf '#include "inputs/chat/named.h"\n\nconst sheaf__named_program sheaf__named_programs[] = {\n'
    for file; do
        printf '{ "%s",\n' "$(basename "$file" .jinja)"
        sed 's/\\/\\\\/g; s/"/\\"/g; s/?/\\?/g; s/^/"/; s/$/\\n"/' "$file"
        printf '},\n'
    done
    printf '};\nconst int sheaf__named_count = sizeof sheaf__named_programs / sizeof *sheaf__named_programs;\n'
} >"$out"
