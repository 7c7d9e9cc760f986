#!/usr/bin/env bash
# check_includes.sh - the rules of the rooms, read from the #include lines.
#
#   check_includes.sh SOURCE_ROOT
#
# A file includes its own room, public headers of its own level and below, and
# rooms of a lower level; never sideways, never up. In a room with parts the same
# holds among the parts. A room or a part that is not in the tables below fails:
# give it a level.
set -euo pipefail
cd "$1"

awk '
BEGIN {
    # The levels of the rooms; public headers belong to the room named beside them.
    n = split("base 0 http 1 pages 1 layout 1 schema 2 formats 2 ops 2 comm 2 catalog 3 tape 3 inputs 3 " \
              "dialects 4 lora 4 data 4 models 5 checkpoint 5 families 6 infer 6 train 6 monitor 6 plan 7 report 7 library 7.5 driver 7.8 serve 7.8 cli 8", word, " ")
    for (i = 1; i < n; i += 2)
        level[word[i]] = word[i + 1]
    # Rooms with parts: the levels of the parts among each other. What lies in the room itself is above them all.
    n = split("dialects/common 0 dialects/hf 1 dialects/peft 1 dialects/sat 1 dialects/deepspeed 1 " \
              "dialects/megatron 1 dialects/dcp 1 dialects/fsdp 1 dialects/colossalai 1 dialects/gguf 1 dialects 2 " \
              "inputs/tokenizer 0 inputs/chat 1 inputs 2 " \
              "families/cog 0.5 families/llama 0.5 " \
              "families/common 0 families/omnilmm 1 families/minicpmv 1 families/cogvlm2 1 families/chatglm 1 families/qwenvl 1 families 2 " \
              "checkpoint/store 0 checkpoint/convert 1 checkpoint/merge 1 checkpoint/tools 1 checkpoint 2 " \
              "cli/lib 0 cli/commands 1 cli 2", word, " ")
    for (i = 1; i < n; i += 2) {
        part_level[word[i]] = word[i + 1]
        if (split(word[i], at, "/") == 1)
            divided[word[i]] = 1
    }
    n = split("status 0 version 0 control 0 events 0 finding 0 options 0 text 0 dtype 1 cut 1 owner 1 source 1 schema 2 checkpoint 5 train 6 evaluate 6 progress 6 generate 6 machine 6 plan 7 report 7.5 foreign 7.5 sheaf 7.5", word, " ")
    for (i = 1; i < n; i += 2)
        public[word[i]] = word[i + 1]
}
# The part of a room that a path below src lies in: the room itself where it has no part.
function part_of(p,    at, n) {
    n = split(p, at, "/")
    return n > 2 && at[1] in divided ? at[1] "/" at[2] : at[1]
}
function complain(why) { printf "not ok - %s:%d: %s (%s)\n", FILENAME, FNR, why, $0; bad++ }
FNR == 1 {
    files++
    split(FILENAME, path, "/")
    room = path[2]
    is_public = path[1] == "include"
    if (is_public) {
        header = path[3]
        sub(/\.h$/, "", header)
        if (!(header in public)) { complain("public header without a level in tests/check_includes.sh"); nextfile }
        mine = public[header]
    } else {
        if (!(room in level)) { complain("room without a level in tests/check_includes.sh"); nextfile }
        mine = level[room]
        below = FILENAME
        sub(/^src\//, "", below)
        my_part = part_of(below)
        if (room in divided && !(my_part in part_level)) { complain("part without a level in tests/check_includes.sh"); nextfile }
    }
    is_test = FILENAME ~ /_test\.c$/
    folder = FILENAME
    sub(/^src\//, "", folder)
    sub(/[^\/]*$/, "", folder)
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
    target = $0
    sub(/^[^"]*"/, "", target)
    sub(/".*/, "", target)
    nparts = split(target, part, "/")
    if (part[1] == "tests") {
        # A header that shares code between tests becomes a test header itself.
        if (FILENAME ~ /\.h$/)
            test_header[FILENAME] = 1
        else if (!is_test)
            complain("only tests include from tests/")
    } else if (part[1] == "sheaf" && nparts == 2) {
        sub(/\.h$/, "", part[2])
        if (!(part[2] in public))
            complain("public header without a level in tests/check_includes.sh")
        else if (public[part[2]] + 0 > mine + 0)
            complain("includes upwards")
    } else if (is_public)
        complain("a public header includes only public headers")
    else if (nparts == 1)
        ; # beside the file
    else if (!(part[1] in level))
        complain("includes something outside the rooms")
    else if (part[1] != room && level[part[1]] + 0 >= mine + 0)
        complain(level[part[1]] + 0 == mine + 0 ? "includes sideways" : "includes upwards")
    else if (part[1] == room && room in divided && !is_test && part_of(target) != my_part &&
             part_level[part_of(target)] + 0 >= part_level[my_part] + 0)
        complain(part_level[part_of(target)] + 0 == part_level[my_part] + 0 ? "includes another part sideways" : "includes a part upwards")
    if (room == "cli" && !is_test && nparts > 1 && part[1] != "cli" && part[1] != "sheaf" && part[1] != "base" &&
        part[1] != "driver" && part[1] != "serve")
        complain("the command calls public headers, the driver, the server and base only")
    if (!is_test && FILENAME ~ /\.c$/)
        includes[FILENAME] = includes[FILENAME] " " (nparts == 1 ? folder target : target)
    lines++
}
END {
    for (header in test_header) {
        name = header
        sub(/^src\//, "", name)
        for (file in includes)
            if (index(includes[file] " ", " " name " ")) {
                printf "not ok - %s: includes %s, which is for tests\n", file, header
                bad++
            }
    }
    if (files < 10 || lines < 20) { print "not ok - found almost no source to check"; bad++ }
    if (bad == 0)
        printf "ok - %d includes in %d files go downwards only\n", lines, files
    exit bad != 0
}' $(find src include -name '*.[ch]' | LC_ALL=C sort)
