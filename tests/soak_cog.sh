# soak_cog.sh - a section of soak.sh, which sources it: CogVLM and CogAgent over every number of ranks, both dtypes,
# kernels, threads, slices and checkpointing, every method; and stops at random moments.
#
# Uses $golden, $work, $sheaf and matrix(), train(), digest(), pass() and fail().

# cog_kernels NAME FLAG...: all kernels, with checkpointing and without, give the digest of the plain ones.
cog_kernels() {
    local name=$1 want="" isa again got
    shift
    for isa in ref avx2 avx512; do
        for again in "" --checkpointing; do
            # shellcheck disable=SC2086
            if train "$work/run" "$@" --isa $isa $again --threads 3; then
                got=$(digest "$work/run")
                want=${want:-$got}
                if [ "$got" = "$want" ]; then pass "$name, $isa $again"; else fail "$name, $isa $again: other bytes"; fi
            elif grep -q 'a processor that has it' "$work/run.log"; then
                pass "$name, $isa: not on this machine"
            else
                fail "$name, $isa $again: $(tail -n 3 "$work/run.log" | tr '\n' ' ')"
            fi
        done
    done
}

# cog_answers NAME MODEL DATA DTYPE: loss, logits and greedy tokens of one rank, on all.
cog_answers() {
    local t
    for t in 1 2 3 4 5 6 7 8; do
        rm -f "$work/logits"
        { "$sheaf" eval --model "$2" --data "$3" --dtype "$4" --tp $t --json --save-logits "$work/logits" &&
            "$sheaf" generate --model "$2" --data "$3" --dtype "$4" --tp $t --max-new 16 && sha256sum <"$work/logits"; } >"$work/answers-$t" 2>/dev/null </dev/null
        if [ -s "$work/answers-1" ] && cmp -s "$work/answers-1" "$work/answers-$t"; then pass "$1 $4 answers, T=$t"; else fail "$1 $4 answers, T=$t"; fi
    done
}

# cog_stops NAME FLAG...: killed at random moments and resumed at a random T, ten times: the adapter of the unbroken run.
cog_stops() {
    local name=$1 trial attempt resume path
    shift
    train "$work/unbroken" "$@" --tp 1 || fail "$name: $(tail -n 3 "$work/unbroken.log" | tr '\n' ' ')"
    for trial in $(seq 10); do
        rm -rf "$work/stopped"
        path=""
        for attempt in $(seq 40); do
            resume=--resume
            ls -d "$work"/stopped/checkpoints/step-*[0-9] >/dev/null 2>&1 || { resume=""; rm -rf "$work/stopped"; }
            local t=$((1 + RANDOM % 8))
            # shellcheck disable=SC2086
            "$sheaf" train --out "$work/stopped" "$@" --tp $t $resume >"$work/stopped.log" 2>&1 </dev/null &
            local pid=$!
            path="$path T=$t"
            if [ "$attempt" -lt 5 ]; then
                sleep "$(awk -v r=$RANDOM 'BEGIN { printf "%.3f", 1.5 * r / 32768 }')"
                kill -KILL $pid 2>/dev/null
            fi
            wait $pid 2>/dev/null
            [ ! -d "$work/stopped/adapter" ] || break
        done
        if diff -r "$work/unbroken/adapter" "$work/stopped/adapter" >/dev/null 2>&1; then pass "$name, trial $trial:$path"; else fail "$name, trial $trial:$path: another adapter"; fi
    done
}

cog_models=0
for config in "$golden"/*/mp1/model_config.json; do
    dir=${config%/mp1/model_config.json}
    [ -f "$dir/inputs.safetensors" ] || continue
    cog_models=$((cog_models + 1))
    common=(--model "$dir/mp1" --data "$dir/inputs.safetensors" --micro-batch 1 --accumulate 3 --lr 3e-3 --seed 11)
    long=(--steps 6 --save-every 3)
    factors=(--method lora --lora-rank 5 --lora-alpha 10 --lora-targets all-linear --lora-dropout 0.1 --train '*linear_proj*,*boi,*eoi' --lr-scale '*linear_proj*=0.1')
    for dtype in float32 bfloat16; do
        name="$(basename "$dir") $dtype"
        matrix "$name lora" "1 2 3 4 5 6 7 8" "1 3" "${common[@]}" "${long[@]}" "${factors[@]}" --dtype $dtype
        matrix "$name head" "1 2 3 4 5 6 7 8" "1 3" "${common[@]}" "${long[@]}" --method head --dtype $dtype
        matrix "$name full" "1 2 3 4 5 6 7 8" "1 3" "${common[@]}" "${long[@]}" --method full --dtype $dtype
        for slices in 4 16; do
            matrix "$name lora, $slices slices" "1 2 3 4" "2" "${common[@]}" "${long[@]}" "${factors[@]}" --dtype $dtype --slices $slices
        done
        cog_kernels "$name lora" "${common[@]}" "${factors[@]}" --dtype $dtype --steps 1
        cog_kernels "$name full" "${common[@]}" --method full --dtype $dtype --tp 3 --steps 1
        cog_answers "$(basename "$dir")" "$dir/mp1" "$dir/inputs.safetensors" $dtype
    done
    cog_stops "$(basename "$dir") stopped" "${common[@]}" "${factors[@]}" --steps 40 --save-every 2 --threads 2
done
[ "$cog_models" -gt 0 ] || fail "no recorded CogVLM or CogAgent in $golden"
