# compare.sh - for cli/devices.sh and soak_devices.sh, which source it: what the command does on `checked` and `copied`
# (register.c), or on those that $SHEAF_DEVICES names, byte for byte what it does on `cpu`. Uses $work and the functions of
# cli/lib.sh.
devices=$SHEAF_BUILD_ROOT/tests/sheaf_devices
others=${SHEAF_DEVICES:-checked copied}
first=${others%% *}

# on DEVICE NAME ARGUMENT...: the command there; its texts and its transfers become $work/NAME.DEVICE.*
on() {
    local to=$work/$2.$1 device=$1
    shift 2
    rm -f "$to".*
    SHEAF_TRANSFERS=$to.transfers "$devices" "$@" --device "$device" >"$to.out" 2>"$to.err" </dev/null
}
# transfers FILE [PATTERN]: its lines, in the order of ranks and steps.
transfers() { grep -E "${2:-.}" "$1" | LC_ALL=C sort; }

# What a plan does not know it takes to be as much as can be: rows of experts that are chosen, which ranks exchange, and
# lists of positions of pictures that each have a size.
plan=exact
# foretold IS PLANNED: by line and number the same, or, with plan=most, at least as much, and at most 2.5 times.
foretold() {
    if [ "$plan" = exact ]; then diff "$1" "$2"; else
        paste -d' ' "$1" "$2" | awk '{ print; for (i = 1; i <= NF / 2; i++) { is = $i; planned = $(i + NF / 2); bad += is !~ /^[0-9]+$/ ? is != planned : planned < is || planned > 2.5 * is } } END { exit NR == 0 || bad > 0 }'
    fi
}
# planned NAME DEVICE FLAG...: plan, on a device without memory, counts the bytes that the first step of NAME moved.
planned() {
    local name=$1 device=$2
    shift 2
    SHEAF_TRANSFERS=$work/$name.dry "$devices" plan --json "$@" --device "$device" >"$work/$name.plan" 2>&1 </dev/null || return 1
    transfers "$work/$name.$device.transfers" '^step 0 ' >"$work/$name.first"
    transfers "$work/$name.dry" '^step 0 ' >"$work/$name.first.dry"
    [ -s "$work/$name.first" ] && foretold "$work/$name.first" "$work/$name.first.dry"
}
# spare FILE: by rank, what its plan, which a run makes first, has more than its peak; the peak.
spare() { awk '/^rank/ { if ($2 in plan) print $2, plan[$2] - $4, $4; else plan[$2] = $4 }' "$1" | sort; }
# What is counted is in use as the end of what is in use rises last: of two layouts of nearly the same, that of less may end a
# little later. apart: by how much of its peak a rank's spare differs from that on cpu, where the host's memory lies between.
apart=0
# too_much FILE: of a spare, where the run needed more, by 2,048 bytes or half of that.
too_much() { awk -v apart=$apart '{ may = $3 * apart / 2; if (may < 2048) may = 2048 } $2 < -may { print; bad = 1 } END { exit !bad }' "$1"; }
# alike FILE FILE: the spares on cpu and on another device.
alike() { paste -d' ' "$1" "$2" | awk -v apart=$apart '{ print; d = $2 - $5; bad += $1 != $4 || d * d > ($6 * apart) ^ 2 } END { exit NR == 0 || bad > 0 }'; }
# settled NAME DEVICE: the run NAME left there what it left on cpu, and moved as many bytes; on cuda, whose ranks exchange
# without the host, it left no operation to the processor.
settled() {
    [ "$(digest "$work/$1.cpu")" = "$(digest "$work/$1.$2")" ] || { diff -rq "$work/$1.cpu" "$work/$1.$2"; return 1; }
    if [ "$2" = cuda ]; then
        spare "$work/$1.$2.transfers" >"$work/$1.spare"
        [ -s "$work/$1.spare" ] && ! too_much "$work/$1.spare" && ! transfers "$work/$1.$2.transfers" '^left' | sort -u | grep .
        return
    fi
    diff <(transfers "$work/$1.cpu.transfers" '^(step|whole)') <(transfers "$work/$1.$2.transfers" '^(step|whole)') || return 1
    spare "$work/$1.$2.transfers" >"$work/$1.spare"
    [ -s "$work/$1.spare" ] && ! too_much "$work/$1.spare" || return 1
    [ "$plan" != exact ] || alike <(spare "$work/$1.cpu.transfers") "$work/$1.spare"
}
# trains NAME FLAG...: a run, which stays in $work/NAME.DEVICE.
trains() {
    local name=$1 device
    shift
    for device in cpu $others; do
        rm -rf "${work:?}/$name.$device" "$work/$name.dry"
        on "$device" "$name" train --out "$work/$name.$device" "$@" || fail "checked: $name on $device" "$(tail -n 4 "$work/$name.$device.err")"
        [ "$device" = cpu ] || check "checked: $name, $device as cpu" settled "$name" "$device"
    done
    check "checked: $name, the transfers of the plan" planned "$name" "$first" "$@"
}
# resumes NAME FLAG...: the run NAME goes on.
resumes() {
    local name=$1 device
    shift
    for device in cpu $others; do
        on "$device" "$name" train --resume --out "$work/$name.$device" "$@" || fail "checked: $name goes on on $device" "$(tail -n 4 "$work/$name.$device.err")"
        [ "$device" = cpu ] || check "checked: $name goes on, $device as cpu" settled "$name" "$device"
    done
}
# without_times: JSON without what differs between two runs.
without_times() { sed -E 's/"[a-z_]*(second|per_s|time)[a-z_]*": ?[-0-9.e+]+,?//g'; }
# says NAME ARGUMENT...: any other command, whose output is compared.
says() {
    local name=$1 device
    shift
    for device in cpu $others; do
        on "$device" said "$@" || fail "checked: $name on $device" "$(tail -n 4 "$work/said.$device.err")"
        without_times <"$work/said.$device.out" >"$work/said.$device.text"
        case $others in *cuda*) ;; *) transfers "$work/said.$device.transfers" >>"$work/said.$device.text" ;; esac
        [ "$device" = cpu ] || check "checked: $name, $device as cpu" diff "$work/said.cpu.text" "$work/said.$device.text"
    done
    check "checked: $name, something" test -s "$work/said.cpu.out"
}
# chats NAME QUESTIONS FLAG...: a conversation of the lines in the file QUESTIONS.
chats() {
    local name=$1 questions=$2 device
    shift 2
    for device in cpu $others; do
        "$devices" chat "$@" --device "$device" <"$questions" >"$work/chat.$device" 2>"$work/chat.err" || fail "checked: $name on $device" "$(tail -n 4 "$work/chat.err")"
        [ "$device" = cpu ] || check "checked: $name, $device as cpu" cmp "$work/chat.cpu" "$work/chat.$device"
    done
    check "checked: $name, something" test -s "$work/chat.cpu"
}
