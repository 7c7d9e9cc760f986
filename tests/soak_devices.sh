# soak_devices.sh - a section of soak.sh, which sources it: families of every kind on devices whose memory is not the host's, or
# on those that $SHEAF_DEVICES names, by every method, at T = 1, 2, 3, in all dtypes and orders, with packing, dropout, checkpointing and
# noise; resumes, evaluations, answers. SOAK_FAMILIES="qwen3 packed" runs only those.
#
# Uses $golden, $work, $sheaf, odd_model(), pass() and fail().
. tests/devices/compare.sh
check() { # as in cli/lib.sh, in this script's words
    local name=$1
    shift
    if "$@" >"$work/check.log" 2>&1; then pass "$name"; else fail "$name: $(head -n 3 "$work/check.log" | tr '\n' ' ')"; fi
}

families=$SHEAF_SOURCE_ROOT/tests/data/families
odd_model "$work/odd" || fail "init of the odd model"
for name in adam7_rgb8.png rgb8.png 420.jpg; do cp "$SHEAF_SOURCE_ROOT/tests/data/images/$name" "$work/"; done
cat >"$work/talks.json" <<'END'
[{"id": "0", "image": "rgb8.png", "conversations": [{"role": "user", "content": "<image>\nWhat?"}, {"role": "assistant", "content": "Noise."}]},
 {"id": "1", "image": "adam7_rgb8.png", "conversations": [{"role": "user", "content": "<image>\nWhich?"}, {"role": "assistant", "content": "Two of them."}]},
 {"id": "2", "image": "420.jpg", "conversations": [{"role": "user", "content": "<image>\nAnd?"}, {"role": "assistant", "content": "No."}]}]
END
for i in 1 2 3 4 5 6 7; do printf '{"prompt": "%s", "completion": "%s"}\n' "${i}23" "${i}${i}${i}${i}"; done >"$work/lines.jsonl"
for n in 5,6,7 8 9,10 11,12,13,14 15,16 17 18,19; do echo "{\"tokens\": [$n]}"; done >"$work/prompts.jsonl"
rm -rf "$work/bytes" "$work"/*.model # of another round
"$sheaf" init tiny-bytes "$work/bytes" --seed 2 >/dev/null 2>&1 || fail "init tiny-bytes"

# in_order DTYPE N: sets `order` to flags that name an order of sums, one after the other; nothing where the type has one.
# Without a name each device would take its own.
in_order() {
    local orders=() own=mma16
    [[ ${SHEAF_EMULATED_GPU:-} != 8.* ]] || own=mma8
    case $1 in bfloat16) orders=($own pairs tiles $own) ;; float16) orders=($own pairs) ;; esac
    [ ${#orders[@]} = 0 ] && order= || order="--sums ${orders[$2 % ${#orders[@]}]}"
}
# wanted NAME: is it asked for?
wanted() { [[ -z ${SOAK_FAMILIES:-} || " $SOAK_FAMILIES " == *" $1 "* ]]; }

# family NAME MODEL DATA TARGETS: every method, dtype and T; then what was trained goes on, is judged and answers.
family() {
    local name=$1 model=$2 data=$3 targets=$4 tp dtype n=0 extra order
    wanted "$name" || return 0
    local run=(--model "$model" --data "$data" --steps 2 --save-every 2 --micro-batch 2 --threads 2 --lr 1e-2)
    local extras=("" --checkpointing "--neftune-alpha 5" "--label-smoothing 0.1 --accumulate 3")
    for dtype in float32 bfloat16 float16; do
        for tp in 1 2 3; do
            extra=${extras[n++ % 4]}
            in_order $dtype $n
            # shellcheck disable=SC2086
            trains "$name-lora-$dtype-$tp" "${run[@]}" --lora-rank 3 --lora-targets "$targets" --lora-dropout 0.2 --dtype $dtype --tp $tp $order $extra
            in_order $dtype $((n + 1))
            # shellcheck disable=SC2086
            trains "$name-full-$dtype-$tp" "${run[@]}" --method full --dtype $dtype --tp $tp $order $extra
            in_order $dtype $((n + 2))
            # shellcheck disable=SC2086
            trains "$name-head-$dtype-$tp" "${run[@]}" --method head --dtype $dtype --tp $tp $order $extra
        done
        resumes "$name-lora-$dtype-2" --steps 4 --tp 3
        resumes "$name-full-$dtype-3" --steps 4 --tp 1
        # shellcheck disable=SC2086
        says "$name, eval, $dtype" eval --model "$work/$name-lora-$dtype-1.cpu" --data "$data" --dtype $dtype --tp 2 $order --json
        rm -rf "$work/$name"-*-"$dtype"-*
    done
}

family llama "$golden/llama/tiny_llama/hf" "$golden/llama/tiny_llama/fwd_inputs.safetensors" embed_tokens,q_proj,up_proj,lm_head
family odd "$work/odd" "$golden/llama/tiny_llama/fwd_inputs.safetensors" all-linear
for f in qwen3 smollm3 olmo2 phi3 mixtral gemma2 gemma3; do
    case $f in mixtral) plan=most ;; *) plan=exact ;; esac
    family $f "$families/$f/hf" "$families/$f/fwd_inputs.safetensors" "$([ $f = mixtral ] && echo q_proj,v_proj || echo all-linear)"
    wanted $f || continue
    for dtype in float32 bfloat16 float16; do
        in_order $dtype 0
        # shellcheck disable=SC2086
        says "$f, answers, $dtype" generate --model "$families/$f/hf" --tokens 3,4,5,6 --max-new 12 --greedy --tp 3 --dtype $dtype $order --json
        # shellcheck disable=SC2086
        says "$f, by stages, $dtype" generate --model "$families/$f/hf" --tokens 3,4,5,6 --max-new 8 --seed 4 --place 2 --logprobs 2 --dtype $dtype $order --json
        # shellcheck disable=SC2086
        says "$f, prompts, $dtype" generate --model "$families/$f/hf" --data "$work/prompts.jsonl" --batch 3 --max-new 8 --temperature 0.9 --dp 2 --logprobs 2 --dtype $dtype $order --json
    done
done
plan=exact
for dtype in float32 bfloat16 float16; do
    wanted packed || continue
    for tp in 1 2 3; do
        in_order $dtype $tp
        # shellcheck disable=SC2086
        trains "packed-$dtype-$tp" --model "$work/bytes" --data "$work/lines.jsonl" --pack --seq 32 --steps 3 --micro-batch 2 --threads 2 --lr 1e-2 \
            --lora-targets all-linear --lora-dropout 0.2 --neftune-alpha 5 --dtype $dtype --tp $tp $order
    done
    in_order $dtype 0
    # shellcheck disable=SC2086
    trains "groups-$dtype" --model "$work/bytes" --data "$work/lines.jsonl" --steps 3 --micro-batch 1 --accumulate 4 --accumulators 4 --threads 4 --lr 1e-2 \
        --method full --dtype $dtype --tp 2 --dp 2 $order
    for tp in 5 8; do
        # shellcheck disable=SC2086
        trains "many-$dtype-$tp" --model "$golden/llama/tiny_llama/hf" --data "$golden/llama/tiny_llama/fwd_inputs.safetensors" --steps 2 --save-every 2 --micro-batch 2 \
            --threads 8 --lr 1e-2 --lora-targets all-linear --lora-dropout 0.2 --dtype $dtype --tp $tp $order
    done
done
answers() {
    local f=$1 dtype=$2 n=$3 order tp
    in_order "$dtype" "$n"
    for tp in 1 2 3; do
        # shellcheck disable=SC2086
        says "$f, a picture, $dtype, T=$tp" generate --model "$work/$f.model" --prompt "Which?" --image "$work/rgb8.png" --max-new 6 --greedy --tp $tp --dtype "$dtype" $order --json
    done
    # shellcheck disable=SC2086
    says "$f, prompts, $dtype" generate --model "$work/$f.model" --data "$work/talks.json" --batch 2 --max-new 6 --greedy --tp 2 --dtype "$dtype" $order --json
    # shellcheck disable=SC2086
    says "$f, drawn, by stages, $dtype" generate --model "$work/$f.model" --prompt "Which?" --image "$work/rgb8.png" --max-new 6 --seed 3 --place 1 --dtype "$dtype" $order --json
    printf 'What?\n/image %s\nNow?\n' "$work/rgb8.png" >"$work/questions"
    # shellcheck disable=SC2086
    case $f in cog*) ;; *) chats "$f, a conversation, $dtype" "$work/questions" --model "$work/$f.model" --max-new 6 --greedy --tp 2 --dtype "$dtype" $order ;; esac
}
for f in cogvlm-tiny cogagent-tiny cogvlm2-tiny glm4v-tiny omnilmm-tiny minicpmv-tiny minicpmv-2.5-tiny minicpmv-2.0-tiny minicpmv-4.5-tiny; do
    wanted $f || continue
    "$sheaf" init $f "$work/$f.model" --seed 1 >/dev/null 2>&1 || fail "init $f"
    case $f in cogvlm-* | cogagent-*) plan=exact apart=0.01 ;; *) plan=most apart=0 ;; esac # CogAgent with LoRA: 0.0033 above
    family $f "$work/$f.model" "$work/talks.json" all-linear
    n=0
    for dtype in float32 bfloat16 float16; do answers $f $dtype $((n++)); done
done
