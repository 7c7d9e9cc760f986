#!/usr/bin/env bash
# Adapters as the scripts of MiniCPM-V and OmniLMM make them: LoRA, and embeddings, resampler and tower
# in full; on every number of ranks, under PEFT's names, merged, and read again.
. "$(dirname "$0")/lib.sh"

pictures=$SHEAF_SOURCE_ROOT/tests/data/images
names() { "$sheaf" info "$1" --tensors --json 2>/dev/null | grep -o '"name": *"[^"]*"' | sed 's/.*: *"//; s/"$//' | sort; }
loss() { "$sheaf" eval "$@" --json 2>/dev/null | grep -o '"loss": *[0-9.]*' | head -n 1 | grep -o '[0-9.]*$'; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d < 2e-6 && d > -2e-6) }'; }

# Two conversations: one with a picture, one with two.
cp "$pictures/rgb8.png" "$work/0.png"
cp "$pictures/grey8.png" "$work/1.png"
printf '[{"id": "0", "image": "0.png", "conversations": [{"role": "user", "content": "<image>\\nWhat?"}, {"role": "assistant", "content": "one"}]},\n {"id": "1", "image": {"<image_00>": "0.png", "<image_01>": "1.png"}, "conversations": [{"role": "user", "content": "<image_00> <image_01> Both?"}, {"role": "assistant", "content": "two"}]}]\n' >"$work/data.json"

adapters() { # adapters NAME SPEC TARGETS SAVED PREFIX TOWER
    local name=$1 model=$work/$1 targets=$3 saved=$4 prefix=$5 tower=$6 tp
    local flags=(--model "$model" --data "$work/data.json" --lora-targets "$targets" --lora-rank 4 --modules-to-save "$saved" --steps 3 --micro-batch 2 --lr 1e-3 --schedule constant)
    [ -d "$model" ] || runs "$name: a model" 0 . init "$2" "$model" --seed 3
    for tp in 1 2 3; do
        runs "$name: trained on $tp" 0 'full copies of' train "${flags[@]}" --out "$work/$name-$tp" --tp $tp
    done
    same "$name: two ranks give the adapter of one" "$work/$name-1/adapter" "$work/$name-2/adapter"
    same "$name: three too" "$work/$name-1/adapter" "$work/$name-3/adapter"
    names "$work/$name-1/adapter" >"$work/names"
    for wanted in "$prefix.layers.0.self_attn.q_proj.lora_A.weight" "$prefix.embed_tokens.weight" "$tower"; do
        check "$name: PEFT's name base_model.model.$wanted" grep -qxF "base_model.model.$wanted" "$work/names"
    done
    check "$name: query and in_proj_weight of the resampler" [ "$(grep -cE 'resampler\.(query|proj|attn\.in_proj_weight|attn\.in_proj_bias)$' "$work/names")" = 4 ]
    runs "$name: merged" 0 'read back' merge "$model" "$work/$name-1/adapter" "$work/$name-merged"
    local apart merged before
    apart=$(loss --model "$model" --adapter "$work/$name-1/adapter" --data "$work/data.json")
    merged=$(loss --model "$work/$name-merged" --data "$work/data.json")
    before=$(loss --model "$model" --data "$work/data.json")
    check "$name: merged is base + adapter ($merged, $apart)" near "$merged" "$apart"
    check "$name: and not the base ($before)" bash -c 'awk -v a="$1" -v b="$2" "BEGIN { exit !(a - b > 1e-3) }"' . "$before" "$merged"
    runs "$name: training goes on from the adapter" 0 'result' train --model "$model" --data "$work/data.json" --adapter "$work/$name-1/adapter" --out "$work/$name-more" --steps 1 --micro-batch 2 --lr 1e-3 --tp 2
    runs "$name: with the flags that made it, too" 0 'result' train "${flags[@]}" --adapter "$work/$name-1/adapter" --out "$work/$name-again"
    runs "$name: not with others" 2 'sheaf: --modules-to-save .*the value in the config of --adapter' train "${flags[@]/$saved/embed_tokens}" --adapter "$work/$name-1/adapter" --out "$work/$name-other"
}

adapters minicpmv minicpmv-tiny 'llm\..*layers\.\d+\.self_attn\.(q_proj|k_proj|v_proj)' embed_tokens,resampler,vpm llm.model vpm.encoder.layers.0.self_attn.q_proj.bias
adapters omnilmm omnilmm-tiny '.*layers\.\d+\.self_attn\.(q_proj|k_proj|v_proj|o_proj)' embed_tokens,resampler,vision_tower model model.vision_tower.blocks.0.attn.qkv.weight

# bias "all" is every parameter that PEFT takes for a bias, those of towers and of torch's attention too.
biases() { # biases NAME TARGETS PREFIX WANTED
    local name=$1 tp wanted
    for tp in 1 2; do
        runs "$name: biases trained on $tp" 0 'full copies of' train --model "$work/$name" --data "$work/data.json" --lora-targets "$2" --lora-bias all --steps 2 --micro-batch 2 --lr 1e-2 --schedule constant --out "$work/$name-biases-$tp" --tp $tp
    done
    same "$name: biases, two ranks give the adapter of one" "$work/$name-biases-1/adapter" "$work/$name-biases-2/adapter"
    names "$work/$name-biases-1/adapter" >"$work/names"
    for wanted in $4; do
        check "$name: the bias $wanted" grep -qxF "base_model.model.$3$wanted" "$work/names"
    done
    runs "$name: biases merged" 0 'read back' merge "$work/$name" "$work/$name-biases-1/adapter" "$work/$name-biases-merged"
    check "$name: base and biases are the merged model" near "$(loss --model "$work/$name" --adapter "$work/$name-biases-1/adapter" --data "$work/data.json")" \
        "$(loss --model "$work/$name-biases-merged" --data "$work/data.json")"
}
biases omnilmm '.*layers\.\d+\.self_attn\.q_proj' model. 'vision_tower.blocks.0.attn.q_bias vision_tower.blocks.0.attn.v_bias vision_tower.blocks.0.mlp.fc1.bias resampler.attn.in_proj_bias resampler.ln_q.bias'
biases minicpmv 'llm\..*layers\.\d+\.self_attn\.q_proj' '' 'resampler.attn.in_proj_bias llm.model.layers.0.self_attn.q_proj.base_layer.bias vpm.encoder.layers.0.self_attn.q_proj.bias'
# An adapter whose config promises them must hold them.
runs "an adapter without biases" 0 'result' train --model "$work/omnilmm" --data "$work/data.json" --lora-targets '.*layers\.\d+\.self_attn\.q_proj' --steps 1 --micro-batch 2 --lr 1e-3 --out "$work/none"
sed -i 's/"bias": "none"/"bias": "all"/' "$work/none/adapter/adapter_config.json"
runs "with a config that promises them" 3 'resampler.attn.out_proj.bias' merge "$work/omnilmm" "$work/none/adapter" "$work/none-merged"
# PEFT up to 0.18 trains X_bias too, 0.21 only X.bias: a file has all of the former, or none.
cp -r "$work/omnilmm-biases-1/adapter" "$work/some"
check "one of them is taken away" without_tensor "$work/some/adapter_model.safetensors" base_model.model.model.vision_tower.blocks.0.attn.q_bias
runs "and missed" 3 'blocks.0.attn.q_bias' merge "$work/omnilmm" "$work/some" "$work/some-merged"
runs "by those that run it too" 3 'blocks.0.attn.q_bias' eval --model "$work/omnilmm" --adapter "$work/some" --data "$work/data.json"
for name in $(names "$work/some" | grep '_bias$'); do
    without_tensor "$work/some/adapter_model.safetensors" "$name"
done
check "all are" [ "$(names "$work/some" | grep -c '_bias$')" = 0 ]
runs "without any it merges" 0 'read back' merge "$work/omnilmm" "$work/some" "$work/some-merged"
check "to what it computes" near "$(loss --model "$work/omnilmm" --adapter "$work/some" --data "$work/data.json")" "$(loss --model "$work/some-merged" --data "$work/data.json")"
runs "training that goes on leaves them alone" 0 'result' train --model "$work/omnilmm" --adapter "$work/some" --data "$work/data.json" --steps 1 --micro-batch 2 --lr 1e-3 --out "$work/some-more"
check "in its adapter too" [ "$(names "$work/some-more/adapter" | sort)" = "$(names "$work/some" | sort)" ]

# PEFT trains the resampler's table of positions too where nobody stops it: it stays the adapter's.
cp -r "$work/omnilmm-1/adapter" "$work/moved"
LC_ALL=C sed -i 's/resampler\.query"/resampler.was"/; s/resampler\.pos_embed"/resampler.query"/; s/resampler\.was"/resampler.pos_embed"/' "$work/moved/adapter_model.safetensors"
runs "an adapter with another table of positions" 0 'result' train --model "$work/omnilmm" --adapter "$work/moved" --data "$work/data.json" --steps 1 --micro-batch 2 --lr 1e-50 --weight-decay 0 --schedule constant --out "$work/moved-more"
runs "is the same after a step of a rate too small to count" 0 'equal' diff "$work/moved" "$work/moved-more/adapter"
runs "and merges to its table" 0 'read back' merge "$work/omnilmm" "$work/moved" "$work/moved-merged"
check "which it computes with" near "$(loss --model "$work/omnilmm" --adapter "$work/moved" --data "$work/data.json")" "$(loss --model "$work/moved-merged" --data "$work/data.json")"

# The attention of 2.5's and 2.6's resampler is upstream's own, whose output is a layer like any other.
for tp in 1 3; do
    runs "minicpmv: all linear layers on $tp" 0 'result' train --model "$work/minicpmv" --data "$work/data.json" --lora-targets all-linear --steps 2 --micro-batch 2 --lr 1e-2 --out "$work/linear-$tp" --tp $tp
done
same "minicpmv: the same adapter" "$work/linear-1/adapter" "$work/linear-3/adapter"
check "minicpmv: the resampler's output is one of them" [ "$(names "$work/linear-1/adapter" | grep -c 'resampler\.attn\.out_proj\.lora_[AB]\.weight')" = 2 ]
runs "minicpmv: merged" 0 'read back' merge "$work/minicpmv" "$work/linear-1/adapter" "$work/linear-merged"
check "minicpmv: is base + adapter" near "$(loss --model "$work/minicpmv" --adapter "$work/linear-1/adapter" --data "$work/data.json")" "$(loss --model "$work/linear-merged" --data "$work/data.json")"
runs "omnilmm: torch's attention has none" 3 'resampler.attn.out_proj.*does not look at factors' train --model "$work/omnilmm" --data "$work/data.json" --lora-targets '.*resampler\.attn\.out_proj' --steps 1 --out "$work/no"

# Tied tables: a saved embedding is a tensor of its own, and the head stays as it was, under llm. too.
sed 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' "$work/minicpmv/config.json" >"$work/tied.json"
runs "a tied model" 0 . init "$work/tied.json" "$work/tied" --seed 3
adapters tied '' 'llm\..*layers\.\d+\.self_attn\.q_proj' embed_tokens,resampler llm.model llm.model.embed_tokens.weight
names "$work/tied-merged" >"$work/names"
check "tied: merged, both tables are there" [ "$(grep -cx 'llm.lm_head.weight\|llm.model.embed_tokens.weight' "$work/names")" = 2 ]
check "tied: and the config says so" grep -q '"tie_word_embeddings": false' "$work/tied-merged/config.json"

# The recipes, on small models of the same form: to the end, and the same on two ranks.
for recipe in minicpmv-lora minicpmv-full omnilmm-lora omnilmm-full; do
    for tp in 1 2; do
        runs "recipe $recipe at T = $tp" 0 'result: ' train --recipe "$SHEAF_SOURCE_ROOT/recipes/$recipe.recipe" --model "$work/${recipe%-*}" \
            --data "$work/data.json" --seq 512 --steps 2 --warmup-ratio 0.5 --save-every 2 --tp $tp --out "$work/$recipe-$tp"
    done
    same "recipe $recipe: equal bytes" "$work/$recipe-1/checkpoints/step-00000002" "$work/$recipe-2/checkpoints/step-00000002"
done
finish
