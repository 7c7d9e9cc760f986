#!/usr/bin/env bash
# eval and generate on ranks that are processes: numbers, logits and answers are those of one rank; processes that do not
# have the same are told so, and one that fails ends all.
#
#   answers.sh MPI
. "$(dirname "$0")/lib.sh"

tiny=$llama/tiny_llama/hf
for n in 5,6,7 8 9,10 11,12,13,14 15,16 17 18,19; do echo "{\"tokens\": [$n], \"completion\": \"$n\"}"; done >"$work/prompts.jsonl"
for n in one two three four five; do echo "{\"prompt\": \"$n is\", \"completion\": \"${#n}\"}"; done >"$work/rows.jsonl"
odd_model "$work/odd" || fail "init of the odd model"
sed -i '0,/{/s//{"sheaf_tokenizer": "bytes", /' "$work/odd/config.json"
judge=(eval --model "$work/odd" --micro-batch 2 --match --max-new 3 --json)
ask=(generate --model "$tiny" --max-new 6 --batch 2 --temperature 0.9 --seed 5 --logprobs 2 --json)

runs "one rank judges" 0 '"exact_match"' "${judge[@]}" --data "$work/rows.jsonl" --save-logits "$work/logits"
cp "$work/stdout" "$work/judged"
runs "one rank answers" 0 '"logprobs"' "${ask[@]}" --data "$work/prompts.jsonl"
cp "$work/stdout" "$work/answered"
ranks 4 "$sheaf" "${judge[@]}" --data "$work/rows.jsonl" --tp 2 --dp 2 --transport mpi --save-logits "$work/logits.4" >"$work/stdout" 2>"$work/stderr"
same "2 groups of 2 processes judge alike" "$work/judged" "$work/stdout"
same "to the same logits" "$work/logits" "$work/logits.4"
check "and say where they are" grep -q "^4 processes on $(hostname)" "$work/stderr"
runs "processes that the command starts answer" 0 '"logprobs"' "${ask[@]}" --data "$work/prompts.jsonl" --dp 3 --transport mpi --mpi "$mpi"
same "the same" "$work/answered" "$work/stdout"
runs "one prompt over stages" 0 '^[0-9]+,' generate --model "$tiny" --tokens 5,6 --max-new 3 --greedy --place 2 --transport mpi --mpi "$mpi"
"$sheaf" generate --model "$tiny" --tokens 5,6 --max-new 3 --greedy >"$work/alone" 2>/dev/null
same "is answered once, as on one" "$work/alone" "$work/stdout"

runs "an adapter" 0 . train --model "$work/odd" --data "$work/rows.jsonl" --steps 1 --micro-batch 1 --out "$work/run"
cp -r "$work/odd" "$work/changed"
printf '\x3f' | dd of="$work/changed/model.safetensors" bs=1 seek=$(($(stat -c %s "$work/odd/model.safetensors") / 2)) conv=notrunc 2>/dev/null
for n in 2 3; do
    check "$n processes hash its base together" ranks $n "$sheaf" generate --model "$work/odd" --adapter "$work/run/adapter" --tokens 5,6 --max-new 1 --tp $n --transport mpi
    ranks $n "$sheaf" generate --model "$work/changed" --adapter "$work/run/adapter" --tokens 5,6 --max-new 1 --tp $n --transport mpi >"$work/log" 2>&1
    check "and know another" bash -c '[ "$(grep -c "^sheaf: .*adapter: its base" "$0")" = 1 ]' "$work/log"
done

cat >"$work/each" <<'END2'
# each FIRST SECOND COMMAND...: the first process runs the command with the words FIRST, any other with SECOND
[ "${OMPI_COMM_WORLD_RANK:-}${PMI_RANK:-}" = 0 ] && more=$1 || more=$2
shift 2
exec "$@" $more
END2
sed 's/\[8\]/[9]/' "$work/prompts.jsonl" >"$work/other.jsonl"
sed 's/"rms_norm_eps": [^,]*/"rms_norm_eps": 0.5/' "$work/odd/config.json" >"$work/other.json"
differs() { # differs NAME PATTERN FIRST SECOND COMMAND...
    local name=$1 pattern=$2 first=$3 second=$4
    shift 4
    ranks 2 bash "$work/each" "$first" "$second" "$sheaf" "$@" --tp 2 --transport mpi >"$work/log" 2>&1 && fail "$name: is refused" "it was done"
    check "$name: told once, of rank and host" bash -c '[ "$(grep "^sheaf: " "$0")" = "sheaf: rank 1 on $1: $2" ]' "$work/log" "$(hostname)" "$pattern"
}
differs "no model on one" /nowhere "--model $work/odd" "--model /nowhere" eval --data "$work/rows.jsonl" --save-logits "$work/none"
differs "other prompts" "the prompts" "--data $work/prompts.jsonl" "--data $work/other.jsonl" generate --model "$tiny" --max-new 2
cp -r "$work/odd" "$work/ends"
for end in odd:3 ends:4; do echo "{\"eos_token_id\": [2, ${end#*:}]}" >"$work/${end%:*}/generation_config.json"; done
differs "another eos_token_id" "the ids that end an answer" "--model $work/odd" "--model $work/ends" generate --tokens 5,6 --max-new 2
check "with the ids of both" bash -c 'grep -q "expected: 2, 3, as in the first" "$0" && grep -q "found:  *2, 4$" "$0"' "$work/log"
pictures=$SHEAF_SOURCE_ROOT/tests/data/images
runs "a model that sees" 0 . init cogvlm-tiny "$work/vlm" --seed 3
differs "another picture" "the prompts" "--image $pictures/grey16.png" "--image $pictures/one.png" generate --model "$work/vlm" --prompt what --max-new 2
differs "another config" "the model's config" "--config $work/odd/config.json" "--config $work/other.json" eval --model "$work/odd" --data "$work/rows.jsonl" --save-logits "$work/none"
absent "and nothing is begun" "$work/none"
ranks 2 "$sheaf" generate --model "$tiny" --tokens 5,6 --max-new 3 --greedy >"$work/stdout" 2>"$work/stderr"
same "without --transport mpi the first works alone" "$work/alone" "$work/stdout"
check "and says so once" bash -c '[ "$(grep -c "the first of 2 processes" "$0")" = 1 ] && grep -q -- "--transport mpi divides" "$0"' "$work/stderr"

"$sheaf" generate --model "$tiny" --tokens 5,6 --max-new 100000 --max-length 200000 --greedy --tp 2 --transport mpi --mpi "$mpi" --json >"$work/stdout" 2>"$work/stderr" &
caller=$!
check "a long answer has begun" waits grep -q "^2 processes" "$work/stderr"
sleep 0.5
kill -INT $caller
wait $caller
check "Ctrl-C ends it, with the code of what was stopped" test $? = 3
check "what there is of the answer is printed" grep -q '"end":"stopped"' "$work/stdout"
check "and what the user sent is named" grep -q '"code": "stopped", "where": "SIGINT: generate", .*after [1-9][0-9]* tokens' "$work/stdout"
finish
