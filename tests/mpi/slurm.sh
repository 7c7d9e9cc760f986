#!/usr/bin/env bash
# Under srun a process knows its number from PMIx's or PMI2's variables. A stand-in sets them: the MPI's own launcher
# starts the processes, without what else its mpirun leaves in their environment, and with Slurm's variables.
#
#   slurm.sh MPI
. "$(dirname "$0")/lib.sh"

data=$llama/tiny_llama/fwd_inputs.safetensors
odd_model "$work/odd" || fail "init of the odd model"
flags=(--model "$work/odd" --data "$data" --micro-batch 1 --accumulate 2 --steps 2 --lr 3e-3 --lora-rank 5 --threads 2)
check "one rank" "$sheaf" train "${flags[@]}" --out "$work/one"
cat >"$work/task" <<'END'
export SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=${OMPI_COMM_WORLD_RANK:-$PMI_RANK} SLURM_STEP_NUM_TASKS=${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE
[ "$1" = joined ] || unset "${!PMIX_@}" "${!PMI_@}" "${!OMPI_@}"
shift
exec "$@"
END
srun() { ranks 2 bash "$work/task" "$@"; } # srun joined|apart COMMAND...

check "srun" srun joined "$sheaf" train "${flags[@]}" --tp 2 --transport mpi --out "$work/two"
same "srun: the adapter" "$work/one/adapter" "$work/two/adapter"
# srun without --mpi: numbers, but nothing to meet by
srun apart "$sheaf" train "${flags[@]}" --tp 2 --transport mpi --out "$work/apart" >"$work/log" 2>&1 && fail "apart" "it trained"
check "srun of another kind is noticed" grep -q "expected: 2 processes that srun started together" "$work/log"
check "and told once" test "$(grep -c '^sheaf: ' "$work/log")" = 1
absent "and nothing is begun" "$work/apart"
finish
