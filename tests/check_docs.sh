#!/usr/bin/env bash
# check_docs.sh - what the pages and the comments name is in the repository.
#
#   check_docs.sh SOURCE_ROOT
#
# Pages (*.md): every relative link, with its anchor, and every path below a top folder. Pages and
# comments: every name that ends in .c, .h, .cc, .md, .sh or .awk is a file, named from the root, from
# src, include or tests, or by its last parts within the folder or the room that names it; every
# "docs/PAGE.md, section N" and "contract, section N" is a section of that page. Names with <, > or *
# and those of capital letters stand for others (FILE_test.c) and are not looked up.
set -euo pipefail
cd "$1"

# The repository's part of the recordings stays small, as CONTRIBUTING.md promises.
bytes=$(find tests/data -type f -printf '%s\n' | awk '{ n += $1 } END { print n + 0 }')
if [ "$bytes" -gt 0 ] && [ "$bytes" -le 12000000 ]; then
    echo "ok - tests/data has $bytes bytes"
else
    echo "not ok - tests/data has $bytes bytes, at most 12000000 belong there"
    exit 1
fi

list() { find . \( -name .git -o -path './build*' \) -prune -o -print | sed 's,^\./,,' | LC_ALL=C sort; }
mapfile -t pages < <(list | grep '\.md$')
mapfile -t sources < <(list | grep -E '(\.(c|h|cc|sh|awk|py|recipe)|/meson\.build|^(run|meson\.build|\.ci/run))$')

awk '
BEGIN { # files of other programs and libraries
    split("finetune_cogvlm_lora.sh finetune_cogagent_lora.sh finetune_lora.sh finetune_ds.sh sft_7b.sh sft_qwen3_4b.sh sft.sh qwen3_moe.sh src/libImaging/Resample.c stdio.h xxhash.h arm_neon.h", word, " ")
    for (i in word) foreign[word[i]] = 1
}
function complain(what) { printf "not ok - %s:%d: %s\n", FILENAME, FNR, what; bad++ }
function folder_of(p) { return sub(/\/[^\/]*$/, "/", p) ? p : "" }
function exists(p,    n, part, i, out) { # with "." and ".." worked out
    sub(/\/+$/, "", p)
    n = split(p, part, "/")
    out = ""
    for (i = 1; i <= n; i++) {
        if (part[i] == "..") { if (!sub(/\/?[^\/]*$/, "", out)) return 0 }
        else if (part[i] != "" && part[i] != ".") out = out (out == "" ? "" : "/") part[i]
    }
    return out == "" || (out in there)
}
function found(name,    i, end) {
    if (exists(name) || exists("src/" name) || exists("include/" name) || exists("include/sheaf/" name) ||
        exists("tests/" name) || exists(folder name))
        return 1
    end = "/" name
    for (i = 1; i <= files; i++)
        if (index(file[i], room) == 1 && length(file[i]) > length(end) &&
            substr(file[i], length(file[i]) - length(end) + 1) == end)
            return 1
    return 0
}
# The anchor that a heading gets: lower case, no punctuation, - for spaces.
function anchor_of(heading) {
    heading = tolower(heading)
    gsub(/[^a-z0-9 _-]/, "", heading)
    gsub(/ /, "-", heading)
    return heading
}
function check(text,    word, n, i, name) {
    gsub(/[a-z]+:\/\/[^ )>]*/, " ", text) # addresses
    n = split(text, word, /[^A-Za-z0-9_.\/*<>$-]+/)
    for (i = 1; i <= n; i++) {
        name = word[i]
        sub(/[.-]+$/, "", name)
        if (name ~ /[<>*$]/ || name ~ /(^|[\/.])[A-Z]+(_[A-Za-z]+)?([.\/]|$)/ && name !~ /(README|CONTRIBUTING|CHANGELOG|LICENSE)(\.md)?$/)
            continue
        if (name ~ /[A-Za-z0-9]\.(c|h|cc|md|sh|awk)$/ ||
            name ~ /^(docs|src|tests|include|bench|examples|recipes|demo)\/[A-Za-z0-9_.\/-]*$/) {
            names++
            if (!found(name) && !(name in foreign)) complain(name " is not in the repository")
        }
    }
}
# `before` is the line above, since comments are wrapped.
function check_sections(before, text,    all, at, end, page, number) {
    all = before " " text
    end = 0
    while ((at = match(substr(all, end + 1), /(docs\/[a-z_-]+\.md|contract),? sections? [0-9.]*[0-9]/)) > 0) {
        page = number = substr(all, end + at, RLENGTH)
        end += at + RLENGTH - 1
        if (end <= length(before)) continue # told with the line above
        sub(/,? sections?.*/, "", page)
        if (page == "contract") page = "docs/contract.md"
        sub(/.* /, "", number)
        sections++
        if (!((page, number) in section)) complain(page " has no section " number)
    }
}
pass == 0 {
    file[++files] = $0
    there[$0] = 1
    next
}
# The first reading of a page: its headings and numbered sections.
pass == 1 {
    if (FNR == 1) fenced = 0
    if (/^```/) fenced = !fenced
    if (!fenced && sub(/^#+ /, "")) {
        anchor[FILENAME, anchor_of($0)] = 1
        if (match($0, /^[0-9.]+\. /)) section[FILENAME, substr($0, 1, RLENGTH - 2)] = 1
    } else if (match($0, /^\*\*[0-9.]+ /))
        section[FILENAME, substr($0, 3, RLENGTH - 3)] = 1
    next
}
FNR == 1 {
    looked++
    folder = room = folder_of(FILENAME)
    if (match(FILENAME, /^(src\/[a-z]+|tests|bench|examples|demo)\//)) room = substr(FILENAME, 1, RLENGTH)
    is_page = FILENAME ~ /\.md$/
    is_c = FILENAME ~ /\.(c|h|cc)$/
    inside = 0
    before = ""
}
is_page {
    text = $0
    while (match(text, /\]\([^)]*\)/)) {
        link = substr(text, RSTART + 2, RLENGTH - 3)
        text = substr(text, RSTART + RLENGTH)
        if (link ~ /^[a-z]+:/) continue
        links++
        target = link
        sub(/#.*/, "", target)
        target = target == "" ? FILENAME : folder target
        if (!exists(target)) complain("the link " link " leads nowhere")
        else if (sub(/^[^#]*#/, "", link) && !((target, link) in anchor)) complain("no heading for #" link)
    }
    check($0)
    check_sections(before, $0)
    before = $0
    next
}
!is_c {
    text = match($0, /(^|[ \t])#/) ? substr($0, RSTART + RLENGTH) : ""
    check(text)
    check_sections(before, text)
    before = text
    next
}
{
    text = ""
    rest = $0
    while (rest != "") {
        if (inside) {
            if ((at = index(rest, "*/")) == 0) { text = text " " rest; break }
            text = text " " substr(rest, 1, at - 1)
            rest = substr(rest, at + 2)
            inside = 0
        } else {
            if (match(rest, /"([^"\\]|\\.)*"|\/\*|\/\//) == 0) break
            token = substr(rest, RSTART, 2)
            rest = substr(rest, RSTART + (substr(token, 1, 1) == "\"" ? RLENGTH : 2))
            if (token == "//") { text = text " " rest; break }
            inside = token == "/*"
        }
    }
    sub(/^ *\* /, "", text)
    check(text)
    check_sections(before, text)
    before = text
}
END {
    if (looked < 100 || names < 200 || links < 40 || sections < 5) { print "not ok - found almost nothing to check"; bad++ }
    if (bad == 0) printf "ok - %d names, %d links and %d sections that %d files name are there\n", names, links, sections, looked
    exit bad != 0
}' pass=0 - pass=1 "${pages[@]}" pass=2 "${pages[@]}" "${sources[@]}" < <(list)
