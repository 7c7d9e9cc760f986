#!/usr/bin/env bash
# Several data sets with weights: the same bytes at every number of ranks, groups and threads and after a stop; relative
# paths, settings, messages.
. "$(dirname "$0")/lib.sh"
odd_model "$work/odd"
sed -i 's/"vocab_size": 511/"vocab_size": 259/; s/"bos_token_id": 1, "eos_token_id": 2/"bos_token_id": 256, "eos_token_id": 257, "sheaf_tokenizer": "bytes"/' "$work/odd.json"
rm -rf "$work/odd"
"$sheaf" init "$work/odd.json" "$work/odd" --seed 5 >/dev/null || fail "init"
for i in $(seq 9); do echo "{\"text\": \"a record of the first file, number $i\"}"; done >"$work/a.jsonl"
for i in $(seq 4); do echo "{\"prompt\": \"question $i\", \"completion\": \"answer $i of the second\"}"; done >"$work/b.jsonl"
cat "$work/a.jsonl" "$work/b.jsonl" >"$work/all.jsonl"
how=(--method lora --lora-rank 3 --lora-alpha 6 --lora-dropout 0.1 --micro-batch 2 --accumulate 4 --lr 1e-2 --schedule constant --seed 3 --save-every 2)
mix=$work/a.jsonl:0.25,$work/b.jsonl:0.75
train() { # train OUT FLAG...
    local out=$1
    shift
    "$sheaf" train --model "$work/odd" -o "$work/$out" "${how[@]}" "$@" >"$work/log" 2>&1 || fail "train $out" "$(cat "$work/log")"
}
differ() { ! diff -rq "$1" "$2" >/dev/null; }

# ---- the order is the run's, not the machine's ----
train one --data "$mix" --steps 6 --threads 1
train two --data "$mix" --steps 6 --tp 2 --threads 3
train groups --data "$mix" --steps 6 --tp 3 --dp 2
train stopped --data "$mix" --steps 3 --tp 2
train stopped --resume --steps 6 --dp 2
for other in two groups stopped; do same "$other: the same adapter as of one rank" "$work/one/adapter" "$work/$other/adapter"; done
same "and the same losses" <(same_metrics "$work/one/metrics.jsonl") <(same_metrics "$work/groups/metrics.jsonl")
check "the settings have the list" grep -qF "data: $mix" "$work/one/settings"
train even --data "${mix/0.25/3}" --steps 6
check "other weights are another run" differ "$work/one/adapter" "$work/even/adapter"
runs "and no continuation" '[23]' 'the data' train --resume -o "$work/stopped" --steps 8 --data "${mix/0.25/3}"
for way in "--pack --seq 64" --group-by-length "--no-shuffle" "--eval-split 0.3 --eval-every 3"; do
    # shellcheck disable=SC2086
    { train w1 --data "$mix" --steps 4 $way; train w2 --data "$mix" --steps 2 --tp 3 $way; train w2 --resume --steps 4 --dp 2; }
    same "$way: stopped, at other ranks and groups" "$work/w1/adapter" "$work/w2/adapter"
    rm -rf "$work/w1" "$work/w2"
done

# ---- without weights a list is one file ----
train list --data "$work/a.jsonl,$work/b.jsonl" --epochs 2
train file --data "$work/all.jsonl" --epochs 2
same "without weights it is one file with all records" "$work/list/adapter" "$work/file/adapter"
runs "an evaluation reads each record once" 0 '"tokens": *[1-9]' eval --model "$work/odd" --data "$work/a.jsonl,$work/b.jsonl" --json
cp "$work/stdout" "$work/eval"
runs "as of one file" 0 . eval --model "$work/odd" --data "$work/all.jsonl" --json
same "with the same numbers" "$work/eval" "$work/stdout"
runs "and knows no weights" 2 'found: +0\.25.*leave the weights out' eval --model "$work/odd" --data "$mix"
runs "so of --eval-data" 2 '--eval-data.*leave the weights out' train --model "$work/odd" -o "$work/no" "${how[@]}" --steps 1 --data "$mix" --eval-data "$mix"
runs "a plan reads them too" 0 '"peak"' plan --model "$work/odd" --data "$mix" "${how[@]}" --json

# ---- of different forms ----
tokens_file "$work/rows.safetensors" 3 6 "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18" "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 -100 -100 -100"
for way in "" "--pack --seq 64"; do
    for run in "f1 --tp 1" "f2 --tp 2 --dp 2"; do
        # shellcheck disable=SC2086
        train ${run%% *} --data "$work/rows.safetensors:1,$work/b.jsonl:2,$work/a.jsonl:1" --steps 3 ${run#* } $way
    done
    same "rows of tokens beside texts${way:+, packed}" "$work/f1/adapter" "$work/f2/adapter"
    rm -rf "$work/f1" "$work/f2"
done

# ---- names ----
mkdir -p "$work/here/x" && cp "$work/a.jsonl" "$work/b.jsonl" "$work/here/x" && cp "$work/a.jsonl" "$work/here/x/a.jsonl:0.5"
cd "$work/here" || exit 1
train rel --data "x/a.jsonl:0.25,x/b.jsonl:0.75" --steps 2
cd / || exit 1
train rel --resume --steps 6
same "relative names count from where the run began" "$work/one/adapter" "$work/rel/adapter"
train named --data "$work/here/x/a.jsonl:0.5" --steps 2
train plain --data "$work/a.jsonl" --steps 2
same "a file of that very name is what it names" "$work/named/adapter" "$work/plain/adapter"
for wrong in 0 -1 nan x 0x1 " 1"; do
    runs "a weight of $wrong" 2 "weight of .*a\.jsonl +expected: a number above 0 +found: +$wrong" train --model "$work/odd" -o "$work/no" "${how[@]}" --steps 1 --data "$work/a.jsonl:$wrong,$work/b.jsonl:1"
done
runs "a weight too small for a sample" 2 'weight of .*a\.jsonl.*at least one sample of an epoch of 13' train --model "$work/odd" -o "$work/no" "${how[@]}" --steps 1 --data "$work/a.jsonl:1,$work/b.jsonl:1e6"
runs "none behind a comma" 2 'several with a comma.*none at the end' train --model "$work/odd" -o "$work/no" "${how[@]}" --steps 1 --data "$work/a.jsonl,"
runs "nor in --eval-data" 2 'sheaf: --eval-data: list of data sets +expected' train --model "$work/odd" -o "$work/no" "${how[@]}" --steps 1 --data "$work/a.jsonl" --eval-data "$work/a.jsonl,"
runs "nor before one" 2 'none before a comma' train --model "$work/odd" -o "$work/no" "${how[@]}" --steps 1 --data "$work/a.jsonl,,$work/b.jsonl"
runs "one that is not there" '[123]' 'missing\.jsonl' train --model "$work/odd" -o "$work/no" "${how[@]}" --steps 1 --data "$work/a.jsonl:1,$work/missing.jsonl:2"
absent "nothing was begun" "$work/no/checkpoints"
finish
