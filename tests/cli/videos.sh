#!/usr/bin/env bash
# videos.sh - MiniCPM-V 4.5 and videos: a folder of frames or a list of pictures in records, prompts
# and talks, with equal bytes at every number of ranks; what other models say to them; and MiniCPM-o's
# other tensors.
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
check "a talk about a video is kept with the times of its frames" grep -q '"temporal_ids": *\[\[0, *3\], *\[7\]\]' "$work/again.json"
check "and each group's place" grep -q 'In <image>.n<image> what?' "$work/again.json"
printf '%s\n' "/load $work/again.json" 'And then?' >"$work/input"
runs "it loads again" 0 . chat --model "$model" --max-new 4 <"$work/input"

runs "too few numbers" 3 "'temporal_ids'.*expected: 3 numbers in all, one for each of the frames.*found: +2" eval --model "$model" --data "$work/few.jsonl"
sed -i 's/"frames"/"rgb8.png"/' "$work/few.jsonl"
runs "a file is no folder of frames" 3 "a folder of frames, or a list of pictures.*try: +ffmpeg" eval --model "$model" --data "$work/few.jsonl"
for spec in minicpmv-tiny omnilmm-tiny cogvlm-tiny cogvlm2-tiny glm4v-tiny; do
    runs "$spec" 0 . init "$spec" "$work/$spec"
    runs "$spec reads no videos" 3 "field 'video': expected none: this model reads (pictures alone|one picture)" eval --model "$work/$spec" --data "$work/videos.jsonl"
done

# A config of one generation with weights of another.
cp -r "$model" "$work/mixed"
sed -i 's/"version": 4.5/"version": 4.0/; /"use_image_id"/d' "$work/mixed/config.json"
runs "4.5's weights with 4.0's config" 3 'tensors of MiniCPM-V 4.0, as it says.*tensors of MiniCPM-V 4.5' generate --model "$work/mixed" --tokens 3 --max-new 1
finish
