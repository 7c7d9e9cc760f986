#!/usr/bin/env bash
# chat on ranks that are processes, which mpirun starts: the first talks, the others follow. Answers are those of one rank;
# the end of the input and a lost process end all of them.
#
#   chat.sh MPI
. "$(dirname "$0")/lib.sh"

pictures=$SHEAF_SOURCE_ROOT/tests/data/images
runs "a model of bytes" 0 . init tiny-bytes "$work/bytes" --seed 11
runs "a model that sees" 0 . init cogvlm-tiny "$work/vlm" --seed 3
talk=(chat --model "$work/bytes" --max-new 12 --temperature 3 --seed 4 --stop Z)
look=(chat --model "$work/vlm" --max-new 4 --template chat)
printf 'one\n/nothing\n//two\n/reset\nthree\n\nfour' >"$work/lines"
printf 'what\nagain\n/image %s\nand now\n/quit\nnot heard\n' "$pictures/grey16.png" >"$work/seen"

# answers NAME CODE LINES COMMAND...: what it says to these lines is what $work/alone holds.
answers() {
    local name=$1 code=$2 lines=$3 got=0
    shift 3
    timeout 120 "$@" <"$lines" >"$work/stdout" 2>"$work/stderr" || got=$?
    check "$name: its code" test $got = "$code"
    same "$name: the answers of one rank" "$work/alone" "$work/stdout"
}
"$sheaf" "${talk[@]}" --json --logprobs 2 <"$work/lines" >"$work/alone" 2>/dev/null
check "one rank answers" test "$(wc -l <"$work/alone")" = 4
answers "processes of mpirun" 1 "$work/lines" "$mpirun" -n 2 "$sheaf" "${talk[@]}" --json --logprobs 2 --tp 2 --transport mpi --save "$work/said"
check "a refused line is told once" test "$(grep -c '^  found: .*/nothing' "$work/stderr")" = 1
check "what was said is saved" grep -q '"content": "four"' "$work/said"

# Pictures are the first process's: the others need not have them.
"$sheaf" "${look[@]}" --image "$pictures/one.png" <"$work/seen" >"$work/alone" 2>/dev/null
cat >"$work/each" <<'END2'
[ "${OMPI_COMM_WORLD_RANK:-}${PMI_RANK:-}" = 0 ] && image=$1 || image=/nowhere
shift
exec "$@" --image "$image"
END2
answers "processes of mpirun, about pictures" 0 "$work/seen" "$mpirun" -n 4 bash "$work/each" "$pictures/one.png" "$sheaf" "${look[@]}" --place 2 --tp 2 --transport mpi
for family in omnilmm minicpmv; do # a picture more, of another size
    runs "$family" 0 . init $family-tiny "$work/$family" --seed 3
    look=(chat --model "$work/$family" --max-new 4 --json)
    "$sheaf" "${look[@]}" --image "$pictures/one.png" <"$work/seen" >"$work/alone" 2>/dev/null
    check "$family answers" test "$(wc -l <"$work/alone")" -ge 3
    answers "$family: processes about pictures" 0 "$work/seen" "$mpirun" -n 4 bash "$work/each" "$pictures/one.png" "$sheaf" "${look[@]}" --place 2 --tp 2 --transport mpi
done
look=(chat --model "$work/vlm" --max-new 4 --template chat)
ranks 2 "$sheaf" "${talk[@]}" --tp 2 --transport mpi </dev/null >"$work/log" 2>&1 && fail "no input" "it was taken for a chat"
check "an input that mpirun has not is an error, told once" bash -c '[ "$(grep -c "^sheaf: " "$0")" = 1 ] && grep -q "^sheaf: .*standard input$" "$0"' "$work/log"
ranks 2 bash "$work/each" "$pictures/none.png" "$sheaf" "${look[@]}" --tp 2 --transport mpi <"$work/seen" >"$work/log" 2>&1 && fail "no picture" "it was answered"
check "a picture that the first lacks, too" bash -c '[ "$(grep -c "^sheaf: .*none.png" "$0")" = 1 ]' "$work/log"

begin() { # begin FLAG...: a chat of two processes, whose input is 9, and its first answer
    rm -f "$work/open"
    mkfifo "$work/open"
    ranks 2 "$sheaf" chat --model "$work/vlm" --template chat --image "$pictures/one.png" --json --stream --tp 2 --transport mpi --mpi "$mpi" "$@" <"$work/open" >"$work/stdout" 2>"$work/stderr" &
    caller=$!
    exec 9>"$work/open"
    echo "what" >&9
    check "an answer to a pipe" waits test -s "$work/stdout"
}

# A process that is killed while all wait for a line.
begin --max-new 3
kill -KILL "$(process_of 1 "$work/vlm")"
wait $caller
check "one that is killed ends the chat" test $? != 0 # the code is mpirun's
check "which is told once" test "$(grep -c "^sheaf: " "$work/stderr")" = 1
exec 9>&-
left() { ! pgrep -f -- "$work/vlm" >"$work/left"; } # which leaves itself out, as grep in /proc does not
check "no process is left" waits left
finish
