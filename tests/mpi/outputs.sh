#!/usr/bin/env bash
# convert and merge on several processes write the bytes of one, and report the same; one that fails ends all and leaves
# nothing.
#
#   outputs.sh MPI
. "$(dirname "$0")/lib.sh"

odd_model "$work/odd" || fail "init of the odd model"
data=$llama/tiny_llama/fwd_inputs.safetensors
check "a run" "$sheaf" train --model "$work/odd" --data "$data" --micro-batch 1 --accumulate 1 --steps 1 --lr 0.1 --lora-rank 3 --lora-targets all-linear --out "$work/run"
alike() { # alike NAME OUTPUT COMMAND...: by one process into $work/one, by three into $work/three; "OUTPUT" stands for it
    local name=$1 word
    local -a one=() three=()
    shift
    rm -rf "$work/one" "$work/three"
    for word in "$@"; do one+=("${word/#OUTPUT/$work/one}") three+=("${word/#OUTPUT/$work/three}"); done
    "$sheaf" "${one[@]}" --json 2>"$work/stderr" | sed 's/, "seconds".*//; s#/one"#/"#' >"$work/told.one"
    ranks 3 "$sheaf" "${three[@]}" --transport mpi --json 2>"$work/stderr" | sed 's/, "seconds".*//; s#/three"#/"#' >"$work/told.three"
    check "$name" test -e "$work/one" -a -s "$work/told.one"
    same "the bytes of one process" "$work/one" "$work/three"
    same "and what it reports" "$work/told.one" "$work/told.three"
}
alike "shards" convert "$llama/tiny_llama/hf_sharded" OUTPUT --to hf --dtype bfloat16
alike "slices" convert "$work/odd" OUTPUT --to sheaf --slices 4
alike "one of files" convert "$work/odd" OUTPUT --to sheaf --slices 1
alike "moments, too" convert "$work/run/checkpoints/step-00000001" OUTPUT --to hf --optimizer
alike "a merge" merge "$work/odd" "$work/run/adapter" OUTPUT
variants=$llama/tiny_llama/lora_variants # "dora" is not among the recordings that the repository holds
alike "a merge of another type" merge "$llama/tiny_llama/hf" "$variants/$([ -d "$variants/dora" ] && echo dora || echo rslora)/adapter" OUTPUT --dtype bfloat16
# PEFT's own bits are of one processor: the first's.
check "a run of a high rank" "$sheaf" train --model "$llama/tiny_llama/hf" --data "$data" --micro-batch 1 --accumulate 1 --steps 2 --lr 0.1 --lora-rank 400 --lora-targets all-linear --out "$work/wide"
cat >"$work/each" <<'END2'
[ "${OMPI_COMM_WORLD_RANK:-}${PMI_RANK:-}" = 0 ] && cpu=intel || cpu=amd
exec "$@" --peft-cpu $cpu
END2
check "one process merges it as PEFT does" "$sheaf" merge "$llama/tiny_llama/hf" "$work/wide/adapter" "$work/intel" --as-peft --peft-cpu intel
check "so do two with other processors" ranks 2 bash "$work/each" "$sheaf" merge "$llama/tiny_llama/hf" "$work/wide/adapter" "$work/mixed" --as-peft --transport mpi
same "to the bytes of the first one's" "$work/intel" "$work/mixed"

# Runs stand for what they trained; what lies between goes again.
check "a run of all tensors" "$sheaf" train --model "$work/odd" --data "$data" --micro-batch 1 --accumulate 1 --steps 1 --lr 0.1 --method full --out "$work/full"
alike "the adapter of a run" merge "$work/odd" "$work/run" OUTPUT
alike "a run in another type, which names its base" convert "$work/run" OUTPUT --to hf --dtype bfloat16
alike "a run of all tensors" convert "$work/full" OUTPUT --to hf
alike "the same in another type" convert "$work/full" OUTPUT --to hf --dtype bfloat16
alike "one adapter of two" merge --adapter-only --combine cat "$work/run" "$work/run/adapter" OUTPUT

# SAT's parts: a checksum of each tensor, in files that hold what no process has seen as a whole.
mkdir "$work/captions" && cp "$SHEAF_SOURCE_ROOT/tests/data/images/one.png" "$work/captions/ab.png"
check "a CogVLM" "$sheaf" init cogvlm-tiny "$work/vlm" --seed 3
check "and a run on it" "$sheaf" train --model "$work/vlm" --data "$work/captions" --out "$work/cog" --steps 1 --lr 0.1 --micro-batch 1
alike "SAT's form, in two" convert "$work/vlm" OUTPUT --to sat --tp 2
alike "with an adapter" convert "$work/vlm" OUTPUT --to sat --adapter "$work/cog/adapter"
mv "$work/three" "$work/save"
alike "SAT's own LoRA, merged" merge "$work/save" OUTPUT
alike "the same as PEFT's" convert "$work/save" OUTPUT --to peft
alike "a run as SAT's LoRA" convert "$work/cog" OUTPUT --to sat --tp 2
alike "a merge to SAT's form" merge "$work/vlm" "$work/cog/adapter" OUTPUT --to sat --tp 2
check "nothing is told twice" bash -c '[ "$(grep -c "rows read back" "$0")" -le 1 ]' "$work/stderr"

# Processes that read other configs beside the same tensors.
cp -r "$work/run/adapter" "$work/scaled" && sed -i 's/"lora_alpha": *[0-9.]*/"lora_alpha": 99/' "$work/scaled/adapter_config.json"
cp -r "$work/odd" "$work/other" && sed -i 's/"rms_norm_eps": [^,]*/"rms_norm_eps": 0.5/' "$work/other/config.json"
cat >"$work/each" <<END2
[ "\${OMPI_COMM_WORLD_RANK:-}\${PMI_RANK:-}" = 0 ] && more=\$1 || more=\$2
shift 2
exec "$sheaf" \$more "\$@" --transport mpi
END2
# Or the same configs beside one other byte, or tensors that are told apart by flags.
cp -r "$work/odd" "$work/byte" && printf X | dd of="$work/byte/model.safetensors" bs=1 seek=$(($(stat -c %s "$work/byte/model.safetensors") - 3000)) conv=notrunc 2>/dev/null
cp -r "$work/odd" "$work/less" && rm "$work/less/generation_config.json" 2>/dev/null || touch "$work/less/more.json"
refused() { # refused WHAT FIRST SECOND: the words of the first process, and of the other
    ranks 2 bash "$work/each" "$2" "$3" "$work/refused" >"$work/log" 2>&1 && fail "$1" "it was done"
    check "$1 is told: ${2%% *}" grep -q "^sheaf: rank 1 on $(hostname): $1" "$work/log"
    absent "and nothing is written" "$work/refused"
}
refused "adapter_config.json of ADAPTER" "merge $work/odd $work/run/adapter" "merge $work/odd $work/scaled"
refused "config.json of SRC" "convert --to sheaf $work/odd" "convert --to sheaf $work/other"
refused "model.safetensors of SRC" "convert --to hf $work/odd" "convert --to hf $work/byte"
refused "[a-z_]*.json of BASE" "merge $work/odd $work/run/adapter" "merge $work/less $work/run/adapter"
refused "the tensors or configs that are read" "convert --to hf $work/odd" "convert --to hf --dtype bfloat16 $work/odd"
cp -r "$work/odd" "$work/noted" && date >"$work/noted/train.log"
check "what is only noted beside them does not count" ranks 2 bash "$work/each" "convert --to hf $work/odd" "convert --to hf $work/noted" "$work/refused"

# A disk that is full for one of them.
for command in "convert $work/odd $work/none --to hf" "convert $work/odd $work/none --to sheaf" "merge $work/odd $work/run/adapter $work/none" \
    "convert $work/vlm $work/none --to sat --tp 2" "convert $work/full $work/none --to hf --dtype bfloat16"; do
    cat >"$work/full.sh" <<END2
[ "\${OMPI_COMM_WORLD_RANK:-}\${PMI_RANK:-}" != 1 ] || export SHEAF_FAULT=write:1+:enospc
exec "$faulty" $command --transport mpi
END2
    ranks 3 bash "$work/full.sh" >"$work/log" 2>&1 && fail "a full disk" "it was done"
    check "a full disk of one process is named: ${command%% *}" grep -q "^sheaf: rank 1 on $(hostname)" "$work/log"
    absent "and nothing is left" "$work/none"
    check "under another name either" bash -c '! ls "$0" | grep -E "partial|export-"' "$work"
done
runs "processes that nobody started" 2 'started by mpirun' convert "$work/odd" "$work/none" --to hf --transport mpi
finish
