#!/usr/bin/env bash
# Files of LLaMA-Factory and Axolotl as recipes.
. "$(dirname "$0")/lib.sh"

# The command as pip installs it: translate is its module's. One interpreter begins, which takes far longer than a case, and
# answers each from a child of its own, with streams 7 and 8 of this shell.
module_of_sources
program=$sheaf sheaf=of_wheel
coproc interpreter { exec python3 -c '
import os, sys
from sheaf import translate
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        for stream in 1, 2:
            os.dup2(os.open(f"/proc/{sys.argv[1]}/fd/{stream + 6}", os.O_WRONLY | os.O_APPEND), stream)
        os._exit(translate.main(line[:-1].split("\x1f")[1:]))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
' $$; }
of_wheel() {
    local code IFS=$'\x1f'
    [ "$1" = translate ] || { "$program" "$@"; return; }
    { printf '%s\n' "$*" >&"${interpreter[1]}"; read -r code <&"${interpreter[0]}"; } 7>&1 8>&2
    return "$code"
}

cat >"$work/factory.yaml" <<'END'
### model
model_name_or_path: base
trust_remote_code: true
stage: sft
do_train: true
finetuning_type: lora
lora_target: all
lora_rank: 4
dataset: talk.jsonl
template: llama3   # a comment
cutoff_len: 64
output_dir: run
logging_steps: 10
overwrite_output_dir: true
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
learning_rate: 1.0e-4
max_steps: 2
lr_scheduler_type: cosine
warmup_ratio: 0.5
bf16: true
val_size: 0.0
END
runs "a file of LLaMA-Factory" 0 'LLaMA-Factory.*model: base method: lora lora-targets: all-linear lora-rank: 4 .*data: talk\.jsonl template: llama3 seq: 64 out: run .*micro-batch: 1 accumulate: 2 lr: 1\.0e-4 steps: 2 schedule: cosine warmup-ratio: 0\.5 dtype: bfloat16 .*lora-alpha: 8 on-long: cut checkpointing: true' translate "$work/factory.yaml"
{ printf 'model_name_or_path: a\nuse_galore: false\nuse_badam: true\npizza: 3\nstage: ppo\n'; } >"$work/in.yaml"
runs "what cannot be is listed" 1 'warning: not in the recipe: line 3: use_badam: true.*line 4: pizza: 3: unknown.*line 5: stage: ppo: sheaf has no PPO' translate "$work/in.yaml"
sed 's/^dataset: .*/dataset: one, two/' "$work/factory.yaml" >"$work/several.yaml"
runs "several data sets are a list" 0 ' data: one,two ' translate "$work/several.yaml"
printf 'mix_strategy: interleave_under\ninterleave_probs: 0.7, 0.3\n' >>"$work/several.yaml"
runs "with weights" 0 ' data: one:0\.7,two:0\.3 .*# mix_strategy: an epoch' translate "$work/several.yaml"
sed -i 's/^interleave_probs.*/interleave_probs: 0.7/' "$work/several.yaml"
runs "one for each" 1 'line [0-9]+: dataset: one, two: interleave_probs: one for each' translate "$work/several.yaml"
sed -i '/^interleave_probs/d' "$work/several.yaml"
runs "or the same for all" 0 ' data: one:1,two:1 ' translate "$work/several.yaml"
sed -i 's/^mix_strategy.*/mix_strategy: shuffle/' "$work/several.yaml"
runs "in a way that is known" 1 'line [0-9]+: mix_strategy: shuffle' translate "$work/several.yaml"
cat >"$work/axolotl.yml" <<'END'
base_model: base
load_in_8bit: false
datasets:
  - path: talk.jsonl
    type: chat_template
chat_template: llama3
val_set_size: 0.05
output_dir: ./run
adapter: lora
lora_r: 32
lora_alpha: 16
lora_target_modules:
  - q_proj
  - v_proj
sequence_len: 4096
sample_packing: true
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 3
optimizer: adamw_torch
lr_scheduler: constant_with_warmup
learning_rate: 0.0002
train_on_inputs: false
bf16: auto
wandb_project:
special_tokens:
END
runs "a file of Axolotl" 0 'Axolotl .*model: base .*data: talk\.jsonl template: llama3 .*eval-split: 0\.05 out: \./run method: lora lora-rank: 32 lora-alpha: 16 lora-targets: q_proj,v_proj seq: 4096 pack: true accumulate: 4 .*micro-batch: 2 epochs: 3 schedule: constant lr: 0\.0002 dtype: bfloat16 .*on-long: skip' translate "$work/axolotl.yml"
{ printf 'base_model: a\nadapter: lora\noptimizer: paged_adamw_8bit\n'; } >"$work/in.yaml"
runs "moments in 8 bits" 0 'optimizer: adamw8bit' translate "$work/in.yaml"
{ printf 'model_name_or_path: a\noptim: lion\n'; } >"$work/in.yaml"
runs "another optimizer" 1 'line 2: optim: lion: the optimizer is AdamW' translate "$work/in.yaml"
check "nor is AdamW named" bash -c "! grep -q optim '$work/stdout'"
{ printf 'base_model: a\nadapter:\n'; } >"$work/in.yaml"
runs "without an adapter all is trained" 0 'method: full' translate "$work/in.yaml"
{ printf 'base_model: a\nload_in_4bit: true\nadapter: qlora\n'; } >"$work/in.yaml"
runs "a quantised base" 0 'quantize: nf4-double .*method: lora' translate "$work/in.yaml"
{ printf 'model_name_or_path: a\nstage: sft\ndo_train: true\nfinetuning_type: lora\nquantization_bit: 8\nquantization_method: hqq\n'; } >"$work/in.yaml"
runs "in 8 bits" 1 'quantize: int8 .*line 6: quantization_method: hqq' translate "$work/in.yaml"
{ printf 'base_model: a\nadapter: lora\nmax_steps: 20\nnum_epochs: 3\nwarmup_steps: 0.1\nsequence_len: 500_000\nchat_template: qwen_25\n'; } >"$work/in.yaml"
runs "steps count before epochs, a part of a step is a share, and numbers may have underscores" 0 \
    'method: lora steps: 20 warmup-ratio: 0\.1 seq: 500000 template: qwen2\.5 # what Axolotl does.* on-long: skip schedule: cosine' translate "$work/in.yaml"
check "and nothing else" bash -c "! grep -q epochs '$work/stdout'"
for kwargs in 'min_lr: 1.0e-5' 'min_lr_rate: 0.1'; do
    printf 'model_name_or_path: a\ndataset: b\nlearning_rate: 1.0e-4\nlr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs:\n  %s\n' "$kwargs" >"$work/in.yaml"
    runs "a cosine that ends above 0: $kwargs" 0 'schedule: cosine min-lr-ratio: 0\.1 ' translate "$work/in.yaml"
done
printf 'model_name_or_path: a\ndataset: b\nlr_scheduler_type: warmup_stable_decay\nlr_scheduler_kwargs:\n  num_decay_steps: 20\n  min_lr_ratio: 0.2\n  decay_type: cosine\n' >"$work/in.yaml"
runs "warm-up, stable, decay" 0 'schedule: wsd decay-steps: 20 min-lr-ratio: 0\.2 ' translate "$work/in.yaml"
sed -i 's/decay_type: cosine/decay_type: 1-sqrt/' "$work/in.yaml"
runs "which goes down by a cosine alone" 1 'lr_scheduler_kwargs.decay_type: 1-sqrt: wsd goes down by a cosine' translate "$work/in.yaml"
printf 'base_model: a\nlr_scheduler: cosine\ncosine_min_lr_ratio: 0.3\nmax_steps: 4\n' >"$work/in.yaml"
runs "Axolotl's cosine_min_lr_ratio" 0 'min-lr-ratio: 0\.3 ' translate "$work/in.yaml"
{ printf 'base_model: a\nmax_steps: -1\nlr_scheduler: rex\nchat_template: llama4\nadapter: ia3\nrl: ebft\nval_set_size: 200\n'; } >"$work/in.yaml"
runs "a value that sheaf does not take is listed with those it does" 1 \
    'epochs: 1 .*line 3: lr_scheduler: rex: schedule takes constant, linear.*line 4: chat_template: llama4: template takes llama2, .*line 5: adapter: ia3: method takes lora, head or full.*line 6: rl: ebft: sheaf has dpo, .*line 7: val_set_size: 200: eval-split takes' \
    translate "$work/in.yaml"
check "and in no recipe" bash -c "! grep -qE 'rex|llama4|ia3|200|steps' '$work/stdout'"
{ printf 'base_model: a\ndatasets:\n  - path: b\n    field_messages: conversations\n    message_property_mappings:\n      role: from\n      content: value\n'; } >"$work/in.yaml"
runs "fields as ShareGPT names them" 0 'data: b' translate "$work/in.yaml"
# Preferences and rewards.
cat >"$work/in.yaml" <<'END'
base_model: a
rl: grpo
trl:
  beta: 0.001
  max_completion_length: 256
  num_generations: 4
  reward_funcs: [rewards.right]
  reward_weights: [1.0, 0.2]
  scale_rewards: false
  loss_type: dr_grpo
  epsilon: 0.1
  epsilon_high: 0.28
  delta: 1.5
  num_iterations: 2
  importance_sampling_level: sequence
  mask_truncated_completions: true
  temperature: 0.7
  top_p: 0.9
  top_k: 50
  sync_ref_model: true
  use_vllm: true
  vllm_gpu_memory_utilization: 0.15
  log_completions: true
END
runs "Axolotl's GRPO" 1 \
    'objective: grpo beta: 0\.001 max-new: 256 generations: 4 reward-weights: 1\.0,0\.2 scale-rewards: none loss-type: dr_grpo epsilon: 0\.1 epsilon-high: 0\.28 delta: 1\.5 num-iterations: 2 importance-sampling-level: sequence mask-truncated-completions: true temperature: 0\.7 top-p: 0\.9 .*line 7: trl.reward_funcs.*: --reward takes a command.*line 19: trl.top_k: 50: completions are sampled.*line 20: trl.sync_ref_model' \
    translate "$work/in.yaml"
check "and nothing else is lost" test "$(grep -o 'line [0-9]*' "$work/stderr" | tr '\n' ' ')" = 'line 7 line 19 line 20 '
{ printf 'base_model: a\nreward_model: true\ncenter_rewards_coefficient: 0.01\nprocess_reward_model: false\n'; } >"$work/in.yaml"
runs "its reward models" 0 'objective: reward center-rewards-coefficient: 0\.01 ' translate "$work/in.yaml"
{ printf 'base_model: a\nrl: dpo\ndpo_loss_type: [sigmoid, bco_pair]\ndpo_loss_weights: [0.8, 0.2]\ndpo_use_weighting: true\nprecompute_ref_log_probs: true\n'; } >"$work/in.yaml"
runs "its DPO" 0 'objective: dpo loss-type: sigmoid,bco_pair loss-weights: 0\.8,0\.2 use-weighting: true ' translate "$work/in.yaml"
{ printf 'model_name_or_path: a\nstage: rm\n'; } >"$work/in.yaml"
runs "LLaMA-Factory's reward models" 0 'objective: reward' translate "$work/in.yaml"
{ printf 'model_name_or_path: a\nstage: dpo\nld_alpha: 0.5\nref_model: b\n'; } >"$work/in.yaml"
runs "and its DPO" 0 'objective: dpo .*ld-alpha: 0\.5 .*reference: b ' translate "$work/in.yaml"
# What the other programs do where their file says nothing.
{ printf 'base_model: a\nmicro_batch_size: 1\n'; } >"$work/in.yaml"
runs "Axolotl trains everything where no adapter is named, in bfloat16, with a warm-up" 0 \
    'method: full seq: 512 on-long: skip epochs: 1 schedule: cosine warmup-ratio: 0\.03 .*dtype: bfloat16' translate "$work/in.yaml"
sed '/^model:/d' "$work/stdout" >"$work/r.recipe"
runs "which plan reads" 0 '"peak":[1-9]' plan --recipe "$work/r.recipe" --config "$SHEAF_SOURCE_ROOT/tests/data/configs/mini.json" --json
{ printf 'base_model: a\nadapter: lora\nwarmup_steps: 0\nbf16: false\n'; } >"$work/in.yaml"
runs "but not where it is told not to" 0 'method: lora warmup: 0 ' translate "$work/in.yaml"
check "in float32, without warm-up" bash -c "! grep -qE 'dtype|ratio' '$work/stdout'"
{ printf 'base_model: a\nadapter: ia3\n'; } >"$work/in.yaml"
runs "an adapter that sheaf has not is not everything" 1 'line 2: adapter: ia3' translate "$work/in.yaml"
check "nor a method" bash -c "! grep -q method '$work/stdout'"
{ printf 'model_name_or_path: a\nlora_rank: 64\n'; } >"$work/in.yaml"
runs "LLaMA-Factory's alpha is twice the rank" 0 'lora-rank: 64 .*lora-targets: all-linear lora-alpha: 128 ' translate "$work/in.yaml"
{ printf 'model_name_or_path: a\nlora_alpha: 0\n'; } >"$work/in.yaml"
runs "also an alpha of 0, and of the rank that nobody names" 0 'lora-rank: 8 lora-alpha: 16 ' translate "$work/in.yaml"
for with in 'model_name_or_path: a\nlr_scheduler_type' 'base_model: a\nlr_scheduler'; do
    { printf "$with: constant\nwarmup_steps: 10\n"; } >"$work/in.yaml"
    runs "the schedule constant has no warm-up there" 0 'schedule: constant' translate "$work/in.yaml"
    check "nor here" bash -c "! grep -q warmup '$work/stdout'"
done
{ printf 'model_name_or_path: a\nwarmup_steps: 5\nwarmup_ratio: 0.1\n'; } >"$work/in.yaml"
runs "two warm-ups" 1 'warmup: 5 .*line 3: warmup_ratio: 0\.1: gives again' translate "$work/in.yaml"
{ printf 'model_name_or_path: a\nwarmup_steps: 0\nwarmup_ratio: 0.1\nmax_steps: NULL\n'; } >"$work/in.yaml"
runs "one of which is none" 0 'warmup: 0 warmup-ratio: 0\.1 ' translate "$work/in.yaml"
{ printf 'model_name_or_path: a\npacking: true\nneat_packing: true\ngradient_checkpointing: true\ndisable_gradient_checkpointing: false\n'; } >"$work/in.yaml"
runs "two keys may say the same" 0 'pack: true checkpointing: true ' translate "$work/in.yaml"
{ printf 'model_name_or_path: a\ngradient_checkpointing: true\ndisable_gradient_checkpointing: true\n'; } >"$work/in.yaml"
runs "but not the contrary" 1 'checkpointing: true .*line 3: disable_gradient_checkpointing: true: gives again' translate "$work/in.yaml"
# What would be another run.
{ printf 'model_name_or_path: a\nfinetuning_type: freeze\nresume_from_checkpoint: b\nfreeze_vision_tower: false\ntemplate: zephyr\n'; } >"$work/in.yaml"
runs "what changes the result and has no place is listed" 1 \
    'line 2: finetuning_type: freeze: trains its last layers.*line 3: resume_from_checkpoint: b.*line 4: freeze_vision_tower: false.*line 5: template: zephyr' translate "$work/in.yaml"
check "and the recipe has none of it" bash -c "! grep -qE 'head|freeze|zephyr' '$work/stdout'"
cat >"$work/in.yaml" <<'END'
base_model: a
datasets:
  - path: b
    type: alpaca
    split: train[:10%]
    train_on_eos: all
    roles_to_train: [assistant, gpt]
test_datasets:
  - path: c
  - path: d
plugins:
  - axolotl.integrations.liger.LigerPlugin
  - axolotl.integrations.grokfast.GrokfastPlugin
chat_template: phi_4
END
runs "of Axolotl too" 1 \
    "line 4: [^ ]*type: alpaca: it asks in Alpaca's own words.*line 5: [^ ]*split.*line 6: [^ ]*train_on_eos: all.*line 11: plugins: .*line 14: chat_template: phi_4" translate "$work/in.yaml"
check "and not what is as here" bash -c "! grep -qE 'roles_to_train|path: c' '$work/stderr'"
{ printf 'base_model: a\nplugins: [axolotl.integrations.liger.LigerPlugin]\nchat_template: mistral_v3_tekken\n'; } >"$work/in.yaml"
runs "tekken's template is Nemo's" 0 'template: mistral-nemo' translate "$work/in.yaml"
sed -i 's/mistral.*/phi_3/' "$work/in.yaml"
runs "its phi_3 is the one with bos" 0 'template: phi3-2024' translate "$work/in.yaml"
{ printf 'model_name_or_path: a\ntemplate: mistral\n'; } >"$work/in.yaml"
runs "a template that differs in one thing says so" 0 '# template: its system message is in the first question.* template: mistral-v3' translate "$work/in.yaml"
{ printf 'model_name_or_path: a\ndataloader_drop_last: true\nkt_use_lora_experts: true\nkt_lora_expert_num: 2\ndataloader_num_workers: 4\nuse_kt: true\n'; } >"$work/in.yaml"
runs "also where others of its kind change nothing" 1 'line 2: dataloader_drop_last.*line 3: kt_use_lora_experts.*line 4: kt_lora_expert_num' translate "$work/in.yaml"
check "which are not" bash -c "! grep -qE 'line [56]' '$work/stderr'"
{ printf 'base_model: a\nadapter: lora\nliger_rope: true\nliger_use_token_scaling: true\n'; } >"$work/in.yaml"
runs "nor Liger's but one" 1 'line 4: liger_use_token_scaling' translate "$work/in.yaml"
# A value is the same in the recipe, whatever letters it has.
{ printf '%s\n' 'base_model: "a #b"' 'adapter: lora' "output_dir: \"'c'\"" "lora_target_modules: '.*\\.(q|k)_proj'"; } >"$work/in.yaml"
runs "values that a recipe would read otherwise are quoted" 0 "model: 'a #b' method: lora out: '''c''' lora-targets: '\.\*\\\\\.\(q\|k\)_proj'" translate "$work/in.yaml"
{ printf 'model_name_or_path: a\ntemplate: qwen\nfinetuning_type: full\n'; } >"$work/in.yaml"
sed 's/qwen/qwen3/' "$work/in.yaml" >"$work/thoughts.yaml"
runs "its qwen3 keeps thoughts" 0 'template: qwen3-thoughts' translate "$work/thoughts.yaml"
sed 's/qwen/default/' "$work/in.yaml" >"$work/default.yaml"
runs "its wording called default is none" 1 'line 2: template: default: template takes llama2, ' translate "$work/default.yaml"
runs "what LLaMA-Factory does by default" 0 'template: qwen2\.5 method: full .*seq: 2048 on-long: cut epochs: 3 micro-batch: 8 checkpointing: true' translate "$work/in.yaml"
{ printf 'base_model: a\ndatasets:\n  - path: b\n  - path: c\n'; } >"$work/in.yaml"
runs "a second data set too" 0 'data: b,c ' translate "$work/in.yaml"
{ printf 'base_model: a\ntokens: [x, y]\n'; } >"$work/in.yaml"
runs "for programs" 1 '"program": "Axolotl", "recipe": "# from .*model: a.n.*", "lost": \["line 2: tokens: x,y: write them to a file, one a line: --add-tokens FILE"\]' translate --json "$work/in.yaml"
{ printf 'model_name_or_path: a\nadd_tokens: <x>\nnew_special_tokens: <y>\nresize_vocab: true\n'; } >"$work/in.yaml"
runs "its tokens too" 1 'line 2: add_tokens: <x>: write them to a file.*--add-tokens FILE.*line 3: new_special_tokens: <y>: write them to a .json list' translate "$work/in.yaml"
check "for which the tables get rows anyway" bash -c "! grep -q resize_vocab '$work/stderr'"
{ printf 'steps: 3\n'; } >"$work/in.yaml"
runs "a file of neither" '[23]' "LLaMA-Factory \(with model_name_or_path\)" translate "$work/in.yaml"
{ printf 'base_model: a\nbase_model: b\n'; } >"$work/in.yaml"
runs "a key twice" '[23]' 'line 2.*each key once' translate "$work/in.yaml"
{ printf 'base_model: a\n  b: [c\n'; } >"$work/in.yaml"
runs "no YAML" '[23]' 'line 2.*YAML' translate "$work/in.yaml"
{ printf -- '- a\n'; } >"$work/in.yaml"
runs "no map" '[23]' 'a map of settings' translate "$work/in.yaml"
{ printf ''; } >"$work/in.yaml"
runs "nothing" '[23]' 'an empty file' translate "$work/in.yaml"
{ printf 'base_model: &a b\nadapter: *a\n'; } >"$work/in.yaml"
runs "an alias" '[23]' 'anchor or an alias' translate "$work/in.yaml"
{ printf 'base_model: a\nb: '; printf '[%.0s' {1..40}; } >"$work/in.yaml"
runs "no end of lists" '[23]' '16 levels' translate "$work/in.yaml"
runs "no such file" 3 '^sheaf: [^ ]*no-such\.yaml: cannot open for reading +found: +No such file' translate "$work/no-such.yaml"
runs "as JSON" 3 '^[{]"error": [{]"code": "io", .*"found": "No such file or directory", "try": ""[}][}] sheaf: ' translate --json "$work/no-such.yaml"
runs "no file named" 2 '^sheaf: sheaf translate +expected: +sheaf translate FILE.yaml > NAME.recipe +found: +nothing beside flags $' translate
runs "a flag that is none" 2 '^sheaf: --foo +expected: +a flag of sheaf translate +try: ' translate --foo "$work/in.yaml"
runs "its help" 0 '^usage: sheaf translate FILE.yaml' translate --help
head -c 1100000 /dev/zero | tr '\0' '#' >"$work/in.yaml"
runs "a file of a megabyte" 3 'at most 1048576 bytes' translate "$work/in.yaml"
{ printf 'base_model: "a\\0b"\n'; } >"$work/in.yaml"
runs "a NUL" 3 'line 1 +expected: +a value without NUL' translate "$work/in.yaml"
{ printf 'base_model: a\nb: "\\e[2J\\u202e"\n'; } >"$work/in.yaml"
runs "what would move the cursor" 1 'line 2: b: \?\[2J\?: unknown' translate "$work/in.yaml"
{ printf 'base_model: a\nresume_from_checkpoint: null\nseed: "null"\n'; } >"$work/in.yaml"
runs "null is nothing, a text of that name is not" 1 'line 3: seed: null: seed takes' translate "$work/in.yaml"
check "and nothing is not listed" bash -c "! grep -q resume '$work/stderr'"
check "a full disk" bash -c 'python3 -m sheaf translate "$1" >/dev/full 2>"$2"; [ $? -eq 3 ] && grep -q "^sheaf: standard output" "$2"' . "$work/factory.yaml" "$work/stderr"
mkdir "$work/without"
echo 'raise ImportError' >"$work/without/yaml.py"
sheaf=python3 PYTHONPATH=$work/without:$PYTHONPATH runs "without PyYAML" 3 'expected: +the Python package PyYAML .*try: +pip install pyyaml' -m sheaf translate "$work/factory.yaml"

# The recipe is one that train reads: with the model and the data that it names the run goes to its end.
cp -r "$llama/tiny_llama/hf" "$work/base"
sed -i 's/template: .*/template: plain/' "$work/factory.yaml"
check "the recipe is read by plan" bash -c 'cd "$1" && python3 -m sheaf translate factory.yaml >r.recipe 2>/dev/null; sed -i "/^data:/d; /^template:/d; /^out:/d" r.recipe; "$2" plan --recipe ./r.recipe --json | grep -q "\"peak\":[1-9]"' . "$work" "$program"

# The recipes for text models, on small models of the same form: to the end, those of Llama to the same on two ranks.
for of in llama3:tiny_llama mistral:tiny_mistral qwen2:tiny_qwen2; do
    for method in lora head full; do
        run=${of%:*}-$method
        for tp in 1 2; do
            [ $tp = 2 ] || [[ $of = llama3:* ]] || continue
            runs "recipe $run at T = $tp" 0 'result: ' train --recipe "$SHEAF_SOURCE_ROOT/recipes/$run.recipe" --model "$llama/${of#*:}/hf" \
                --data "$llama/${of#*:}/fwd_inputs.safetensors" --accumulate 1 --out "$work/$run-$tp" --tp $tp --threads 2
        done
    done
done
for method in lora head full; do same "recipe llama3-$method: equal bytes" "$work/llama3-$method-"{1,2}/checkpoints/step-00000003; done
finish
