#!/usr/bin/env bash
# A process that fails alone, before it has met the others or where nothing is agreed on: the first tells what it was, with
# rank and host, once, and all end. What is wrong on all of them is told once, too.
#
#   alone.sh MPI
. "$(dirname "$0")/lib.sh"

data=$llama/tiny_llama/fwd_inputs.safetensors
odd_model "$work/odd" || fail "init of the odd model"
cat >"$work/each" <<'END'
# each FIRST SECOND COMMAND...: the first process runs the command with the words FIRST, any other with SECOND
[ "${OMPI_COMM_WORLD_RANK:-}${PMI_RANK:-}" = 0 ] && more=$1 || more=$2
shift 2
exec "$@" $more
END
here="rank 1 on $(hostname)"
# told NAME FIRST SECOND PATTERN COMMAND...: it fails soon, and that is told once.
told() {
    local name=$1 first=$2 second=$3 pattern=$4 code=0
    shift 4
    timeout 20 "$mpirun" -n 2 bash "$work/each" "$first" "$second" "$sheaf" "$@" --transport mpi >"$work/log" 2>&1 || code=$?
    check "$name: ends" test $code -ne 0 -a $code -ne 124
    check "$name: is told once" bash -c 'cat "$0"; [ "$(grep -c "^sheaf: " "$0")" = 1 ] && grep -q "^sheaf: $1" "$0"' "$work/log" "$pattern"
}
train=(train --model "$work/odd" --data "$data" --tp 2 --steps 1 --out "$work/out")
told "a file on one" "--seed 1" "--recipe /nowhere" "$here: --recipe: /nowhere: cannot open" "${train[@]}"
told "a value on one" "--seed 1" "--lr little" "$here: --lr\$" "${train[@]}"
told "a value on the first" "--lr little" "--seed 1" "--lr\$" "${train[@]}"
told "a flag on all" "--little" "--little" "--little\$" "${train[@]}"
told "another number of ranks on one" "--tp 2" "--tp 3" "$here: --transport mpi\$" eval --model "$work/odd" --data "$data"
told "no module on one" "--seed 1" "--mpi $work/none.so" "$here: $work/none.so" "${train[@]}"
# One that is stopped before they have met.
if [ "$mpi" = openmpi ]; then # MPICH's mpirun does not end it
    cat >"$work/stops" <<'END'
[ "${OMPI_COMM_WORLD_RANK:-}${PMI_RANK:-}" != "$1" ] || kill -STOP $$
shift
exec "$@"
END
    for rank in 0 1; do
        code=0
        SHEAF_MEET_WITHIN=2 timeout -k 1 40 "$mpirun" -n 2 bash "$work/stops" $rank "$sheaf" "${train[@]}" --transport mpi --json >"$work/log" 2>&1 || code=$?
        check "rank $rank is stopped before they meet: the other ends" test $code = 3
        check "rank $rank is stopped: the other says so, once" bash -c 'cat "$0"; [ "$(grep -c "^sheaf: " "$0")" = 1 ] && grep -q "^sheaf: rank $1 on $2: the processes that mpirun started\$" "$0"' "$work/log" $((1 - rank)) "$(hostname)"
        check "rank $rank is stopped: so does the JSON of the first" test "$(grep -c '^{"error": {"code": "peer"' "$work/log")" = $rank
    done
fi
# A host that cannot be reached: MPICH's mpirun waits for ever with the processes that are here.
mkdir "$work/path"
printf '#!/bin/sh\necho "ssh: no way to $1" >&2\nexit 255\n' >"$work/path/ssh"
chmod +x "$work/path/ssh"
apart() {
    PATH=$work/path:$PATH SHEAF_MEET_WITHIN=3 timeout 25 "$sheaf" "${train[@]}" --transport mpi --mpi "$mpi" --hosts "$(hostname):1,192.0.2.7:1" >"$work/log" 2>&1
    test $? -eq 3 && grep -A1 -E "^sheaf: (rank 0 on .*: )?the processes that .*mpirun" "$work/log" | grep -qE "expected: (all together within 3 s|each to begin)"
}
check "a host that does not answer" apart
absent "nothing is begun" "$work/out"
finish
