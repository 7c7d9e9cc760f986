#!/usr/bin/env bash
# videos.sh - MiniCPM-V 4.5 and 2.6, Qwen2.5-VL and Qwen3-VL and videos: a folder of frames or a list
# of pictures in records, parts of messages, prompts and talks, with equal bytes at every number of
# ranks; what other models say to them; and MiniCPM-o's other tensors.
source "$(dirname "$0")/lib.sh"
images=$SHEAF_SOURCE_ROOT/tests/data/images
mkdir "$work/frames"
cp "$images/adam7_rgb8.png" "$work/frames/1.png"
cp "$images/420.jpg" "$work/frames/2.jpg"
cp "$images/rgb8.png" "$work/frames/3.png"
cp "$images/rgb8.png" "$work/"
cat >"$work/videos.jsonl" <<'END'
{"video": "frames", "messages": [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "Noise."}]}
{"image": "rgb8.png", "messages": [{"role": "user", "content": "And?"}, {"role": "assistant", "content": "More."}]}
{"video": ["rgb8.png", "frames/2.jpg", "rgb8.png"], "temporal_ids": [[0, 3], [7]], "messages": [{"role": "user", "content": "In <video> what?"}, {"role": "assistant", "content": "Noise."}]}
END
sed 's/, \[7\]//' "$work/videos.jsonl" >"$work/few.jsonl"
model=$work/model
runs "a small model" 0 . init minicpmv-4.5-tiny "$model"

said() { # said FILE ARGUMENT...: what a command says, without notes
    local file=$1
    shift
    "$sheaf" "$@" --json >"$file" 2>/dev/null
}
for tp in 1 3; do
    runs "it learns from videos, --tp $tp" 0 '"step":3' train --model "$model" --data "$work/videos.jsonl" --out "$work/run$tp" --steps 3 \
        --micro-batch 2 --lr 1e-2 --lora-targets all-linear --lora-dropout 0.1 --tp "$tp" --json
    check "a loss, --tp $tp" said "$work/loss$tp" eval --model "$model" --adapter "$work/run$tp/adapter" --data "$work/videos.jsonl" --tp "$tp"
    check "prompts, --tp $tp" said "$work/prompts$tp" generate --model "$model" --data "$work/videos.jsonl" --max-new 4 --greedy --tp "$tp"
done
same "equal adapters" "$work/run1/adapter" "$work/run3/adapter"
same "equal losses" "$work/loss1" "$work/loss3"
same "equal answers" "$work/prompts1" "$work/prompts3"
runs "a plan of them" 0 '"peak":[1-9]' plan --model "$model" --data "$work/videos.jsonl" --json
sed -n 3p "$work/videos.jsonl" | sed 's/"frames\/2.jpg"/"rgb8.png"/' >"$work/other.jsonl"
check "other frames" said "$work/other" eval --model "$model" --data "$work/other.jsonl"
sed -n 3p "$work/videos.jsonl" | sed 's/\[0, 3\]/[0, 4]/' >"$work/later.jsonl"
check "a later frame" said "$work/later" eval --model "$model" --data "$work/later.jsonl"
check "frames and their times count" sh -c "! cmp -s '$work/other' '$work/later'"

printf '%s\n' "/load $work/talk.json" 'And then?' "/save $work/again.json" >"$work/input"
sed -n 3p "$work/videos.jsonl" >"$work/talk.json"
"$sheaf" chat --model "$model" --max-new 4 <"$work/input" >"$work/spoken" 2>"$work/stderr" || cat "$work/stderr"
check "a talk about a video is kept with the times of its frames" grep -q '"videos": *\[{"frames": .*"temporal_ids": *\[\[0, *3\], *\[7\]\]' "$work/again.json"
check "and its place" grep -q 'In <video> what?' "$work/again.json"
printf '%s\n' "/load $work/again.json" 'And then?' >"$work/input"
runs "it loads again" 0 . chat --model "$model" --max-new 4 <"$work/input"

runs "too few numbers" 3 "'temporal_ids'.*expected: 3 numbers in all, one for each of the frames.*found: +2" eval --model "$model" --data "$work/few.jsonl"
sed -i 's/"frames"/"rgb8.png"/' "$work/few.jsonl"
runs "a file is no folder of frames" 3 "a folder of frames, or a list of pictures.*try: +ffmpeg" eval --model "$model" --data "$work/few.jsonl"
for spec in minicpmv-2.5-tiny omnilmm-tiny cogvlm-tiny cogvlm2-tiny glm4v-tiny; do
    runs "$spec" 0 . init "$spec" "$work/$spec"
    runs "$spec reads no videos" 3 "field 'video': expected none: this model reads (pictures alone|one picture)" eval --model "$work/$spec" --data "$work/videos.jsonl"
done

# Frames that each stand for themselves, groups of two in one patch, and with their times in the text.
frames='"frames/1.png", "frames/4.png", "frames/1.png"'
cp "$images/palette8.png" "$work/frames/4.png"
answer='{"role": "assistant", "content": "Noise."}'
{
    echo "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"video\", \"video\": [$frames], \"fps\": 4}, {\"type\": \"text\", \"text\": \"What?\"}]}, $answer]}"
    echo "{\"videos\": [{\"frames\": [$frames], \"times\": [0, 0.25, 0.5]}], \"messages\": [{\"role\": \"user\", \"content\": \"<video>What?\"}, $answer]}"
    echo "{\"video\": [$frames], \"fps\": 4, \"image\": \"rgb8.png\", \"messages\": [{\"role\": \"user\", \"content\": \"<image> or <video>?\"}, $answer]}"
} >"$work/forms.jsonl"
for family in qwen2_5_vl qwen3_vl; do
    sed -E -e '1s/\{/{"sheaf_tokenizer": "bytes",/' -e 's/"vocab_size": *[0-9]+/"vocab_size": 350/' \
        -e 's/"max_position_embeddings": *[0-9]+/"max_position_embeddings": 4096/' \
        -e 's/"((vision_start|vision_end|image|video)_token_id": *)/"\13/' "$SHEAF_SOURCE_ROOT/tests/data/successors/$family/hf/config.json" >"$work/$family.json"
done
second_loss() { # second_loss ARGUMENT...: of the second step, in which half is dropped
    "$sheaf" train --model "$tiny" --data "$work/forms.jsonl" --out "$work/$spec-dropped$#" --steps 2 --lr 1e-1 \
        --lora-targets all-linear --lora-dropout 0.5 "$@" --json 2>/dev/null | grep -o '"loss":[0-9.]\{6\}' | tail -1
}
for spec in qwen2_5_vl.json qwen3_vl.json minicpmv-tiny; do
    tiny=$work/${spec%.json}.model
    (cd "$work" && "$sheaf" init "$spec" "$tiny" >/dev/null)
    # few pixels of each frame; MiniCPM-V gives each part a line
    case $spec in qwen*) echo '{"size": {"shortest_edge": 256, "longest_edge": 1024}, "do_sample_frames": false}' >"$tiny/video_preprocessor_config.json" ;;
        *) sed -i 's/<video>What/<video>\\nWhat/' "$work/forms.jsonl" ;; esac
    for tp in 1 2; do
        runs "$spec learns from videos, --tp $tp" 0 '"step":2' train --model "$tiny" --data "$work/forms.jsonl" --out "$work/$spec-$tp" --steps 2 \
            --micro-batch 2 --lr 1e-2 --lora-targets all-linear --lora-dropout 0.1 --tp "$tp" --json
        check "$spec: a loss, --tp $tp" said "$work/loss$tp" eval --model "$tiny" --adapter "$work/$spec-$tp/adapter" --data "$work/forms.jsonl" --tp "$tp"
        check "$spec: prompts, --tp $tp" said "$work/prompts$tp" generate --model "$tiny" --data "$work/forms.jsonl" --max-new 4 --greedy --tp "$tp"
    done
    same "$spec: equal adapters" "$work/$spec-1/adapter" "$work/$spec-2/adapter"
    check "$spec: what is dropped of a row does not depend on those beside it" test "$(second_loss --micro-batch 2)x" = "$(second_loss --micro-batch 1 --accumulate 2 | grep .)x"
    same "$spec: equal losses" "$work/loss1" "$work/loss2"
    same "$spec: equal answers" "$work/prompts1" "$work/prompts2"
    check "$spec: a part, and a video beside the text, are the same" test "$(grep -o '"tokens":[^]]*' "$work/prompts1" | head -2 | sort -u | wc -l)" = 1
    runs "$spec: a plan of them" 0 '"peak":[1-9]' plan --model "$tiny" --data "$work/forms.jsonl" --json
    head -2 "$work/forms.jsonl" | tail -1 >"$work/talk.json"
    printf '%s\n' "/load $work/talk.json" 'And then?' "/save $work/$spec.again.json" | "$sheaf" chat --model "$tiny" --max-new 4 >"$work/spoken" 2>"$work/stderr" || cat "$work/stderr"
    check "$spec: a talk is kept" grep -q '"times": *\[0.*, *0.25, *0.5\]' "$work/$spec.again.json"
    sed -n 3p "$work/forms.jsonl" >"$work/talk.json"
    printf '%s\n' "/load $work/talk.json" 'And then?' "/save $work/$spec.fps.json" | "$sheaf" chat --model "$tiny" --max-new 4 >"$work/spoken" 2>"$work/stderr" || cat "$work/stderr"
    check "$spec: with its rate" grep -q '"fps": *4' "$work/$spec.fps.json"
    runs "$spec: and is data" 0 '"tokens":' eval --model "$tiny" --data "$work/$spec.again.json" --json
done
sed 's/"frames\/4.png"/"frames\/2.jpg"/' "$work/forms.jsonl" >"$work/sizes.jsonl"
runs "frames of two sizes" 3 'frames of one size, as the first.*2.jpg' eval --model "$work/qwen2_5_vl.model" --data "$work/sizes.jsonl"

# A config of one generation with weights of another.
cp -r "$model" "$work/mixed"
sed -i 's/"version": 4.5/"version": 4.0/; /"use_image_id"/d' "$work/mixed/config.json"
runs "4.5's weights with 4.0's config" 3 'tensors of MiniCPM-V 4.0, as it says.*tensors of MiniCPM-V 4.5' generate --model "$work/mixed" --tokens 3 --max-new 1
finish
