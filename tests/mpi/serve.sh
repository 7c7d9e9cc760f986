#!/usr/bin/env bash
# serve on ranks that are processes: the first listens, the others compute with it. Replies are those of one rank, byte for
# byte; a request to stop ends all of them once the answers are there, a lost process ends all, and a failure is told once.
#
#   serve.sh MPI
. "$(dirname "$0")/lib.sh"

bytes=$work/bytes
runs "a model of bytes" 0 . init tiny-bytes "$bytes" --seed 11
runs "a model that sees" 0 . init minicpmv-tiny "$work/vlm" --seed 3
printf '{"text": "some words to learn from"}\n{"text": "and other ones"}\n' >"$work/learn.jsonl"
runs "an adapter" 0 . train --model "$bytes" --data "$work/learn.jsonl" --out "$work/run" --steps 3 --lr 0.05 --lora-alpha 64 --lora-rank 2
mv "$work/run/adapter" "$work/learned"
picture=$(base64 -w 0 "$SHEAF_SOURCE_ROOT/tests/data/images/one.png")

# starts NAME COMMAND...: a server in the background, at $url; its process is $server.
starts() {
    local name=$1
    shift
    rm -f "$work/serving"
    "$@" --port 0 --json >"$work/serving" 2>"$work/notes" &
    server=$!
    check "$name" waits test -s "$work/serving"
    url=$(grep -o 'http://[^"]*' "$work/serving")
}
ask() { # ask PATH JSON [CURL_FLAG...]
    local path=$1 body=$2
    shift 2
    curl -sS --max-time 60 -H 'Content-Type: application/json' "$@" -d "$body" "$url$path"
}
# Replies without what no two have in common: their id and when they were made.
plain() { sed -E 's/"id": "[^"]*"/"id": ""/g; s/"created": [0-9]+/"created": 0/g' "$@"; }
completions=(
    '{"model": "bytes", "prompt": "a text of its own", "max_tokens": 40, "temperature": 0.9, "seed": 5, "logprobs": 3}'
    '{"model": "bytes", "prompt": "x y z", "max_tokens": 60, "temperature": 2, "seed": 6, "stop": ["e", "oo"]}'
    '{"model": "bytes", "prompt": "streamed", "max_tokens": 30, "temperature": 1, "seed": 7, "stream": true}'
    '{"model": "learned", "prompt": "by an adapter", "max_tokens": 30, "temperature": 1, "seed": 8, "logprobs": 1}'
    '{"model": "bytes", "prompt": ["one", "two"], "n": 2, "max_tokens": 9, "temperature": 1, "seed": 9}'
)
words=$(printf 'many words %.0s' $(seq 60)) # more rows than are read at once
completions+=("{\"model\": \"bytes\", \"prompt\": \"$words\", \"max_tokens\": 20, \"temperature\": 1, \"seed\": 10}")
# asked FOLDER: what a server of texts replies to all of them at once.
asked() {
    local pids=() i
    mkdir -p "$1"
    for i in "${!completions[@]}"; do
        ask /v1/completions "${completions[i]}" -N 2>&1 | plain >"$1/$i" &
        pids+=($!)
    done
    wait "${pids[@]}"
    ask /v1/completions '{"prompt": 1.5}' | plain >"$1/refused"
}
seen() { # seen FOLDER: of a server that sees, about a picture and then without one
    mkdir -p "$1"
    ask /v1/chat/completions "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": {\"url\": \"data:image/png;base64,$picture\"}}, {\"type\": \"text\", \"text\": \"what\"}]}], \"seed\": 1, \"max_tokens\": 6, \"temperature\": 0}" | plain >"$1/picture"
    ask /v1/chat/completions '{"messages": [{"role": "user", "content": "what"}], "seed": 1, "max_tokens": 6, "temperature": 0}' | plain >"$1/text"
}
ends() { # ends NAME CODE SIGNAL PROCESS...
    local name=$1 wanted=$2 signal=$3 code=0
    shift 3
    kill "-$signal" "$@"
    wait "$server" || code=$?
    check "$name" test "$code" -eq "$wanted"
}
left() { ! pgrep -f -- "serve .*$work" >"$work/left"; }

starts "one rank" "$sheaf" serve "$bytes" --adapter "$work/learned" --batch 3
asked "$work/one"
ends "it ends" 0 TERM $server
check "it answered" grep -q '"text"' "$work/one/0"
check "a text ended one" grep -q '"finish_reason": "stop"' "$work/one/1"
starts "two processes" "$mpirun" -n 2 "$sheaf" serve "$bytes" --adapter "$work/learned" --batch 3 --tp 2 --transport mpi
asked "$work/two"
same "two processes: the replies of one rank" "$work/one" "$work/two"
busy() { local t p; p=$(process_of 1 "$bytes"); t=$(awk '{ print $14 + $15 }' "/proc/$p/stat"); sleep 2; echo $(($(awk '{ print $14 + $15 }' "/proc/$p/stat") - t)); }
check "one that waits hardly computes" test "$(busy)" -lt 20 # hundredths of a second, of two
curl -s --max-time 60 -N -H 'Content-Type: application/json' -d '{"prompt": "long", "max_tokens": 400, "temperature": 1, "seed": 1, "stream": true}' "$url/v1/completions" >"$work/long" &
reader=$!
check "a long answer has begun" waits grep -q '"text"' "$work/long"
kill -TERM "$(process_of 1 "$bytes")" # the other process: the first hears of it
wait "$server"
check "a request to stop, to any process, ends all with 0" test $? -eq 0
wait $reader
check "after the answer" grep -qx 'data: \[DONE\]' "$work/long"
check "no process is left" waits left

starts "stages" "$sheaf" serve "$bytes" --adapter "$work/learned" --batch 3 --place 2 --tp 2 --transport mpi --mpi "$mpi"
asked "$work/four"
same "four processes that it starts itself: the same replies" "$work/one" "$work/four"
ends "Ctrl-C ends them" 0 INT $server
check "what began them served nothing itself" test "$(grep -c '"url"' "$work/serving")" -eq 1
check "no process of these is left" waits left

starts "one that sees" "$sheaf" serve "$work/vlm"
seen "$work/alone"
ends "it ends, too" 0 TERM $server
starts "two that see" "$mpirun" -n 2 "$sheaf" serve "$work/vlm" --tp 2 --transport mpi
seen "$work/both"
same "two that see: the replies of one rank" "$work/alone" "$work/both"
check "about a picture" grep -q '"content": ' "$work/both/picture"
end=(USR2 "$server") # which Open MPI's mpirun passes on, and Hydra dies of
[ "$mpi" = openmpi ] || end=(TERM "$(process_of 0 "$work/vlm")")
ends "they end" 0 "${end[@]}"

starts "two of which one fails once" "$mpirun" -n 2 "$faulty" serve "$bytes" --tp 2 --transport mpi --inject 1:sum:60:fail
body='{"prompt": "abc", "max_tokens": 12, "temperature": 0}'
replies "a failure in another process is that of one request" 500 'rank 1 on .*no memory' -H 'Content-Type: application/json' -d "$body" "$url/v1/completions"
replies "the next is answered" 200 '"completion_tokens": 12' -H 'Content-Type: application/json' -d "$body" "$url/v1/completions"
ends "both end" 0 TERM "$(process_of 0 "$bytes")"
starts "two more" "$mpirun" -n 2 "$sheaf" serve "$bytes" --tp 2 --transport mpi
kill -KILL "$(process_of 1 "$bytes")"
wait "$server"
check "one that is killed while all wait ends them" test $? -ne 0
check "which is told once" test "$(grep -c '^sheaf: ' "$work/notes")" = 1
check "no process of two more is left" waits left
ranks 2 "$sheaf" serve "$bytes" --tp 2 --transport mpi --host 0.0.0.0 >"$work/stdout" 2>"$work/notes" && fail "no token" "it served"
check "an address without a token is refused once, by all" bash -c '[ "$(grep -c "^sheaf: " "$0")" = 1 ]' "$work/notes"
finish
