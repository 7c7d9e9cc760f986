#!/usr/bin/env bash
# sheaf tokenize: ids that other programs give, and texts back.
. "$(dirname "$0")/lib.sh"
data=$SHEAF_SOURCE_ROOT/tests/data/tokenizers/bpe
tok=$data/llama3.json

# ids of recorded.json: those of `tokenizers` for its first short texts
printf '  two  blanks \na\n\n' >"$work/lines"
recorded() { sed 's/.*"'"$1"'":{"specials":\[\[\],\(\[[0-9]*\]\),\(\[[0-9]*\]\),\(\[[0-9,]*\]\),.*/\'"$2"'/; s/,/, /g' "$data/recorded.json"; }
{ recorded llama3 3; recorded llama3 2; echo '[]'; } >"$work/want"
"$sheaf" tokenize --tokenizer "$tok" --lines "$work/lines" >"$work/got"
same "each line has the ids of tokenizers" "$work/want" "$work/got"
"$sheaf" tokenize --tokenizer "$tok" --lines - <"$work/lines" >"$work/got"
same "standard input gives the same" "$work/want" "$work/got"

# the whole file is one text, and comes back
printf 'First line.\r\nSecond \xe2\x82\xac line, no end' >"$work/text"
"$sheaf" tokenize --tokenizer "$tok" "$work/text" >"$work/ids"
check "a file is one array" test "$(wc -l <"$work/ids")" = 1
"$sheaf" tokenize --tokenizer "$tok" --decode "$work/ids" >"$work/back"
same "and decodes to its bytes" "$work/text" "$work/back"
: >"$work/empty"
runs "an empty file is one text" 0 '^\[\] $' tokenize --tokenizer "$tok" "$work/empty"
"$sheaf" tokenize --tokenizer "$tok" --lines "$work/empty" >"$work/got"
check "and has no line" test ! -s "$work/got"

# special tokens
printf 'a<|eot|>' >"$work/special"
ids() { "$sheaf" tokenize --tokenizer "$tok" "$@" "$work/special"; }
check "special tokens in a text are text" test "$(ids | tr -cd , | wc -c)" -gt 2
check "unless a flag says otherwise" test "$(ids --specials | tr -cd , | wc -c)" = 1
ids --specials >"$work/ids"
"$sheaf" tokenize --tokenizer "$tok" --decode "$work/ids" >"$work/back"
same "they are decoded" "$work/special" "$work/back"
check "or left out" test "$("$sheaf" tokenize --tokenizer "$tok" --decode --skip-special "$work/ids")" = a
runs "--json tells where each id comes from" 0 '^\{"ids": \[[0-9]+, [0-9]+\], "where": \[\[0, 1\], \[1, 8\]\]\} $' \
    tokenize --tokenizer "$tok" --json --specials "$work/special"
echo '1 2, 3' >"$work/loose"
runs "ids need no brackets" 0 '^".*"' tokenize --tokenizer "$tok" --decode --json "$work/loose"

# what is wrong
printf 'good\nbad \xff\n' >"$work/bytes"
runs "bytes that are no UTF-8 are named by line and byte" 3 'line 2: byte 4 of the text.*UTF-8.*0xff' \
    tokenize --tokenizer "$tok" --lines "$work/bytes"
echo '[1, x]' >"$work/wrong"
runs "what is no id is named" 3 "byte 5.*as \[1, 2, 3\].*'x\]" tokenize --tokenizer "$tok" --decode "$work/wrong"
runs "a tokenizer is needed" 2 'tokenizer' tokenize "$work/text"
runs "one that is not there is named" 3 'nowhere' tokenize --tokenizer "$work/nowhere" "$work/text"
runs "--skip-special is of --decode" 2 '--decode beside it' tokenize --tokenizer "$tok" --skip-special "$work/text"
runs "--specials is not" 2 'neither' tokenize --tokenizer "$tok" --decode --specials "$work/ids"
sed 's/"use_regex":false/"use_regex":false,"colour":1/' "$tok" >"$work/option.json"
runs "an option that is not known is named" 3 "pre_tokenizer: ByteLevel: 'colour'" tokenize --tokenizer "$work/option.json" "$work/text"
sed 's/"decoder":{"type":"ByteLevel"/"decoder":{"type":"Oracle"/' "$tok" >"$work/type.json"
runs "so is a type" 3 "decoder: Oracle: type" tokenize --tokenizer "$work/type.json" "$work/text"
head -c 3000 "$tok" >"$work/cut.json"
: >"$work/none.json"
runs "an empty .json is no other form" 3 'none.json: line 1, column 1.*an object' tokenize --tokenizer "$work/none.json" "$work/text"
runs "a file that ends early is named" 3 'cut.json: .*line 1, column' tokenize --tokenizer "$work/cut.json" "$work/text"
# a gigabyte in one line: refused before it is read whole (the file has holes, and takes no space)
truncate -s 1G "$work/gigabyte"
runs "a text of a gigabyte is refused" 3 'line 1: text.*at most 268435456 bytes' tokenize --tokenizer "$tok" --lines "$work/gigabyte"

# ---- an output that takes nothing ----
code=0
yes | timeout 60 "$sheaf" tokenize --tokenizer "$tok" --lines - >/dev/full 2>"$work/stderr" || code=$?
check "a full disk ends it at once" test $code -eq 3
printf 'sheaf: standard output\n  found:    No space left on device\n' >"$work/want"
same "and is told once" "$work/want" "$work/stderr"
finish
