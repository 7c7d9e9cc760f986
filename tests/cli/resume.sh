#!/usr/bin/env bash
# A run goes on, and its checkpoints are used, with the base it began from and with no other; how it is told to go on.
. "$(dirname "$0")/lib.sh"

captions

# zero_rows FILE BYTE BYTES: that many bytes become zero.
zero_rows() { dd if=/dev/zero of="$1" bs=1 seek="$2" count="$3" conv=notrunc 2>/dev/null; }
# place FILE TENSOR: where its data begin and end in the file.
place() {
    local header
    header=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    head -c $((8 + header)) "$1" | tail -c +9 | grep -oE "\"$2\": ?\{[^}]*\}" | grep -oE '\[[0-9]+, ?[0-9]+\]\}' | tr -d '[]}' | tr ',' ' ' |
        { read -r begin end; echo $((8 + header + begin)) $((8 + header + end)); }
}

# refused NAME PATTERN MODEL DATA STEP OUT: whatever uses the run says so.
refused() {
    local name=$1 pattern=$2 model=$3 data=$4 step=$5 out=$6
    runs "$name: resume" 2 "--resume: the base model: $pattern" train --resume --out "$out" --steps 3
    runs "$name: eval" 3 "the base of the run: $pattern" eval --model "$step" --data "$data"
    runs "$name: generate" 3 "the base of the run: $pattern" generate --model "$step" "${ask[@]}" --max-new 2
    runs "$name: chat" 3 "the base of the run: $pattern" chat --model "$step" --max-new 2
    runs "$name: the base given" 3 "the base of the run: $pattern" eval --model "$model" --adapter "$step" --data "$data"
    [ "$step" != "$out" ] && [ -d "$out/adapter" ] || return 0 # a whole model stands alone
    runs "$name: the result" 3 "the base of the run: $pattern" generate --model "$out" "${ask[@]}" --max-new 2
}

# ---- Llama: adapter and whole tensors ----
ask=(--tokens 5,9,2)
data=$llama/tiny_llama/fwd_inputs.safetensors
for method in lora head full; do
    model=$(copy_model tiny_llama)
    out=$work/$method
    runs "$method" 0 . train --model "$model" --data "$data" --out "$out" --method $method --steps 2 --save-every 1 --micro-batch 1 --tp 3
    step=$out/checkpoints/step-00000001
    sed -i.was 's/"rms_norm_eps": 1e-05/"rms_norm_eps": 2e-05/' "$model/config.json"
    refused "$method, rms_norm_eps" 'config, rms_norm_eps .*expected: 1e-05.*found: +2e-05' "$model" "$data" "$step" "$out"
    [ $method != lora ] || refused "result, rms_norm_eps" 'config, rms_norm_eps ' "$model" "$data" "$out" "$out"
    mv "$model/config.json.was" "$model/config.json"
    read -r begin end < <(place "$model/model.safetensors" model.layers.1.mlp.down_proj.weight)
    cp "$model/model.safetensors" "$work/weights"
    zero_rows "$model/model.safetensors" $((begin + 172 * 4)) $((end - begin - 2 * 172 * 4)) # all rows but the first and the last
    refused "$method, rows" "weights, tensor 'model.layers.1.mlp.down_proj.weight' " "$model" "$data" "$step" "$out"
    cp "$work/weights" "$model/model.safetensors"
    runs "$method: the base of old" 0 '"loss"' eval --model "$step" --data "$data" --json
    runs "$method: in shards" 0 '"loss"' eval --model "$llama/tiny_llama/hf_sharded" --adapter "$step" --data "$data" --json
    runs "$method: and goes on" 0 'going on after step 2' train --resume --out "$out" --steps 3 --tp 2
done

# ---- CogVLM ----
ask=(--image "$work/caps/98.jpg" --prompt "Which?")
runs "a CogVLM" 0 . init cogvlm-tiny "$work/vlm" --seed 3 --dtype bfloat16
runs "is trained" 0 . train --model "$work/vlm" --data "$work/caps" --out "$work/cog" --steps 1 --micro-batch 1
step=$work/cog/checkpoints/step-00000001
cp "$work/vlm/config.json" "$work/config.json"
for change in '1s/{/{ "layernorm_epsilon": 1e-06,/:config, layernorm_epsilon ' 's/"layernorm_epsilon": 1e-06/"layernorm_epsilon": 1e-07/:config, eva_args.layernorm_epsilon '; do
    sed "${change%%:config*}" "$work/config.json" >"$work/vlm/config.json"
    cmp -s "$work/config.json" "$work/vlm/config.json" && fail "$change" "nothing changed: $(cat "$work/config.json")"
    refused "${change##*:}" "${change##*:}" "$work/vlm" "$work/caps" "$step" "$work/cog"
done
cp "$work/config.json" "$work/vlm/config.json"
runs "as SAT saves it in two" 0 . convert "$work/vlm" "$work/sat" --to sat --tp 2
runs "the same base in another dialect" 0 '"loss"' eval --model "$work/sat" --adapter "$step" --data "$work/caps" --json
runs "goes on with it" 0 . train --resume --out "$work/cog" --model "$work/sat" --steps 2

# ---- how one goes on ----
model=$llama/tiny_llama/hf
mkdir -p "$work/project/models" "$work/project/runs"
cp -r "$model" "$work/project/models/base"
chmod -R u+w "$work/project"
cp "$data" "$work/project/rows.safetensors"
flags=(train --model models/base --data rows.safetensors --lora-rank 2 --micro-batch 1 --save-every 1)
here=$PWD
cd "$work/project"
runs "with relative paths" 0 . "${flags[@]}" --steps 2 --out runs/whole
runs "a part of it" 0 . "${flags[@]}" --steps 1 --out runs/one
cp -r runs/one runs/two
cp -r runs/one runs/three
check "as they were given" grep -q '^model: models/base$' runs/one/settings
cd /
runs "goes on from another folder" 0 'going on after step 1' train --resume --out "$work/project/runs/one" --steps 2
same "to the same result" "$work/project/runs/whole/adapter" "$work/project/runs/one/adapter"
same "and checkpoint" "$work/project/runs/whole/checkpoints/step-00000002" "$work/project/runs/one/checkpoints/step-00000002"
runs "is evaluated there" 0 '"loss"' eval --model "$work/project/runs/one/checkpoints/step-00000001" --data "$data" --json
runs "and its result" 0 '"tokens"' generate --model "$work/project/runs/one" --tokens 5,9 --max-new 2 --json
mkdir "$work/other"
cp -r "$model" "$work/other/base2"
cd "$work/other"
runs "another base, from here" 0 . train --resume --out ../project/runs/three --steps 2 --model base2
cd /
runs "which the settings then name" 0 . train --resume --out "$work/project/runs/three" --steps 3
mv "$work/project" "$work/moved"
rm -rf "$work/other"
runs "moved with all it needs" 0 'going on after step 2' train --resume --out "$work/moved/runs/one" --steps 3
mv "$work/moved/runs/two" "$work/two"
runs "moved alone" 3 "--model models/base, as the run started .*expected: it in $work/project, where the run began, in this folder, or beside the run .*found: +nothing there .*try: +say where it lies now: sheaf train --resume --out $work/two --model PATH" \
    train --resume --out "$work/two" --steps 2
runs "and told where it is" 0 . train --resume --out "$work/two" --steps 2 --model "$work/moved/models/base" --data "$data"
cd "$here"

runs "a folder that is not there" 2 "sheaf: --resume --out $work/tow .*expected: the folder of a run, which holds its settings and checkpoints .*found: +nothing there .*try: +sheaf train --resume --out $work/two" train --resume --out "$work/tow"
runs "and nothing like it" 2 "found: +nothing there .*try: +the --out that the run began with; a new one begins without --resume" train --resume --out "$work/entirely-elsewhere"
mkdir "$work/nothing"
runs "a folder without a run" 2 "--resume --out $work/nothing .*found: +no run in it" train --resume --out "$work/nothing"
absent "which is left as it was" "$work/nothing/checkpoints"
runs "with all flags a new run" 0 'no checkpoint yet' train --resume --model "$model" --data "$data" --steps 1 --micro-batch 1 --out "$work/nothing"

# A flag that says what the run does anyway is no change: not when the same command comes again, as with --restarts.
for method in lora head full; do
    own=4
    [ $method != full ] || own=1
    flags=(train --model "$model" --data "$data" --micro-batch 1 --method $method --out "$work/own-$method")
    runs "$method: its own number of accumulators" 0 . "${flags[@]}" --steps 1 --accumulators $own
    runs "$method: the same again" 0 'going on after step 1' "${flags[@]}" --steps 2 --accumulators $own --resume
    runs "$method: or none" 0 'going on after step 2' "${flags[@]}" --steps 3 --resume
    runs "$method: but no other" 2 "--accumulators cannot change .*expected: $own, as the run began .*found: +8" "${flags[@]}" --steps 4 --accumulators 8 --resume
done

# ---- settings that were changed ----
runs "a run" 0 . train --model "$model" --data "$data" --steps 1 --micro-batch 1 --lora-targets q_proj --out "$work/began"
changed() { # changed NAME CODE PATTERN EDIT: what --resume says of the run's settings after an edit of them
    cp "$work/began/settings" "$work/settings"
    sed -i "$4" "$work/began/settings"
    runs "$1" "$2" "$3" train --resume --out "$work/began" --steps 2
    ! [[ $3 = "sheaf: $work"* ]] || runs "$1: eval" "$2" "$3" eval --model "$work/began" --data "$data"
    mv "$work/settings" "$work/began/settings"
}
changed "a value is named with its file and line" 2 "sheaf: $work/began/settings:[0-9]+: 'tp' .*expected: a whole number" 's/^tp: .*/tp: many/'
changed "so is a key" 2 "sheaf: $work/began/settings:[0-9]+: 'brand-new' .*expected: a setting that this sheaf knows.*try: +a newer sheaf: a later one may have written it" '$abrand-new: 1'
changed "a line that is gone" 2 '--resume: the settings.*expected: those this run began with: lora-targets: q_proj .*found: +none' '/^lora-targets/d'
changed "a line that came" 2 '--resume: the settings.*expected: those this run began with: no lora-exclude .*found: +others: lora-exclude: mlp' '$alora-exclude: mlp'
changed "another line" 2 '--resume: the settings.*expected: those this run began with: seed: 42 .*found: +others: seed: 43' 's/^seed: .*/seed: 43/'
changed "no line at all" 2 "$work/began/settings: --model and --data \(or --rollouts\) are missing .*try: +give it as the run began" d
runs "as they were it goes on" 0 'going on after step 1' train --resume --out "$work/began" --steps 2

# Its own log is no reason to refuse.
mkdir "$work/logged"
"$sheaf" train --model "$model" --data "$data" --steps 1 --micro-batch 1 --out "$work/logged" >"$work/logged/train.log" 2>"$work/logged/train.err" </dev/null
check "a run that writes its log into its folder" grep -q 'steps done' "$work/logged/train.log"
mkdir "$work/notes"
echo mine >"$work/notes/notes.txt"
"$sheaf" train --model "$model" --data "$data" --steps 1 --micro-batch 1 --out "$work/notes" >"$work/notes/train.log" 2>&1 </dev/null
check "another file is" test $? -eq 2
check "and says so" grep -q 'a folder with files in it' "$work/notes/train.log"

# The advice of a run that is stopped can be pasted.
stopped="$work/it stops"
"$sheaf" train --model "$model" --data "$data" --steps 100000000 --micro-batch 1 --out "$stopped" 2>"$work/stderr" </dev/null &
process=$!
waits grep -q 'step [0-9]' "$work/stderr"
kill -TERM $process
wait $process
advice=$(sed -n 's/.*go on with: sheaf //p' "$work/stderr")
check "the advice names the folder" test "$advice" = "train --resume --out '$stopped'"
eval "runs 'and is the command' 0 'going on after step' $advice --steps 1"
# ---- more steps, or fewer ----
runs "a short run" 0 . init tiny-bytes "$work/small"
echo '{"prompt": "a", "completion": "b"}' >"$work/one.jsonl"
for schedule in linear constant; do
    runs "$schedule: four steps" 0 . train --model "$work/small" --data "$work/one.jsonl" --steps 4 --lr 1e-4 --schedule $schedule --out "$work/more.$schedule"
done
runs "constant after a share: four steps" 0 . train --model "$work/small" --data "$work/one.jsonl" --steps 4 --schedule constant --warmup-ratio 0.5 --out "$work/more.share"
runs "goes on to eight: the rate jumps" 0 'warning: --steps 8, after 4 steps of a run of 4: --schedule linear .*goes from 2.5e-05 to 5e-05' train --resume --out "$work/more.linear" --steps 8
runs "which is of eight now" 0 . train --resume --out "$work/more.linear"
check "and nothing to warn of" sh -c '! grep -q warning "$1"' . "$work/stderr"
runs "fewer than are done" 0 'warning: --steps 3: 8 steps are done already.*all 8 steps were done before|all 8 .*warning: --steps 3: 8 steps' train --resume --out "$work/more.linear" --steps 3
for name in constant share; do
    runs "one rate stays" 0 . train --resume --out "$work/more.$name" --steps 8
    check "without a warning" sh -c '! grep -q warning "$1"' . "$work/stderr"
done

finish
