#!/usr/bin/env bash
# check_library.sh - libsheaf never prints, never exits, keeps no global state, and its files call downwards;
# the command prints in one way; operations on tensors have tests.
#
#   check_library.sh SOURCE_ROOT LIBSHEAF.A
#
# Printing and exiting are searched for in the sources (without comments, tests, src/driver, src/cli and the program of the build that packs kernels), global state
# in the symbols of the built library: data that is still writable after relocation is shared by all callers.
# abort(), like assert() for our own mistakes, is allowed; so is clearing errno before strtod.
set -euo pipefail
root=$1 library=$2
bad=0

words='(^|[^A-Za-z0-9_.>])(v?printf|puts|putchar|perror|exit|_exit|quick_exit|signal|setenv|putenv|stdout|stderr|errno)([^A-Za-z0-9_]|$)'
mapfile -t files < <(find "$root/src" \( -name '*.c' -o -name '*.cc' \) ! -name '*_test.c' ! -path '*/src/cli/*' ! -path '*/src/driver/*' ! -path '*/cuda/pack.c' | LC_ALL=C sort)
found=${#files[@]}
while IFS= read -r file; do
    hits=$(gcc -fpreprocessed -dD -E -w "$file" 2>/dev/null |
        grep -nE '(^|[^A-Za-z0-9_.>])((v?printf|puts|putchar|perror|exit|_exit|quick_exit|signal|setenv|putenv)[[:space:]]*\(|(stdout|stderr)([^A-Za-z0-9_]|$)|errno[[:space:]]*=[[:space:]]*[^=0[:space:]])' || true)
    if [ -n "$hits" ]; then
        printf 'not ok - %s prints, exits or sets errno: %s\n' "${file#"$root"/}" "$(printf '%s' "$hits" | head -n 1)"
        bad=1
    fi
done < <(grep -lE "$words" "${files[@]}") # most have none of these, in a comment or not
[ "$found" -ge 10 ] || { printf 'not ok - found only %d library sources\n' "$found"; bad=1; }
[ $bad -ne 0 ] || printf 'ok - %d library sources neither print nor exit\n' "$found"

# no_memory is the status for "no memory left for a status": handed out as a
# pointer like every other, never written.
# DW.ref.* is how position-independent C++ reaches the routine that unwinds its stack; only the loader writes it.
# process_view is what this process is to the others of its run; src/comm/process.h says why.
# processor_pays is what was measured of the processor, once a process, or told of another one (ops/units.c).
# driver_loaded is NVIDIA's driver, which a process loads once and never unloads (ops/devices/gpu/cuda/driver.c).
globals=$(objdump -t "$library" | awk '
    $NF == "no_memory" || $NF == "process_view" || $NF == "processor_pays" || $NF == "driver_loaded" || $NF ~ /^DW\.ref\./ { next }
    /^[^ ].*:.*file format/ { member = $1 }
    $0 ~ / O (\.data|\.bss|\.tdata|\.tbss|COMMON|\*COM\*)/ && $0 !~ /\.data\.rel\.ro/ { print member, $NF }')
if [ -n "$globals" ]; then
    printf 'not ok - libsheaf holds writable global data: %s\n' "$(printf '%s' "$globals" | head -n 5 | tr '\n' ';')"
    bad=1
else
    printf 'ok - libsheaf holds no writable global data\n'
fi

# base/json_write writes JSON: jansson's own writer drops what it has no memory for, and base/json.c checks after it.
# Its builders are for trees that are read again: of changed files, of what templates read, of schemas of
# calls.
trees='base/json.c checkpoint/tools/diff.c cli/commands/info.c data/fields.c data/preference.c data/rollout.c data/text_messages.c
    dialects/colossalai/colossalai.c dialects/common/codes.c dialects/common/config_numbers.c
    dialects/common/whole_folder.c dialects/hf/chat_files.c dialects/hf/new_tokens.c families/cog/forms.c families/qwenvl/config.c
    inputs/chat/chat.c inputs/chat/named.c inputs/tokenizer/classes.c inputs/tokenizer/folder.c
    inputs/tokenizer/open.c inputs/tokenizer/spm.c inputs/tokenizer/tokenizer_config.c library/generate.c
    library/info.c schema/config_keys.c serve/request.c serve/responses.c
    serve/tools.c'
written=$(cd "$root/src" && {
    grep -rnE '\bjson_dump[a-z_]*[[:space:]]*\(' --include='*.c' . | grep -vE '_test\.c:|^\./base/json(_write)?\.c:'
    grep -rnE '\bjson_(object|array|(pack|object_set|object_update|array_append|array_insert)[a-z_]*)\(' --include='*.c' . |
        grep -vE "_test\.c:|^\./($(printf '%s' "$trees" | tr -s ' \n' '||')):"
} | head -n 5 || true)
if [ -n "$written" ]; then
    printf 'not ok - JSON is written by base/json_write, not by jansson: %s\n' "$written"
    bad=1
else
    printf 'ok - JSON is written by base/json_write\n'
fi

# What tests let fail is in what tests are linked with (tests/faults).
machinery=$(strings -a "$library" | grep -E 'SHEAF_FAULT|SHEAF_INJECT|--inject|injected\.|emulated_' | head -n 3 || true)
if [ -n "$machinery" ]; then
    printf 'not ok - libsheaf holds machinery of tests: %s\n' "$(printf '%s' "$machinery" | tr '\n' ';')"
    bad=1
else
    printf 'ok - libsheaf holds no machinery of tests\n'
fi

# A file whose functions call a file that calls back is no unit of its own. A circle of files is a
# circle of objects: each wants a symbol that another of them defines. The table of families names
# descriptors and calls nobody: who asks it reaches them by pointers, on purpose.
circles=$(nm -g "$library" | awk '
    /\.o:$/ { sub(/.*\//, ""); sub(/\.o:$/, ""); file = $0; files++; next }
    file == "src_families_families.c" { if ($1 == "U") next }
    $1 == "U" { wants[++n] = $2; by[n] = file; next }
    NF == 3 && $2 ~ /[TDRBVW]/ { home[$3] = file }
    END {
        for (i = 1; i <= n; i++)
            if (wants[i] in home && home[wants[i]] != by[i] && !((by[i], home[wants[i]]) in edge)) {
                edge[by[i], home[wants[i]]]
                calls[by[i]] = calls[by[i]] " " home[wants[i]]
                edges++
            }
        if (files < 100 || edges < 500)
            print "found almost no calls between files"
        for (file in calls) { # all that it reaches; does that reach it?
            split("", seen)
            stack[top = 1] = file
            while (top > 0) {
                m = split(calls[stack[top--]], next_file, " ")
                for (i = 1; i <= m; i++)
                    if (!(next_file[i] in seen)) {
                        seen[next_file[i]]
                        stack[++top] = next_file[i]
                    }
            }
            if (file in seen)
                print file
        }
    }' | LC_ALL=C sort)
if [ -n "$circles" ]; then
    printf 'not ok - files that call each other in a circle: %s\n' "$(printf '%s' "$circles" | tr '\n' ' ')"
    bad=1
else
    printf 'ok - the files of libsheaf call each other in no circle\n'
fi

# Text of others must not steer a terminal: src/base/print.h. cli/lib/help.c prints words of ours alone, and counts them.
# cli/manual.c writes the same words for the build.
raw=$(grep -nE '(^|[^A-Za-z0-9_])v?f?printf[[:space:]]*\(' $(find "$root/src/cli" "$root/src/driver" "$root/src/monitor" -name '*.c') | grep -vE '_test\.c:|/(help|manual)\.c:' || true)
if [ -n "$raw" ]; then
    printf 'not ok - not printed by sheaf__print(): %s\n' "$(printf '%s' "$raw" | head -n 1)"
    bad=1
else
    printf 'ok - the command prints by sheaf__print()\n'
fi

# What a device computes is compared with plain loops, bit for bit: an operation that no test names is not.
untested='' operations=0
for name in $(grep -oE 'sheaf__op_[a-z_]+\(' "$root/src/ops/tensor/tensor.h" | LC_ALL=C sort -u); do
    operations=$((operations + 1))
    grep -qF "${name%(}" "$root"/src/ops/tensor/*_test.c || untested="$untested ${name%(}"
done
if [ -n "$untested" ] || [ $operations -lt 40 ]; then
    printf 'not ok - of %d operations on tensors these have no test in src/ops/tensor:%s\n' $operations "$untested"
    bad=1
else
    printf 'ok - %d operations on tensors have tests\n' $operations
fi
# Texts below the command name fields in backquotes, which each face spells (base/spell.h), and no flags: but in commands
# to type, of other programs too, and as what plan's JSON calls "flags". A field is a row of a table of settings, or of a
# struct (positions) or a request (messages, tools, input) alone.
typed='(sheaf [a-z]+|python3 -m sheaf|\{\+[a-z]+\}|(llama-|docker |srun|zstd|hf )[a-z-]*|"/adapter|" --|plan --json|--(gres|local_tokenizer|long|mmproj|repo-type))[^;,)|]*'
texts=$(grep -rlE -e '"[^"]*(--[a-z]|`[a-z])' "$root/src" --include='*.c' --include='*.h' |
    grep -vE '_test\.c$|/src/(cli|driver)/|/src/plan/fit\.c' | LC_ALL=C sort | xargs cat | gcc -fpreprocessed -dD -E -w -x c - 2>/dev/null | sed -E "s/'\\\\?\"'//g" | tr '\n' ' ' | sed -E 's/([^\\])"[[:space:]\\]*(PRI[a-zA-Z0-9]+[[:space:]\\]*)?"/\1/g' |
    grep -oE '"([^"\\]|\\.)*"')
flags=$(sed -E "s@$typed@@g" <<<"$texts" | grep -E -e '--[a-z]' || true)
fields=$(grep -oE '`(no-)?[a-z][a-z0-9-]*[` ]' <<<"$texts" | sed -E 's/^`(no-)?//; s/.$//')
unknown=$(LC_ALL=C comm -23 <(LC_ALL=C sort -u <<<"$fields") <(find "$root/src/library" "$root/src/cli" -name '*.[ch]' -exec cat {} + | tr '\n' ' ' |
    grep -oE '\{ *"[a-z0-9-]+", *(\(unsigned\) *)?[A-Z]' | cut -d'"' -f2 | sed 's@^no-@@' | cat - <(printf '%s\n' input instructions messages positions response-format tool-choice tools) | LC_ALL=C sort -u))
named=$(wc -l <<<"$fields")
if [ -n "$flags$unknown" ] || [ "$named" -lt 400 ]; then
    printf 'not ok - of %d fields in texts no rows of a table: %s; flags: %s\n' "$named" "$(tr '\n' ' ' <<<"$unknown")" "$(printf '%s' "$flags" | head -n 5 | tr '\n' ' ')"
    bad=1
else
    printf 'ok - texts below the command name %d fields and no flags\n' "$named"
fi
exit $bad
