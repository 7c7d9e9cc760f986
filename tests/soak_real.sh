# soak_real.sh - section 16 of soak.sh, which sources it where SOAK_REAL is set ("all", or names of models): models of real size
# on NF4 bases with random weights, and a checkpoint of tens of gigabytes. Hours on two cores of a machine of 24 GiB; the disk
# is looked at first. The table in $real has a line for each part, seconds and peak, as docs/real-sizes.md.

real=$work/real
. tests/plan_peak.sh
base=$(peak_of version)
gib() { awk -v n="$1" 'BEGIN { printf "%.2f", n / 1073741824 }'; }
row() { printf '| %s | %s | %s | %s |\n' "$@" | tee -a "$real/table.md"; }

# chosen NAME: does SOAK_REAL ask for it?
known=" all "
chosen() {
    known+="$1 "
    [[ " $SOAK_REAL " == *" all "* || " $SOAK_REAL " == *" $1 "* ]]
}

# space GB: is there so much on the disk?
space() {
    [ "$(df --output=avail -B 1000000000 "$work" | tail -n 1)" -ge "$1" ] && return
    fail "$name: no $1 GB on the disk"
    return 1
}

# timed PART ARGUMENT...: runs the command and writes its line; $peak: the most memory it had, in bytes.
timed() {
    local part=$1 begin=$SECONDS
    shift
    if peak=$(peak_of "$@" 2>"$real/log" </dev/null); then
        row "$name" "$part" "$((SECONDS - begin)) s" "$(gib "$peak") GiB"
    else
        fail "$name: $part: $(tail -n 4 "$real/log" | tr '\r\n' '  ')"
        return 1
    fi
}

# planned FLAG...: is the plan of these flags what the run before took?
planned() {
    local plan
    plan=$("$sheaf" plan "$@" --json 2>/dev/null | grep -oE '"peak":[0-9]+' | tail -n 1 | cut -d: -f2)
    row "$name" planned "" "$(gib "${plan:-0}") GiB"
    check "$name: planned as it is" awk -v p="${plan:-0}" -v r="$peak" -v b="$base" 'BEGIN { u = r - b; exit !(p + 2097152 >= u && p <= 1.05 * u + 1048576) }'
}

# real_model NAME CONFIG GB MERGED_GB LAYER DATA FLAG...: with a byte tokenizer, so that texts need no file of their own;
# $look: the flags of a picture, where the model has one. Two ranks keep less for backward, which changes no byte: CogVLM's would
# need 22.9 GiB.
real_model() {
    local name=$1 config=$2 gb=$3 merged=$4 layer=$5 data=$6 run=$real/run flags
    shift 6
    chosen "$name" && space $((gb + 3)) || return 0
    rm -rf "$real/base" "$run" "$run.2" "$real/merged"
    sed -e '0,/{/s//{"sheaf_tokenizer": "bytes",'"$ids"'/' -e 's/"bos_token_id": 151643/"bos_token_id": 256/' -e 's/"eos_token_id": 151645/"eos_token_id": 257/' \
        "$config" >"$real/$name.json"
    flags=(--model "$real/base" --data "$data" --lora-rank 16 --lora-targets all-linear --micro-batch 1 --dtype bfloat16 --threads 2 --seed 1 "$@")
    timed init init "$real/$name.json" "$real/base" --quantize nf4 --dtype bfloat16 &&
        timed verify verify "$real/base" &&
        timed "three steps" train "${flags[@]}" --out "$run" --steps 3 --save-every 2 --keep 9 &&
        planned "${flags[@]}" &&
        cp -r "$run" "$run.2" && rm -rf "$run.2/adapter" "$run.2/checkpoints/step-00000003" &&
        timed "step 3 again, T = 2" train "${flags[@]}" --checkpointing --out "$run.2" --steps 3 --save-every 2 --keep 9 --resume --tp 2 &&
        check "$name: the adapter of the unbroken run" cmp "$run/adapter/adapter_model.safetensors" "$run.2/adapter/adapter_model.safetensors" &&
        timed "16 tokens" generate "$real/base" --adapter "$run/adapter" --prompt "What is the number?" "${look[@]}" --max-new 16 --greedy --dtype bfloat16 &&
        space $((merged + 3)) &&
        timed merge merge "$real/base" "$run/adapter" "$real/merged" &&
        check "$name: merged as PEFT does it" build/bench-venv/bin/python -B tests/merged_range.py "$real/base" "$run/adapter" "$real/merged" "$layer"
    rm -rf "$real/base" "$real/merged" "$run.2"
}

# large_checkpoint: 35 GB there and back, as eight parts of SAT; no command may have more than 64 MiB. What is only read
# consists mostly of holes, so that one copy of 35 GB at a time takes space.
large_checkpoint() {
    local name=large config=$configs/cogvlm-chat-hf.json
    chosen $name && space 42 || return 0
    few() { check "$name: $1 within 64 MiB" [ "$peak" -le 67108864 ]; }
    sed 's/"num_hidden_layers": [0-9]*/"num_hidden_layers": 1/' "$config" >"$real/one.json"
    "$sheaf" init "$real/one.json" "$real/one" --dtype bfloat16 2>"$real/log" &&
        python3 -B tests/sparse_model.py "$real/one" "$config" "$real/whole" || fail "$name: the model"
    rm -rf "$real/one"
    timed "to 8 parts" convert "$real/whole" "$real/parts" --to sat --tp 8 && few "to 8 parts" &&
        timed verify verify "$real/parts" && few verify &&
        find "$real/parts" -name '*.pt' -exec fallocate --dig-holes {} \; &&
        timed back convert "$real/parts" "$real/again" --to hf && few back &&
        check "$name: there and back" cmp "$real/whole/model.safetensors" "$real/again/model.safetensors"
    rm -rf "$real/whole" "$real/parts" "$real/again"
}

(. bench/rivals.sh) || fail "numpy is not there"
rm -rf "$real"
mkdir -p "$real"
"$SHEAF_BUILD_ROOT/examples/captcha" day "$real/day" 8 1 >/dev/null
find "$real/day/train" -type f | sort | awk -v ask='What is the number?' -f demo/pairs.awk >"$real/pairs.json"
make_tokens "$real/text.jsonl" 8 254
configs=$SHEAF_SOURCE_ROOT/tests/data/configs
ids= look=()
real_model llama-2-7b "$configs/llama-2-7b.json" 5 14 0 "$real/text.jsonl" --seq 256
look=(--image "$(find "$real/day/train" -name '*.jpg' | sort | head -n 1)")
ids=' "pad_token_id": 258, "im_start_token": 259, "im_end_token": 260, "slice_start_token": 261, "slice_end_token": 262, "unk_token": 263, "im_id_start_token": 264, "im_id_end_token": 265,'
real_model minicpmv-2.6 "$configs/minicpmv-2.6.json" 7 17 0 "$real/pairs.json"
ids=
real_model cogvlm-490 "$configs/cogvlm-490.json" 11 36 0 "$real/day/train"
real_model cogagent-1120 "$configs/cogagent-1120.json" 12 37 0 "$real/day/train"
large_checkpoint
for name in $SOAK_REAL; do
    [[ $known == *" $name "* ]] || fail "SOAK_REAL has '$name'; there are$known"
done
