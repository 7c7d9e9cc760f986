#!/usr/bin/env bash
# Ranks that are processes give the bytes of ranks that are threads.
#
#   train.sh MPI
. "$(dirname "$0")/lib.sh"

data=$llama/tiny_llama/fwd_inputs.safetensors
odd_model "$work/odd" || fail "init of the odd model"
flags=(--model "$work/odd" --data "$data" --micro-batch 1 --accumulate 4 --steps 4 --save-every 2 --lr 3e-3 --seed 11
       --lora-rank 5 --lora-alpha 10 --lora-targets all-linear --lora-dropout 0.1 --threads 2)

check "one rank" "$sheaf" train "${flags[@]}" --out "$work/one"
for n in 2 3; do
    check "$mpi, $n processes" ranks $n "$sheaf" train "${flags[@]}" --tp $n --transport mpi --out "$work/$n"
    same "$mpi, $n processes: the checkpoint" "$work/one/checkpoints/step-00000004" "$work/$n/checkpoints/step-00000004"
    same "$mpi, $n processes: the adapter" "$work/one/adapter" "$work/$n/adapter"
done
check "no MPI in the command itself" bash -c '! ldd "$0" | grep -i mpi' "$sheaf"
finish
