#!/usr/bin/env bash
# A build for processors of any kind, without images: checkpoints are inspected, planned for,
# converted and merged, and models trained and asked, slowly.
. "$(dirname "$0")/lib.sh"

tiny=$llama/tiny_llama
runs "verify: a sound model" 0 'sound' verify "$tiny/hf"
runs "verify: a sound adapter" 0 'sound' verify "$tiny/lora/adapter_final"
cp -r "$tiny/hf" "$work/cut"
truncate -s -64 "$work/cut/model.safetensors"
runs "verify: a cut file" 1 'model.safetensors' verify "$work/cut"
runs "info" 0 'llama' info "$tiny/hf"
runs "info --machine" 0 . info --machine
runs "diff: equal" 0 'all bytes agree' diff "$tiny/hf" "$tiny/hf_sharded"
runs "convert: to SAT for four ranks" 0 . convert "$golden/cogagent/mp1" "$work/sat" --to sat --tp 4
runs "convert: back" 0 . convert "$work/sat" "$work/one" --to sat --tp 1
runs "diff: what came back is the same" 0 'all bytes agree' diff "$golden/cogagent/mp1" "$work/one"
runs "merge: into the base" 0 . merge "$tiny/hf" "$tiny/lora/adapter_final" "$work/merged" --dtype bfloat16
runs "diff: merged is another model" 1 'differ' diff "$tiny/hf" "$work/merged"
runs "plan: 7 billion parameters at two ranks" 0 '"ranks":\[\{.*"peak":[1-9]' plan \
    --config "$SHEAF_SOURCE_ROOT/tests/data/configs/llama-2-7b.json" --lora-rank 16 --lora-targets all-linear --dtype bfloat16 --tp 2 --json
runs "init" 0 . init "$SHEAF_SOURCE_ROOT/tests/data/configs/mini.json" "$work/mini"
for tp in 1 2; do
    runs "train: $tp ranks" 0 . train --model "$tiny/hf" --data "$tiny/fwd_inputs.safetensors" --out "$work/run$tp" --steps 2 --tp "$tp" --dtype bfloat16
done
same "one rank or two" "$work/run1/adapter/adapter_model.safetensors" "$work/run2/adapter/adapter_model.safetensors"
runs "eval" 0 'loss' eval --model "$tiny/hf" --data "$tiny/fwd_inputs.safetensors"
runs "generate" 0 . generate --model "$tiny/hf" --tokens 1,2,3 --max-new 4
runs "a model that sees" 0 . init cogvlm-tiny "$work/cogvlm"
for picture in rgb8.png turned6.jpg lossy.webp; do
    runs "refuses $picture" 3 'this build has no images.*-Dimages=enabled' generate --model "$work/cogvlm" --prompt "Which?" \
        --image "$SHEAF_SOURCE_ROOT/tests/data/images/$picture" --max-new 1
done
finish
