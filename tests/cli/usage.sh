#!/usr/bin/env bash
# The command's own words: help, version, wrong usage, exit codes.
. "$(dirname "$0")/lib.sh"

runs "no argument is wrong usage and shows the commands" 2 'train.*generate|generate.*train'
runs "help lists the commands" 0 'train' help
runs "--help does the same" 0 'train' --help
runs "--version names the program and its contract" 0 'sheaf 0\.[0-9]+\.[0-9]+' --version
for command in report watch info verify convert merge diff init plan train eval generate render; do
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
done
runs "a dtype that is none is told what there is" 2 '^sheaf: --dtype +expected: float32, bfloat16 or float16 +found: +float64 ' train --dtype float64
runs "an unknown command is wrong usage" 2 'tarin' tarin
runs "that of help too" 2 'try: +sheaf help $' hepl
runs "a word is missing" 2 'expected: +sheaf diff A B' diff onlyone
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
for flag in loss_type num_iterations epsilon_high scale_rewards importance_sampling_level mask_truncated_completions top_p reward_weights use_weighting f_divergence_type f_alpha_divergence_coef center_rewards_coefficient; do
    peer train $flag "${flag//_/-}"
done
peer train num_generations generations
peer train max_completion_length max-new
peer train rlhf_type 'objective, whose rm is reward'
peer train ref_model reference
peer train ref_adapters reference
runs "train --reward_funcs" 2 'try: +sheaf calls it --reward, the folder of a reward model, or a command .*--objective reward trains' train --reward_funcs right
peer generate max-new-tokens max-new
peer generate batch-size batch
peer eval batch-size micro-batch
runs "an underscore for a dash" 2 'try: +sheaf calls it --lora-alpha $' train --lora_alpha 16
runs "merge --output-dir" 2 'try: +no flag: DST, the last word, says where to $' merge a b --output-dir c
runs "convert --out" 2 'try: +no flag: DST, the last word, says where to $' convert a --out b
for flag in "--packing --pack \$" "--bf16 --dtype bfloat16 \$" "--disable_gradient_checkpointing --no-checkpointing \$" "--Save-Steps=5 --save-every \$" "--lora_target_linear --lora-targets all-linear \$" "--assistant_only_loss --loss-on answers" "--max-model-len --seq \$" "-m --model \$"; do
    runs "train ${flag%% *}" 2 "try: +sheaf calls it ${flag#* }" train "${flag%% *}" 1
done
runs "generate -p" 2 'try: +sheaf calls it --prompt $' generate -p a
runs "generate --packing is none of its flags" 2 'try: +sheaf generate --help all lists them' generate --packing 1
printf 'packing: true\n' >"$work/peers.recipe"
runs "of a recipe" 2 'try: +sheaf calls it pack $' train --recipe "$work/peers.recipe"
printf 'learning_rate: 1e-4\n' >"$work/peers.recipe"
runs "in a recipe too" 2 "try: +sheaf calls it lr \$" train --recipe "$work/peers.recipe"
# What sheaf does otherwise is said in place of a list of flags.
instead() { # instead COMMAND FLAG PATTERN
    runs "$1 $2" 2 "^sheaf: $2 +expected: a flag of sheaf $1 +try: +leave it out: .*$3" "$1" "$2" 1
}
for flag in --gpus --devices --num_gpus --device_map; do instead train $flag 'processors.*--tp T .*--threads N'; done
instead chat --devices '--tp T'
runs "a device that is none" 2 "^sheaf: device +expected: cpu, cuda .*cuda:0,2.* +found: +gpu +try: +leave it out: .*--tp T" generate --model none --prompt x --device gpu
peer train load_in_4bit 'quantize nf4'
peer train load-in-8bit 'quantize int8'
peer generate bnb_4bit_use_double_quant 'quantize nf4-double'
peer train quantization_bit quantize
instead verify --load_in_4bit 'dtype they are stored in'
for flag in --deepspeed --fsdp; do instead train $flag '--dp D'; done
for flag in --report_to --logging_steps --wandb_project; do instead train $flag 'metrics.jsonl.*--tensorboard DIR'; done
peer train logging-dir tensorboard
peer merge disable-tqdm quiet
peer convert outtype dtype
runs "LLaMA-Factory's tokens" 2 'try: .*--add-tokens FILE' train --new_special_tokens '<a>'
peer train optim optimizer
instead train --trust_remote_code 'changes no result'
instead train --ddp-find-unused-parameters 'changes no result'
peer train stage objective
instead train --steps_per_generation '--micro-batch . --accumulate'
instead train --use_vllm 'changes no result'
instead train --log_completions 'rollouts.jsonl'
instead train --do_train 'here it is always true'
instead train --save_strategy 'here it is always steps $'
instead train --plugins 'no plugins'
peer train use_dora lora-dora
peer train loraplus_lr_ratio lora-plus
instead train --nnodes '--transport mpi with --hosts'
instead convert --transport 'one process does it'
instead train --use_peft '--method lora'
printf 'load_in_4bit: true\n' >"$work/peers.recipe"
runs "in a recipe too" 2 'try: +sheaf calls it quantize nf4 $' train --recipe "$work/peers.recipe"
printf 'lora-targets: [q_proj, v_proj]\n' >"$work/peers.recipe"
runs "a list of YAML" 2 'expected: +a list without brackets +found: +.q_proj, v_proj. +try: +lora-targets: q_proj, v_proj $' train --recipe "$work/peers.recipe"
for word in "resume sheaf train --resume --out OUT" "export sheaf merge BASE ADAPTER DST" "finetune sheaf train" "webui sheaf serve" "quantize sheaf convert SRC DST --to hf --quantize nf4" "run sheaf generate" "status sheaf info" "translate python3 -m sheaf translate FILE.yaml >NAME.recipe"; do
    runs "${word%% *} is no command" 2 "^sheaf: ${word%% *} +expected: a command of sheaf +try: +${word#* }" ${word%% *}
done

# Settings of other programs are translated.
cd "$work" || exit 1
printf '### model\nmodel_name_or_path: a/b\nstage: sft\n' >factory.yaml
printf 'datasets:\n  - path: x.jsonl\nbase_model: a/b\n' >axolotl.yaml
for file in "factory.yaml LLaMA-Factory" "axolotl.yaml Axolotl"; do
    said="found: +a file of ${file#* } +try: +python3 -m sheaf translate ${file% *} >my.recipe, then sheaf train --recipe my.recipe \$"
    for words in "train --recipe" train plan chat "generate --prompt a --model" info verify "merge bytes" ""; do
        # shellcheck disable=SC2086
        runs "$words ${file% *}" 2 "$said" $words "${file% *}"
    done
done

# A model that is not here: nothing is fetched, and how it is got is said.
hub='try: +sheaf downloads nothing: hf download some-org/Model-0.5B --local-dir Model-0.5B .*then give Model-0.5B'
echo '{"prompt": "a", "completion": "b"}' >pairs.jsonl
"$sheaf" init tiny-bytes bytes --seed 1 2>/dev/null
for words in "train --data pairs.jsonl --out none --steps 1 --model" "eval --data pairs.jsonl" "chat" "generate --prompt a" plan info verify "merge bytes" "diff bytes" "eval bytes --data" "generate bytes --prompt a --adapter" "generate bytes --prompt a --tokenizer" "tokenize pairs.jsonl --tokenizer"; do
    last=; case $words in merge*) last=none ;; esac
    # shellcheck disable=SC2086
    runs "a name of a hub: $words" 3 "$hub" $words some-org/Model-0.5B $last
done
for address in https://huggingface.co/ hf://; do
    runs "its address, $address" 3 "$hub" chat ${address}some-org/Model-0.5B
done
runs "nor is one of another kind" 3 'some-org/hosts: cannot open for reading +found: +No such file or directory $' train --recipe some-org/hosts
runs "an old name of one has no owner" 3 'try: +check the path given to --model; sheaf downloads nothing $' chat gpt2
runs "the folder of a run is no such name" 3 '^sheaf: run9/adapter +expected: +an adapter: .*try: +check the path; a run of method lora' merge bytes run9/adapter none
runs "a file that is not there is no such name" 3 'nothing.jsonl: cannot open for reading +found: +No such file or directory $' eval bytes --data nowhere/nothing.jsonl

# A model as first word; a list with spaces.
runs "a model as the first word" 0 '"tokens"' generate bytes --prompt a --max-new 1 --greedy --json
runs "behind a prompt that ends in a comma" 0 '"tokens"' generate --prompt a, bytes --max-new 1 --greedy --json
runs "a recipe as a word" 2 '^sheaf: my.recipe +expected: +a model +try: +--recipe my.recipe $' train my.recipe
runs "as another word" 0 '"loss"' eval --data pairs.jsonl bytes --json
runs "beside --model" 2 "expected: sheaf eval .*found: +'bytes' beside flags" eval --model bytes --data pairs.jsonl bytes
runs "two of them" 2 "2 words beside flags" eval bytes bytes --data pairs.jsonl
runs "a file that belongs to no flag" 2 'try: +--data pairs.jsonl $' generate bytes pairs.jsonl
runs "a question" 2 'try: +--prompt "TEXT", in quotes $' generate bytes what is it
runs "an empty one" 2 'an empty word' chat ""
runs "a list with a space" 2 "^sheaf: --lora-targets +expected: its value as one word +found: +spaces in it: q_proj, k_proj, v_proj +try: +--lora-targets 'q_proj, k_proj, v_proj'" train --out none --lora-targets q_proj, k_proj, v_proj --model bytes
runs "behind =" 2 "try: +--tokens '1, 2'" generate --model bytes --tokens=1, 2
runs "spaces alone" 2 '^sheaf: --lora-targets: list of names .*found: +q_proj  v_proj +try: +q_proj,v_proj' train --out none --lora-targets 'q_proj  v_proj' --model bytes --data pairs.jsonl --steps 1
runs "with commas they are one list" 0 '"trained":14336,' train --out spaced --lora-targets 'q_proj, v_proj' --lora-rank-pattern 'q_proj=8, v_proj=8' --lr-scale '*q_proj*=0.5, *v_proj*=2' --model bytes --data pairs.jsonl --steps 1 --json
runs "also --train" 0 '"trained":' train --out head --method head --train 'model.norm.weight, lm_head.weight' bytes --data pairs.jsonl --steps 1 --json

# Short names.
for name in "BF16 bfloat16" "half float16" "float float32" "torch.float16 float16"; do
    runs "plan --dtype ${name% *}" 0 "${name#* }" plan bytes --dtype "${name% *}"
done
for name in "bf16 bfloat16" "fp16 float16" "fp32 float32"; do
    runs "--dtype ${name% *}" 0 "${name#* }" plan bytes --dtype "${name% *}"
    runs "convert --dtype ${name% *}" 0 . convert bytes "to-${name% *}" --to hf --dtype "${name% *}"
    runs "convert --dtype ${name#* }" 0 . convert bytes "to-${name#* }" --to hf --dtype "${name#* }"
    same "write the same" "to-${name% *}" "to-${name#* }"
done
for targets in all all-linear; do
    runs "--lora-targets $targets" 0 '"trained":74752' train bytes --data pairs.jsonl --out "run-$targets" --steps 1 --lora-targets $targets --json
done
same "are the same" run-all/adapter run-all-linear/adapter

# Files that are no model, and models that are no adapter.
echo text >text.txt
runs "a config as the model" 3 'found: +a file that holds no weights +try: +give the folder that it is in: bytes $' chat bytes/config.json
runs "a text as the model" 3 'text.txt: no dialect .*found: +a file that holds no weights $' chat text.txt
runs "a model as the adapter" 3 'found: +a whole model +try: +give it as the model, with --model' generate bytes --adapter bytes --prompt a
runs "merged" 3 'found: +a whole model +try: +give it as the model' merge bytes bytes none
runs "weights as the adapter" 3 'no adapter here .*found: +a file +try: +the folder that it is in' generate bytes --adapter bytes/model.safetensors --prompt a

# SAT's folders.
"$sheaf" init cogvlm-tiny cog 2>/dev/null
"$sheaf" convert cog sat --to sat --tp 2 >/dev/null
echo 77 >sat/latest
for words in "generate --prompt a" verify; do
    # shellcheck disable=SC2086
    runs "latest names another step: $words" '[13]' "latest says '77', a step without parts.*try: +give sat/1, which is there, or write 1 into sat/latest" $words sat
done
runs "as it says" 0 . generate sat/1 --prompt a --max-new 1
rm sat/latest sat/model_config.json
runs "no config" 3 'found: +no model_config.json +try: +put the model_config.json that SAT wrote beside it, or with --config' generate sat --prompt a
mkdir gone && echo global_step9 >gone/latest
mkdir iterations && echo 700 >iterations/latest_checkpointed_iteration.txt
runs "of Megatron" 3 'found: +a file latest_checkpointed_iteration.txt that names iter_0000700, which is not there' info iterations
runs "of DeepSpeed" 3 'found: +a file latest that names global_step9, which is not there' info gone
runs "a flag without its value is wrong usage" 2 'steps' train --steps
runs "a number that is none is named with its flag" 2 '--steps.*ten' train --model a --data b --out c --steps ten
runs "train without a model says what is missing" 2 '--model' train --data b --out c --steps 1
runs "a result goes to stdout" 0 . --version
check "and nothing to stderr" test ! -s "$work/stderr"
runs "an error goes to stderr" 2 . tarin
check "and nothing to stdout" test ! -s "$work/stdout"
runs "what would steer a terminal" 3 'a\?\[31mb' info "$work/"$'a\e[31mb'
check "is not in a message" sh -c "! grep -q '$(printf '\033')' '$work/stderr'"

# Every demo ends with a command for whoever reads it.
for demo in demo chat vlm minicpm; do
    check "the demo $demo says what to do now" grep -q '^now_you $sheaf ' "$SHEAF_SOURCE_ROOT/demo/$demo.sh"
done
check "as a shell takes it" test "$(. "$SHEAF_SOURCE_ROOT/demo/now_you.sh" && now_you a "b c's" x/y.z | tail -n 1)" = "   \$ a 'b c'\\''s' x/y.z"

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
OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_RANK=2 "$sheaf" info "$llama/tiny_llama/hf" >"$work/stdout" 2>"$work/stderr"
check "the others do and say nothing" bash -c '[ ! -s "$0/stdout" ] && [ ! -s "$0/stderr" ]' "$work"
runs "all unknown flags in one message" 2 'sheaf: --wandb +expected: +a flag of sheaf train +found: +it, and --foo, --bar, which are none either +try: +leave it out: each step is in OUT/metrics.jsonl' train a b --wandb x --foo=1 --tp 2 --bar
runs "an address as others name it" 2 'try: +sheaf calls it --host' serve a --listen 0.0.0.0
runs "a context as llama.cpp names it" 2 'try: +sheaf calls it --max-length' serve a --ctx-size 4096
runs "DoRA by a flag" 2 'try: +sheaf calls it --lora-dora' train a b --dora
runs "a benchmark" 2 'try: +sheaf plan MODEL --time' bench
runs "plan of a config as its word" 0 'million parameters' plan "$SHEAF_SOURCE_ROOT/tests/data/configs/mini.json" --seq 64
finish
