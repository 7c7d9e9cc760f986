# soak_ranks.sh - section 13 of soak.sh, to be sourced: SOAK_FAILURES (200) failures of ranks.
#
# A run goes on at a random T after each failure, on threads or on processes of an MPI, until it is done:
# one rank is killed, stopped, cut off, out of memory, hangs or makes another call at a random exchange. Each part goes on
# from the newest checkpoint there is, none is damaged, and in the end all bytes are those of the
# undisturbed run. Without an MPI: threads alone.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
       OMPI_MCA_hwloc_base_binding_policy=none SHEAF_PLUGINS="$SHEAF_BUILD_ROOT/src/cli"
ranks_flags=(--model "$golden/llama/tiny_llama/hf" --data "$golden/llama/tiny_llama/fwd_inputs.safetensors" --micro-batch 1 --accumulate 2 --steps 30
    --save-every 3 --keep 2 --lr 3e-3 --seed 12 --lora-rank 5 --lora-targets all-linear --threads 2)
newest_step() { ls "$1/checkpoints" 2>/dev/null | sed -n 's/^step-0*\([0-9][0-9]*\)$/\1/p' | sort -n | tail -n 1; }
result_of() (
    cd "$1" 2>/dev/null || exit 1
    newest=checkpoints/$(ls checkpoints | grep -E '^step-[0-9]+$' | LC_ALL=C sort | tail -n 1)
    [ -d adapter ] || exit 1
    { find adapter "$newest" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
      same_metrics metrics.jsonl; } | sha256sum | cut -d' ' -f1
)
train "$work/undisturbed" "${ranks_flags[@]}" || fail "the undisturbed run: $(tail -n 3 "$work/undisturbed.log")"
want=$(result_of "$work/undisturbed")
transports=(threads)
mpis=()
for mpi in openmpi mpich; do
    [ ! -e "$SHEAF_PLUGINS/sheaf-$mpi.so" ] || ! command -v "mpirun.$mpi" >/dev/null || mpis+=($mpi)
done
transports+=("${mpis[@]}")
faults=(kill kill stop cut fail memory hang stray)
calls=(sum sum sum max select agree any gather broadcast collect forwards backwards saving others)
RANDOM=815
tried=0
lost=0
trial=0
while [ $tried -lt "${SOAK_FAILURES:-200}" ] && [ -n "$want" ]; do
    trial=$((trial + 1))
    out=$work/failing
    rm -rf "$out"
    path=""
    for attempt in $(seq 40); do
        t=$((1 + RANDOM % 4))
        transport=${transports[RANDOM % ${#transports[@]}]}
        fault=${faults[RANDOM % ${#faults[@]}]}
        [ $t -gt 1 ] || transport=threads
        [ $transport != threads ] || [ $fault != stop ] || fault=kill # a process that is stopped as a whole stops for good
        [ $transport = threads ] && how=(--transport threads) || how=(--transport mpi --mpi $transport)
        plan=$((RANDOM % t)):${calls[RANDOM % ${#calls[@]}]}:$((1 + RANDOM % 300)):$fault
        [ "$attempt" -lt 6 ] || plan=0:barrier:1000000:kill # and now in peace
        before=$(newest_step "$out")
        resume=""
        [ -z "$before" ] || resume=--resume
        [ -n "$before" ] || rm -rf "$out"
        # shellcheck disable=SC2086
        timeout -k 1 120 "$faulty" train --out "$out" "${ranks_flags[@]}" --tp $t "${how[@]}" --heartbeat 2s --hang-after 4s --inject "$plan" $resume \
            >"$out.log" 2>&1 </dev/null
        code=$?
        path="$path T=$t/$transport/$plan"
        [ $code -eq 0 ] || tried=$((tried + 1))
        [ $code -ne 124 ] && [ $code -ne 137 ] || [ "$transport" = threads ] || path="$path(code $code)"
        [ -z "$before" ] || ! grep -q "going on after step" "$out.log" || grep -q "going on after step $before\$" "$out.log" || { lost=$((lost + 1)); path="$path(not from $before)"; }
        [ ! -d "$out/adapter" ] || break
    done
    if [ "$(result_of "$out")" = "$want" ]; then
        pass "$tried failures:$path"
    else
        fail "trial $trial:$path: other bytes; kept as $work/failed-ranks-$trial"
        mv "$out" "$work/failed-ranks-$trial"
        cp "$out.log" "$work/failed-ranks-$trial.log"
    fi
done
if [ $lost -eq 0 ]; then pass "$tried failures of ranks, each gone on from after the newest checkpoint"; else fail "$lost times not from the newest checkpoint"; fi
# steps_lost LOG: how many steps were done again though a checkpoint of them had been told of, over all restarts.
steps_lost() {
    awk '/^saved .*\/step-[0-9]+$/ { n = $0; sub(/.*step-0*/, "", n); saved = n + 0 }
         /^going on after step / { if ($5 + 0 < saved) lost += saved - $5 }
         /^no checkpoint yet/ { lost += saved }
         END { print lost + 0 }' "$1"
}
# The same with --restarts, which goes on by itself: the fault comes again while enough of its calls are left.
trial=0
while [ $trial -lt "${SOAK_RESTARTS:-60}" ] && [ -n "$want" ]; do
    trial=$((trial + 1))
    transport=${transports[trial % ${#transports[@]}]}
    fault=${faults[RANDOM % ${#faults[@]}]}
    [ $transport != threads ] || [ $fault != stop ] || fault=kill
    [ $transport = threads ] && how=(--transport threads) || how=(--transport mpi --mpi $transport)
    t=$((2 + RANDOM % 3))
    plan=$((RANDOM % t)):${calls[RANDOM % 4]}:$((400 + RANDOM % 400)):$fault
    timeout -k 1 300 "$faulty" train --out "$work/again" "${ranks_flags[@]}" --tp $t "${how[@]}" --heartbeat 2s --hang-after 4s --inject "$plan" --restarts 40 \
        >"$work/again.log" 2>&1 </dev/null
    code=$?
    tried=$((tried + $(grep -c '^restart ' "$work/again.log")))
    behind=$(steps_lost "$work/again.log")
    lost=$((lost + behind))
    if [ $code -eq 0 ] && [ "$behind" -eq 0 ] && [ "$(result_of "$work/again")" = "$want" ]; then
        pass "--restarts, T=$t/$transport/$plan: $(grep -c '^restart ' "$work/again.log") failures"
    else
        fail "--restarts, T=$t/$transport/$plan: code $code, $behind steps lost, or other bytes; kept as $work/failed-again-$trial"
        mv "$work/again" "$work/failed-again-$trial"
        cp "$work/again.log" "$work/failed-again-$trial.log"
    fi
    rm -rf "$work/again"
done
if [ $lost -eq 0 ]; then pass "$tried failures with those of --restarts, 0 steps lost beyond the newest checkpoint"; else fail "$lost steps lost in $tried failures"; fi
for mpi in "${mpis[@]}"; do
    for test in faults watched hosts; do
        cases "failures under $mpi, $test" '^ok - ' env SHEAF_SOAK=1 bash tests/mpi/$test.sh "$mpi"
    done
done
