#!/usr/bin/env bash
# Where results go: what lies there is nobody else's to delete, what is stopped leaves nothing, and one of many wins.
. "$(dirname "$0")/lib.sh"

# ---- somebody's folders ----
mine="$work/out.partial-2024.11.05 $work/out.partial-5 $work/out.replaced-7 $work/out.partial-77-0123456789abcdef"
for folder in $mine; do
    mkdir "$folder"
    echo "years of work" >"$folder/thesis.tex"
done
untouched() { for folder in $mine; do [ "$(cat "$folder/thesis.tex")" = "years of work" ] || return 1; done; }
left() { compgen -G "$work/$1.partial-*-????????????????" | grep -cv -- '-0123456789abcdef$'; }
SHEAF_FAULT=write:3:kill "$faulty" init tiny-bytes "$work/out" 2>/dev/null
check "a killed init leaves its folder" test "$(left out)" -eq 1
runs "the next removes it and says so" 0 'out.partial-[0-9]+-[0-9a-f]{16}: removed, left by a sheaf that was killed' init tiny-bytes "$work/out"
check "it is gone" test "$(left out)" -eq 0
check "folders that somebody named alike stay" untouched
rm -r "$work/out"
runs "convert neither" 0 'sheaf' convert "$llama/tiny_llama/hf" "$work/out" --to sheaf
check "touches them" untouched
rm -r "$work/out"
# ---- a place that is none is said before anything is read ----
echo x >"$work/file"
below=(3 'file/out +expected: a place where a folder can be made +found: +[^ ]*/file: Not a directory +try: +another name')
runs "init below a file" "${below[@]}" init tiny-bytes "$work/file/out"
runs "convert below a file" "${below[@]}" convert "$llama/tiny_llama/hf" "$work/file/out" --to hf
runs "merge below a file" "${below[@]}" merge "$llama/tiny_llama/hf" "$llama/tiny_llama/lora/adapter_final" "$work/file/out"
runs "train below a file" 3 '^sheaf: --out: .*found: +[^ ]*/file: Not a directory +try: +another name' train --model "$work/none" --data "$work/none" --out "$work/file/sub/out" --steps 1
runs "logits below a file" 3 '^sheaf: --save-logits: .*a folder that is there and may be written +found: +[^ ]*/file: Not a directory' eval --model "$llama/tiny_llama/hf" --data "$work/none" --save-logits "$work/file/logits"
runs "logits in no folder" 3 'try: +mkdir -p [^ ]*/nowhere $' eval --model "$llama/tiny_llama/hf" --data "$work/none" --save-logits "$work/nowhere/logits"
tokens_file "$work/data.safetensors" 1 4 "1 2 3 4" "1 2 3 4"
one=(train --model "$llama/tiny_llama/hf" --data "$work/data.safetensors" --out "$work/run" --lora-rank 1 --threads 1)
runs "a run" 0 . "${one[@]}" --steps 1
mkdir "$work/run/adapter.partial-5"
echo "years of work" >"$work/run/adapter.partial-5/thesis.tex"
mine="$mine $work/run/adapter.partial-5"
cp -r "$work/run/adapter.partial-5" "$work/run/checkpoints/step-00000003.partial-4"
mine="$mine $work/run/checkpoints/step-00000003.partial-4"
runs "that goes on" 0 . "${one[@]}" --steps 2 --resume
check "touches none beside its adapter or checkpoints" untouched

# ---- stopped ----
# stopped NAME SIGNAL FOLDER ARGUMENT...: the signal, once something unfinished is in FOLDER, ends the command with 3 and leaves nothing there.
stopped() {
    local name=$1 signal=$2 folder=$3 code=0 pid
    shift 3
    rm -rf "$folder"
    mkdir "$folder"
    env --default-signal=HUP "$sheaf" "$@" >"$work/stdout" 2>"$work/stderr" & # also where the tests run under nohup
    pid=$!
    until compgen -G "$folder/*.partial-*" >/dev/null || ! kill -0 $pid 2>/dev/null; do :; done
    kill -s "$signal" $pid 2>/dev/null
    wait $pid || code=$?
    if [ $code -eq 3 ] && [ -z "$(ls -A "$folder")" ] && grep -q "SIG$signal: .*" "$work/stderr" && grep -q "nothing was left behind" "$work/stderr"; then
        pass "$name, $signal"
    else
        fail "$name, $signal" "exit code $code" "$(cat "$work/stderr"; ls -A "$folder")"
    fi
}
printf '%s' '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 16384, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 4, "num_attention_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "float32"}' >"$work/big.json"
printf '%s' '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 258, "bos_token_id": 256, "eos_token_id": 257, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "float32", "sheaf_tokenizer": "bytes"}' >"$work/small.json"
runs "a small model" 0 . init "$work/small.json" "$work/small"
for i in $(seq 1500); do echo '{"prompt": "how much is the fish today?", "completion": "six"}'; done >"$work/many.jsonl"
for signal in INT TERM HUP USR2 XCPU; do
    stopped "init" $signal "$work/hit" init "$work/big.json" "$work/hit/out" --threads 1
    stopped "eval --save-logits" $signal "$work/hit" eval --model "$work/small" --data "$work/many.jsonl" --save-logits "$work/hit/logits.safetensors" --micro-batch 1
done
stopped "eval --save-logits of two ranks" TERM "$work/hit" eval --model "$work/small" --data "$work/many.jsonl" --tp 2 --save-logits "$work/hit/logits.safetensors" --micro-batch 1
for i in 1 2 3 4; do cat "$work/many.jsonl"; done >"$work/more.jsonl" # not over before this shell has its turn
twice() {
    local pid
    "$sheaf" eval --model "$work/small" --data "$work/more.jsonl" --save-logits "$work/hit/logits.safetensors" --micro-batch 1500 2>/dev/null &
    pid=$!
    until compgen -G "$work/hit/*.partial-*" >/dev/null || ! kill -0 $pid 2>/dev/null; do :; done
    kill -INT $pid
    sleep 0.02
    kill -INT $pid 2>/dev/null
    wait $pid
    [[ $? =~ ^(130|3)$ ]] && [ -z "$(ls -A "$work/hit")" ]
}
check "an impatient second Ctrl-C leaves no file either" twice
limited() { # limited NAME FILE ARGUMENT...: past the largest file that is allowed: a failed write, not the end of the process
    local name=$1 code=0
    shift
    mkdir -p "$work/limited"
    (ulimit -f 10; exec "$sheaf" "$@") >"$work/stdout" 2>"$work/stderr" || code=$?
    if [ $code -eq 3 ] && grep -q 'File too large' "$work/stderr" && [ -z "$(ls -A "$work/limited")" ]; then pass "$name"; else fail "$name" "exit code $code" "$(cat "$work/stderr")"; fi
}
limited "init past ulimit -f" init tiny-bytes "$work/limited/out"
limited "eval past ulimit -f" eval --model "$work/small" --data "$work/many.jsonl" --save-logits "$work/limited/logits.safetensors"
limited "convert past ulimit -f" convert "$work/small" "$work/limited/out" --to sheaf

# ---- several at once ----
# one_wins NAME OUTPUT ARGUMENT...: of four, one says that it is done, and what is there is whole; nothing lies beside it.
one_wins() {
    local name=$1 out=$2 done=0 pids=() pid
    shift 2
    rm -rf "$work/race"
    mkdir "$work/race"
    for _ in 1 2 3 4; do
        "$sheaf" "$@" >/dev/null 2>"$work/stderr" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" && done=$((done + 1)); done
    if [ $done -eq 1 ] && [ -e "$out" ] && [ "$(ls -A "$work/race" | wc -l)" -eq 1 ]; then pass "$name"; else fail "$name" "$done are done" "$(ls -A "$work/race"; cat "$work/stderr")"; fi
}
head -n 20 "$work/many.jsonl" >"$work/few.jsonl"
for _ in 1 2 3; do
    one_wins "init by four at once: one" "$work/race/out" init tiny-bytes "$work/race/out"
    one_wins "eval by four at once: one" "$work/race/logits" eval --model "$work/small" --data "$work/few.jsonl" --save-logits "$work/race/logits"
done
one_wins "convert by four at once: one" "$work/race/out" convert "$work/small" "$work/race/out" --to sheaf

# ---- links and modes ----
echo "not metrics" >"$work/precious"
before=$(md5sum "$work/precious")
tokens_file "$work/data.safetensors" 1 4 "1 2 3 4" "1 2 3 4"
again=(train --model "$work/small" --data "$work/data.safetensors" --out "$work/linked" --threads 1 --lora-rank 1)
runs "a run" 0 . "${again[@]}" --steps 1
mkdir "$work/tmp"
gone() { # the folder in which a checkpoint's adapter stands for a moment
    local pid
    TMPDIR=$work/tmp "$sheaf" eval --model "$work/linked/checkpoints/step-00000001" --data "$work/data.safetensors" >/dev/null 2>&1 &
    pid=$!
    until compgen -G "$work/tmp/sheaf-*" >/dev/null || ! kill -0 $pid 2>/dev/null; do :; done
    kill -TERM $pid 2>/dev/null
    wait $pid
    [ -z "$(ls -A "$work/tmp")" ]
}
for _ in 1 2 3 4 5; do check "SIGTERM leaves no temporary folder" gone; done
ln -sf ../precious "$work/linked/metrics.jsonl"
runs "a link in the place of metrics.jsonl" 2 'metrics.jsonl.*expected: a file of this run.*found: +a symbolic link' "${again[@]}" --steps 2 --resume
check "is not followed" test "$(md5sum "$work/precious")" = "$before"
ln -sf ../../made-by-a-link "$work/linked/checkpoints/lock"
runs "nor one in the place of the lock" 2 'lock.*a symbolic link' "${again[@]}" --steps 2 --resume
absent "and nothing is made at its end" "$work/made-by-a-link"
model=$(copy_model tiny_llama)
adapter=$(dirname "$(find "$llama" -name adapter_model.safetensors -path '*tiny_llama*' | sort | head -n 1)")
echo '{"a": 1}' >"$model/tokenizer.json"
echo '{"a": 1}' >"$model/tokenizer_config.json"
chmod 600 "$model/tokenizer.json"
chmod 666 "$model/tokenizer_config.json"
(umask 022; "$sheaf" merge "$model" "$adapter" "$work/merged") >/dev/null 2>"$work/stderr"
check "a private tokenizer stays private" test "$(stat -c %a "$work/merged/tokenizer.json")" = 600
check "another is what the mask allows" test "$(stat -c %a "$work/merged/tokenizer_config.json")" = 644

# ---- a folder that is there: a link to one, a link to nothing, a mount point, one beside which nothing can be made ----
mkdir -p "$work/far/empty"
ln -s far/empty "$work/link"
runs "init behind a link" 0 . init tiny-bytes "$work/link"
check "fills the folder" test -f "$work/far/empty/model.safetensors"
check "and keeps the link" test -L "$work/link"
ln -s nowhere "$work/dangling"
for command in "init tiny-bytes" "convert $work/small --to sheaf" "merge $llama/tiny_llama/hf $adapter"; do
    # shellcheck disable=SC2086
    runs "${command%% *}: a link that leads nowhere" 2 'a symbolic link that leads nowhere' $command "$work/dangling"
    check "is told before the work" test "$(grep -c '%' "$work/stderr")" -eq 0
done
runs "eval: a link that leads nowhere" 2 'save-logits .*dangling' eval --model "$work/small" --data "$work/few.jsonl" --save-logits "$work/dangling"
check "is told before the work" test "$(grep -c 'rows' "$work/stderr")" -eq 0
runs "train: a link that leads nowhere" '2|3' 'dangling' train --model "$work/small" --data "$work/few.jsonl" --out "$work/dangling" --steps 1
check "is told before the work" test "$(grep -c 'step 1' "$work/stderr")" -eq 0
into() { # into NAME ARGUMENT...: the command, whose last word is a folder, fills it where nothing can be made beside it
    local name=$1
    shift
    rm -rf "$work/plain" "$work/volume"
    mkdir "$work/volume"
    "$sheaf" "$@" "$work/plain" >/dev/null 2>&1
    SHEAF_FAULT=mkdir:1:fail "$faulty" "$@" "$work/volume" >/dev/null 2>"$work/stderr"
    same "$name, from within" "$work/plain" "$work/volume"
    rm -rf "$work/volume"
    mkdir "$work/volume"
    unshare -rm sh -c 'mount -t tmpfs none "$0"' "$work/volume" 2>/dev/null || return 0 # mounting is forbidden here
    unshare -rm sh -c 'mount -t tmpfs none "$0" && mkdir "$0/lost+found" && dst=$0 && plain=$1 && shift && "$@" "$dst" >/dev/null && rmdir "$dst/lost+found" && diff -r "$plain" "$dst"' "$work/volume" "$work/plain" "$sheaf" "$@" >"$work/stdout" 2>&1 ||
        fail "$name, a mount point" "$(cat "$work/stdout")"
}
runs "a CogVLM" 0 . init cogvlm-tiny "$work/sat-src"
into "init" init tiny-bytes
into "convert" convert "$work/small" --to sheaf
into "convert to SAT" convert "$work/sat-src" --to sat --tp 2
into "merge" merge "$llama/tiny_llama/hf" "$adapter"

# ---- the switch of the tests is not in the command ----
check "SHEAF_FAULT does nothing to sheaf" env SHEAF_FAULT=any:1+:fail "$sheaf" init tiny-bytes "$work/no-fault"
check "but to the command of the tests" test "$(SHEAF_FAULT=any:1+:fail "$faulty" init tiny-bytes "$work/fault" 2>/dev/null; echo $?)" = 3
check "where a misspelt one is an error" test "$(SHEAF_FAULT=wirte:1:fail "$faulty" --version 2>/dev/null; echo $?)" = 99
finish
