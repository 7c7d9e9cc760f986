#!/usr/bin/env bash
# Two hosts: network namespaces with a wire between them, each with a host name and a folder of its own, which talk by
# TCP; mpirun reaches the second through a stand-in for ssh. Where namespaces may not be made the two processes talk by
# TCP on one host, and the cases are named so.
#
#   hosts.sh openmpi
. "$(dirname "$0")/lib.sh"

data=$llama/tiny_llama/fwd_inputs.safetensors
odd_model "$work/odd" || fail "init of the odd model"
flags=(--data "$data" --micro-batch 1 --accumulate 2 --steps 3 --lr 3e-3 --lora-rank 5 --threads 2)
check "one rank" "$sheaf" train --model "$work/odd" "${flags[@]}" --out "$work/one"
export OMPI_MCA_btl=tcp,self # no shared memory

# A host is a process that holds its namespaces.
hosts=()
take_down() { for h in "${hosts[@]}"; do kill "$h"; wait "$h"; done; } 2>/dev/null
trap 'take_down; chmod -R u+w "$work" 2>/dev/null; rm -rf "$work"' EXIT
mkdir "$work/local" # another folder on each of them
new_host() { # new_host NAME
    unshare --net --uts --mount bash -c 'hostname "$0" && mount -t tmpfs none "$1/local" && touch "$1/$0" && exec sleep 600' "$1" "$work" &
    hosts+=($!)
    waits test -e "$work/$1" -o ! -d "/proc/$!" && [ -e "$work/$1" ]
}
on() { local h=$1; shift; nsenter -t "$h" --net --uts --mount -- "$@"; }
two_hosts() {
    new_host sheaf-one && new_host sheaf-two || return 1
    a=${hosts[0]} b=${hosts[1]}
    on "$a" ip link add sheaf0 type veth peer name sheaf0 netns "$b" || return 1
    on "$a" ip addr add 10.213.7.1/24 dev sheaf0 && on "$b" ip addr add 10.213.7.2/24 dev sheaf0 || return 1
    for h in "$a" "$b"; do on "$h" ip link set lo up && on "$h" ip link set sheaf0 up && on "$h" cp -r "$work/odd" "$work/local/model" || return 1; done
} 2>"$work/why"

if [ "$(id -u)" = 0 ] && command -v ip >/dev/null && two_hosts; then
    cat >"$work/ssh" <<END
#!$(command -v bash)
shift # the second host, by its address
exec nsenter -t $b --net --uts --mount -- sh -c "\$*"
END
    chmod +x "$work/ssh"
    export OMPI_MCA_plm_rsh_agent=$work/ssh OMPI_MCA_plm_rsh_no_tree_spawn=1
    on_both() { # on_both OUT
        on "$a" timeout 60 "$sheaf" train --model "$work/local/model" "${flags[@]}" --tp 2 --transport mpi --mpi openmpi \
            --hosts 10.213.7.1:1,10.213.7.2:1 --out "$1" >"$work/log" 2>&1
    }
    check "two hosts with a folder each" on_both "$work/two"
    same "two hosts: the adapter's numbers" "$work/one/adapter/adapter_model.safetensors" "$work/two/adapter/adapter_model.safetensors"
    check "it says where" grep -q "2 processes on sheaf-one, sheaf-two" "$work/log"
    cat "$work/log" | sed 's/^/# /' | head -n $((failures > 0 ? 20 : 0))
    on "$b" rm -r "$work/local/model"
    on_both "$work/three" && fail "a host without the model" "it trained"
    check "a host without the model is named, once" bash -c '[ "$(grep "^sheaf: " "$0")" = "sheaf: rank 1 on sheaf-two: $1" ]' "$work/log" "$work/local/model"
    absent "and nothing is begun" "$work/three"
    alone() { # but for the one that holds it
        local p n=0
        for p in /proc/[0-9]*/ns/net; do [ ! "$p" -ef "/proc/$b/ns/net" ] || n=$((n + 1)); done
        [ $n = 1 ]
    }
    check "no process is left there" waits alone
else
    sed 's/^/# /' "$work/why"
    check "one host, as namespaces may not be made here: by TCP" ranks 2 "$sheaf" train --model "$work/odd" "${flags[@]}" --tp 2 --transport mpi --out "$work/two"
    same "one host: the adapter" "$work/one/adapter" "$work/two/adapter"
fi
finish
