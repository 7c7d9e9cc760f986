#!/usr/bin/env bash
# Where results go: what lies there is nobody else's to delete, what is stopped leaves nothing, and one of many wins.
. "$(dirname "$0")/lib.sh"

# ---- somebody's folders ----
mine="$work/out.partial-2024.11.05 $work/out.partial-5 $work/out.replaced-7 $work/out.partial-77-0123456789abcdef"
for folder in $mine; do
    mkdir "$folder"
    echo "years of work" >"$folder/thesis.tex"
done
untouched() { for folder in $mine; do [ "$(cat "$folder/thesis.tex")" = "years of work" ] || return 1; done; }
left() { compgen -G "$work/$1.partial-*-????????????????" | grep -cv -- '-0123456789abcdef$'; }
SHEAF_FAULT=write:3:kill "$sheaf" init tiny-bytes "$work/out" 2>/dev/null
check "a killed init leaves its folder" test "$(left out)" -eq 1
runs "the next removes it and says so" 0 'out.partial-[0-9]+-[0-9a-f]{16}: removed, left by a sheaf that was killed' init tiny-bytes "$work/out"
check "it is gone" test "$(left out)" -eq 0
check "folders that somebody named alike stay" untouched
rm -r "$work/out"
runs "convert neither" 0 'sheaf' convert "$llama/tiny_llama/hf" "$work/out" --to sheaf
check "touches them" untouched
rm -r "$work/out"
tokens_file "$work/data.safetensors" 1 4 "1 2 3 4" "1 2 3 4"
one=(train --model "$llama/tiny_llama/hf" --data "$work/data.safetensors" --out "$work/run" --lora-rank 1 --threads 1)
runs "a run" 0 . "${one[@]}" --steps 1
mkdir "$work/run/adapter.partial-5"
echo "years of work" >"$work/run/adapter.partial-5/thesis.tex"
mine="$mine $work/run/adapter.partial-5"
cp -r "$work/run/adapter.partial-5" "$work/run/checkpoints/step-00000003.partial-4"
mine="$mine $work/run/checkpoints/step-00000003.partial-4"
runs "that goes on" 0 . "${one[@]}" --steps 2 --resume
check "touches none beside its adapter or checkpoints" untouched
finish
