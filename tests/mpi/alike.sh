#!/usr/bin/env bash
# Processes that do not have the same are told so before the first step, with the rank and the host of the one that
# differs; those that only compute with other instructions go on, to the same bytes.
#
#   alike.sh MPI
. "$(dirname "$0")/lib.sh"

data=$llama/tiny_llama/fwd_inputs.safetensors
odd_model "$work/odd" || fail "init of the odd model"
cp -r "$work/odd" "$work/same"
cp -r "$work/odd" "$work/other"
size=$(stat -c %s "$work/other/model.safetensors") # a number in the middle of a matrix
printf '\x41\x42' | dd of="$work/other/model.safetensors" bs=1 seek=$((size / 8 * 4 + 2)) conv=notrunc status=none
check "the other model differs" bash -c '! cmp -s "$0" "$1"' "$work/odd/model.safetensors" "$work/other/model.safetensors"
flags=(--data "$data" --micro-batch 1 --accumulate 2 --steps 1 --threads 2 --tp 2 --transport mpi)
cat >"$work/each" <<'END'
# each FIRST SECOND COMMAND...: the first process runs the command with the words FIRST, any other with SECOND
[ "${OMPI_COMM_WORLD_RANK:-}${PMI_RANK:-}" = 0 ] && more=$1 || more=$2
shift 2
exec "$@" $more
END
each() { # each FIRST SECOND
    rm -rf "$work/run"
    ranks 2 bash "$work/each" "$1" "$2" "$sheaf" train "${flags[@]}" --out "$work/run" >"$work/log" 2>&1
}
differs() { # differs WHAT FIRST SECOND PATTERN
    if each "$2" "$3"; then fail "$1: another is refused" "it trained"; else pass "$1: another is refused"; fi
    check "$1: told once, of rank and host" bash -c 'grep "^sheaf: " "$0"; [ "$(grep "^sheaf: " "$0")" = "$1" ]' "$work/log" "sheaf: rank 1 on $(hostname): $4"
    check "$1: what the first has" grep -q "expected: .*, as in the first process, on $(hostname)" "$work/log"
    absent "$1: nothing is begun" "$work/run"
}
odd="--model $work/odd"
echo "lr: 1e-3" >"$work/recipe.yaml"
each "$odd --recipe $work/recipe.yaml" "$odd --recipe /nowhere" && fail "no recipe on one" "it trained"
check "no recipe on one, before they meet: told of rank and host" bash -c '[ "$(grep "^sheaf: " "$0")" = "sheaf: rank 1 on $1: --recipe: /nowhere: cannot open for reading" ]' "$work/log" "$(hostname)"
check "without --transport mpi the first trains" ranks 2 "$sheaf" train $odd "${flags[@]:0:6}" --steps 2 --out "$work/alone"
check "alone" bash -c '[ "$(wc -l <"$0")" = 2 ]' "$work/alone/metrics.jsonl"
cat >"$work/late" <<'END'
[ "${OMPI_COMM_WORLD_RANK:-}${PMI_RANK:-}" = 0 ] || sleep 0.3
exec "$@"
END
ranks 2 bash "$work/late" "$sheaf" train --resume --out "$work/alone" --steps 300 >"$work/log" 2>&1
check "and goes on alone, whenever the other looks" test $? = 0
check "which it says once" bash -c '[ "$(grep -c "the first of 2 processes" "$0")" = 1 ] && grep -q -- "--transport mpi divides" "$0"' "$work/log"
differs "a setting" "$odd --lr 3e-3" "$odd --lr 2e-3" "--lr"
differs "a flag that may change" "$odd --save-every 5" "$odd --save-every 6" "--save-every"
differs "the base model" "$odd" "--model $work/other" "the base model"
check "a copy of the model, other instructions" each "$odd" "--model $work/same --isa avx2"
check "trains" test -e "$work/run/adapter/adapter_model.safetensors"
sum() { sha256sum "$work/run/adapter/adapter_model.safetensors"; }
kind="$odd --dtype bfloat16 --sums pairs"
check "in bfloat16, with other instructions" each "$kind" "$kind --isa avx2"
unlike=$(sum)
check "or as each machine has it" each "$kind" "$kind"
check "train to the same adapter" test "$(sum)" = "$unlike"
finish
