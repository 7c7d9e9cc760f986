#!/usr/bin/env bash
# A CogVLM and a CogAgent that sheaf made: every command takes them, and what a run in full leaves; losses are the same at
# any number of ranks and in any form.
. "$(dirname "$0")/lib.sh"

check "pictures" "$SHEAF_BUILD_ROOT/examples/captcha" night "$work/pictures" 6 4
data=$work/pictures/heldout
# loss NAME MODEL TP: of the pictures, into $loss.
loss() {
    runs "$1" 0 '"loss":' eval --model "$2" --data "$data" --tp "$3" --json
    loss=$(json_number "$work/stdout" loss)
}
between() { awk -v x="$1" -v a="$2" -v b="$3" 'BEGIN { exit !(x != "" && x > a && x < b) }'; }

for family in cogvlm cogagent; do
    m=$work/$family
    runs "$family: init" 0 'parameters' init $family-tiny "$m" --seed 3
    runs "$family: is sound" 0 "model +$family .*sound" verify "$m"
    runs "$family: info" 0 "model +$family.*tokenizer +bytes" info "$m"
    loss "$family: a loss" "$m" 1
    check "$family: of a model that knows nothing" between "$loss" 4 9
    one=$loss
    loss "$family: on three ranks" "$m" 3
    check "$family: the same" test "$loss" = "$one"
    runs "$family: to SAT, two parts" 0 'hf to sat' convert "$m" "$work/sat" --to sat --tp 2
    runs "$family: sound" 0 'parallel size +2.*sound' verify "$work/sat"
    loss "$family: from there" "$work/sat" 2
    check "$family: the same loss" test "$loss" = "$one"

    runs "$family: two steps in full" 0 . train --model "$work/sat" --data "$work/pictures/train" --out "$work/run" --method full \
        --steps 2 --micro-batch 3 --lr 1e-3 --threads 1
    runs "$family: leave a sound model" 0 "model +$family .*sound" verify "$work/run/model"
    check "$family: that says what it is" grep -q "\"model_type\": \"$family\"" "$work/run/model/config.json"
    check "$family: whole" grep -q '"model_parallel_size": 1' "$work/run/model/config.json"
    loss "$family: and learned" "$work/run/model" 1
    check "$family: something" between "$loss" 0 "$one"
    one=$loss
    runs "$family: to SAT again" 0 'hf to sat' convert "$work/run/model" "$work/sat4" --to sat --tp 4
    loss "$family: in four parts on two ranks" "$work/sat4" 2
    check "$family: the same loss as trained" test "$loss" = "$one"
    rm -rf "$work/sat" "$work/sat4" "$work/run"
done
finish
