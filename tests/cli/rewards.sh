#!/usr/bin/env bash
# --objective grpo and rloo: completions with rewards. The same bytes on every number of ranks and groups and across a stop
# between two steps of one batch; what is reported; what does not go together; memory as planned. SHEAF_SOAK=1: every family,
# dtype, order and code; more numbers of ranks, over MPIs too; kills anywhere.
. "$(dirname "$0")/lib.sh"
. "$SHEAF_SOURCE_ROOT/tests/plan_peak.sh"

model=$work/model
sed 's/_size": 192/_size": 48/; s/_size": 500/_size": 125/; s/_layers": 4/_layers": 2/' "$SHEAF_SOURCE_ROOT/demo/model.json" >"$work/model.json"
"$sheaf" init "$work/model.json" "$model" --seed 1 >/dev/null 2>&1 || fail "init of a model"
for ((i = 0; i < 8; i++)); do # four completions each; of the last group all rewards are equal
    printf '{"prompt": "row %0*d is", "completions": [" yes, %d.", " no.", " %0*d", " so it is"], "rewards": [1, %s, 0.5, %s]}\n' \
        $((2 + i % 5)) $i $((i * i)) $((1 + i)) $i "$([ $i -eq 7 ] && echo '1' || echo "-$i")" "$([ $i -eq 2 ] && echo null || echo 0.25)"
done | sed '8s/\[1, 1, 0.5, 0.25\]/[1, 1, 1, 1]/' >"$work/groups.jsonl"
run() { # run OUT FLAG...
    local out=$work/$1
    shift
    rm -rf "$out"
    [[ " $* " == *" --method full "* ]] || set -- --lora-targets all-linear --lora-rank 4 "$@"
    [[ " $* " == *" --steps "* || " $* " == *" --epochs "* ]] || set -- --steps 4 "$@"
    "$sheaf" train "$model" --rollouts "$work/groups.jsonl" --seed 3 --out "$out" --micro-batch 2 --accumulate 4 --lr 1e-2 --schedule constant --warmup 0 "$@" \
        >"$work/said" 2>&1 || { local code=$?; cat "$work/said"; return $code; }
}
alike "grpo" --objective grpo --beta 0.1 -- "--tp 3 --threads 2 --keep-activations none" "--dp 2"
check "a mean reward" test "$(metric one 1 reward)" = 0.3125
check "a group without spread" test "$(metric one 4 frac_reward_zero_std)" = 0.5
alike "grpo, bfloat16" --objective grpo --loss-type cispo --epsilon-high 3 --dtype bfloat16 --num-iterations 2 -- "--tp 3 --dp 2"
alike "grpo of all weights" --objective grpo --loss-type gspo --beta 0.1 --method full --num-iterations 2 --accumulators 2 -- "--tp 2 --dp 2"
alike "rloo" --objective rloo --num-iterations 2 -- "--tp 3 --dp 2"
check "its log" test "$(wc -l <"$work/one/rollouts.jsonl")" = 16
stopped() { # with a stop after each step, and a torn line at the end of the log
    local n
    run other "$@" --steps 1 || return 1
    for n in 2 3 4; do
        printf '{"step": %d, "logps": [' $((n + 1)) >>"$work/other/rollouts.jsonl"
        "$sheaf" train --resume --out "$work/other" --steps $n --tp $((1 + n % 3)) >"$work/said" 2>&1 || { cat "$work/said"; return 1; }
    done
}
check "stopped between steps of a batch" stopped --objective rloo --num-iterations 2
check "the same bytes" equal one other
check "and the same log" eval 'head -n 16 "$work/other/rollouts.jsonl" | cmp - "$work/one/rollouts.jsonl"'
check "a run that stops" run other --objective rloo --num-iterations 2 --steps 1
sed -i -E '3s/"logps":\[[^],]*,/"logps":[/' "$work/other/rollouts.jsonl"
runs "a line of the log that lost a number" 3 'rollouts.jsonl: line 3.*expected: a number for each token of the completion, [0-9]+.*found: +[0-9]+' train --resume --out "$work/other" --steps 2
for ((i = 0; i < 4; i++)); do # more tokens than a block of the head has
    printf '{"prompt": "row %d is", "completions": [" yes %0*d", " no", " %0*d", " so it is"], "rewards": [1, -%d, 0.5, 0.25]}\n' $i $((99 + 130 * i)) 0 $((400 - 50 * i)) 0 $i
done >"$work/long.jsonl"
long() { # long OUT MICRO ACCUMULATE
    rm -rf "${work:?}/$1"
    "$sheaf" train "$model" --rollouts "$work/long.jsonl" --objective grpo --beta 0.1 --lora-targets all-linear --lora-rank 4 --seq 600 --steps 2 \
        --seed 3 --out "$work/$1" --micro-batch "$2" --accumulate "$3" --lr 1e-2 --schedule constant --warmup 0 >"$work/said" 2>&1
}
check "completions one by one" long one 1 8
check "or eight at once, weighed block by block" long other 8 1
for of in loss grad_norm kl; do check "have one $of" near "$(metric one 2 $of)" "$(metric other 2 $of)" 1e-5; done

# ---- completions that are sampled ----
for ((i = 0; i < 6; i++)); do printf '{"prompt": "%0*d is", "completion": "e"}\n' $((2 + i)) $i; done >"$work/prompts.jsonl"
for ((i = 0; i < 5; i++)); do printf '{"prompt": "%d and %0*d is", "completion": "e"}\n' $i $((9 - i)) $i; done >"$work/held.jsonl"
cat >"$work/judge" <<'END'
/"step": 3[,}]/ && (getline line <(judge ".stalls")) >= 0 { system("echo $$ >'" judge ".sleeps'; mv '" judge ".stalls' '" judge ".stalled' && exec sleep 50") }
{ # letters that no escape of JSON has
    match($0, /"completion": "([^"\\]|\\.)*"/)
    text = substr($0, RSTART + 15, RLENGTH - 16)
    print text == "" ? "null" : gsub(/[g-mo-qsv-z]/, "", text) - gsub(/[G-Z]/, "", text) / 10
}
END
sampled() { # sampled OUT FLAG...
    local out=$work/$1
    shift
    rm -rf "$out"
    [[ " $* " == *" --method full "* ]] || set -- --lora-targets all-linear --lora-rank 4 "$@"
    [[ " $* " == *" --steps "* || " $* " == *" --epochs "* ]] || set -- --steps 4 "$@"
    [[ " $* " == *" --eval-split "* ]] || set -- --eval-data "$work/held.jsonl" "$@"
    "$sheaf" train "$model" "$work/prompts.jsonl" --objective grpo --reward "exact;regex:[aeiou].*[aeiou];exec awk -v judge=$work/judge -f $work/judge" --reward-weights 1,0.5,0.25 --eval-every 2 \
        --generations 4 --max-new 10 --seed 3 --out "$out" --micro-batch 2 --accumulate 4 --lr 1e-2 --schedule constant --warmup 0 --save-every 1 "$@" \
        >"$work/said" 2>&1 || { local code=$?; cat "$work/said"; return $code; }
}
exact() { ! grep 'another log-probability' "$work/said"; } # what samples and what trains is one arithmetic, to the bit
evaluated() { grep eval_ "$work/$1/metrics.jsonl"; }
same() { equal one other && cmp "$work/one/rollouts.jsonl" "$work/other/rollouts.jsonl" && test "$(evaluated one)" = "$(evaluated other)"; }
for flags in "--dtype float32 --beta 0.1 --eval-split 0.3" "--dtype bfloat16 --temperature 0.7 --top-p 0.9 --num-iterations 2" "--quantize nf4 --dtype bfloat16 --sums pairs --method lora"; do
    # shellcheck disable=SC2086
    check "sampled, $flags" sampled one $flags
    check "every ratio is 1, $flags" exact
    for way in "--tp 3 --threads 2" "--dp 2"; do
        # shellcheck disable=SC2086
        check "sampled, $flags, $way" sampled other $flags $way
        check "the same bytes, $flags, $way" same
        check "every ratio is 1, $flags, $way" exact
    done
done
check "without a stop" sampled one
cat >"$work/means" <<'END'
import json, re, sys  # the last evaluation is the mean reward of what generate answers to its prompts, greedily
said = [one["text"] for one in json.load(open(sys.argv[1]))["results"]]
rewards = [(t == "e") + 0.5 * bool(re.search("[aeiou].*[aeiou]", t)) + 0.25 * (len(re.findall("[g-mo-qsv-z]", t)) - len(re.findall("[G-Z]", t)) / 10) for t in said]
found = [json.loads(line) for line in open(sys.argv[2] + "/metrics.jsonl") if "eval_" in line]
last, best = found[-1], json.load(open(sys.argv[2] + "/best.json"))
assert best["eval_loss"] == -max(one["eval_reward"] for one in found), (found, best)
assert len(said) == last["eval_tokens"] == 5 and last["step"] == 4, last
assert abs(sum(rewards) / 5 - last["eval_reward"]) < 1e-12 and last["eval_loss"] == -last["eval_reward"], (rewards, last)
assert last["eval_completions/mean_length"] <= 10 and last["eval_accuracy"] is None and "eval_frac_reward_zero_std" not in last, last
END
held_out() { "$sheaf" generate "$model" --data "$work/held.jsonl" --adapter "$work/one/adapter" --max-new 10 --greedy --json >"$work/greedy" 2>/dev/null && python3 "$work/means" "$work/greedy" "$work/one"; }
check "evaluations are mean rewards of greedy answers, the best has most" held_out
runs "a report of them" 0 '"reward": \[.*"entropy": \[.*"evaluations": .*"reward": \[-?[0-9.e-]+, -?[0-9.e-]+\].*"samples": \[\{"of": "best", "step": [1-4], "reward": [0-9.e-]+, "truncated": [a-z]+, "prompt": "0+[0-5] is", "text": ".*"of": "worst".*"of": "step", "step": 1,.*"step": 4,' report "$work/one" --json
killed() { # until a batch is there whose step may not be over
    local child n
    rm -rf "$work/other"
    sampled other &
    child=$!
    while [ "$(wc -l <"$work/other/rollouts.jsonl" 2>/dev/null || echo 0)" -lt "$1" ]; do sleep 0.01; kill -0 $child 2>/dev/null || break; done
    pkill -KILL -P $child
    wait $child 2>/dev/null
    "$sheaf" train --resume --out "$work/other" --tp 2 >"$work/said" 2>&1 || { cat "$work/said"; return 1; }
}
reads() { # reads PATTERN FLAG...: epochs say what a step reads, and warn of nothing
    local pattern=$1
    shift
    "$@"|| return 1
    grep -E "$pattern" "$work/said" && ! grep 'reads more' "$work/said" || { cat "$work/said"; return 1; }
}
check "an epoch of prompts" reads '1 epoch of 6 prompts is 3 steps of 8 completions' sampled other --epochs 1
check "and of two steps each" reads '1 epoch of 6 prompts is 6 steps of 8 completions' sampled other --epochs 1 --num-iterations 2
check "an epoch of completions" reads '1 epoch of 32 rows is 8 steps of 8 rows' run other --epochs 1 --objective grpo --num-iterations 2
for lines in 8 16; do
    check "killed after $lines completions" killed $lines
    check "the same bytes" same
done
cp -r "$work/one" "$work/whole"
stalled() { # stalled SIGNAL: sent while the third batch is judged, which takes long
    local child code=0
    rm -rf "$work/other" "$work/judge.stalled" "$work/judge.sleeps"
    touch "$work/judge.stalls"
    sampled other &
    child=$!
    while [ ! -e "$work/judge.stalled" ]; do sleep 0.01; kill -0 $child 2>/dev/null || break; done
    SECONDS=0
    pkill "-$1" -P $child
    wait $child || code=$?
    sleep 0.2
    kill "$(cat "$work/judge.sleeps")" 2>/dev/null # a child of the judge's own may outlive a run that was killed
    [ $code -gt 0 ] && [ $SECONDS -lt 10 ] && ! pgrep -f "$work/judge\$" || { echo "code $code, $SECONDS s"; cat "$work/said"; pkill -f "$work/judge\$"; return 1; }
}
goes_on() { "$sheaf" train --resume --out "$work/other" >"$work/said" 2>&1 || { cat "$work/said"; return 1; }; }
check "stopped while a program judges" stalled TERM
check "it says so" grep 'asked to stop after step 2' "$work/said"
check "and goes on" goes_on
check "to the same bytes" same
check "killed while a program judges, which ends, too" stalled KILL
check "and goes on" goes_on
check "to the same bytes" same
if [ -n "${SHEAF_SOAK:-}" ]; then
    for ((i = 1; i < 5; i++)); do echo "{\"tokens\": [3, 4, $i, 6]}"; done >"$work/tokens.jsonl"
    of_family() { # of_family FOLDER FLAG...
        rm -rf "$work/other"
        "$sheaf" train "$1" "$work/tokens.jsonl" --objective grpo --reward "awk '{ print NR % 3 }'" --generations 4 --max-new 12 --micro-batch 2 --accumulate 4 \
            --lr 1e-2 --schedule constant --warmup 0 --lora-rank 4 --steps 3 --out "$work/other" "${@:2}" >"$work/said" 2>&1 || { local code=$?; cat "$work/said"; return $code; }
        exact
    }
    for folder in "$golden"/llama/tiny_llama/hf "$SHEAF_SOURCE_ROOT"/tests/data/families/*/hf; do
        name=${folder%/hf}
        for flags in "--dtype float32" "--dtype float16" "--dtype float16 --sums mma16" "--dtype bfloat16 --sums "{pairs,tiles,mma8,mma16} \
            "--quantize "{nf4,nf4-double,int8}" --dtype "{float32,"bfloat16 --sums "{pairs,tiles}}; do
            # shellcheck disable=SC2086
            check "every ratio is 1: ${name##*/}, $flags" of_family "$folder" $flags --tp 2
        done
    done
    # tests/mpi/lib.sh says what these are for
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none SHEAF_PLUGINS="$SHEAF_BUILD_ROOT/src/cli"
    check "one rank" sampled one
    ways=("--tp "{2,3,5,8} "--dp 2" "--tp "{2,3,5}" --dp 2")
    for mpi in openmpi mpich; do
        [ ! -e "$SHEAF_PLUGINS/sheaf-$mpi.so" ] || ! command -v mpirun.$mpi >/dev/null || ways+=({"--tp 2","--tp 5","--dp 2","--tp 2 --dp 2"}" --transport mpi --mpi $mpi")
    done
    for way in "${ways[@]}"; do
        # shellcheck disable=SC2086
        check "sampled, $way" sampled other $way
        check "the same bytes, $way" same
    done
    anywhere() { # killed again and again, with other numbers of ranks, until it is left in peace
        local child attempt tp
        rm -rf "$work/other"
        for attempt in 1 2 3 4 5 6; do
            tp=$((1 + RANDOM % 3))
            if [ -s "$work/other/settings" ]; then
                "$sheaf" train --resume --out "$work/other" --tp $tp >"$work/said" 2>&1 &
                child=$!
                sleep 0.$((RANDOM % 10))$((RANDOM % 10))
                kill -KILL $child 2>/dev/null
            else
                sampled other --tp $tp &
                child=$!
                sleep 0.$((RANDOM % 10))$((RANDOM % 10))
                pkill -KILL -P $child
            fi
            wait $child 2>/dev/null
        done
        if [ -s "$work/other/settings" ]; then goes_on; else sampled other; fi
    }
    RANDOM=12
    for ((i = 0; i < 25; i++)); do
        check "killed anywhere, $i" anywhere
        check "the same bytes, $i" same
    done
fi
check "a run that stops" sampled other --steps 2
cp "$work/prompts.jsonl" "$work/as_given.jsonl"
sed -i '4s/"completion": "e"/"completion": "f"/' "$work/prompts.jsonl"
runs "an answer that is another one now" '2|3' 'data' train --resume --out "$work/other" --steps 4
cp "$work/as_given.jsonl" "$work/prompts.jsonl"
damaged() { # damaged WHAT EXPRESSION EXPECTED: the third batch is in the log of a run that stopped after two, and edited
    check "$1: a run that stops" sampled other --steps 2
    sed -n 17,24p "$work/whole/rollouts.jsonl" | sed -E "$2" >>"$work/other/rollouts.jsonl"
    runs "$1" 3 "$3" train --resume --out "$work/other" --steps 4
}
damaged "a line with too many tokens" "3s/\"completion_ids\":\\[/&$(printf '7,%.0s' $(seq 300))/; 3s/,\"logps\":\\[[^]]*\\]//" \
    'rollouts.jsonl: line 19.*expected: tokens of a prompt and a completion, at most, [0-9]+.*found: +3[0-9]+.*try: +take the line out'
damaged "a line with two completions" '2s/"completion_ids":(\[[^]]*\]),"logps":\[[^]]*\]/"completion_ids":[\1,\1],"rewards":[1,2]/; 2s/"truncated":[a-z]*,//' \
    'rollouts.jsonl: line 17.*expected: a completion on each line of its batch, 8.*found: +9'
made_again() { # the third batch, where another version of the numeric contract wrote it
    sampled other --steps 2 && sed -n 17,24p "$work/whole/rollouts.jsonl" | sed 's/"contract":2/"contract":1/; s/"reward":[^,]*/"reward":9/' >>"$work/other/rollouts.jsonl" &&
        grep -q '"contract":1,.*"reward":9,' "$work/other/rollouts.jsonl" && "$sheaf" train --resume --out "$work/other" --steps 4 >"$work/said" 2>&1 &&
        cmp "$work/whole/rollouts.jsonl" "$work/other/rollouts.jsonl"
}
check "completions of another version are made again" made_again
mv "$work/groups.jsonl" "$work/first.jsonl"
cp "$work/one/rollouts.jsonl" "$work/groups.jsonl"
check "given once more" run other --objective grpo
check "they teach the same" equal one other
unsampled() { rm -rf "$work/no"; runs "$@"; }
online=(train "$model" "$work/prompts.jsonl" --objective grpo --max-new 4 --micro-batch 4 --steps 1 --out "$work/no")
unsampled "a program that fails" 3 '--reward exit 3.*expected: a number, or null, on a line.*found: +exit code 3' "${online[@]}" --generations 2 --reward 'exit 3'
unsampled "one that says too little" 3 'found: +1 lines' "${online[@]}" --generations 2 --reward 'echo 1'
unsampled "one that says something else" 3 'found: +another thing on line 2' "${online[@]}" --generations 2 --reward 'echo 1 && echo good'
unsampled "one that says too much" 3 'found: +more than 4 lines' "${online[@]}" --generations 2 --reward 'seq 5'
unsampled "one that does not end" 3 'found: +nothing within 1 s.*try: +a larger --reward-time' "${online[@]}" --generations 2 --reward 'sleep 50' --reward-time 1
unsampled "signals are its own" 3 'found: +a signal ended it: 13' "${online[@]}" --generations 2 --reward 'kill -PIPE $$; seq 4'
unsampled "one that leaves another one" 0 '' "${online[@]}" --generations 2 --reward "sleep 60.$$ & seq 4"
check "which ends with it" eval '! pgrep -f "sleep 60.$$"'
unsampled "blanks around a rule" 0 '' "${online[@]}" --generations 2 --reward ' exact ; regex:a '
rm -rf "$work/no"
for like in 'regexp:a' 'Exact' 'exact:a' 'exact;;seq 4'; do
    runs "no rule: $like" 2 '--reward .*expected: exact, regex:PATTERN, a reward model.s folder or a command' "${online[@]}" --generations 2 --reward "$like"
done
runs "no pattern" 2 '--reward .*expected: an extended regular expression' "${online[@]}" --generations 2 --reward 'regex:('
runs "a weight for two" 2 '--reward-weights .*expected: a number for each' "${online[@]}" --generations 2 --reward 'exact;true' --reward-weights 1
runs "three of a prompt in a step of four" 2 '--generations .*expected: 2 or more, a divisor of' "${online[@]}" --reward exact --generations 3
runs "of pairs" 2 '--reward .*expected: none with --objective dpo' train "$model" "$work/prompts.jsonl" --objective dpo --reward exact --steps 1 --out "$work/no"
planned=(plan --model "$model" --objective grpo --reward exact --max-new 4 --micro-batch 8)
runs "plans know no time of sampling" 3 '--time and --trial.*expected: --rollouts.*found: +--reward' "${planned[@]}" --time
runs "nor completions without prompts" 2 'expected: a prompt of at least 1 .*found: +0: 4 less 4.*try: +--seq of 5 or more' "${planned[@]}" --seq 4
runs "nor three of a prompt in a step of eight" 2 '--generations .*expected: 2 or more' "${planned[@]}" --seq 9 --generations 3
runs "nor generation of theirs" 3 '--reward.*expected: --rollouts' "${planned[@]}" --data "$work/prompts.jsonl" --place 1
runs "plans at every number of ranks" 0 '\| 2 ' "${planned[@]}" --data "$work/prompts.jsonl" --table ranks
runs "runs that do not fit are not begun" 3 'memory for this run.*expected: +at most [0-9.]+ [MG]iB.*found: +[0-9.]+ [GT]iB needed, [0-9.]+ [GT]iB of it cache' \
    train "$model" "$work/prompts.jsonl" --objective grpo --reward exact --steps 1 --out "$work/no" --generations 2 --micro-batch 2 --accumulate 32 --max-new 10000000
absent "and leave nothing" "$work/no"
rm -rf "$work/no"

# ---- reward models ----
for ((i = 0; i < 8; i++)); do printf '{"prompt": "row %0*d is", "chosen": " yes, %d.", "rejected": " no."}\n' $((2 + i % 5)) $i $((i * i)); done >"$work/pairs.jsonl"
for ((i = 0; i < 8; i++)); do
    printf '{"chosen": [{"role": "user", "content": "row %d"}, {"role": "assistant", "content": "yes, %d."}], "rejected": [{"role": "user", "content": "row %d"}, {"role": "assistant", "content": "no."}]}\n' $i $((i * i)) $i
done >"$work/said.jsonl"
for ((i = 0; i < 6; i++)); do printf '{"messages": [{"role": "user", "content": "%0*d is"}, {"role": "assistant", "content": "e"}]}\n' $((2 + i)) $i; done >"$work/questions.jsonl"
judge() { rm -rf "$work/$1"; "$sheaf" train "$model" "$2" --objective reward --steps 3 --lr 1e-2 --micro-batch 4 --out "$work/$1" --lora-targets all-linear "${@:3}" >"$work/said" 2>&1 || { cat "$work/said"; return 1; }; }
judged() { # judged OUT DATA REWARD FLAG...
    rm -rf "$work/$1"
    "$sheaf" train "$model" "$2" --reward "$3" --out "$work/$1" --objective grpo --generations 4 --max-new 10 --micro-batch 2 --accumulate 4 --lr 1e-2 --warmup 0 \
        --lora-targets all-linear --lora-rank 4 --steps "${steps:-2}" "${@:4}" >"$work/said" 2>&1 || { cat "$work/said"; return 1; }
}
scored() { # scored RUN MODEL: what eval gives the completions of RUN's log
    python3 - "$work/$1/rollouts.jsonl" "$work/answers.jsonl" <<'END'
import json, sys
with open(sys.argv[2], "w") as out:
    for line in open(sys.argv[1]):
        r = json.loads(line)
        text = bytes(i for i in r["prompt_ids"] if i < 256).decode()
        own = r["text"] or "?"
        said = text.split("user\n")[-1].split("\n")[0].removesuffix("<|im_end|>")
        told = [{"role": "developer", "content": "Q."}] if "system\nQ." in text else []
        json.dump({"messages": told + [{"role": "user", "content": said}, {"role": "assistant", "content": own}]} if "user\n" in text else {"prompt": text, "completion": own}, out)
        out.write("\n")
END
    "$sheaf" eval "$work/$2" "$work/answers.jsonl" 2>/dev/null >"$work/scores" && python3 - "$work/$1/rollouts.jsonl" "$work/scores" <<'END'
import json, sys
got = [json.loads(line) for line in open(sys.argv[1])]
want = [float(line.split()[0]) for line in open(sys.argv[2]) if line.strip()[:1] in "-0123456789"]
assert len(want) >= len(got) and all(abs(g["reward"] - w) < 2e-6 for g, w in zip(got, want) if g["text"]), (got, want)
END
}
check "a reward model" judge rm "$work/pairs.jsonl"
check "merged" "$sheaf" merge "$model" "$work/rm/adapter" "$work/merged"
check "one of conversations" judge chat "$work/said.jsonl" --template chatml
for of in "prompts rm" "questions chat --template chatml"; do
    set -- $of
    check "judged: $of" judged one "$work/$1.jsonl" "$work/$2" "${@:3}"
    check "as eval scores: $of" scored one "$2"
    for way in "--tp 2" "--tp 3 --threads 2" "--dp 2"; do
        # shellcheck disable=SC2086
        check "judged: $of, $way" judged other "$work/$1.jsonl" "$work/$2" "${@:3}" $way
        check "the same bytes: $of, $way" same
    done
done
sed 's/\[{"role": "user"/[{"role": "developer", "content": "Q."}, {"role": "user"/' "$work/questions.jsonl" | head -n 2 >"$work/instructed.jsonl"
check "judged: a role that the model's template calls otherwise" judged one "$work/instructed.jsonl" "$work/chat" --template chatml
check "which the judge sees as the record names it" eval 'scored one chat && grep -q developer "$work/answers.jsonl"'
check "of all weights, merged, beside others" judged one "$work/prompts.jsonl" "exact; $work/rm/adapter ;$work/merged" --reward-weights 1,0.5,0.5 --dtype bfloat16
check "in another order" judged other "$work/prompts.jsonl" "$work/merged;exact;$work/rm/adapter" --reward-weights 0.5,1,0.5 --dtype bfloat16
check "the same bytes" same
steps=1 check "a run that stops" judged other "$work/prompts.jsonl" "$work/rm"
mv "$work/rm" "$work/first_rm"
check "another judge" judge rm "$work/pairs.jsonl" --seed 9
runs "is not the run's" '2|3' 'data' train --resume --out "$work/other" --steps 2
rm -rf "$work/no"
moved() { # a run with its judge by a relative path goes on elsewhere, then with it beside the run; a rule is no folder
    mkdir "$work/there" "$work/there/exact" "$work/exact" && cd "$work/there" && mv ../first_rm own || return 1
    steps=1 judged moves "$work/prompts.jsonl" "own;exact" && cd / || return 1
    "$sheaf" train --resume --out "$work/moves" --steps 2 2>"$work/said" && mv "$work/there/own" "$work" &&
        "$sheaf" train --resume --out "$work/moves" --steps 3 2>"$work/said" || { cat "$work/said"; return 1; }
}
check "a judge beside where the run began, or the run" moved
runs "a model that gives logits" 2 '--reward .*model.*expected: .score.weight. of one label.*found: +that of a model which gives logits.*try: +a model of --objective reward' "${online[@]}" --generations 2 --reward "$model"
runs "no model" '2|3' '--reward ' "${online[@]}" --generations 2 --reward "$work"
printf '{"tokens": [1, 2, 3]}\n' >"$work/ids.jsonl"
runs "prompts that it cannot read" 3 '--reward .*rm.*expected: texts.*found: +token ids' train "$model" "$work/ids.jsonl" "${online[@]:3}" --generations 2 --reward "$work/rm"
absent "nothing is written" "$work/no"

cp -r "$work/merged" "$work/few"
sed 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 12/' -i "$work/few/config.json"
steps=1 check "a judge of few positions" judged one "$work/prompts.jsonl" "$work/few"
check "is warned of" grep -E "warning: .*few: [0-9]+ positions are more than the model's max_position_embeddings of 12" "$work/said"

# ---- pictures ----
for name in adam7_rgb8.png 420.jpg rgb8.png; do cp "$SHEAF_SOURCE_ROOT/tests/data/images/$name" "$work/"; done
cat >"$work/shown.jsonl" <<'END'
{"images": ["420.jpg"], "messages": [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "Noise."}]}
{"images": ["rgb8.png"], "messages": [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "e"}]}
{"images": ["adam7_rgb8.png"], "messages": [{"role": "user", "content": "Hm?"}, {"role": "assistant", "content": "e"}]}
{"messages": [{"role": "user", "content": "Without one?"}, {"role": "assistant", "content": "e"}]}
END
sed -E -e '1s/\{/{"sheaf_tokenizer": "bytes",/' -e 's/"vocab_size": *[0-9]+/"vocab_size": 350/' -e 's/"max_position_embeddings": *[0-9]+/"max_position_embeddings": 2048/' \
    -e 's/"((vision_start|vision_end|image|video)_token_id": *)/"\13/' "$SHEAF_SOURCE_ROOT/tests/data/successors/qwen2_5_vl/hf/config.json" >"$work/qwen2_5_vl-tiny"
cat >"$work/looks" <<'END'
{ # fails unless all prompts but one have pictures, which are there
    seen = match($0, /"images": \[[^]]*\]/)
    if (seen) n = split(substr($0, RSTART, RLENGTH), of, "\"")
    if (!seen != /"prompt": "Without one\?"/) exit 1
    for (i = 4; seen && i <= n; i += 2) { if ((getline line <of[i]) < 0) exit 1; close(of[i]) }
    print length($0) % 7
}
END
shown() { # shown OUT FLAG...
    local out=$work/$1 given=shown.jsonl
    shift
    rm -rf "$out"
    [[ $spec != cogagent* ]] || given=seen.jsonl # each row needs a picture
    "$sheaf" train "$work/$spec.model" "$work/$given" --eval-data "$work/$given" --objective grpo --reward "exec awk -f $work/looks" --generations 4 --max-new 6 --seed 3 \
        --out "$out" --micro-batch 2 --accumulate 4 --lr 1e-2 --schedule constant --warmup 0 --lora-rank 4 --steps "${steps:-3}" "$@" >"$work/said" 2>&1 || { local code=$?; cat "$work/said"; return $code; }
    ! grep 'nothing was trained' "$work/said"
}
head -n 3 "$work/shown.jsonl" >"$work/seen.jsonl"
specs="cogvlm-tiny minicpmv-tiny $work/qwen2_5_vl-tiny"
[ -z "${SHEAF_SOAK:-}" ] || specs+=" cogagent-tiny omnilmm-tiny minicpmv-2.5-tiny minicpmv-2.0-tiny minicpmv-4.5-tiny cogvlm2-tiny glm4v-tiny"
dtypes=float32
[ -z "${SHEAF_SOAK:-}" ] || dtypes="float32 bfloat16 float16"
for of in $specs; do
    spec=${of##*/}
    check "$spec" "$sheaf" init "$of" "$work/$spec.model" --seed 1 --quiet
    for dtype in $dtypes; do
        check "$spec: prompts with pictures, $dtype" shown one --dtype $dtype
        check "$spec: every ratio is 1, $dtype" exact
        for way in "--tp 2 --threads 2" "--dp 2"; do
            # shellcheck disable=SC2086
            check "$spec, $dtype, $way" shown other --dtype $dtype $way
            check "$spec, the same bytes, $dtype, $way" same
            check "$spec, every ratio is 1, $dtype, $way" exact
        done
    done
    steps=1 check "$spec: a run that stops" shown other --dtype $dtype
    check "$spec: goes on" "$sheaf" train --resume --out "$work/other" --steps 3 --tp 2 --quiet
    check "$spec: the same bytes" same
done
spec=minicpmv-tiny
steps=1 check "a run that stops" shown other
cp "$work/rgb8.png" "$work/420.jpg"
runs "is not the run's with another picture" '2|3' 'data' train --resume --out "$work/other" --steps 3
cp "$SHEAF_SOURCE_ROOT/tests/data/images/420.jpg" "$work/"
runs "a reward model sees none" 3 '--reward .*rm.*expected: prompts without pictures.*found: +some in prompt 1' train "$work/$spec.model" "$work/shown.jsonl" "${online[@]:3}" --generations 2 --reward "$work/rm"
absent "nothing is written" "$work/no"
runs "nor are they in a file of completions" 3 'expected: completions with rewards as JSON Lines, of a model that reads text alone' train "$work/$spec.model" --rollouts "$work/one/rollouts.jsonl" --objective grpo --steps 1 --out "$work/no"

# ---- what does not go together ----
mv "$work/first.jsonl" "$work/groups.jsonl"
no=(train "$model" --rollouts "$work/groups.jsonl" --out "$work/no" --steps 1 --objective grpo)
runs "groups of other steps" 3 'expected: groups of completions that each lie in one step of --micro-batch \* --accumulate = 2.*found: +completions 1 and 3 in one group' "${no[@]}" --micro-batch 2
runs "steps that are not whole" 3 'expected: whole steps .* = 12 completions.*found: +32' "${no[@]}" --micro-batch 12
runs "evaluations" 2 '--eval-split .*expected: none with --objective grpo' "${no[@]}" --eval-split 0.5
runs "half a completion" 2 '--on-long cut .*expected: none with --objective grpo' "${no[@]}" --on-long cut
runs "packed rows" 2 '--pack .*expected: none with --objective grpo' "${no[@]}" --pack
runs "weights of losses" 2 '--loss-weights .*expected: none with --objective grpo' "${no[@]}" --loss-weights 1
runs "smoothed labels" 2 '--label-smoothing .*expected: none with --objective grpo' "${no[@]}" --label-smoothing 0.1
runs "a reference that is not read" 2 '--reference .*expected: none with --objective grpo' "${no[@]}" --reference base
runs "of rloo's with a beta of 0" 2 '--reference .*expected: none with --objective rloo' train "$model" --rollouts "$work/groups.jsonl" --out "$work/no" --steps 1 --objective rloo --beta 0 --reference base
runs "none below 0 of pairs" 2 '--beta .*expected: above 0.*found: +0 or less' train "$model" --data "$work/groups.jsonl" --out "$work/no" --steps 1 --objective dpo --beta -1
for flag in epsilon temperature discopop-tau; do
    runs "--$flag 0" 2 "--$flag.*expected: a number, above 0" "${no[@]}" --$flag 0
done
runs "grpo's flags alone" 2 '--epsilon .*expected: none with --objective sft' train "$model" --data "$work/groups.jsonl" --out "$work/no" --steps 1 --epsilon 0.1
runs "an evaluation of its own" 3 '--objective grpo.*expected: an objective whose evaluation needs no rewards' eval --model "$model" --data "$work/groups.jsonl" --objective grpo
sed 's/"rewards": \[[^]]*\]/"rewards": [null, null, null, null]/' "$work/groups.jsonl" >"$work/none.jsonl"
runs "no reward at all" 3 'expected: a reward of a completion.*found: +none' train "$model" --rollouts "$work/none.jsonl" --out "$work/no" --steps 1 --objective grpo --micro-batch 8
absent "nothing is written" "$work/no"

# ---- memory ----
base=$(peak_of version)
model=$work/larger
"$sheaf" init "$SHEAF_SOURCE_ROOT/demo/model.json" "$model" --seed 1 >/dev/null 2>&1 || fail "init of a model to measure"
check "a judge as large" eval 'judge large "$work/pairs.jsonl" && "$sheaf" merge "$model" "$work/large/adapter" "$work/merged.large"'
for ((i = 0; i < 24; i++)); do
    printf '{"prompt": "%060d", "completions": [" yes %0*d", " no."], "rewards": [1, 0]}\n' $i $((10 + i)) $i
done >"$work/long.jsonl"
for flags in "--objective grpo" "--objective grpo --beta 0.1 --tp 3" "--objective rloo --method full --dtype bfloat16"; do
    # shellcheck disable=SC2086
    check "planned and measured: $flags" predicted "$model" "$work/long.jsonl" --micro-batch 4 $flags
done
for ((i = 0; i < 24; i++)); do printf '{"prompt": "%060d is", "completion": "e"}\n' $i; done >"$work/long.jsonl"
sampled=(--objective grpo --generations 4 --lora-targets all-linear --lora-rank 4)
for flags in "--max-new 100 --micro-batch 4 --accumulate 4" "--max-new 60 --micro-batch 2 --accumulate 40 --tp 2 --beta 0.1 --threads 2" "--max-new 80 --micro-batch 4 --accumulate 4 --dp 2 --dtype bfloat16"; do
    [[ $flags != *beta* ]] || flags+=" --eval-data $work/long.jsonl"
    # shellcheck disable=SC2086
    steps=1 check "planned and measured: sampled, $flags" predicted "$model" "$work/long.jsonl" "${sampled[@]}" --reward exact $flags
done
for flags in "--max-new 80 --micro-batch 4 --accumulate 4" "--max-new 60 --micro-batch 2 --accumulate 8 --tp 2 --dtype bfloat16"; do
    # shellcheck disable=SC2086
    steps=1 check "planned and measured: judged by a model, $flags" predicted "$model" "$work/long.jsonl" "${sampled[@]}" --reward "exact;$work/merged.large" $flags
done
rank_0() { "$sheaf" plan --model "$model" "${sampled[@]}" --reward exact --max-new 30 --micro-batch 4 --accumulate 2 --json "$@" 2>/dev/null | grep -oE '"peak":[0-9]+' | head -n 1; }
check "without data the same" test "$(rank_0 --seq 94)" = "$(rank_0 --data "$work/long.jsonl")" -a -n "$(rank_0 --seq 94)"
runs "what a step leaves lies beside what the next one samples" 0 '"peak":438304768' plan --config "$SHEAF_SOURCE_ROOT/tests/data/configs/mini.json" \
    --objective grpo --generations 16 --reward exact --max-new 30 --seq 600 --micro-batch 1 --accumulate 256 --threads 1 --json # else 2 MiB less
finish
