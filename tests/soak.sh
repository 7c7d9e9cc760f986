#!/usr/bin/env bash
# soak.sh - `./run soak`: the long tests, an hour or more.
#
#   1. adapter, checkpoints and metrics over every T = 1..8 and 1, 2, 5 threads, both
#      dtypes, every method, on a golden model and on one where nothing divides
#   2. the same over 3 steps at a production size, at every T
#   3. SOAK_TRIALS (100) runs stopped at a random moment, by SIGKILL or SIGTERM, again
#      and again, each time resumed at a random T: the bytes of the unbroken run
#   4. whatever C tests read SHEAF_SOAK=1 as "take the long form"
#   5. transformers and PEFT load what sheaf wrote and compute the same (needs a
#      network once; SOAK_LIVE=0 leaves it out); CogVLM and CogAgent written a second time,
#      in PyTorch, reproduce the recordings and agree with sheaf on models of odd sizes; what transformers
#      ties is what merge has in its table; torch
#      trains in float16 beside sheaf; random Jinja programs, and published chat templates on random
#      conversations, give the same text
#   6. thirty-seven settings planned and measured, and the long forms of tests of the command
#   7. nothing is lost: 1,000,000 damages of checkpoints, all found; every call of what
#      writes fails or is the last, 100,000 times, and leaves nothing half or mixed; a run
#      dies at every call and goes on
#   8. a small CogAgent learns to read pictures, the way of ./run demo-vlm
#   9. CogVLM and CogAgent over every rank count, dtype, kernel, thread and slice count (soak_cog.sh)
#  10. small mistakes put into the sources, one at a time, are noticed by a test: all of mutants.sh, and of SOAK_MUTANTS
#      (100) that mutate.py draws at least 70 %
#  11. sheaf tokenize equals tokenizers on 12 MB of texts and on every code point (needs a network once)
#  12. runs at every T x D <= 8 groups of ranks, resumed at every other: LoRA, head, full, and with pictures
#  13. SOAK_FAILURES (200) failures of ranks that are threads or processes of each MPI, each gone on from, by hand and by
#      --restarts, and each kind of failure at each kind of exchange, on the first, a middle and the last rank, and of processes of
#      eval, generate, convert and merge (soak_ranks.sh)
#  14. families of every kind, every method, dtype and T = 1..3 on devices whose memory is not the host's (soak_devices.sh)
#  15. the same on emulated GPUs: one, several, and of the older tensor cores
#  16. with SOAK_REAL=all, or names: models of real size on NF4 bases, and a checkpoint of 35 GB (soak_real.sh)
#  17. transformers with bitsandbytes writes and loads the same quantized folders, and PEFT merges onto them alike (needs a
#      network once)
#  18. a wheel in a virtual environment: its tests, mypy where it is there, and training with it: PEFT and transformers load
#      the results (needs a network once)
#  19. llama.cpp (xllamacpp) gives sheaf's greedy tokens from GGUF files and adapters of every family, and of pictures
#      from towers of MiniCPM-V (needs a network once)
#  20. OpenAI's Python client against sheaf serve, beside sheaf generate (openai_client.py; needs a network once)
#  21. TensorBoard's own reader finds in a run's event files what metrics.jsonl says (tensorboard_read.py; needs a network once)
#  22. a published model, SmolLM2-135M-Instruct: ./run demo-real, and every command once (soak_smollm2.sh; needs a network once)
#  23. where SHEAF_PTXRUN names ptxrun: nvcc's code of the kernels, without a GPU: in every order, every family, bench/gpu.sh but
#      for its times, and without each of its barriers, waits and fences, which something notices (soak_ptx.sh)
#  24. where SHEAF_ARM is the command of another processor (./run test-arm): whole runs there and here (soak_arm.sh)
# SOAK_SECTIONS="3 9" runs only those. Ends with "N passed, N failed".
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 3
export SHEAF_BUILD_ROOT=$PWD/build SHEAF_SOURCE_ROOT=$PWD
. tests/cli/lib.sh
rm -rf "$work"
trap - EXIT
work=$PWD/build/soak # kept, to look into what failed
rm -rf "$work"
mkdir -p "$work"
passed=0
failed=0
pass() { passed=$((passed + 1)); printf 'ok - %s\n' "$1"; }
fail() { # fail NAME DETAIL...
    failed=$((failed + 1))
    printf 'not ok - %s\n' "$1"
    shift
    [ $# -eq 0 ] || printf '%s\n' "$@" | tail -n 30 | sed 's/^/# /'
}

# section N TITLE: is it asked for?
section() {
    [[ " ${SOAK_SECTIONS:-1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23} " == *" $1 "* ]] || return 1
    echo "== $1. $2"
}

# cases NAME LAST COMMAND...: of a program that prints its own, and ends with a line that has LAST. That it ends badly is a
# failure too, where no case says so.
cases() {
    local name=$1 last=$2 log=$work/${1// /-}.log code
    shift 2
    "$@" 2>&1 | tee "$log"
    code=${PIPESTATUS[0]}
    passed=$((passed + $(grep -c '^ok - ' "$log")))
    failed=$((failed + $(grep -c '^not ok - ' "$log")))
    [ "$code" -eq 0 ] || grep -q '^not ok - ' "$log" || fail "$name: exit code $code"
    grep -q "$last" "$log" || fail "$name did not end"
}

# venv NAME PACKAGE...: build/NAME-venv, which is kept, has these packages.
venv() {
    local folder=build/$1-venv
    shift
    { [ -x "$folder/bin/python" ] || python3 -m venv "$folder"; } && "$folder/bin/python" -m pip install --quiet "$@"
}

# train OUT FLAG...: silent; the log stays beside OUT.
train() {
    local out=$1
    shift
    rm -rf "$out"
    "$sheaf" train --out "$out" "$@" >"$out.log" 2>&1 </dev/null
}

# matrix NAME RANKS THREADS FLAG...: all settings give the digest of T = 1, one thread.
matrix() {
    local name=$1 ranks=$2 threads=$3 want="" t n got
    shift 3
    for t in $ranks; do
        for n in $threads; do
            if train "$work/run" "$@" --tp "$t" --threads "$n"; then
                got=$(digest "$work/run")
                want=${want:-$got}
                if [ "$got" = "$want" ]; then pass "$name, T=$t, $n threads"; else fail "$name, T=$t, $n threads: other bytes"; fi
            else
                fail "$name, T=$t, $n threads: $(tail -n 3 "$work/run.log" | tr '\n' ' ')"
            fi
        done
    done
}

data=$golden/llama/tiny_llama/fwd_inputs.safetensors
common=(--data "$data" --micro-batch 1 --accumulate 2 --steps 50 --save-every 25 --lr 3e-3 --seed 11)
lora=(--method lora --lora-rank 5 --lora-alpha 10 --lora-targets all-linear --lora-dropout 0.1)
if section 1 "every rank and thread count"; then
    odd_model "$work/odd" || fail "init of the odd model"
    for model in "$golden/llama/tiny_llama/hf" "$work/odd"; do
        for dtype in float32 bfloat16 float16; do
            name="$(basename "${model%/hf}") $dtype"
            matrix "$name lora" "1 2 3 4 5 6 7 8" "1 2 5" --model "$model" "${common[@]}" "${lora[@]}" --dtype $dtype
            matrix "$name head" "1 2 3 4 5 6 7 8" "1 2 5" --model "$model" "${common[@]}" --method head --dtype $dtype
            matrix "$name full" "1 2 3 4 5 6 7 8" "1 2 5" --model "$model" "${common[@]}" --method full --dtype $dtype
        done
    done
fi

if section 2 "production size"; then
    cat >"$work/large.json" <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000, "hidden_size": 2304,
 "intermediate_size": 6145, "num_hidden_layers": 1, "num_attention_heads": 36, "num_key_value_heads": 2,
 "max_position_embeddings": 4200, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu",
 "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16"}
END
    rm -rf "$work/large"
    if "$sheaf" init "$work/large.json" "$work/large" --seed 6; then
        awk 'BEGIN { x = 1; for (i = 0; i < 2100; i++) { x = (x * 69069 + 12345) % 4294967296; print int(x / 131072) % 32000 } }' >"$work/ids"
        ids=$(tr '\n' ' ' <"$work/ids")
        tokens_file "$work/large.safetensors" 2 1050 "$ids" "$ids"
        for dtype in float32 bfloat16 float16; do
            matrix "hidden 2304, ffn 6145 $dtype" "1 2 3 4 5 6 7 8" "2" --model "$work/large" --data "$work/large.safetensors" --method lora --lora-rank 16 \
                --lora-alpha 32 --lora-targets all-linear --micro-batch 2 --steps 3 --lr 1e-4 --dtype $dtype
            matrix "hidden 2304, ffn 6145 $dtype, thread counts" "1 3" "1 2 5" --model "$work/large" --data "$work/large.safetensors" --method lora --lora-rank 16 \
                --lora-alpha 32 --lora-targets all-linear --micro-batch 2 --steps 3 --lr 1e-4 --dtype $dtype
        done
    else
        fail "init of the model of production size"
    fi
fi

if section 3 "random stops"; then
    # The result of a run: all of OUT, but of the checkpoints only the newest. A run that SIGTERM stops saves
    # one more, at that step, and a killed one may not have removed the oldest: which others are left differs.
    result() (
        cd "$1" 2>/dev/null || exit 1
        newest=$(ls -d checkpoints/step-*[0-9] 2>/dev/null | LC_ALL=C sort | tail -n 1)
        [ -n "$newest" ] && [ -d adapter ] && [ -f best.json ] || exit 1
        { echo "$newest"
          find adapter best.json "$newest" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
          same_metrics metrics.jsonl; } | sha256sum | cut -d' ' -f1
    )
    trials=${SOAK_TRIALS:-100}
    stopped=(--model "$golden/llama/tiny_llama/hf" --data "$data" --micro-batch 1 --accumulate 2 --steps 60 --save-every 3 --keep 3 --lr 3e-3 --seed 12 --schedule cosine "${lora[@]}"
        --eval-data "$data" --eval-every 4 --label-smoothing 0.1 --neftune-alpha 5)
    begin=$(date +%s%N)
    train "$work/unbroken" "${stopped[@]}" --tp 1 --threads 2 || fail "the unbroken run: $(tail -n 3 "$work/unbroken.log")"
    run_ms=$((($(date +%s%N) - begin) / 1000000))
    want=$(result "$work/unbroken")
    RANDOM=4711
    for trial in $(seq "$trials"); do
        out=$work/stopped
        rm -rf "$out"
        path=""
        resume=""
        for attempt in $(seq 40); do
            t=$((1 + RANDOM % 8))
            [ ! -d "$out/checkpoints" ] || resume=--resume
            ls -d "$out"/checkpoints/step-*[0-9] >/dev/null 2>&1 || { resume=""; rm -rf "$out"; }
            # shellcheck disable=SC2086
            "$sheaf" train --out "$out" "${stopped[@]}" --tp $t --threads $((1 + RANDOM % 3)) $resume >"$out.log" 2>&1 </dev/null &
            pid=$!
            path="$path T=$t"
            if [ "$attempt" -lt 5 ]; then
                sleep "$(awk -v m="$run_ms" -v r=$RANDOM 'BEGIN { printf "%.3f", m / 1000 * r / 32768 }')"
                if [ $((RANDOM % 2)) -eq 0 ]; then kill -KILL $pid 2>/dev/null; else kill -TERM $pid 2>/dev/null; fi
            fi
            wait $pid 2>/dev/null
            [ ! -d "$out/adapter" ] || break
        done
        if [ -n "$want" ] && [ "$(result "$out")" = "$want" ]; then
            pass "trial $trial:$path"
        else
            fail "trial $trial:$path: other bytes; kept as $work/failed-$trial"
            mv "$out" "$work/failed-$trial"
            cp "$out.log" "$work/failed-$trial.log"
        fi
    done
fi

if section 4 "the long form of the C tests"; then
    rm -f build/meson-logs/testlog.txt # of another run
    SHEAF_SOAK=1 CMOCKA_MESSAGE_OUTPUT=TAP meson test -C build --no-rebuild --suite unit --no-suite lost --timeout-multiplier 20 >"$work/unit.log" 2>&1 </dev/null
    result=$(awk -f tests/count_cases.awk build/meson-logs/testlog.txt)
    printf '%s\n' "$result" | grep -v '^total '
    read -r p f <<<"$(printf '%s\n' "$result" | sed -n 's/^total //p')"
    passed=$((passed + p))
    failed=$((failed + f))
    [ $((p + f)) -gt 0 ] || fail "no C test ran" "$(cat "$work/unit.log")"
fi

if [ "${SOAK_LIVE:-1}" = 1 ] && section 5 "transformers and PEFT read what sheaf wrote"; then
    if (. bench/rivals.sh); then
        python=(build/bench-venv/bin/python -B)
        cases "the comparison with transformers and PEFT" '^ok - ' \
            "${python[@]}" bench/parity_live.py --sheaf "$sheaf" --golden "$golden" --work "$work/live"
        cases "the comparison of CogVLM" ' compared, ' \
            "${python[@]}" bench/cog_parity.py --sheaf "$sheaf" --golden "$golden" --work "$work/live-cog"
        cases "the comparison of families" ' compared, ' "${python[@]}" bench/families_live.py --sheaf "$sheaf" --work "$work/live-families"
        cases "the comparison of ties" ' architectures compared, ' "${python[@]}" bench/ties_live.py --table src/checkpoint/merge/ties.c
        compared=0
        while read -r name loss norm && read -r -u 8 _ was were; do
            compared=$((compared + 1))
            check "$name: loss of transformers" near "$loss" "$was" 1e-5
            check "$name: norm of its gradients" near "$norm" "$were" 1e-4
        done < <("${python[@]}" tests/data/regularize/record.py "$golden/llama/tiny_llama/hf" "$golden/llama/tiny_llama/fwd_inputs.safetensors") 8<tests/data/regularize/steps
        [ $compared -eq 4 ] || fail "transformers has $compared of the 4 losses"
        cases "the comparison in float16" 'tiny_llama3rope in float16, overflows: ' "${python[@]}" tests/float16_live.py "$sheaf" "$golden" "$work"
        mkdir -p "$work/live-text"
        if (cd "$work/live-text" && "$PWD/../../bench-venv/bin/python" "$SHEAF_SOURCE_ROOT/tests/data/text/make_text.py" $RANDOM 400) >"$work/live-text.log" 2>&1 &&
            SHEAF_TEXT_CASES=$work/live-text build/data_data_text_test >>"$work/live-text.log" 2>&1; then
            pass "ids and labels of random texts are those of transformers"
        else
            fail "ids and labels of random texts: $work/live-text.log"
        fi
        # Chat templates: random programs through Jinja, and published ones on random conversations.
        for seed in 1 2 3; do
            if "${python[@]}" tests/data/templates/record_jinja.py "$work/jinja.json" 20000 $seed >"$work/jinja.log" 2>&1 &&
                SHEAF_JINJA_CASES=$work/jinja.json build/inputs_jinja_test >>"$work/jinja.log" 2>&1; then pass "20000 random templates as Jinja has them ($seed)"; else
                fail "random templates ($seed): see $work/jinja.log"; fi
        done
        cases "the comparison of templates" '^ok - ' \
            "${python[@]}" tests/data/templates/live.py --sheaf "$sheaf" --work "$work/templates"
        cases "the comparison of added tokens" ' comparisons of added tokens' \
            "${python[@]}" tests/add_tokens_live.py "$sheaf" "$SHEAF_SOURCE_ROOT/tests/data/gguf/tiny_qwen2/hf" "$work/live-tokens"
    else
        fail "transformers and PEFT are not there"
    fi
fi

if section 6 "what the planner predicts"; then
    cases "the planner's predictions" '^ok - ' bash tests/soak_plan.sh
    for name in plan offload kept preference rewards few another_model browser namings; do
        cases "and all of cli/$name" '^ok - ' env SHEAF_SOAK=1 bash tests/cli/$name.sh
    done
fi

if section 7 "nothing is lost"; then
    # lost NAME LEAST: the test passes, and says that it tried at least so much.
    lost() {
        local tried
        if SHEAF_SOAK=1 "build/faults_${1}_test" >"$work/$1.log" 2>&1 </dev/null; then
            tried=$(sed -n 's/^# \([0-9]*\) .*/\1/p' "$work/$1.log" | head -n 1)
            if [ "${tried:-0}" -ge "$2" ]; then pass "faults/$1: $(sed -n 's/^# //p' "$work/$1.log")"; else fail "faults/$1: ${tried:-0} tried, $2 wanted"; fi
        else
            fail "faults/$1: $(grep 'ERROR: ' "$work/$1.log" | head -n 1)"
        fi
    }
    lost damage 1000000
    lost crash 100000
    lost train 1500
fi

if section 8 "a small CogAgent"; then
    if bash demo/vlm.sh --agent --json >"$work/agent.json" 2>"$work/agent.log"; then
        pass "a small CogAgent reads: $(cat "$work/agent.json")"
    else
        fail "a small CogAgent: $(tail -n 3 "$work/agent.log" | tr '\n' ' ')"
    fi
fi

if section 9 "CogVLM and CogAgent every way"; then
    . tests/soak_cog.sh
fi

if section 10 "small mistakes are noticed"; then
    cases "the list of mistakes" '^[0-9]* killed, ' bash tests/mutants.sh
    cases "mistakes by rule" '^[0-9]* killed, ' python3 -B tests/mutate.py --sample "${SOAK_MUTANTS:-100}" --least 70
fi

if [ "${SOAK_LIVE:-1}" = 1 ] && section 11 "tokenizers"; then
    if (. bench/rivals.sh); then
        cases "the comparison of tokenizers" ' bytes compared$' \
            build/bench-venv/bin/python -B bench/tokenizers_live.py --sheaf "$sheaf" --work "$work/tokenizers"
    else
        fail "transformers and PEFT are not there"
    fi
fi

if section 12 "every number of ranks and groups, and a resume at every other"; then
    odd_model "$work/odd" || fail "init of the odd model"
    "$sheaf" init cogvlm-tiny "$work/seeing" --seed 4 >/dev/null 2>&1 || fail "init of a model with images"
    mkdir -p "$work/caps"
    for p in rgb8.png turned6.jpg lossy.webp cmyk.jpg grey16.png; do cp "tests/data/images/$p" "$work/caps/${#p}${p##*.}.${p##*.}"; done
    grids=() # T x D <= 8
    for t in 1 2 3 4 5 6 7 8; do for d in 1 2 4 8; do [ $((t * d)) -gt 8 ] || grids+=("$t $d"); done; done
    while read -r name flags; do
        # shellcheck disable=SC2086
        train "$work/whole" $flags --steps 4 --save-every 2 || fail "$name: $(tail -n 3 "$work/whole.log")"
        want=$(digest "$work/whole")
        for from in "${grids[@]}"; do
            read -r t d <<<"$from"
            # shellcheck disable=SC2086
            train "$work/half" $flags --steps 2 --save-every 2 --tp "$t" --dp "$d" || fail "$name, $from: $(tail -n 3 "$work/half.log")"
            for to in "${grids[@]}"; do
                read -r t d <<<"$to"
                rm -rf "$work/run"
                cp -r "$work/half" "$work/run"
                if "$sheaf" train --resume --out "$work/run" --steps 4 --tp "$t" --dp "$d" >"$work/run.log" 2>&1 </dev/null && [ "$(digest "$work/run")" = "$want" ]; then
                    pass "$name, $from then $to"
                else
                    fail "$name, $from then $to: $(tail -n 3 "$work/run.log" | tr '\n' ' ')"
                fi
            done
        done
    done <<END
lora --model $work/odd --data $data --micro-batch 1 --accumulate 8 --accumulators 8 --lr 3e-3 --schedule constant --seed 11 ${lora[*]} --neftune-alpha 5
head --model $work/odd --data $data --micro-batch 1 --accumulate 9 --accumulators 8 --lr 3e-3 --schedule constant --seed 11 --method head --dtype bfloat16
full --model $work/odd --data $data --micro-batch 1 --accumulate 5 --accumulators 8 --lr 3e-3 --schedule constant --seed 11 --method full
full-bfloat16 --model $golden/llama/tiny_llama/hf --data $data --micro-batch 1 --accumulate 8 --accumulators 8 --lr 3e-3 --schedule constant --seed 11 --method full --dtype bfloat16
pictures --model $work/seeing --data $work/caps --micro-batch 2 --accumulate 8 --accumulators 8 --lr 1e-3 --schedule constant --seed 3 --lora-rank 2 --lora-targets all-linear
pictures-full --model $work/seeing --data $work/caps --micro-batch 2 --accumulate 8 --accumulators 8 --lr 1e-3 --schedule constant --seed 3 --method full
END
fi

if section 13 "failures of ranks"; then
    . tests/soak_ranks.sh
fi

if section 14 "devices whose memory is not the host's"; then
    . tests/soak_devices.sh
fi

if [ -n "${SHEAF_ARM:-}" ] && section 24 "AArch64"; then
    . tests/soak_arm.sh
fi

if section 15 "emulated GPUs"; then
    for SHEAF_EMULATED_GPU in 9.0,9.0 8.6; do
        export SHEAF_EMULATED_GPU
        SHEAF_DEVICES=cuda
        . tests/soak_devices.sh
    done
    unset SHEAF_EMULATED_GPU
fi

if [ -n "${SOAK_REAL:-}" ] && section 16 "models of real size"; then
    . tests/soak_real.sh
fi

if [ "${SOAK_LIVE:-1}" = 1 ] && section 17 "transformers and bitsandbytes beside sheaf"; then
    if (. bench/rivals.sh && { "$rivals_python" -c 'import bitsandbytes' 2>/dev/null || "$rivals_python" -m pip install --quiet bitsandbytes==0.50.2; }); then
        cases "the comparison with bitsandbytes" ' quantized models compared, ' \
            build/bench-venv/bin/python -B bench/quant_live.py --sheaf "$sheaf" --work "$work/live-quant"
    else
        fail "transformers, PEFT and bitsandbytes are not there"
    fi
fi

if [ "${SOAK_LIVE:-1}" = 1 ] && section 18 "a wheel in a virtual environment"; then
    wheel=$(python3 packaging/wheel.py . build "$work/wheel") && python3 -m venv "$work/venv" &&
        "$work/venv/bin/pip" install --quiet --no-index "$wheel" || fail "the wheel is installed"
    check "its command runs" "$work/venv/bin/sheaf" --version
    check "its tests pass" "$work/venv/bin/python" -m unittest discover -s python/tests
    ! command -v mypy >/dev/null || check "mypy accepts its types" mypy --strict python/sheaf
    if (. bench/rivals.sh); then
        cases "training from Python" '"tokens"' env PYTHONPATH="$(echo "$work"/venv/lib/python3*/site-packages)" \
            build/bench-venv/bin/python -B python/tests/live.py "$golden/llama/tiny_llama/hf" "$work/live-python"
    else
        fail "transformers and PEFT are not there"
    fi
fi

if [ "${SOAK_LIVE:-1}" = 1 ] && section 19 "llama.cpp beside sheaf"; then
    if venv llamacpp xllamacpp==2026.10.11549; then
        cases "the comparison with llama.cpp" ' comparisons, ' \
            build/llamacpp-venv/bin/python -B bench/gguf_live.py --sheaf "$sheaf" --work "$work/live-gguf"
    else
        fail "xllamacpp is not there"
    fi
fi

if [ "${SOAK_LIVE:-1}" = 1 ] && section 20 "OpenAI's client against sheaf serve"; then
    if venv openai openai==3.57.0; then
        "$sheaf" init tiny-bytes "$work/bytes" --seed 11 >/dev/null
        printf '{"text": "some words to learn from"}\n{"text": "and other ones"}\n' >"$work/learn.jsonl"
        train "$work/learned" --model "$work/bytes" --data "$work/learn.jsonl" --steps 3 --lr 0.05 --lora-rank 2 --lora-alpha 64
        cases "the openai client" ' cases of the openai client ' \
            build/openai-venv/bin/python -B tests/openai_client.py "$sheaf" "$work/bytes" "$work/learned/adapter" "$work"
    else
        fail "the openai client is not there"
    fi
fi

if [ "${SOAK_LIVE:-1}" = 1 ] && section 21 "TensorBoard reads the events of runs"; then
    if venv tensorboard tensorboard==2.21.0 'setuptools<80'; then
        begin=(--model "$llama/tiny_llama/hf" --data "$llama/tiny_llama/fwd_inputs.safetensors" --eval-data "$llama/tiny_llama/fwd_inputs.safetensors" --eval-every 3 --save-every 7 --steps 200 --tensorboard "$work/board")
        "$sheaf" train --out "$work/boarded" "${begin[@]}" >"$work/boarded.log" 2>&1 </dev/null &
        process=$!
        waits eval "grep -q '\"step\": 12, \"loss\"' '$work/boarded/metrics.jsonl' 2>/dev/null"
        kill -KILL $process
        wait $process
        check "a killed run goes on" "$sheaf" train --resume --out "$work/boarded"
        cases "TensorBoard's reader" "^tags of TensorBoard's reader: 7" \
            build/tensorboard-venv/bin/python -B tests/tensorboard_read.py "$work/board" "$work/boarded/metrics.jsonl"
    else
        fail "the tensorboard package is not there"
    fi
fi

if [ "${SOAK_LIVE:-1}" = 1 ] && section 22 "a published model"; then
    . tests/soak_smollm2.sh
fi

if [ -n "${SHEAF_PTXRUN:-}" ] && section 23 "nvcc's code of the kernels"; then
    . tests/soak_ptx.sh
fi

printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
