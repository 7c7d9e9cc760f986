#!/usr/bin/env bash
# pictures.sh - OmniLMM and MiniCPM-V from pictures and texts: training, evaluation, prompts and talks
# with several pictures, each of its own size, and equal bytes at every number of ranks.
source "$(dirname "$0")/lib.sh"
images=$SHEAF_SOURCE_ROOT/tests/data/images
for name in adam7_rgb8.png 420.jpg rgb8.png; do cp "$images/$name" "$work/"; done
cat >"$work/talks.json" <<'END'
[{"id": "0", "image": "420.jpg", "conversations": [{"role": "user", "content": "<image>\nWhat?"}, {"role": "assistant", "content": "Noise."}]},
 {"image": {"<image_00>": "adam7_rgb8.png", "<image_01>": "rgb8.png"},
  "conversations": [{"role": "user", "content": "<image_01> or"}, {"role": "assistant", "content": "what?"},
                    {"role": "user", "content": "<image_00>"}, {"role": "assistant", "content": "Both."}]},
 {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]},
 {"images": ["rgb8.png", "420.jpg", "rgb8.png"], "messages": [{"role": "user", "content": "Three?"}, {"role": "assistant", "content": "Two."}]}]
END
sed 's/420.jpg/none.jpg/; s/<image_01> or/<image_07> or/' "$work/talks.json" >"$work/bad.json"
# a picture beside which its file does not lie
mkdir "$work/moved"
sed -n '1s/,$/]/p' "$work/talks.json" >"$work/moved/talks.json"
sed 's|420.jpg|/none.jpg|' "$work/moved/talks.json" >"$work/moved/rooted.json"

answers() { # answers FILE ARGUMENT...: what a command says, without notes
    local file=$1
    shift
    "$sheaf" "$@" --json >"$file" 2>/dev/null
}

# Those of which init has no small one: the recorded config with a byte vocabulary.
for family in qwen2_5_vl qwen3_vl; do
    sed -E -e '1s/\{/{"sheaf_tokenizer": "bytes",/' -e 's/"vocab_size": *[0-9]+/"vocab_size": 350/' \
        -e 's/"max_position_embeddings": *[0-9]+/"max_position_embeddings": 2048/' \
        -e 's/"((vision_start|vision_end|image|video)_token_id": *)/"\13/' "$SHEAF_SOURCE_ROOT/tests/data/successors/$family/hf/config.json" >"$work/$family.json"
done
cd "$work" || exit 1
for spec in omnilmm-tiny minicpmv-tiny minicpmv-2.0-tiny qwen2_5_vl.json qwen3_vl.json; do
    model=$work/${spec%.json}.model
    runs "$spec" 0 . init "$spec" "$model"
    # these small pictures are large, and fall into slices
    [ "$spec" = minicpmv-tiny ] && sed -i 's/"scale_resolution": 84/"scale_resolution": 14/' "$model/config.json"
    for tp in 1 3; do
        runs "$spec: learns from pictures, --tp $tp" 0 '"step":3' train --model "$model" --data "$work/talks.json" --out "$work/$spec-$tp" \
            --steps 3 --micro-batch 2 --lr 1e-2 --tp "$tp" --json
        check "$spec: a loss, --tp $tp" answers "$work/loss-$tp" eval --model "$work/$spec-$tp" --data "$work/talks.json" --tp "$tp"
        check "$spec: prompts with pictures, --tp $tp" answers "$work/prompts-$tp" generate --model "$model" --data "$work/talks.json" --max-new 4 --greedy --tp "$tp"
        check "$spec: which name all of theirs" grep -q '"images":\["[^"]*/rgb8.png","[^"]*/420.jpg","[^"]*/rgb8.png"\]' "$work/prompts-$tp"
        check "$spec: a question about two, --tp $tp" answers "$work/two-$tp" generate --model "$model" --prompt "Which?" --image "$work/420.jpg" \
            --image "$work/rgb8.png" --max-new 4 --tp "$tp"
        printf 'What?\nAnd?\n/image %s\nNow <image>?\n' "$work/rgb8.png" |
            "$sheaf" chat --model "$model" --image "$work/420.jpg" --max-new 4 --tp "$tp" --json >"$work/talk-$tp" 2>/dev/null
        check "$spec: a talk about two, --tp $tp" test "$(wc -l <"$work/talk-$tp")" = 3
    done
    same "$spec: equal adapters" "$work/$spec-1/adapter" "$work/$spec-3/adapter"
    for what in loss prompts two talk; do
        same "$spec: equal $what" "$work/$what-1" "$work/$what-3"
    done
    # parts of contents, in the forms of Qwen, TRL and OpenAI, where the family's program has a line for each or none
    line='\\n'; case $spec in qwen*) line= ;; esac
    answer='{"role": "assistant", "content": "Noise."}' text='{"type": "text", "text": "What?"}'
    echo "{\"images\": [\"rgb8.png\", \"420.jpg\"], \"messages\": [{\"role\": \"user\", \"content\": \"<image>${line}What?$line<image>\"}, $answer]}" >named.jsonl
    {
        echo "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"image\": \"rgb8.png\"}, $text, {\"image\": \"file://420.jpg\"}]}, $answer]}"
        echo "{\"images\": [{\"path\": \"rgb8.png\"}, {\"bytes\": \"$(base64 -w0 420.jpg)\"}], \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}, $text, {\"type\": \"image\"}]}, $answer]}"
        echo "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": {\"url\": \"data:image/png;base64,$(base64 -w0 rgb8.png)\"}}, $text, {\"type\": \"image_url\", \"image_url\": \"420.jpg\"}]}, $answer]}"
    } >parts.jsonl
    check "$spec: pictures by their names" answers "$work/named" generate --model "$model" --data named.jsonl --max-new 4 --greedy
    check "$spec: as parts" answers "$work/parts" generate --model "$model" --data parts.jsonl --max-new 4 --greedy
    check "$spec: the same answers" test "$(grep -o '"tokens":[^]]*' "$work/parts" | sort -u)" = "$(grep -o '"tokens":[^]]*' "$work/named")"
    check "$spec: three of them" test "$(grep -o '"tokens":' "$work/parts" | wc -l)" = 3
    sed -n 3p parts.jsonl >talk.json
    check "$spec: a talk with parts goes on" sh -c "echo And? | '$sheaf' chat --model '$model' --load talk.json --save '$work/${spec%.json}.talk' --max-new 2 --json >'$work/stdout' 2>'$work/stderr'"
    runs "$spec: and is data" 0 '"tokens":' eval --model "$model" --data "$work/${spec%.json}.talk" --json
    echo '{"image": "rgb8.png", "prompt": "<image>", "completion": "an <image>"}' >said.jsonl
    runs "$spec: a name in an answer is told" 0 "said.jsonl: line 1 .records: 1.: '<image>' in an answer is text" train --model "$model" --data said.jsonl --out "$work/$spec-said" --steps 1
    runs "$spec: bad records are told together" 3 '3 of 4 records are bad.*none.jpg.*image_07.*try: +paths are seen from the folder of the file; .*; repair' train --model "$model" --data "$work/bad.json" \
        --out "$work/bad" --steps 1
    runs "$spec: a picture that is missing, alone" 3 'entry 1: .*moved/420.jpg: .*No such file.*try: +paths are seen from the folder of the file' \
        eval --model "$model" --data "$work/moved/talks.json"
    runs "$spec: sampled as upstream" 0 "the family's own program does: do_sample, temperature (0.[67]|1e-06)" generate --model "$model" --prompt a --max-new 1
    runs "$spec: token ids are not" 0 . generate --model "$model" --tokens 1,2 --max-new 4
    cp "$work/stdout" "$work/plain"
    runs "$spec: greedy" 0 . generate --model "$model" --tokens 1,2 --max-new 4 --greedy
    same "$spec: but greedily" "$work/plain" "$work/stdout"
    runs "$spec: a template that is none of these" 2 'expected: llama2' generate --model "$model" --prompt a --template vqa
done
# ---- settings for pictures, as transformers 5 writes them ----
model=$work/qwen2_5_vl.model adapter=$work/qwen2_5_vl.json-1/adapter
runs "a model without settings is noted" 0 'no processor_config.json and no preprocessor_config.json: pictures have 3136 to 1003520 pixels' eval --model "$model" --data named.jsonl
echo '{"image_processor": {"image_processor_type": "Qwen2VLImageProcessor", "size": {"shortest_edge": 784, "longest_edge": 784}}}' >"$model/processor_config.json"
runs "settings are read" 0 '"loss"' eval --model "$model" --data named.jsonl --json
cp "$work/stdout" "$work/least"
check "without a note" sh -c "! grep -q processor_config '$work/stderr'"
runs "a merged model has them" 0 . merge "$model" "$adapter" "$work/qwen-merged"
same "as they were" "$model/processor_config.json" "$work/qwen-merged/processor_config.json"
echo '{"max_pixels": 784, "min_pixels": 784}' >"$model/preprocessor_config.json"
runs "the older file says the same" 0 '"loss"' eval --model "$model" --data named.jsonl --json
same "and is not missed" "$work/least" "$work/stdout"
echo '{"max_pixels": 3136}' >"$model/preprocessor_config.json"
runs "or else is not counted" 0 'warning: .*processor_config.json counts, as in transformers 5; preprocessor_config.json says otherwise' eval --model "$model" --data named.jsonl --json
same "the nested ones are" "$work/least" "$work/stdout"
echo '{"image_processor": {"do_normalize": false}}' >"$model/processor_config.json"
for verb in eval "train --steps 1 --out $work/not" plan generate; do
    runs "what would make other pixels is refused (${verb%% *})" 3 "qwen2_5_vl.model/processor_config.json: 'image_processor.do_normalize'" $verb --model "$model" --data named.jsonl
done
runs "but weights are merged all the same" 0 . merge "$model" "$adapter" "$work/qwen-again"
check "against their fingerprint" sh -c "! grep -q fingerprint '$work/stderr'"
runs "a path from the root that is missing" 3 '/none.jpg: .*No such file' eval --model "$work/omnilmm-tiny.model" --data "$work/moved/rooted.json"
check "is seen from nowhere else" sh -c "! grep -q 'seen from' '$work/stderr'"
# ---- a talk in which something goes wrong, and its file in another folder ----
mkdir "$work/talks"
printf '%s\n' 'See <image>?' '/image' "/image $work/none.jpg" '/image 2' '/reset 1' "/image $work/rgb8.png" 'What?' "/image $work/420.jpg" "/save $work/talks/a.json" \
    '<image> <image>?' '/image' 'And?' >"$work/wrong"
check "what goes wrong" sh -c "'$sheaf' chat --model '$work/omnilmm-tiny.model' --greedy --max-new 2 --json <'$work/wrong' >'$work/stdout' 2>'$work/stderr'; test \$? = 1"
check "is answered where nothing does" test "$(grep -c '"tokens"' "$work/stdout")" = 2
check "is told" test "$(grep -c '^sheaf: ' "$work/stderr")" = 6
check "with what helps" grep -qF 'try:      one more picture (/image FILE in sheaf chat)' "$work/stderr"
check "which is not to forget all" sh -c "! grep -q 'try:.*/reset' '$work/stderr'"
check "commands say what they take" grep -qE '^  expected: /reset$' "$work/stderr"
check "the file names what was shown" grep -qF '"images": ["../rgb8.png"]' "$work/talks/a.json"
printf 'More?\n' >"$work/more"
cd "$work/talks" || exit 1
check "it loads there" sh -c "'$sheaf' chat --model ../omnilmm-tiny.model --greedy --max-new 2 --load a.json --save a.json <../more >../again 2>/dev/null"
cd "$work" || exit 1
check "goes on" grep -qE '<image>.nWhat.*And.*More.*"images": \["../rgb8.png"\]' talks/a.json
check "a long talk" sh -c "printf 'a\na\n' | '$sheaf' chat --model omnilmm-tiny.model --image rgb8.png --greedy --max-new 300 --max-length 290 >stdout 2>stderr; test \$? = 1"
check "may be forgotten" grep -qF 'try:      a new conversation (/reset in sheaf chat)' stderr
echo '{"messages": [{"role": "user", "content": "<image>"}, {"role": "assistant", "content": "A"}]}' >none.json
runs "a talk that lacks its picture" 3 'load: none.json: message 1.*a picture for .<image>.*none.*try: ' chat --model omnilmm-tiny.model --load none.json
runs "a model of text" 0 . init mini "$work/mini"
runs "has no eyes" 3 'no vision tower' generate --model "$work/mini" --prompt a --image "$work/rgb8.png"
for model in cogvlm-tiny glm4v-tiny; do
    runs "$model" 0 . init $model "$work/$model"
    for verb in "generate --prompt a" chat; do
        runs "$model: $verb: reads one" 3 'image.*expected: one: .* reads no more' $verb --model "$work/$model" --image "$work/rgb8.png" --image "$work/420.jpg"
    done
    for talk in "/image rgb8.png|What?|/image none.jpg|And?|/image 420.jpg|What?" "/image 420.jpg|What?"; do
        tr '|' '\n' <<<"$talk" | "$sheaf" chat --model "$work/$model" --greedy --max-new 4 --logprobs 1 --json 2>/dev/null |
            grep -oE '"(tokens|logprobs)":[^"]*' >"$work/said"
        [[ $talk != *none* ]] || cp "$work/said" "$work/long"
    done
    check "$model: where a picture is missing, the one before stays" test "$(grep -c tokens "$work/long")" = 3
    same "$model: another picture begins anew" "$work/said" <(tail -n 2 "$work/long")
done
finish
