#!/usr/bin/env bash
# One rank of three fails at an exchange, each kind of exchange and of failure: all processes end soon
# with a message that says which rank, where and why, no process is left, and the newest checkpoint is
# whole and is gone on from. SHEAF_SOAK=1: every kind of failure at every kind of exchange, on any rank, and of threads.
#
#   faults.sh MPI
. "$(dirname "$0")/lib.sh"

data=$llama/tiny_llama/fwd_inputs.safetensors
odd_model "$work/odd" || fail "init of the odd model"
flags=(--model "$work/odd" --data "$data" --micro-batch 1 --accumulate 2 --save-every 1 --lr 3e-3 --seed 11
       --lora-rank 3 --lora-targets all-linear --threads 1)
what=("${flags[@]}" --tp 3) # that is trained, as so many processes, or threads of one
count=3
started=("$mpirun" -n $count)
steps=4
check "the undisturbed run" "$sheaf" train "${flags[@]}" --steps 4 --out "$work/one"

# left_over OUT: processes of that run.
left_over() {
    local file line words
    for file in /proc/[0-9]*/cmdline; do
        mapfile -d '' -t words <"$file" || continue
        line="${words[*]} "
        [[ $line != *sheaf*" train "*" $1 "* || $line == *mpirun* ]] || echo "$line"
    done 2>/dev/null
}
# no_process OUT: none is left, soon.
no_process() { for _ in $(seq 50); do [ -n "$(left_over "$1")" ] || return 0; sleep 0.1; done; left_over "$1"; return 1; }

# fails RANK:CALL:N:FAULT PATTERN [FLAG...]: the run ends by itself and says PATTERN.
fails() {
    local plan=$1 pattern=$2 out=$work/out code=0 newest
    shift 2
    rm -rf "$out"
    timeout -k 1 60 "${started[@]}" "$faulty" train "${what[@]}" --steps $steps --transport ${by:-mpi} --out "$out" --heartbeat 2s --inject "$plan" "$@" \
        >"$out.stdout" 2>"$out.log" </dev/null || code=$?
    if [ "$code" -eq 0 ] && [[ $plan = *:memory ]]; then
        pass "$plan: it needed no more" # in the steps that are left
    elif [ "$code" -eq 0 ] || [ "$code" -eq 124 ]; then
        fail "$plan: ends in time" "exit code $code" "$(cat "$out.log")"
    elif ! grep -qE -- "$pattern" "$out.log"; then
        fail "$plan: says why" "no match for '$pattern'" "$(grep -v '^$' "$out.log")"
    elif ! no_process "$out" >"$work/left"; then
        fail "$plan: no process is left" "$(cat "$work/left")"
    else
        newest=$(ls "$out/checkpoints" 2>/dev/null | grep -E '^step-[0-9]+$' | tail -n 1)
        if [ -n "$newest" ] && ! "$sheaf" verify "$out/checkpoints/$newest" >"$work/verify" 2>&1; then
            fail "$plan: the newest checkpoint is whole" "$(cat "$work/verify")"
        else
            pass "$plan"
        fi
    fi
}

died='rank 1 of 3 \(host .*, process [0-9]+\) has died'
where='rank 0 \(host .*\): in .*, call [0-9]+, for .*'
fails 1:sum:30:kill "$died"
check "it says where each rank is" grep -qE "$where; step 1, micro-batch .*, layer .*(forward|backward) of" "$work/out.log"
fails 1:agree:18:kill "$died"
check "and goes on on two ranks" ranks 2 "$sheaf" train --resume --out "$work/out" --tp 2 --transport mpi
same "to the same checkpoint" "$work/one/checkpoints/step-00000004" "$work/out/checkpoints/step-00000004"
same "and adapter" "$work/one/adapter" "$work/out/adapter"
fails 0:sum:90:kill 'rank 0 of 3 \(host .*\) has died'
fails 2:sum:90:stop 'rank 2 of 3 \(host .*\) is silent: it was stopped, or its host is gone; it is killed'
fails 0:any:3:stop 'rank 0 of 3 \(host .*\) is silent: .*it is killed'
fails 1:sum:30:fail 'rank 1 on .*: step 1: .*layer .*: sum'
fails 1:agree:18:fail 'rank 1 on .*: .*: agree'
steps=2000
fails 2:sum:30:cut 'rank [02] of 3 .*has died, or its host or the network failed'
steps=4
fails 1:sum:30:stray 'the run hangs: no rank got on for' --hang-after 2s
check "and which call differs" grep -qE 'rank 1 \(host .*\): in barrier, call [0-9]+' "$work/out.log"
fails 1:sum:60:hang 'the run hangs: no rank got on for' --hang-after 2s
check "and where each rank is" grep -qE 'rank 2 \(host .*\): in sum, call [0-9]+, .*; step .*, layer ' "$work/out.log"

# A disk that is full for one rank.
cat >"$work/full.sh" <<END
[ "\${OMPI_COMM_WORLD_RANK:-\${PMI_RANK:-}}" != 1 ] || export SHEAF_FAULT=write:3+:enospc
exec "$faulty" "\$@"
END
code=0
timeout 60 "$mpirun" -n 3 bash "$work/full.sh" train "${flags[@]}" --steps 4 --tp 3 --transport mpi --out "$work/full" >"$work/full.log" 2>&1 </dev/null || code=$?
check "a full disk ends it" test $code -ne 0 -a $code -ne 124
check "and is named, with its rank" grep -qE 'rank 1 on .*No space left' <(tr '\n' ' ' <"$work/full.log")
check "no process is left" no_process "$work/full"

# A rank that is late harms nobody, and is named.
ranks 3 "$faulty" train "${flags[@]}" --steps 4 --tp 3 --transport mpi --out "$work/slow" --heartbeat 1s --hang-after 4s --inject 1:sum:1:25 >"$work/slow.log" 2>&1
check "a slow rank" test $? = 0
check "is named with its host" grep -qE 'rank 1 \(host .*\) is slow: in the last .* s it computed for .* s and waited for' "$work/slow.log"
check "once" test "$(grep -c 'is slow' "$work/slow.log")" = 1
same "gives the same bytes" "$work/one/adapter" "$work/slow/adapter"

# An mpirun that does not end, as that of Open MPI where a host vanishes behind the last step.
mkdir "$work/bin"
printf '#!/bin/sh\n"%s" "$@"\necho it has ended >&2\nsleep 600\n' "$mpirun" >"$work/bin/mpirun.$mpi"
chmod +x "$work/bin/mpirun.$mpi"
PATH=$work/bin:$PATH timeout 120 "$sheaf" train "${flags[@]}" --steps 4 --tp 2 --transport mpi --mpi "$mpi" --out "$work/ended" >"$work/ended.log" 2>&1 </dev/null
check "an mpirun that does not end is ended" test $? = 0
check "after the run" grep -q 'it has ended' "$work/ended.log"
same "which has its result" "$work/one/adapter" "$work/ended/adapter"
check "no process is left" no_process "$work/ended"

# Two groups of two, all weights, which groups exchange, and evaluations: what every fault is to say of a rank, and
# some of each kind of exchange. A rank that fails at a select leaves a message behind that needs a receiver.
whole=(--model "$work/odd" --data "$data" --micro-batch 1 --accumulate 4 --accumulators 4 --save-every 1 --lr 3e-3 --seed 11 --method full --threads 1
       --eval-data "$data" --eval-every 1 --tp 2 --dp 2)
what=("${whole[@]}")
count=4
started=("$mpirun" -n $count)
says() { # says RANK FAULT: a pattern
    local rank="rank $1 of $count \\(host .*"
    case $2 in
        kill) echo "$rank has died" ;;
        stop) echo "$rank is silent: it was stopped" ;;
        cut) echo "rank [0-9] of $count .*has died" ;;
        fail) if [ "${by:-mpi}" = mpi ]; then echo "rank $1 on "; else echo '^sheaf: .*(step|checkpoint|evaluation|agree)'; fi ;;
        memory) echo "rank $1 |memory|^sheaf: .*allocating .* MiB for" ;; # threads share it: another may lack it first
        hang) echo "the run hangs: .*rank" ;;
        stray) echo "do not make the same call|the run hangs: |(rank $1 on|rank [0-9] on) " ;;
    esac
}
if [ -z "${SHEAF_SOAK:-}" ]; then
    for plan in 0:loading:1:kill 3:forwards:3:stop 3:gradients:1:kill 1:saving:1:kill 3:select:1:fail 0:norm:1:fail; do fails "$plan" "$(says "${plan%%:*}" "${plan##*:}")"; done
    by=threads started=()
    for plan in 1:backwards:2:fail 0:weights:1:fail 0:any:1:fail 1:saving:1:fail 3:evaluating:1:hang 2:update:1:stray; do fails "$plan" "$(says "${plan%%:*}" "${plan##*:}")" --hang-after 4s; done
fi

if [ -n "${SHEAF_SOAK:-}" ]; then
    for by in mpi threads; do
        [ $by = mpi ] || started=()
        for call in sum select gather agree any collect forwards backwards gradients weights norm others loading update saving evaluating; do
            for rank in 0 1 3; do
                for fault in kill stop cut fail memory hang stray; do
                    [ $by = mpi ] || [[ "kill stop cut" != *$fault* ]] || continue
                    steps=4
                    [ $fault != cut ] || steps=2000 # it is noticed a moment later
                    fails "$rank:$call:1:$fault" "$(says $rank $fault)" --hang-after 4s
                done
            done
        done
    done
fi
finish
