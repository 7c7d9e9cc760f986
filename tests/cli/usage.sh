#!/usr/bin/env bash
# The command's own words: help, version, wrong usage, exit codes.
. "$(dirname "$0")/lib.sh"

runs "no argument is wrong usage and shows the commands" 2 'train.*generate|generate.*train'
runs "help lists the commands" 0 'train' help
runs "--help does the same" 0 'train' --help
runs "--version names the program and its contract" 0 'sheaf 0\.[0-9]+\.[0-9]+' --version
for command in info verify convert merge diff init plan train eval generate render translate; do
    runs "$command --help shows its usage" 0 "usage: sheaf $command" "$command" --help
done
runs "a model that is none built in is told what there is" 2 'minicpmv-tiny' init nosuch "$work/none"
specs=$(sed -n 's/.*or a built-in name: //p' "$work/stderr" | tr -d ,)
runs "init --help" 0 . init --help
for spec in $specs; do check "init --help names $spec" grep -qF "$spec" "$work/stdout"; done
for word in version -V "--version"; do runs "$word is the version" 0 '^sheaf 0\.[0-9]+\.[0-9]+ $' $word; done
runs "as JSON" 0 '^[{]"version": "0\.[0-9]+\.[0-9]+"[}] $' --version --json
runs "help --help is help" 0 '^usage: sheaf COMMAND' help --help
runs "--help help too" 0 '^usage: sheaf COMMAND' --help help
runs "help --help train explains it" 0 '^usage: sheaf train' help --help train
runs "an unknown command --json" 2 '^[{]"error": [{]"code": "usage", "where": "nosuch", "expected": "a command of sheaf", "found": "", "try": "sheaf help lists them"[}][}] sheaf: nosuch' nosuch --json
runs "an unknown command of help --json" 2 '^[{]"error": ' help nosuch --json
runs "a temperature has one least" 2 '^sheaf: --temperature +expected: a number, at least 1e-06 and at most 1000000 +found: +-1 +try: +--greedy, which always takes the most probable token $' generate --model a --temperature -1
runs "also at 0" 2 '^sheaf: --temperature +expected: a number, at least 1e-06 and at most 1000000 +found: +0 +try: +--greedy, which always takes the most probable token $' generate --model a --temperature 0
for command in train plan; do
    runs "$command --help" 0 . $command --help
    check "names no flag that is refused" sh -c "! grep -qE -- '--carrier' '$work/stdout'"
done
runs "a dtype that is none is told what there is" 2 '^sheaf: --dtype +expected: float32, bfloat16 or float16 +found: +float64 ' train --dtype float64
runs "an unknown command is wrong usage" 2 'tarin' tarin
runs "and the nearest one is offered" 2 'try:.*train' tarin
runs "an unknown flag is wrong usage" 2 'lora-rnk' train --lora-rnk 8
runs "and the nearest one is offered" 2 'try:.*--lora-rank' train --lora-rnk 8
# What other programs call a flag: each with its whole message.
peer() { # peer COMMAND FLAG OURS
    local word
    for word in "--$2" "--${2//-/_}" "--$2=1"; do
        runs "$1 $word" 2 "^sheaf: ${word} +expected: a flag of sheaf $1 +try: +sheaf calls it --$3 \$" "$1" "$word" 1
    done
}
peer train num-train-epochs epochs
peer train eval-steps eval-every
peer train val-size eval-split
peer train batch-size micro-batch
peer train per-device-train-batch-size micro-batch
peer train gradient-accumulation-steps accumulate
peer train learning-rate lr
peer train max-length seq
peer train output-dir out
peer train target-modules lora-targets
peer train lora-r lora-rank
peer train save-total-limit keep
peer train lr-scheduler-type schedule
peer train bf16 'dtype bfloat16'
peer train fp16 'dtype float16'
peer train model-name-or-path model
peer generate max-new-tokens max-new
peer generate batch-size batch
peer eval batch-size micro-batch
runs "an underscore for a dash" 2 'try: +sheaf calls it --lora-alpha $' train --lora_alpha 16
runs "merge --output-dir" 2 'try: +no flag: DST, the last word, says where to $' merge a b --output-dir c
runs "convert --out" 2 'try: +no flag: DST, the last word, says where to $' convert a --out b
printf 'learning_rate: 1e-4\n' >"$work/peers.recipe"
runs "in a recipe too" 2 "try: +sheaf calls it lr \$" train --recipe "$work/peers.recipe"
runs "a flag without its value is wrong usage" 2 'steps' train --steps
runs "a number that is none is named with its flag" 2 '--steps.*ten' train --model a --data b --out c --steps ten
runs "train without a model says what is missing" 2 '--model' train --data b --out c --steps 1
runs "a result goes to stdout" 0 . --version
check "and nothing to stderr" test ! -s "$work/stderr"
runs "an error goes to stderr" 2 . tarin
check "and nothing to stdout" test ! -s "$work/stdout"
runs "what would steer a terminal" 3 'a\?\[31mb' info "$work/"$'a\e[31mb'
check "is not in a message" sh -c "! grep -q '$(printf '\033')' '$work/stderr'"

# Streams that are closed: their numbers are not those of the files that are opened next.
runs "a small model" 0 . init cogvlm-tiny "$work/model"
"$sheaf" chat --model "$work/model" <&- >"$work/stdout" 2>"$work/stderr"
check "a chat without an input ends at once" test $? -eq 0
check "and has read nothing" test ! -s "$work/stdout"
"$sheaf" init cogvlm-tiny "$work/same" 2>&- >"$work/stdout"
same "nowhere to tell progress: it is in no file" "$work/model" "$work/same"
"$sheaf" --version >&- 2>"$work/stderr"
check "nowhere to put a result is a failure" test $? -eq 3
# ---- begun several times by an MPI's launcher ----
OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_RANK=0 runs "a command that runs on threads, as the first of three processes" 0 'warning: this is the first of 3 processes that mpirun began: it does all of it, as sheaf info does not divide' info "$llama/tiny_llama/hf"
OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_RANK=2 "$sheaf" info "$llama/tiny_llama/hf" >"$work/stdout" 2>"$work/stderr"
check "the others do and say nothing" bash -c '[ ! -s "$0/stdout" ] && [ ! -s "$0/stderr" ]' "$work"
finish
