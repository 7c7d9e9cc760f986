#!/usr/bin/env bash
# Two hosts: network namespaces with a wire between them, each with a host name and a folder of its own, which talk by
# TCP; mpirun reaches the second through a stand-in for ssh. Where namespaces may not be made the two processes talk by
# TCP on one host, and the cases are named so. With SHEAF_SOAK also three hosts, of which two vanish one after the other.
#
# With MPICH only what depends on the MPI: two hosts, and one that is gone.
#
#   hosts.sh MPI
. "$(dirname "$0")/lib.sh"

data=$llama/tiny_llama/fwd_inputs.safetensors
odd_model "$work/odd" || fail "init of the odd model"
flags=(--data "$data" --micro-batch 1 --accumulate 2 --steps 3 --lr 3e-3 --lora-rank 5 --threads 2)
check "one rank" "$sheaf" train --model "$work/odd" "${flags[@]}" --out "$work/one"
export OMPI_MCA_btl=tcp,self UCX_TLS=tcp,self # no shared memory

# A host is a process that holds its namespaces; the second one's processes end with it.
hosts=()
take_down() { for h in "${hosts[@]}"; do kill -KILL "$h"; done; wait; hosts=(); } 2>/dev/null
trap 'take_down; chmod -R u+w "$work" 2>/dev/null; rm -rf "$work"' EXIT
mkdir "$work/local" # another folder on each of them
new_host() { # new_host NAME FLAG...
    local name=$1 holder
    shift
    unshare --net --uts --mount "$@" bash -c 'hostname "$0" && { mount -t sysfs none /sys || [ "$2" = openmpi ]; } && mount -t tmpfs none "$1/local" && touch "$1/$0" && exec sleep 600' "$name" "$work" "$mpi" &
    holder=$!
    rm -f "$work/$name"
    waits test -e "$work/$name" -o ! -d "/proc/$holder" && [ -e "$work/$name" ] || return 1
    [ $# = 0 ] || holder=$(pgrep -P $holder)
    hosts+=("$holder")
}
on() { local h=$1; shift; nsenter -t "$h" --net --uts --mount -- "$@"; }
make_hosts() { # make_hosts NAME...: with addresses 10.213.7.1 and on; the first has the switch
    local name h
    new_host "$1" || return 1
    a=${hosts[0]}
    on "$a" ip link add sheaf0 type bridge && on "$a" ip addr add 10.213.7.1/24 dev sheaf0 || return 1
    for name in "${@:2}"; do
        new_host "$name" --pid --fork --mount-proc || return 1
        h=${hosts[-1]}
        on "$a" ip link add "$name" type veth peer name sheaf0 netns "$h" && on "$a" ip link set "$name" master sheaf0 up || return 1
        on "$h" ip addr add 10.213.7.${#hosts[@]}/24 dev sheaf0 || return 1
    done
    for h in "${hosts[@]}"; do on "$h" ip link set lo up && on "$h" ip link set sheaf0 up && on "$h" cp -r "$work/odd" "$work/local/model" || return 1; done
    for h in "${hosts[@]}"; do waits on "$h" grep -q up /sys/class/net/sheaf0/operstate || return 1; done
    b=${hosts[1]}
    cat >"$work/ssh" <<END
#!$(command -v bash)
while [[ \$1 = -* ]]; do shift; done
hosts=(${hosts[*]}) number=\${1##*.} # of a host, by its address
shift
[ ! -e "$work/off.\$number" ] || exit 255
nsenter -t \${hosts[number - 1]} --net --uts --mount --pid -- sh -c "\$*"
code=\$?
[ ! -e "$work/off.\$number" ] || sleep 50 # as a connection to a host that is gone: it learns of nothing
exit \$code
END
    chmod +x "$work/ssh"
} 2>"$work/why"
switch_off() { # switch_off NUMBER
    local h=${hosts[$1 - 1]}
    touch "$work/off.$1"
    on "$a" ip addr add 10.213.7.1/32 dev lo 2>/dev/null # which it keeps without a wire
    on "$h" ip link set sheaf0 down
    sleep 0.2
    kill -KILL "$h"
}
no_way() { ! pgrep -f "$work/ssh" >/dev/null; }

if [ "$(id -u)" = 0 ] && command -v ip >/dev/null && make_hosts sheaf-one sheaf-two; then
    export OMPI_MCA_plm_rsh_agent=$work/ssh OMPI_MCA_plm_rsh_no_tree_spawn=1
    export HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC=$work/ssh HYDRA_IFACE=sheaf0 UCX_NET_DEVICES=sheaf0
    on_both() { # on_both OUT FLAG...
        local out=$1
        shift
        on "$a" timeout -k 5 60 "$faulty" train --model "$work/local/model" "${flags[@]}" --tp 2 --transport mpi --mpi "$mpi" \
            --hosts 10.213.7.1:1,10.213.7.2:1 --out "$out" "$@" >"$work/log" 2>&1
    }
    check "two hosts with a folder each" on_both "$work/two"
    same "two hosts: the adapter's numbers" "$work/one/adapter/adapter_model.safetensors" "$work/two/adapter/adapter_model.safetensors"
    check "it says where" grep -q "2 processes on sheaf-one, sheaf-two" "$work/log"
    cat "$work/log" | sed 's/^/# /' | head -n $((failures > 0 ? 20 : 0))
    if [ "$mpi" = openmpi ]; then
        # What is not on both is told before anything is begun.
        refused() { # refused NAME PATTERN FLAG...: by the second host, once
            local name=$1 pattern=$2
            shift 2
            on "$a" timeout -k 5 60 "$sheaf" train --model "$work/local/model" "${flags[@]:2}" --tp 2 --transport mpi --mpi "$mpi" \
                --hosts 10.213.7.1:1,10.213.7.2:1 "$@" >"$work/log" 2>&1 && fail "$name: is refused" "it trained"
            check "$name: the host is named, once" bash -c '[ "$(grep -c "^sheaf: " "$0")" = 1 ] && grep -q "^sheaf: rank 1 on sheaf-two: $1" "$0"' "$work/log" "$pattern"
        }
        on "$a" cp "$data" "$work/local/rows.safetensors"
        refused "a disk each" "--out $work/local/apart" --data "$work/local/rows.safetensors" --out "$work/local/apart"
        check "and says that OUT must be shared" grep -q 'try: .*a file system that all hosts share' "$work/log"
        check "nothing is left" on "$a" test ! -e "$work/local/apart"
        ids=$(seq 3 18 | tr '\n' ' ')
        tokens_file "$work/rows.1" 4 4 "$ids" "$ids"
        tokens_file "$work/rows.2" 4 4 "${ids/ 9 / 8 }" "$ids"
        on "$a" cp "$work/rows.1" "$work/local/other.safetensors" && on "$b" cp "$work/rows.2" "$work/local/other.safetensors"
        refused "data on one host" "$work/local/rows.safetensors" --data "$work/local/rows.safetensors" --out "$work/three"
        refused "other data" "the data" --data "$work/local/other.safetensors" --out "$work/three"
        absent "nothing is begun" "$work/three"
        on "$b" rm -r "$work/local/model"
        on_both "$work/three" && fail "a host without the model" "it trained"
        check "a host without the model is named, once" bash -c '[ "$(grep "^sheaf: " "$0")" = "sheaf: rank 1 on sheaf-two: $1" ]' "$work/log" "$work/local/model"
        absent "and nothing is begun" "$work/three"
        alone() { # but for the one that holds it
            local p n=0
            for p in /proc/[0-9]*/ns/net; do [ ! "$p" -ef "/proc/$b/ns/net" ] || n=$((n + 1)); done
            [ $n = 2 ]
        }
        check "no process is left there" waits alone
    fi
    # The second host is switched off while its rank is in step 2, or 3.
    on "$b" cp -r "$work/odd" "$work/local/model"
    on_both "$work/gone" --save-every 1 --restarts 3 --heartbeat 2s --inject 1:sum:50:hang &
    run=$!
    waits eval 'compgen -G "$work/gone/checkpoints/step-????????" >/dev/null'
    switch_off 2
    wait $run
    check "a host is gone: the run goes on" test $? = 0
    check "which is told" grep -qE 'rank 1 of 2 \(host sheaf-two, process [0-9]+\) (is silent|has died)' "$work/log"
    check "on the ranks that are left" grep -qE 'restart 1 of 3: .* after step [12], with --tp=1 --dp=1, without hosts that do not answer: 10.213.7.2$' "$work/log"
    same "to the adapter of one rank" "$work/one/adapter/adapter_model.safetensors" "$work/gone/adapter/adapter_model.safetensors"
    check "and no way to the other is left open" no_way
    no_way || kill -KILL $(pgrep -f "$work/ssh")
    sed 's/^/# /' "$work/log" | head -n $((failures > 0 ? 30 : 0))

    # Hosts vanish at any moment, one after the other: of three two go on, then one, each with a disk of its own.
    reached() { [ "$(ls "$work/three/checkpoints" 2>/dev/null | sed -n 's/^step-0*\([0-9]\)/\1/p' | tail -n 1)" -ge "$1" ] 2>/dev/null; }
    long=("${flags[@]}")
    long[7]=200 # steps: the second is gone long before the last
    trials=$([ -z "${SHEAF_SOAK:-}" ] || seq 5)
    fresh_hosts() { # fresh_hosts NAME...: and no run of a trial before
        take_down
        rm -rf "$work"/off.* "$work/three"
        make_hosts "$@" || fail "hosts $*" "$(cat "$work/why")"
    }
    tidy() { # after a trial
        no_way || kill -KILL $(pgrep -f "$work/ssh")
        sed 's/^/# /' "$work/log" | head -n $((failures > 0 ? 40 : 0))
    }
    for trial in $trials; do
        fresh_hosts sheaf-one sheaf-two sheaf-three
        [ -e "$work/whole" ] || "$sheaf" train --model "$work/odd" "${long[@]}" --out "$work/whole" >/dev/null 2>&1
        for h in "${hosts[@]}"; do on "$h" cp "$data" "$work/local/rows.safetensors"; done
        on "$a" timeout -k 5 200 "$sheaf" train --model "$work/local/model" --data "$work/local/rows.safetensors" "${long[@]:2}" --tp 3 --transport mpi --mpi "$mpi" \
            --hosts 10.213.7.1:1,10.213.7.2:1,10.213.7.3:1 --out "$work/three" --save-every 1 --restarts 5 --heartbeat 2s >"$work/log" 2>&1 &
        run=$!
        first=$((RANDOM % 15 + 1)) second=$((RANDOM % 15 + 17)) last=$((RANDOM % 2 + 2))
        waits reached $first
        switch_off $last
        waits reached $second
        switch_off $((5 - last))
        wait $run
        check "trial $trial, hosts $last and $((5 - last)) vanish after steps $first and $second: the run goes on" test $? = 0
        check "trial $trial: with fewer ranks each time" bash -c 'grep -q "with --tp=2" "$0" && grep -q "with --tp=1" "$0"' "$work/log"
        same "trial $trial: to the adapter of one rank" "$work/whole/adapter/adapter_model.safetensors" "$work/three/adapter/adapter_model.safetensors"
        tidy
    done
    # One vanishes as the run comes to its end, when no rank watches the others any more.
    for trial in $trials; do
        fresh_hosts sheaf-one sheaf-two
        on_both "$work/three" --save-every 1 --restarts 5 --heartbeat 2s &
        run=$!
        waits test -e "$work/three/adapter"
        switch_off 2
        began=$SECONDS
        wait $run
        check "trial $trial, a host vanishes at the end of the run: it ends" test $? = 0 -a $((SECONDS - began)) -lt 60
        same "trial $trial: with the adapter of one rank" "$work/one/adapter/adapter_model.safetensors" "$work/three/adapter/adapter_model.safetensors"
        tidy
    done
else
    sed 's/^/# /' "$work/why"
    check "one host, as namespaces may not be made here: by TCP" ranks 2 "$sheaf" train --model "$work/odd" "${flags[@]}" --tp 2 --transport mpi --out "$work/two"
    same "one host: the adapter" "$work/one/adapter" "$work/two/adapter"
fi
finish
