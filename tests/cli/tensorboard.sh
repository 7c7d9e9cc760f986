#!/usr/bin/env bash
# Event files of TensorBoard: one a start, whatever else the run is asked for; the run's bytes do not depend on them.
. "$(dirname "$0")/lib.sh"

begin=(train --model "$llama/tiny_llama/hf" --data "$llama/tiny_llama/fwd_inputs.safetensors" --save-every 1 --schedule constant)
# tags NAME TAG COUNT FILE...: how often the tag stands in all files.
tags() {
    local name=$1 tag=$2 count=$3
    shift 3
    check "$name" test "$(cat "$@" | grep -ao "$tag" | wc -l)" -eq "$count"
}
files() { find "$1" -name 'events.out.tfevents.*' | LC_ALL=C sort; }

runs "a run without" 0 . "${begin[@]}" --out "$work/plain" --steps 3
cd "$work" || exit 1
runs "a run with event files" 0 . "${begin[@]}" --out "$work/run" --steps 2 --tp 3 --tensorboard board/deep --eval-data "$llama/tiny_llama/fwd_inputs.safetensors" --eval-every 2
tags "have each step" train/loss 2 "$work"/board/deep/*
tags "and its evaluation" eval/loss 1 "$work"/board/deep/*
cd / || exit 1
runs "goes on, from another folder" 0 'going on after step 2' train --resume --out "$work/run" --steps 3
check "with a second file" test "$(files "$work/board/deep" | wc -l)" -eq 2
tags "of the third step alone" train/loss 1 "$(files "$work/board/deep" | tail -n 1)"
same "the adapter is the same" "$work/plain/adapter/adapter_model.safetensors" "$work/run/adapter/adapter_model.safetensors"
rm -r "$work/board"
runs "a folder that is gone" 3 'tensorboard board/deep, as the run started.*--tensorboard PATH' train --resume --out "$work/run" --steps 4
runs "is named anew" 0 . train --resume --out "$work/run" --steps 4 --tensorboard "$work/other"
check "and written" test "$(files "$work/other" | wc -l)" -eq 1
cp "$work/run/settings" "$work/settings"
: >"$work/file"
runs "a file in its place" 3 'found: +a file' train --resume --out "$work/run" --steps 5 --tensorboard "$work/file"
same "leaves the settings that the run has" "$work/settings" "$work/run/settings"

runs "a file in the way" 3 "$work/file.*expected: a folder, or nothing yet.*found: +a file" "${begin[@]}" --out "$work/wrong" --steps 2 --tensorboard "$work/file"
check "is named before the first step, and nothing is left" test ! -e "$work/wrong"
runs "and the run may be begun again" 0 . "${begin[@]}" --out "$work/wrong" --steps 2 --tensorboard "$work/board"

# A full disk: writes 1 to 4 are those of the start, 5 and 6 those of the first step.
full() { rm -rf "$work/full" "$work/board" && SHEAF_FAULT=write:$1:enospc "$faulty" "${begin[@]}" --out "$work/full" --steps 3 --tensorboard "$work/board" >"$work/said" 2>&1; }
if full 3; then fail "a disk that is full at the start"; else check "a disk that is full at the start is named" grep -q "$work/board/events.*writing" "$work/said"; fi
check "one that is full for a moment" full 6
tags "loses no step" train/loss 3 "$work"/board/*
same "and changes nothing" "$work/plain/adapter/adapter_model.safetensors" "$work/full/adapter/adapter_model.safetensors"
if full 5+; then fail "a disk that stays full"; else check "one that stays full ends the run before a checkpoint" grep -q "writing metrics of steps" "$work/said"; fi
finish
