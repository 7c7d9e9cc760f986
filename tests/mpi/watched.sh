#!/usr/bin/env bash
# eval and generate on several processes: one that is killed, stopped, hangs or fails, at any phase, ends
# all of them soon, with one message that says which, where, and what it was doing; nothing is left under the final name,
# and no process. SHEAF_SOAK=1: each command, each fault, at each of its calls and at many of its reads and writes, on
# each rank.
#
#   watched.sh MPI
. "$(dirname "$0")/lib.sh"

tiny=$llama/tiny_llama/hf
data=$llama/tiny_llama/fwd_inputs.safetensors
odd_model "$work/odd" || fail "init of the odd model"
check "a run" "$sheaf" train --model "$work/odd" --data "$data" --micro-batch 1 --accumulate 1 --steps 1 --lr 0.1 --lora-rank 3 --lora-targets all-linear --out "$work/run"
for n in 5,6,7 8 9,10 11,12,13,14 15,16 17 18,19; do echo "{\"tokens\": [$n]}"; done >"$work/prompts.jsonl"
words_of() { # words_of COMMAND: into `words`, that write $work/out
    case $1 in
        eval) words=(eval --model "$work/odd" --data "$data" --micro-batch 1 --tp 3 --save-logits "$work/out") ;;
        generate) words=(generate --model "$tiny" --data "$work/prompts.jsonl" --max-new 6 --batch 1 --greedy --dp 3) ;;
    esac
}
cat >"$work/each" <<END2
# each RANK FAULT COMMAND...: that rank's calls of the system fail as FAULT says
rank=\$1 fault=\$2
shift 2
[ "\${OMPI_COMM_WORLD_RANK:-}\${PMI_RANK:-}" != "\$rank" ] || export SHEAF_FAULT=\$fault
exec "$faulty" "\$@"
END2
left_over() { # processes of this test's work
    local file line
    for file in /proc/[0-9]*/cmdline; do
        line=$(tr '\0' ' ' 2>/dev/null <"$file") || continue
        [[ $line != *sheaf*" $work/"* || $line == *mpirun* || $line == *watched.sh* ]] || echo "$line"
    done 2>/dev/null
}
no_process() { for _ in $(seq 50); do [ -n "$(left_over)" ] || return 0; sleep 0.1; done; left_over; return 1; }

# is_whole COMMAND: where the fault came after the output had its name, it is that of one process
is_whole() {
    if [ ! -e "$work/whole.$1" ]; then
        mv "$work/out" "$work/found" && "$sheaf" "${words[@]}" >/dev/null 2>&1 && mv "$work/out" "$work/whole.$1"
        mv "$work/found" "$work/out"
    fi
    diff -r "$work/whole.$1" "$work/out" >/dev/null
}

# ends COMMAND RANK FAULT PATTERN [FLAG...]: FAULT is CALL:N:WHAT of --inject, or OP:N:WHAT of SHEAF_FAULT
ends() {
    local command=$1 rank=$2 fault=$3 pattern=$4 code=0 name="$1: rank $2, $3" op
    shift 4
    words_of "$command"
    rm -rf "$work"/out*
    op=${fault%%:*}
    if [[ " open read write fsync mkdir rename " == *" $op "* ]]; then
        timeout -k 1 60 "$mpirun" -n 3 bash "$work/each" "$rank" "$fault" "${words[@]}" --transport mpi --heartbeat 2s "$@" >"$work/out.stdout" 2>"$work/out.log" </dev/null || code=$?
    else
        timeout -k 1 60 "$mpirun" -n 3 "$faulty" "${words[@]}" --transport mpi --heartbeat 2s --inject "$rank:$fault" "$@" >"$work/out.stdout" 2>"$work/out.log" </dev/null || code=$?
    fi
    if [ "$code" -eq 0 ] && [ -n "${SHEAF_SOAK:-}" ]; then
        pass "$name: it has no such call"
    elif [ "$code" -eq 0 ] || [ "$code" -eq 124 ]; then
        fail "$name: ends in time" "exit code $code" "$(cat "$work/out.log")"
    elif ! grep -qE -- "$pattern" "$work/out.log"; then
        fail "$name: says why" "no match for '$pattern'" "$(grep -v '^$' "$work/out.log")"
    elif [ "$rank" != 0 ] && [ "$(grep -c '^sheaf: ' "$work/out.log")" != 1 ]; then
        fail "$name: says it once" "$(cat "$work/out.log")"
    elif [ -e "$work/out" ] && ! is_whole "$command"; then
        fail "$name: nothing is left that is not whole" "$(ls "$work" "$work/out")"
    elif ! no_process >"$work/left"; then
        fail "$name: no process is left" "$(cat "$work/left")"
    else
        pass "$name"
    fi
}
says() { # says RANK FAULT: a pattern
    local rank="rank $1 of 3 \\(host .*, process [0-9]+\\)"
    case $2 in
        kill) echo "^sheaf: $rank has died" ;;
        stop) echo "^sheaf: $rank is silent: it was stopped, or its host is gone; it is killed" ;;
        hang) echo "^sheaf: the run hangs: no rank got on for" ;;
        fail) [ "$1" = 0 ] && echo '^sheaf: ' || echo "^sheaf: (rank $1 on |.* do not make the same call|the run hangs: no rank got on for)" ;; # it fails to hear what all agreed on
    esac
}

if [ -z "${SHEAF_SOAK:-}" ] && [ "$mpi" = openmpi ]; then
    ends eval 1 forwards:30:kill "$(says 1 kill)"
    check "it says what each was at" grep -qE 'rank [02] \(host .*\): in .*, call [0-9]+, for .*; .*, row 1' "$work/out.log"
    check "its half of a file is gone" bash -c '! ls "$0" | grep partial' "$work"
    ends eval 2 forwards:20:stop "$(says 2 stop)"
    ends eval 0 write:5:kill "$(says 0 kill)"
elif [ -z "${SHEAF_SOAK:-}" ]; then
    ends generate 1 gather:1:kill "$(says 1 kill)"
fi

if [ -n "${SHEAF_SOAK:-}" ]; then
    for command in eval generate; do
        for rank in 0 1 2; do
            for fault in kill stop fail hang; do
                how=(--hang-after 3s)
                for call in reading comparing loading finishing agree broadcast gather; do ends $command $rank $call:1:$fault "$(says $rank $fault)" "${how[@]}"; done
                for op in open:3 read:5 write:2 write:6 fsync:1; do ends $command $rank $op:$fault "$(says $rank $fault)" "${how[@]}"; done
            done
        done
    done
fi
finish
