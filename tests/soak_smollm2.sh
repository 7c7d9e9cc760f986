# soak_smollm2.sh - section 22 of soak.sh, which sources it: a published model (demo/real.sh fetches it), every command once.
check "demo-real" bash demo/real.sh
smol=build/demo-real/smollm2.gguf
few=$work/smollm2
mkdir -p "$few"
head -n 24 demo/pirate/train.jsonl >"$few/train.jsonl"
how=(train "$smol" "$few/train.jsonl" --lora-targets all-linear --lora-rank 4 --micro-batch 4 --seq 256 --schedule constant --lr 1e-3 --sums tiles --dtype bfloat16)
# learnt NAME WANTED FLAG...: a run, whose adapter is that of the run WANTED.
learnt() {
    local name=$1 wanted=$2
    shift 2
    check "SmolLM2: $name" "$sheaf" "${how[@]}" --steps 4 --out "$few/$name" "$@"
    check "SmolLM2: $name, the bytes of $wanted" cmp "$few/$name/adapter/adapter_model.safetensors" "$few/$wanted/adapter/adapter_model.safetensors"
}
learnt one one
for tp in 2 3; do learnt "tp$tp" one --tp $tp --threads $((4 - tp)); done
learnt nf4 nf4 --quantize nf4
learnt nf4-tp3 nf4 --quantize nf4 --tp 3
learnt packed packed --pack
learnt packed-tp2 packed --pack --tp 2
check "SmolLM2: two steps" "$sheaf" "${how[@]}" --out "$few/resumed" --steps 2
learnt resumed one --resume --tp 2
sed 's/}$/, "rejected_response": "I cannot say."}/' "$few/train.jsonl" >"$few/pairs.jsonl"
answers=("${how[@]}")
how=(train "$smol" "$few/pairs.jsonl" --objective dpo --lora-targets all-linear --lora-rank 4 --micro-batch 4 --seq 256 --schedule constant --lr 1e-3 --sums tiles --dtype bfloat16)
learnt dpo dpo
learnt dpo-tp3 dpo --tp 3
check "SmolLM2: pairs are told apart" awk -F'"rewards/margins": ' 'END { exit !($2 + 0 > 0.1) }' "$few/dpo/metrics.jsonl"
how=("${answers[@]}")
adapter=$few/one/adapter
printf 'Hello?\nWho are you?\n' >"$few/said"
# alike NAME COMMAND...: prints the same on 1 and 3 ranks.
alike() {
    local name=$1
    shift
    "$sheaf" "$@" --tp 1 >"$few/at1" 2>"$few/log" <"$few/said" && "$sheaf" "$@" --tp 3 >"$few/at3" 2>>"$few/log" <"$few/said" || fail "SmolLM2: $name" "$(tail -n 3 "$few/log")"
    check "SmolLM2: $name, on 1 and 3 ranks" cmp "$few/at1" "$few/at3"
}
answers=(--data demo/pirate/heldout.jsonl --max-new 24 --greedy --logprobs 2 --json --sums tiles --dtype bfloat16)
alike "loss" eval "$smol" demo/pirate/heldout.jsonl --adapter "$adapter" --sums tiles --dtype bfloat16 --json
alike "answers" generate "$smol" --adapter "$adapter" "${answers[@]}"
alike "a sampled one" generate "$smol" --prompt 'Why does ice float?' --seed 5 --max-new 16 --sums tiles --dtype bfloat16
alike "a conversation" chat "$smol" --adapter "$adapter" --greedy --max-new 16 --sums tiles --dtype bfloat16
check "SmolLM2: to Hugging Face" "$sheaf" convert "$smol" "$few/hf" --to hf --dtype bfloat16
check "SmolLM2: verified" "$sheaf" verify "$few/hf"
check "SmolLM2: and back" "$sheaf" convert "$few/hf" "$few/back.gguf" --to gguf
check "SmolLM2: there and back is the same" "$sheaf" diff "$few/hf" "$few/back.gguf"
for form in q8_0 q4_k_m; do
    check "SmolLM2: $form" "$sheaf" convert "$few/hf" "$few/$form.gguf" --to gguf --dtype $form --modelfile
    check "SmolLM2: $form answers" "$sheaf" generate "$few/$form.gguf" --prompt 'Hello?' --max-new 8 --greedy
    rm -f "$few/Modelfile"
done
check "SmolLM2: in NF4" "$sheaf" convert "$few/hf" "$few/four" --to hf --quantize nf4
check "SmolLM2: merged onto the plain base" "$sheaf" merge "$smol" "$few/nf4/adapter" "$few/nf4-merged" --plain-base
check "SmolLM2: a step from NF4's file" "$sheaf" "${how[@]/$smol/$few/four}" --out "$few/from-four" --steps 1
check "SmolLM2: tokens" bash -c "printf 'Why does ice float?' | '$sheaf' tokenize --tokenizer '$few/hf' -"
check "SmolLM2: rendered" "$sheaf" render --tokenizer "$few/hf" "$few/train.jsonl"
check "SmolLM2: planned" "$sheaf" plan "${how[@]:1}" --memory 4G
check "SmolLM2: reported" "$sheaf" report "$few/one" --out "$few/page.html"
check "SmolLM2: info" "$sheaf" info "$few/one"
