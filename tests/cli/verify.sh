#!/usr/bin/env bash
# sheaf verify and info: what is wrong with a checkpoint is found and named, with a cure.
. "$(dirname "$0")/lib.sh"

# poke FILE OFFSET HEX...: overwrites bytes.
poke() {
    local file=$1 at=$2
    shift 2
    printf "$(printf '\\x%s' "$@")" | dd of="$file" bs=1 seek="$at" conv=notrunc status=none
}
# finding NAME CODE SEVERITY TEXT ARGUMENT...: verify --json has such a finding; with a defect the answer is no.
finding() {
    local name=$1 code=$2 severity=$3 text=$4 got=0 want=0
    shift 4
    "$sheaf" verify --json "$@" >"$work/stdout" 2>"$work/stderr" </dev/null || got=$?
    [ "$severity" != defect ] || want=1
    if [ "$got" != "$want" ]; then
        fail "$name" "exit code $got, wanted $want" "$(cat "$work/stdout" "$work/stderr")"
    elif ! grep -qE -- "$text" <<<"$(grep -oE '\{"code": "'"$code"'", "severity": "'"$severity"'"[^}]*\}' "$work/stdout")"; then
        fail "$name" "no $severity '$code' with '$text'" "$(cat "$work/stdout")"
    else
        pass "$name"
    fi
}

runs "a sound model is sound" 0 'Hugging Face.*llama.*F32.*511.*sound' verify "$llama/tiny_llama/hf"
runs "so are its shards" 0 'sound' verify "$llama/tiny_llama/hf_sharded"
runs "and an adapter" 0 'PEFT.*LoRA.*sound' verify "$llama/tiny_llama/lora/adapter_final"
runs "facts and findings are one object" 0 '^\{"sound": true.*"dialect": "hf", "model": "llama".*"dtype": "F32".*"tensors": 30.*"findings": \[\]\}' \
    verify --json "$llama/tiny_llama/hf"
runs "nothing there cannot be looked at" 3 'nothing there' verify "$work/nowhere"
mkfifo "$work/pipe"
for command in info verify "diff $llama/tiny_llama/hf"; do # shellcheck disable=SC2086
    runs "${command%% *} of a device says so" 3 '/dev/null.*found: +a device' $command /dev/null
    runs "${command%% *} of a pipe says so" 3 'pipe.*found: +a pipe' $command "$work/pipe"
    runs "${command%% *} of nothing" 3 'nowhere.*nothing' $command "$work/nowhere"
done
mkdir "$work/empty"
runs "nor what no dialect knows" 3 'no dialect' verify "$work/empty"

m=$(copy_model tiny_llama)
size=$(stat -c %s "$m/model.safetensors")
truncate -s $((size - 1000)) "$m/model.safetensors"
finding "a download cut short is damaged" damaged defect 'model.safetensors.*download' "$m"
finding "--quick finds it too" damaged defect 'model.safetensors' --quick "$m"

m=$(copy_model tiny_llama)
poke "$m/model.safetensors" $((size - 4)) 00 00 c0 7f
finding "a NaN is counted for its tensor" not-finite defect '"tensor": "model.*1 NaN and 0 Inf' "$m"
runs "--quick reads no data" 0 'sound, as far as its structure tells' verify --quick "$m"
poke "$m/model.safetensors" $((size - 4)) 00 00 80 ff
finding "so is an Inf" not-finite defect '0 NaN and 1 Inf' "$m"

# What git leaves in the place of a file until git-lfs fetches it.
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 4976698672\n' 7 >"$work/pointer"
for file in model.safetensors config.json; do
    m=$(copy_model tiny_llama)
    cp "$work/pointer" "$m/$file"
    finding "a pointer of git-lfs: $file" damaged defect "$file: a pointer of git-lfs to 4976698672 bytes.*git lfs pull" "$m"
    runs "is not run" 3 "$file.*a pointer of git-lfs.*git lfs pull" eval --model "$m" --data "$llama/tiny_llama/fwd_inputs.safetensors"
done
runs "nor learnt from" 3 'a pointer of git-lfs.*git lfs pull' eval --model "$llama/tiny_llama/hf" --data "$work/pointer"
m=$(copy_model tiny_llama)
cp "$work/pointer" "$m/tokenizer.json"
runs "nor a tokenizer" 3 "tokenizer is not used: .*a pointer of git-lfs.*git lfs pull" generate --model "$m" --prompt a

# A head under a config that ties it to the table: verify, convert and merge give one answer.
m=$(copy_model tiny_llama)
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' "$m/config.json"
finding "a tied head that is another" conflict defect 'lm_head.weight.*other values from row 0.*--config' "$m"
runs "is not converted" 3 "lm_head.weight.*expected: +the values of 'model.embed_tokens.weight'" convert "$m" "$work/never" --to hf
runs "nor merged into" 3 "lm_head.weight.*expected: +the values of 'model.embed_tokens.weight'" merge "$m" "$llama/tiny_llama/lora/adapter_final" "$work/never"
absent "nothing is written of it" "$work/never"

cp -r "$llama/tiny_llama/hf_sharded" "$work/shards"
chmod -R u+w "$work/shards"
s=$work/shards
rm "$s/model-00003-of-00005.safetensors"
finding "a shard that is missing is named" missing defect 'model-00003-of-00005.safetensors' "$s"
cp "$llama/tiny_llama/hf_sharded/model-00002-of-00005.safetensors" "$s/model-00003-of-00005.safetensors"
finding "the wrong shard in its place holds what lies elsewhere" duplicate defect 'model-00003-of-00005.*model-00002-of-00005' "$s"
finding "and lacks what the index promises" missing defect 'model-00003.*as the index says' "$s"
cp "$llama/tiny_llama/hf_sharded/model-00003-of-00005.safetensors" "$s/"
chmod u+w "$s"/*
cp "$s/model-00003-of-00005.safetensors" "$s/model-00003-of-00007.safetensors"
finding "a shard of another division is stale" stale warning 'model-00003-of-00007.*of 7 files' "$s"
rm "$s/model-00003-of-00007.safetensors" "$s/model.safetensors.index.json"
finding "no index is odd, the names do" missing warning 'index' "$s"
rm "$s/model-00005-of-00005.safetensors"
finding "the last shard is missed all the same" missing defect 'shards 5..5' "$s"

# More files than stay open at once.
mkdir "$work/many"
for i in {1..450}; do # a header of 64 bytes
    n=$(printf '%05d' "$i")
    printf '\100\0\0\0\0\0\0\0{"t%s":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}     %05d678' "$n" "$i" >"$work/many/model-$n-of-00450.safetensors"
done
runs "450 shards are read" 0 'tensors +450 .*sound' verify "$work/many"

m=$(copy_model tiny_llama)
sed -i 's/"vocab_size": 511/"vocab_size": 1022/' "$m/config.json"
finding "half a table is rank 0's part" missing defect "rank 0's part of a 2-way save, rows 511..1021 are not in these files" "$m"
sed -i 's/"vocab_size": 1022/"vocab_size": 505/' "$m/config.json"
finding "rows that are neither vocabulary nor padding" shape defect 'lm_head.weight.*511 rows' "$m"
m=$(copy_model tiny_llama)
sed -i 's/"num_hidden_layers": 3/"num_hidden_layers": 4/' "$m/config.json"
finding "tensors that the config asks for" missing defect '"tensor": "model.layers.3.mlp.down_proj.weight"' "$m"
runs "findings that differ in their tensors alone are one paragraph" 1 "likewise: 'model\.layers\.3\.[^ ]+', '[^ ]+', '[^ ]+' and [0-9]+ more" verify "$m"
check "and all of them one screen" test "$(wc -l <"$work/stdout")" -le 24
sed -i 's/"num_hidden_layers": 4/"num_hidden_layers": 2/' "$m/config.json"
finding "tensors that it does not ask for" foreign defect '"tensor": "model.layers.2.mlp.down_proj.weight"' "$m"
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 3/; s/"intermediate_size": 172/"intermediate_size": 170/' "$m/config.json"
finding "another shape" shape defect '"tensor": "model.layers.0.mlp.down_proj.weight".*\[64, 170\].*\[64, 172\]' "$m"
rm "$m/config.json"
finding "--config is held against them" shape defect 'down_proj' --config "$llama/tiny_llama3rope/hf/config.json" "$m"
for command in verify "convert --to hf"; do # shellcheck disable=SC2086
    runs "${command%% *}: a --config that is not there is the flag's fault" 3 '^sheaf: --config [^ ]*/nope +expected: +the model.s config.json +found: +nothing of that name +try' $command --config "$work/nope" "$m" "$work/x"
    runs "${command%% *}: so is a folder" 3 '^sheaf: --config [^ ]*/empty +expected: .* found: +a folder' $command --config "$work/empty" "$m" "$work/x"
done
runs "without a config nothing is guessed" 0 'no config' verify "$m"

# What lies beside the weights is read as generate reads it.
talk=$SHEAF_SOURCE_ROOT/tests/data/talk
"$sheaf" init "$talk/config.json" "$work/talk" >/dev/null 2>&1
again() { rm -rf "$work/it" && cp -r "$work/talk" "$work/it" && cp "$talk"/tokenizer*.json "$work/it/" && chmod -R u+w "$work/it"; }
# beside NAME FILE CODE TEXT: what stands on stdin in place of FILE is a defect, which verify, --quick and info tell, and generate refuses.
beside() {
    again
    cat >"$work/it/$2"
    finding "$1" "$3" defect "$4" "$work/it"
    finding "$1, --quick" "$3" defect "$4" --quick "$work/it"
    runs "$1: info tells it" 0 "\"$3\", \"severity\": \"defect\"[^}]*$4" info --json "$work/it"
    runs "$1: generate refuses it" 3 "$2" generate --model "$work/it" --prompt a --max-new 1
}
again
runs "a model with its tokenizer is sound" 0 'sound' verify "$work/it"
beside "a tokenizer that was cut short" tokenizer.json damaged 'it/tokenizer.json' < <(head -c 300 "$talk/tokenizer.json")
beside "one that is empty" tokenizer.json damaged 'it/tokenizer.json' </dev/null
beside "one that was never fetched" tokenizer.json damaged 'it/tokenizer.json' <<<'version https://git-lfs.github.com/spec/v1'
beside "tokenizer_config.json that is none" tokenizer_config.json damaged 'it/tokenizer_config.json' <<<'{'
beside "added_tokens.json that is none" added_tokens.json damaged 'it/added_tokens.json' <<<'['
beside "a chat template of two megabytes" chat_template.jinja damaged 'it/chat_template.jinja' < <(head -c 2000000 /dev/zero)
beside "generation_config.json that is none" generation_config.json damaged 'it/generation_config.json' <<<'{'
beside "one whose eos is no id" generation_config.json damaged "'eos_token_id'" <<<'{"eos_token_id": "end"}'
again
sed 's/"type": *"BPE"/"type":"Unheard"/' "$talk/tokenizer.json" >"$work/it/tokenizer.json"
finding "a tokenizer of another kind is a note" unsupported note 'Unheard' "$work/it"
cp "$talk/../tokenizers/gpt2.json" "$work/it/tokenizer.json"
finding "so is one for more rows than there are" unsupported note 'at most 324 tokens' "$work/it"
runs "as token ids do without" 0 . generate --model "$work/it" --tokens 1,2 --max-new 1
mv "$work/it/tokenizer.json" "$work/it/vocab.json"
finding "a vocab.json alone is one too" unsupported note 'tokenizer.json or a tokenizer.model' "$work/it"
again
echo '{% unheard %}' >"$work/it/chat_template.jinja"
runs "a template that is not known is no finding" 0 'sound' verify "$work/it"
"$sheaf" init cogvlm-tiny "$work/seeing" >/dev/null 2>&1
echo none >"$work/seeing/tokenizer.model"
finding "a sentencepiece file that is none" damaged defect 'seeing/tokenizer.model' "$work/seeing"
"$sheaf" convert "$work/it" "$work/own" --to sheaf >/dev/null 2>&1
runs "sheaf's own has the tokenizer of its base" 0 'sound' verify "$work/own"

# sheaf's own
"$sheaf" train --model "$llama/tiny_llama/hf" --data "$llama/tiny_llama/fwd_inputs.safetensors" --method lora --lora-rank 2 --steps 2 --save-every 1 \
    --out "$work/run" >/dev/null 2>&1 </dev/null || fail "a run to look at"
runs "a run's newest checkpoint is sound" 0 'sheaf.*step +2.*sound' verify "$work/run"
runs "named by its form, too" 0 'checkpoints/step-00000002 .*sound .*/run/adapter .*sound' verify --from sheaf "$work/run"
runs "with its result, both named" 0 'checkpoints/step-00000002 .*sound .*/run/adapter .*PEFT adapter.*sound' verify "$work/run"
"$sheaf" train --model "$llama/tiny_llama/hf" --data "$llama/tiny_llama/fwd_inputs.safetensors" --method full --steps 1 --out "$work/whole" >/dev/null 2>&1 </dev/null || fail "a run of all weights"
runs "a run of all weights" 0 'whole +checkpoint +checkpoints/step-00000001 +dialect +sheaf +dtype.*sound .*/whole/model +dialect +Hugging Face.*model +llama.*sound' verify "$work/whole"
runs "for programs" 0 '^\{"sound": true, "path": "[^"]*/whole", "dialect": "sheaf".*"paths": \[\{"path": "[^"]*/whole".*\{"path": "[^"]*/whole/model", "dialect": "hf"' verify --json "$work/whole"
poke "$work/whole/model/model.safetensors" 20000 00 00 c0 7f
finding "what is wrong with its result" not-finite defect 'whole/model' "$work/whole"
runs "info of a run as before" 0 '"kind": "run".*"checkpoints"' info --json "$work/run"
first=$work/run/checkpoints/step-00000001
cp "$llama/tiny_llama/lora/adapter_final/adapter_model.safetensors" "$first"
runs "a stray adapter in a step leaves it one" 0 '"checkpoints": \[1, 2\], "step": 2' info --json "$work/run"
rm "$first/adapter_model.safetensors"
for d in hf lora/adapter_final; do
    cp -r "$llama/tiny_llama/$d" "$work/run/checkpoints/step-00000003"
    runs "$d in place of a step is none" 0 'step-00000003/manifest.json.*checkpoints +1, 2 ' info "$work/run"
    chmod -R u+w "$work/run/checkpoints/step-00000003" && rm -r "$work/run/checkpoints/step-00000003"
done
step=$work/run/checkpoints/step-00000002
runs "one checkpoint" 0 'sound' verify "$step"
poke "$step/slice_003.safetensors" $(($(stat -c %s "$step/slice_003.safetensors") - 3)) 55
finding "one changed byte is found by its hash" damaged defect 'slice_003.safetensors".*hash' "$step"
runs "but not by --quick" 0 'structure' verify --quick "$step"
cp "$step/slice_001.safetensors" "$step/slice_003.safetensors"
finding "a slice in another's place" damaged defect 'slice_003' "$step"
rm "$step/slice_003.safetensors"
finding "a slice that is missing" missing defect 'slice_003.safetensors' --quick "$step"
rm "$step/manifest.json"
finding "a save that was never finished" missing defect 'manifest.json' "$step"

# what the original programs wrote, as far as it is there
shopt -s nullglob
for d in "$golden"/cogvlm/mp* "$golden"/cogagent/mp* "$llama"/deepspeed/* "$llama"/megatron/* "$llama"/torch_dcp/* "$llama"/colossalai_*/*good*; do
    [ ! -d "$d" ] || runs "${d#"$golden"/} is sound" 0 'sound' verify "$d"
done
for d in "$golden"/cogagent/broken* "$golden"/cogagent/broken*/*; do
    runs "${d#"$golden"/}: parts in two folders" 1 'time-stamp.*sheaf convert.*not sound: the parts of one save lie in several folders' verify "$d"
done
for d in "$golden"/cogvlm/mp2/* "$golden"/cogagent/mp8/* "$llama"/deepspeed/*zero0*/global* "$llama"/megatron/*/iter*; do
    [ -d "$d" ] || continue
    cp -rL "$(dirname "$d")" "$work/twins"
    chmod -R u+w "$work/twins"
    parts=("$work/twins/${d##*/}"/mp_rank_0*)
    one=${parts[0]} two=${parts[1]}
    if [ -d "$one" ]; then one=$one/model_optim_rng.pt two=$two/model_optim_rng.pt; fi
    cp "$one" "$two"
    finding "${d#"$golden"/}: a part under another's name" duplicate defect "mp_rank_01.*the values of part 0" --quick "$work/twins"
    runs "${d#"$golden"/}: which is not converted" 3 "duplicate|saved as" convert "$work/twins" "$work/never" --to hf
    rm -rf "$work/twins"
done
# Parts of two runs in one folder: told by the tensors of which each part has a copy.
for seed in 1 2; do
    "$sheaf" init cogvlm-tiny "$work/model$seed" --seed $seed >/dev/null 2>&1
    "$sheaf" convert "$work/model$seed" "$work/run$seed" --to sat --tp 8 >/dev/null 2>&1
done
runs "what files cannot tell is said" 0 'inferred.*names of files and folders alone.*copies of 46 tensors.*sound, as far as these files tell' verify "$work/run1"
for half in low high; do cp -r "$work/run1" "$work/$half"; done
cp -r "$work/run2" "$work/high2"
rm "$work"/low/1/mp_rank_0[4-7]* "$work"/high*/1/mp_rank_0[0-3]*
runs "half of the parts are half a checkpoint" 1 'no mp_rank_04_model_states.pt.*not sound: 69 defects' verify "$work/low"
runs "both halves are one" 0 'parallel size +8.*parts of the checkpoint above.*sound' verify "$work/low" "$work/high"
check "that is told once" test "$(grep -c sound "$work/stdout")" = 1
runs "in any order" 0 '"sound": true, "path": "[^"]*high".*"tp": 8.*parts of the checkpoint above' verify --quick --json "$work/high" "$work/low"
runs "halves of two runs are not" 1 'not sound.*not sound: 69' verify "$work/low" "$work/high2"
runs "a whole one and a half are two" 1 'sound, as far.*not sound: 69 defects' verify "$work/run2" "$work/high"
for d in "$llama"/colossalai_*/*broken*; do
    runs "${d#"$golden"/} and the ranks' own files" 0 'parts of the checkpoint above.*sound' verify "$d" "${d%/*}/tp2_local_shards"
done
# Parts in stamped folders, named from where they lie: no part is a duplicate of itself.
"$sheaf" convert "$work/model1" "$work/run-01-02-12-36" --to sat --tp 2 >/dev/null 2>&1
mkdir -p "$work/run-01-02-12-37/1" && mv "$work"/run-01-02-12-36/1/mp_rank_01* "$work/run-01-02-12-37/1/"
from_work() (cd "$work" && "$sheaf" "$@" 2>&1)
for where in run-01-02-12-36 ./run-01-02-12-36 run-01-02-12-36/1 "$work/run-01-02-12-36"; do
    from_work verify "$where" >"$work/told"
    check "$where: both parts are found" grep -q 'part 0 in .*part 1 in .*run-01-02-12-37' "$work/told"
    check "$where: no part is a duplicate of itself" sh -c '! grep duplicate "$1"' . "$work/told"
done
from_work convert run-01-02-12-36 run-01-02-12-36/1/mp_rank_00_model_states.pt run-01-02-12-37 ./run-01-02-12-37/ stamped-joined --to sat --tp 1 >"$work/told"
check "nor is one that is named twice" sh -c '! grep duplicate "$1"' . "$work/told"
runs "and they are one model" 0 'sound' verify "$work/stamped-joined"
cp "$work"/run-01-02-12-36/1/mp_rank_00* "$work/run-01-02-12-37/1/"
runs "a copy of it is one" 1 'note: duplicate: [^ ]*run-01-02-12-37/1/mp_rank_00.*the same part as [^ ]*run-01-02-12-36/1' verify "$work/run-01-02-12-36" "$work/run-01-02-12-37"
cp -r "$work/run1" "$work/mixed"
cp "$work"/run2/1/mp_rank_00* "$work/mixed/1/"
for full in "" --quick; do # shellcheck disable=SC2086
    finding "part 0 of another run ${full:-in full}" foreign defect 'mp_rank_00_model_states.pt.*parts 1 to 7.*part 0 has other values.*\(10 of 46' "$work/mixed" $full
done
printf '{"prompt": "a", "completion": "b"}\n' >"$work/rows.jsonl"
runs "is not converted" 3 'mp_rank_00_model_states.pt: foreign.*another run' convert "$work/mixed" "$work/never" --to hf
runs "an adapter" 0 . train --model "$work/model1" --data "$work/rows.jsonl" --steps 1 --lora-rank 2 --out "$work/lora"
runs "nor merged into" 3 'mp_rank_00_model_states.pt: foreign' merge "$work/mixed" "$work/lora/adapter" "$work/never"
runs "nor trained" 3 'mp_rank_00_model_states.pt: foreign' train --model "$work/mixed" --data "$work/rows.jsonl" --steps 1 --out "$work/never"
runs "nor measured" 3 'mp_rank_00_model_states.pt: foreign' eval --model "$work/mixed" --data "$work/rows.jsonl"
absent "nothing is written" "$work/never"
for r in 1 2 3; do cp "$work"/run2/1/mp_rank_0$r* "$work/mixed/1/"; done
finding "four parts of each run" conflict defect 'parts 0 to 3 and parts 4 to 7 are of different runs' "$work/mixed"
runs "are not converted" 3 'parts 0 to 3 and parts 4 to 7 are of different runs' convert "$work/mixed" "$work/never" --to sat --tp 1
# parts of SAT whose names were swapped or turned round: the files know what they were called
for d in "$golden"/cogvlm/mp2 "$golden"/cogagent/mp4; do
    [ -d "$d" ] && cp -rL "$d" "$work/it's turned" || continue
    chmod -R u+w "$work/it's turned"
    parts=("$work/it's turned"/*/mp_rank_0[0-2]*)
    mv "${parts[-1]}" "$work/last"
    for ((i = ${#parts[@]} - 1; i > 0; i--)); do mv "${parts[i - 1]}" "${parts[i]}"; done
    mv "$work/last" "${parts[0]}"
    finding "${d#"$golden"/}: parts under each other's names" conflict defect "part 0 was saved as mp_rank_0[12]_model_states.pt, part 1 as mp_rank_00" --quick "$work/it's turned"
    runs "${d#"$golden"/}: which are not converted" 3 "saved as mp_rank_0[12]" convert "$work/it's turned" "$work/never" --to hf
    cure=$("$sheaf" verify "$work/it's turned" | sed -n 's/^  try: *//p' | head -n 1)
    check "${d#"$golden"/}: $cure" bash -c "$cure"
    same "${d#"$golden"/}: is as it was" "$d" "$work/it's turned"
    rm -rf "$work/it's turned"
done
for d in "$llama"/torch_dcp/*; do
    cp -r "$d" "$work/dcp"
    chmod -R u+w "$work/dcp"
    f=$(ls "$work"/dcp/*.distcp | head -n 1)
    at=$(grep -abo -m 1 'data/0' "$f" | head -n 1 | cut -d: -f1)
    poke "$f" $((at + 200)) a5 5a a5 5a
    finding "${d#"$golden"/}: a changed byte of an item" damaged defect "data/0.*its bytes are damaged" "$work/dcp"
    rm -rf "$work/dcp"
done
# A cure is a command that can be typed as it stands, wherever the folder lies.
cure_works() { # cure_works NAME FOLDER: what comes after "try:", and the folder that it makes
    local command written
    command=$("$sheaf" verify "$2" 2>&1 | sed -n 's/^  try: *//p' | head -n 1)
    check "$1: $command" bash -c "$(sed "s|^sheaf|$sheaf|" <<<"$command")"
    written=("$2"-*)
    check "$1: what it wrote is sound" "$sheaf" verify "${written[0]}"
    rm -rf "${written[@]}"
}
odd="$work/it's an odd folder"
mkdir "$odd"
for d in "$golden"/cogagent/broken*/ "$golden"/cogvlm/lora_mp2/; do
    [ -d "$d" ] && cp -r "$d" "$odd/save" || continue
    cure_works "${d#"$golden"/}" "$odd/save"
    rm -rf "$odd/save"
done
for d in "$golden"/cogagent/mp2 "$golden"/cogvlm/mp2; do
    [ -d "$d" ] && cp -r "$d" "$odd/save" || continue
    chmod -R u+w "$odd/save"
    sed -i 's/CogAgentModel/cogVLMMODEL/; s/CogVLMModel/CogAgentModel/; s/cogVLMMODEL/CogVLMModel/' "$odd/save/model_config.json"
    finding "${d#"$golden"/} under the other class" class defect 'model_config.json' "$odd/save"
    cure_works "${d#"$golden"/} under the other class" "$odd/save"
    rm -rf "$odd/save"
done
for d in "$llama"/colossalai_*/*broken*; do
    runs "${d#"$golden"/}: the rows that were lost" 1 "rank 0's part of a [0-9]+-way save, rows [0-9]+\.\.[0-9]+ are not in these files" verify "$d"
done
runs "what was read is no more than lies there" 0 'read +[0-9.]+ KiB' verify "$llama/torch_pickle/tensors_zip.pt"
for universal in "$llama"/deepspeed/*_universal; do
    [ -d "$universal" ] || continue
    cp -r "$universal" "$work/universal" && chmod -R u+w "$work/universal"
    rm "$(ls "$work"/universal/*/zero/*/fp32.pt | head -n 1)"
    runs "values that a universal checkpoint lacks are told once" 1 'missing.*fp32\.pt.*not sound: 1 defect' verify "$work/universal"
    rm -rf "$work/universal"
done

# What may not be read is not damaged; root may read everything, so it gives that up.
m=$(copy_model tiny_llama)
other() { "$sheaf" "$@"; }
[ "$(id -u)" -ne 0 ] || other() { setpriv --bounding-set=-dac_override,-dac_read_search "$sheaf" "$@"; }
check "all may be read" other verify "$m"
for f in model.safetensors config.json .; do
    was=$(stat -c %a "$m/$f")
    chmod 0 "$m/$f"
    for command in "verify $m" "verify $m/model.safetensors --config $m/config.json" "convert $m $work/denied --to hf"; do
        got=0
        # shellcheck disable=SC2086
        other $command >"$work/stdout" 2>&1 </dev/null || got=$?
        check "without permission to read $f: ${command%% *} could not" bash -c "test $got -eq 3 && grep -q 'Permission denied' '$work/stdout' || { cat '$work/stdout'; false; }"
    done
    chmod "$was" "$m/${f#.}" # a name within a folder of mode 0 is found by root alone
done

again
for f in tokenizer.json tokenizer_config.json generation_config.json; do
    [ -e "$work/it/$f" ] || echo '{}' >"$work/it/$f"
    chmod 0 "$work/it/$f"
    got=0
    other verify "$work/it" >"$work/stdout" 2>&1 </dev/null || got=$?
    check "without permission to read $f: verify could not" bash -c "test $got -eq 3 && grep -q 'it/$f: cannot be read' '$work/stdout' || { cat '$work/stdout'; false; }"
    chmod 644 "$work/it/$f"
done

mkdir -p "$work/above" && cp -r "$llama/tiny_llama/hf" "$work/above/step-7"
runs "a checkpoint one folder further down is named" 3 'no dialect.*try: +give .*above/step-7., where' verify "$work/above"
rm -r "$work/above/step-7"
runs "an empty folder is no checkpoint" 3 'no dialect that sheaf knows' verify "$work/above"

finish
