#!/usr/bin/env bash
# pictures_check.sh 08_PICTURES - through the public headers several pictures give the answer that they give
# through the command, in a question and in a conversation.
. "$(dirname "$0")/../tests/cli/lib.sh"
example=$1 model=$work/model images=$SHEAF_SOURCE_ROOT/tests/data/images
a=$images/420.jpg b=$images/rgb8.png

asked() { "$example" "$@" 2>&1 | sed -n 's/^tokens: //p'; }
told() { "$sheaf" generate --model "$model" --max-new 12 --greedy --json "$@" 2>/dev/null | sed -n 's/.*"tokens":\[\([0-9,]*\)\].*/\1/p'; }
equal() { # equal NAME LIBRARY COMMAND
    check "$1" test -n "$2" -a "$2" = "$3"
}

runs "a small MiniCPM-V" 0 . init minicpmv-tiny "$model"
sed -i 's/"scale_resolution": 84/"scale_resolution": 14/' "$model/config.json"
two=$(told --prompt "Which?" --image "$a" --image "$b")
equal "two pictures in front of a question" "$(asked "$model" "Which?" "$a" "$b")" "$two"
equal "two where the question says" "$(asked "$model" "<image> or <image>?" "$a" "$b")" "$(told --prompt "<image> or <image>?" --image "$a" --image "$b")"
equal "one" "$(asked "$model" "Which?" "$a")" "$(told --prompt "Which?" --image "$a")"
check "which is another answer than of two" test "$(asked "$model" "Which?" "$a")" != "$two"
check "in the other order too" test "$(asked "$model" "Which?" "$b" "$a")" != "$two"
talk='[{"role": "user", "content": "<image> What?"}, {"role": "assistant", "content": "Noise."}, {"role": "user", "content": "And <image>?"}]'
printf '{"messages": %s, "images": ["%s", "%s"]}\n' "$talk" "$a" "$b" >"$work/talk.jsonl"
equal "two in a conversation" "$(asked "$model" "$talk" "$a" "$b")" "$(told --data "$work/talk.jsonl")"
check "fewer than it names are refused" bash -c '"$@" 2>&1 | grep -q "another .<image>"' . "$example" "$model" "$talk" "$a"
runs "a model that reads one" 0 . init cogvlm-tiny "$work/one"
check "is told so" bash -c '"$@" 2>&1 | grep -q "expected: one: cogvlm reads no more"' . "$example" "$work/one" a "$a" "$b"
finish
