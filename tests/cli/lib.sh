# lib.sh - cases for shell tests of the command; to be sourced.
#
# A case prints "ok - NAME" or "not ok - NAME" with what it saw, which is what
# ./run test counts. End a test with `finish`.
set -uo pipefail
: "${SHEAF_BUILD_ROOT:?run by meson test}" "${SHEAF_SOURCE_ROOT:?run by meson test}"
sheaf=$SHEAF_BUILD_ROOT/src/cli/sheaf
faulty=$SHEAF_BUILD_ROOT/tests/sheaf_faults # the same, which SHEAF_FAULT=op:n:action and --inject RANK:CALL:N:FAULT let fail (tests/faults/command.c)
golden=${SHEAF_GOLDEN:-${SHEAF_TEST_DATA:-$SHEAF_SOURCE_ROOT/tests/data}}
llama=$golden/llama
work=$(mktemp -d "${TMPDIR:-/tmp}/sheaf-cli.XXXXXX")
trap 'chmod -R u+w "$work" 2>/dev/null; rm -rf "$work"' EXIT
failures=0
[ -d "$llama/tiny_llama/hf" ] || { echo "not ok - no recordings in $golden"; exit 1; }

pass() { printf 'ok - %s\n' "$1"; }
fail() { # fail NAME DETAIL...
    printf 'not ok - %s\n' "$1"
    shift
    printf '%s\n' "$@" | head -n 12 | sed 's/^/# /'
    failures=$((failures + 1))
}
finish() { exit $((failures > 0)); }

# runs NAME CODE PATTERN ARGUMENT...: the command ends with CODE and its output
# (both streams) matches the extended regular expression PATTERN. It reads $typed, if that is set.
runs() {
    local name=$1 code=$2 pattern=$3 got=0 command=$sheaf said errors
    shift 3
    [[ " $* " != *" --inject "* ]] || command=$faulty
    "$command" "$@" >"$work/stdout" 2>"$work/stderr" <"${typed:-/dev/null}" || got=$?
    said=$(<"$work/stdout") errors=$(<"$work/stderr")
    said+=${said:+$'\n'}$errors${errors:+$'\n'} # without a process, of which thousands of cases would have three each
    if ! [[ $got =~ ^($code)$ ]]; then
        fail "$name" "exit code $got, wanted $code: sheaf $*" "$(cat "$work/stderr" "$work/stdout")"
    elif ! [[ ${said//$'\n'/ } =~ $pattern ]]; then
        fail "$name" "no match for '$pattern': sheaf $*" "$(cat "$work/stderr" "$work/stdout")"
    else
        pass "$name"
    fi
}
# module_of_sources: the Python module `sheaf`, over the library that was built.
module_of_sources() { export PYTHONPATH=$SHEAF_SOURCE_ROOT/python LD_LIBRARY_PATH=$SHEAF_BUILD_ROOT PYTHONDONTWRITEBYTECODE=1; }
# check NAME COMMAND...: a case that is any other command.
check() {
    local name=$1 output
    shift
    if output=$("$@" 2>&1); then pass "$name"; else fail "$name" "$*" "$output"; fi
}
chats() { # chats NAME CODE PATTERN INPUT FLAG...: a chat with that INPUT, for printf
    # shellcheck disable=SC2059
    printf "$4" >"$work/typed"
    typed=$work/typed runs "$1" "$2" "$3" chat "${@:5}"
}
# same NAME A B: two files or folders are equal byte for byte.
same() { check "$1" diff -r "$2" "$3"; }
# waits COMMAND...: until it succeeds, a minute at most.
waits() { for _ in $(seq 600); do "$@" && return 0; sleep 0.1; done; return 1; }
status() { curl -s --max-time 60 -o "$work/body" -w '%{http_code}' "$@"; } # status FLAG...: of a reply, which is in $work/body
# replies NAME STATUS PATTERN FLAG...: a server's reply has this status and matches.
replies() {
    local name=$1 wanted=$2 pattern=$3 got
    shift 3
    got=$(status "$@")
    if [ "$got" != "$wanted" ]; then
        fail "$name" "status $got, wanted $wanted" "$(cat "$work/body")"
    elif ! tr '\n' ' ' <"$work/body" | grep -qE -- "$pattern"; then
        fail "$name" "no match for '$pattern'" "$(cat "$work/body")"
    else
        pass "$name"
    fi
}
# serves NAME ARGUMENT...: a server in the background, at $url; its process is $server.
serves() {
    local name=$1
    shift
    rm -f "$work/serving"
    "$sheaf" "$@" --port 0 --json >"$work/serving" 2>"$work/notes" &
    server=$!
    check "$name" waits test -s "$work/serving"
    url=$(grep -o 'http://[^"]*' "$work/serving")
    port=${url##*:}
}
# stops NAME [CODE]: it ends after SIGINT, with 0 or CODE.
stops() {
    local code=0
    kill -INT "$server"
    wait "$server" || code=$?
    check "$1" test "$code" -eq "${2:-0}"
}
# loss NAME FLAG...: of $rows, into $loss.
loss() {
    local name=$1
    shift
    runs "$name" 0 '"loss":' eval --data "$rows" --json "$@"
    loss=$(json_number "$work/stdout" loss)
}
# loss_anywhere MODEL ROWS: of a model that knows nothing, into $all; on other ranks and stages the logits are the same.
loss_anywhere() {
    local how
    rows=$2
    loss "a loss" --model "$1" --save-logits "$work/one"
    all=$loss
    check "of a model that knows nothing" awk -v x="$all" 'BEGIN { exit !(x > 4 && x < 9) }'
    for how in "--tp 2" "--tp 3 --threads 4" "--place 2" "--place 0-0,1-3 --tp 2"; do
        # shellcheck disable=SC2086
        loss "with $how" --model "$1" $how --save-logits "$work/other"
        same "the same logits" "$work/one" "$work/other"
        rm -f "$work/other"
    done
}
# answer_anywhere MODEL PICTURE: the tokens of an answer, on other ranks and stages too.
answer_anywhere() {
    local how tokens ask=(generate --model "$1" --prompt what --image "$2" --max-new 6 --greedy --json)
    runs "an answer" 0 '"tokens"' "${ask[@]}"
    tokens=$(grep -o '"tokens":\[[^]]*\]' "$work/stdout")
    for how in "--tp 3" "--place 2"; do
        # shellcheck disable=SC2086
        runs "the same with $how" 0 '"tokens"' "${ask[@]}" $how
        check "tokens" test "$tokens" = "$(grep -o '"tokens":\[[^]]*\]' "$work/stdout")"
    done
}
# learned_and_merged MODEL: in $work, full1 has learned, and lora1 is in merged as it is beside MODEL, where its loss is $adapted.
learned_and_merged() {
    loss "it has learned" --model "$work/full1/model"
    check "something" awk -v x="$loss" -v y="$all" 'BEGIN { exit !(x < y) }'
    loss "the adapter" --model "$1" --adapter "$work/lora1/adapter"
    adapted=$loss
    runs "merged" 0 'replaced' merge "$1" "$work/lora1/adapter" "$work/merged"
    loss "says the same" --model "$work/merged"
    check "but for rounding" near "$loss" "$adapted" 1e-5
}
# metric RUN LINES KEY: numbers of the steps of $work/RUN
metric() { sed -n "$2s|.*\"$3\": \([-0-9.e]*\).*|\1|p" "$work/$1/metrics.jsonl"; }
# equal RUN RUN: the results in $work/RUN, which are the folders $results
results="adapter model"
result() (
    cd "$work/$1" && shopt -s globstar nullglob || exit 1
    set --
    for folder in $results; do set -- "$@" "$folder"/**/*.safetensors; done
    [ $# -eq 0 ] || sha256sum "$@"
)
equal() { local one; one=$(result "$1") && [ -n "$one" ] && [ "$one" = "$(result "$2")" ]; }
unequal() { [ -n "$(result "$1")" ] && [ -n "$(result "$2")" ] && ! equal "$1" "$2"; } # both are there
# alike NAME FLAG... -- WAY...: bytes and losses of FLAGs do not depend on the WAY. `run OUT FLAG...` is the test's.
alike() {
    local name=$1 flags=() way
    shift
    while [ "$1" != -- ]; do flags+=("$1"); shift; done
    shift
    check "$name" run one "${flags[@]}"
    for way in "$@"; do
        # shellcheck disable=SC2086
        check "$name, $way" run other "${flags[@]}" $way
        check "$name, $way: the same bytes" equal one other
        check "$name, $way: the same losses" test "$(metric one '1,$' loss)" = "$(metric other '1,$' loss)" -a -n "$(metric one 3 loss)"
    done
}
absent() { if [ -e "$2" ]; then fail "$1" "$2 exists"; else pass "$1"; fi; }

# interrupted WHAT FLAG...: Ctrl-C ends an answer of a chat, WHAT, and with none under way the chat.
interrupted() {
    local what=$1 process
    shift
    rm -f "$work/stdout"
    mkfifo "$work/questions"
    "$sheaf" chat "$@" --max-new 100000 --max-length 200000 <"$work/questions" >"$work/stdout" 2>"$work/stderr" &
    process=$!
    exec 9>"$work/questions"
    echo "what" >&9
    check "$what has begun" waits test -s "$work/stdout"
    kill -INT $process
    check "Ctrl-C ends it" waits grep -q stopped "$work/stderr"
    kill -INT $process
    wait $process
    check "and then the chat" test $? -eq 0
    exec 9>&-
}

# json_number FILE KEY: the first number stored under KEY.
json_number() {
    awk -v key="\"$2\":" '{ i = index($0, key); if (i) { v = substr($0, i + length(key)); sub(/^ */, "", v); sub(/[^-+0-9.eE].*/, "", v); print v; exit } }' "$1"
}
# near A B TOLERANCE
near() { awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d <= t && -d <= t) }'; }

int32_bytes() { # int32_bytes VALUE...: little endian
    local v bytes
    for v in "$@"; do
        printf -v bytes '\\x%02x' $((v & 255)) $(((v >> 8) & 255)) $(((v >> 16) & 255)) $(((v >> 24) & 255))
        # shellcheck disable=SC2059
        printf "$bytes"
    done
}
# tokens_file FILE ROWS LENGTH IDS LABELS [POSITIONS [MASK]]: pre-tokenised data; each is
# a list of ROWS * LENGTH numbers in one word, separated by blanks.
tokens_file() {
    local file=$1 rows=$2 length=$3 size header='{' at=0 name
    size=$((rows * length * 4))
    shift 3
    for name in $(echo input_ids labels position_ids attention_mask | cut -d' ' -f"1-$#"); do
        header="$header\"$name\":{\"dtype\":\"I32\",\"shape\":[$rows,$length],\"data_offsets\":[$at,$((at + size))]},"
        at=$((at + size))
    done
    header="${header%,}}"
    while [ $((${#header} % 8)) -ne 0 ]; do header="$header "; done
    # shellcheck disable=SC2068
    { int32_bytes "${#header}" 0; printf '%s' "$header"; int32_bytes $@; } >"$file"
}
# without_tensor FILE NAME: a .safetensors file no longer holds that tensor.
without_tensor() {
    local file=$1 size header a b
    size=$(($(od -An -tu8 -N8 "$file")))
    header=$(head -c $((8 + size)) "$file" | tail -c "$size" | awk -v name="\"$2\"" '{
        at = index($0, name)
        if (!at) exit 1
        entry = substr($0, at)
        entry = substr(entry, 1, index(entry, "}"))
        match(entry, /\[[0-9]+, *[0-9]+\]}$/)
        split(substr(entry, RSTART + 1, RLENGTH - 3), gone, ",")
        before = substr($0, 1, at - 1)
        after = substr($0, at + length(entry))
        if (!sub(/^, */, "", after)) sub(/, *$/, "", before)
        rest = before after
        while (match(rest, /"data_offsets": *\[[0-9]+, *[0-9]+\]/)) {
            split(substr(rest, RSTART, RLENGTH), part, "[")
            split(part[2], was, ",")
            by = was[1] + 0 >= gone[2] + 0 ? gone[2] - gone[1] : 0
            out = out substr(rest, 1, RSTART - 1) sprintf("\"data_offsets\":[%d,%d]", was[1] - by, was[2] - by)
            rest = substr(rest, RSTART + RLENGTH)
        }
        print gone[1] + 0, gone[2] + 0, out rest }') || return 1
    read -r a b header <<<"$header"
    while [ $((${#header} % 8)) -ne 0 ]; do header="$header "; done
    { int32_bytes "${#header}" 0; printf '%s' "$header"; head -c $((8 + size + a)) "$file" | tail -c "$a"; tail -c +$((9 + size + b)) "$file"; } >"$file.less" &&
        mv "$file.less" "$file"
}
# copy_model NAME: a writable copy of a golden model at $work/NAME; prints the path.
copy_model() {
    rm -rf "${work:?}/$1"
    cp -r "$llama/$1/hf" "$work/$1"
    chmod -R u+w "$work/$1"
    printf '%s' "$work/$1"
}

captions() { # captions: two pictures and their names, in $work/caps
    mkdir -p "$work/caps"
    cp "$SHEAF_SOURCE_ROOT/tests/data/images/rgb8.png" "$work/caps/1234.png"
    cp "$SHEAF_SOURCE_ROOT/tests/data/images/turned6.jpg" "$work/caps/98.jpg"
}
text_model() { # text_model POSITIONS: at $work/model, by $work/config.json, with a tokenizer
    cat >"$work/config.json" <<END
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": false, "mlp_bias": false, "bos_token_id": 0, "eos_token_id": 1,
 "hidden_act": "silu", "rms_norm_eps": 1e-05, "max_position_embeddings": $1, "initializer_range": 0.1, "rope_theta": 10000.0, "dtype": "float32",
 "head_dim": 8, "hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 3, "num_key_value_heads": 3, "num_hidden_layers": 1,
 "vocab_size": 400, "tie_word_embeddings": false}
END
    runs "a model" 0 . init "$work/config.json" "$work/model" --seed 3
    cp "$SHEAF_SOURCE_ROOT"/tests/data/text/tokenizer*.json "$work/model/"
}
# odd_model DIR: nothing divides: 7 heads, 511 words, ffn 173.
odd_model() {
    cat >"$work/odd.json" <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 511, "hidden_size": 56,
 "intermediate_size": 173, "num_hidden_layers": 2, "num_attention_heads": 7, "num_key_value_heads": 7,
 "max_position_embeddings": 256, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu",
 "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}
END
    rm -rf "$1" # another section may have made it
    "$sheaf" init "$work/odd.json" "$1" --seed 5 >/dev/null
}
# same_metrics FILE: its lines without what differs between two runs of the same bytes: speed, and who worked how long.
same_metrics() {
    sed 's/"tokens_per_s": *[^,}]*//; s/, "ranks": \[.*\]//' "$1"
}
# digest OUT: of everything a run leaves that must not depend on ranks or threads: all
# but the flags of the run (`settings`), who ran it where (`run.json`) and the speed in the metrics.
digest() (
    cd "$1" 2>/dev/null && shopt -s globstar dotglob || exit 1
    files=()
    for file in **; do
        case ${file##*/} in settings | run.json | metrics.jsonl | lock) continue ;; esac
        [ ! -f "$file" ] || files+=("$file")
    done
    sha256sum "${files[@]}" </dev/null && same_metrics metrics.jsonl
)
