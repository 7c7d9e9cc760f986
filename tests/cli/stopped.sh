#!/usr/bin/env bash
# What a signal makes of a command: an error in words and exit code 3; of generate the answers there are, of train a checkpoint.
. "$(dirname "$0")/lib.sh"

# No token ends an answer.
printf '%s' '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "float32", "sheaf_tokenizer": "bytes"}' >"$work/config.json"
runs "a model" 0 . init "$work/config.json" "$work/model"
runs "one that can be taught" 0 . init tiny-bytes "$work/tiny"
for i in $(seq 2000); do echo "{\"prompt\": \"how much is the fish today? $i\", \"completion\": \"six\"}"; done >"$work/many.jsonl"

# begin INPUT ARGUMENT...: $process, which minds signals also where the tests run under nohup.
begin() {
    local input=$1
    shift
    : >"$work/stdout" >"$work/stderr" # what the one before said is not this one's
    env --default-signal=HUP "$sheaf" "$@" <"$input" >"$work/stdout" 2>"$work/stderr" &
    process=$!
}
# stops NAME SIGNAL JSON PATTERN: the signal ends it with 3, a line of JSON at the end of stdout or nothing there, and PATTERN on stderr.
stops() {
    local name=$1 signal=$2 json=$3 pattern=$4 code=0 last
    kill -s "$signal" $process
    wait $process || code=$?
    last=$(tail -n 1 "$work/stdout")
    if [ $code -eq 3 ] && [[ $json == no || $last =~ ^\{\"error\":\ \{\"code\":\ \"stopped\",\ \"where\":\ \"SIG$signal:\ [a-z]+\",\ \"expected\":\ \"\",\ \"found\":\ \"a\ request\ to\ stop[^\"]*\",\ \"try\":\ \"\"\}\}$ ]] &&
        tr '\n' ' ' <"$work/stderr" | grep -qE "sheaf: SIG$signal: $pattern"; then
        pass "$name, SIG$signal"
    else
        fail "$name, SIG$signal" "exit code $code" "$(cat "$work/stderr" "$work/stdout")"
    fi
}
# heeds: the process has a handler for SIGINT, of its own. Until it is the command it is a copy of this shell, with the shell's
# handlers for a moment, and then with SIGINT ignored, as in all that a shell puts in the background: a signal would be lost.
heeds() { [ "/proc/$process/exe" -ef "$sheaf" ] && [ $((0x0$(sed -n 's/^SigCgt:\t*//p' "/proc/$process/status") & 2)) -ne 0 ]; }

# ---- nothing is lost: at once ----
mkfifo "$work/input"
exec 9<>"$work/input" # that nobody ever ends
for signal in INT HUP; do # driver/signals_test.c has each
    begin "$work/input" tokenize --tokenizer "$SHEAF_SOURCE_ROOT/tests/data/talk" --lines "-" --json
    check "tokenize has begun" waits heeds
    stops "tokenize" $signal json 'tokenize +found: +a request to stop $'
    check "is all it says" test "$(wc -l <"$work/stdout")" -eq 1
    begin "$work/input" render --tokenizer "$SHEAF_SOURCE_ROOT/tests/data/talk" "-"
    check "render has begun" waits heeds
    stops "render" $signal no 'render +found: +a request to stop $'
done
exec 9>&-
begin /dev/null plan --model "$work/tiny" --data "$work/many.jsonl" --trial --micro-batch 32 --json
check "plan has begun" waits heeds
stops "plan --trial" INT json 'plan '
begin /dev/null eval --model "$work/tiny" --data "$work/many.jsonl" --micro-batch 1 --json
check "eval has begun" waits heeds
stops "eval" TERM json 'eval '

# ---- generate: after the next token, with what there is ----
ask=(generate --model "$work/model" --max-new 200 --batch 4 --greedy --prompts "$work/many.jsonl")
answered() { grep -oE "after [0-9]+ of 2000 answers" "$work/stderr" | grep -oE '[0-9]+ of' | grep -oE '[0-9]+'; }
for signal in INT TERM USR2 XCPU; do
    begin /dev/null "${ask[@]}" --json
    check "generate has begun" waits grep -q 'prompts: ' "$work/stderr"
    stops "generate" $signal json 'generate +found: +a request to stop, after [0-9]+ of 2000 answers $'
    check "which are there" sh -c "[ $(answered) -gt 0 ] && head -n 1 '$work/stdout' | grep -oE '\"end\":\"length\"' | wc -l | grep -qx $(answered)"
    check "before the error" test "$(wc -l <"$work/stdout")" -eq 2
    check "without a share of right ones" sh -c "! grep -q exact_match '$work/stdout'"
done
begin /dev/null "${ask[@]}" --dp 2 --json
check "generate of two groups has begun" waits grep -q 'prompts: ' "$work/stderr"
sleep 0.2 # the first of the two: the other one has some then, too
stops "generate of two groups says of which records" INT json 'generate +found: +a request to stop, after [0-9]+ of 2000 answers: of records 1-[0-9]+, 1001-[0-9]+ $'
check "and so do its answers" grep -q '"record":1001' "$work/stdout"
begin /dev/null "${ask[@]}" --tp 2
check "generate of two ranks has begun" waits grep -q 'prompts: ' "$work/stderr"
stops "generate of two ranks" TERM no 'generate +found: +a request to stop, after [0-9]+ of 2000 answers $'
check "which it prints" test -s "$work/stdout"
begin /dev/null generate --model "$work/model" --prompt fish --max-new 100000 --temperature 1
check "one answer has begun" waits test -s "$work/stdout"
stops "one answer" INT no 'generate +found: +a request to stop, after [0-9]+ tokens $'
check "it ends with a line feed" test "$(tail -c 1 "$work/stdout" | od -An -tx1)" = " 0a"
begin /dev/null generate --model "$work/model" --prompt fish --max-new 100000 --temperature 1 --stream --json
check "one answer in pieces has begun" waits test -s "$work/stdout"
stops "one answer in pieces" INT json 'generate +found: +a request to stop, after [0-9]+ tokens $'
check "it is there as far as it came" sh -c "tail -n 2 '$work/stdout' | head -n 1 | grep -qE '^[{].*\"end\":\"stopped\"'"

# ---- train: a checkpoint of the step that it was in ----
learn=(train --model "$work/tiny" --data "$work/many.jsonl" --lr 1e-4 --steps 1000000 --save-every 1000000)
steps() { grep -oE '"step": ?[0-9]+' "$work/$1/metrics.jsonl" 2>/dev/null | tail -n 1 | grep -oE '[0-9]+'; }
learns() { [ "$(steps "$1")" -gt 1 ] 2>/dev/null; }
for signal in TERM HUP USR2 XCPU; do
    begin /dev/null "${learn[@]}" --tp 2 --out "$work/saved-$signal"
    check "train has begun" waits learns "saved-$signal"
    kill -s USR1 $process # saves, and goes on
    check "SIGUSR1 saves" waits compgen -G "$work/saved-$signal/checkpoints/step-????????"
    stops "train" $signal no "asked to stop after step [0-9]+"
    last=$(grep -oE 'after step [0-9]+' "$work/stderr" | grep -oE '[0-9]+')
    check "saved at that step" test -d "$work/saved-$signal/checkpoints/$(printf 'step-%08d' "$last")"
done
limited() { (ulimit -S -t 1; exec "$sheaf" "${learn[@]}" --out "$work/limited"); }
code=0
limited </dev/null >"$work/stdout" 2>"$work/stderr" || code=$?
check "the limit of processor time ends it with 3" test $code -eq 3
check "named" grep -q 'SIGXCPU: asked to stop after step' "$work/stderr"
check "and saved" compgen -G "$work/limited/checkpoints/step-????????"
finish
