#!/usr/bin/env bash
# find_nvcc.sh - which kinds of GPUs the build has kernels for, of each nvcc (src/ops/devices/gpu/cuda/find_nvcc.sh): programs
# that answer as nvcc of a release does. Its list of GPUs (--list-gpu-code) never has sm_90a, so that is no way to ask.
#
#   find_nvcc.sh SOURCE_ROOT
set -uo pipefail
cd "$1" || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
bad=0
cat >"$work/nvcc" <<'END'
#!/bin/sh
for word; do
    case $word in
    --version) echo "Cuda compilation tools, release $RELEASE, V$RELEASE.99"; exit ;;
    -arch=*) kind=${word#-arch=} ;;
    *.cu) source=$word ;;
    esac
done
[ -z "${BROKEN:-}" ] || { echo "$BROKEN"; exit 1; }
case " $KNOWS " in *" $kind "*) ;; *) echo "nvcc fatal   : Value '$kind' is not defined for option 'gpu-architecture'"; exit 1 ;; esac
if grep -q tensormap "$source" && [ "$FENCE" = no ]; then
    echo "ptxas $source, line 24; fatal   : Parsing error near ':': syntax error"
    exit 1
fi
END
chmod +x "$work/nvcc"
# finds NAME KINDS REASON KIND...: with $RELEASE, $KNOWS and $FENCE; KINDS empty: status 1. REASON: a pattern, empty: none.
finds() {
    local name=$1 kinds=$2 reason=$3 is status
    shift 3
    is=$(NVCC=$work/nvcc sh src/ops/devices/gpu/cuda/find_nvcc.sh "$@" 2>"$work/why")
    status=$?
    if [ "$is" = "${kinds:+$work/nvcc $kinds}" ] && [ $status = "$([ -n "$kinds" ]; echo $?)" ] &&
        if [ -n "$reason" ]; then grep -qE "$reason" "$work/why"; else ! [ -s "$work/why" ]; fi; then
        echo "ok - $name"
    else
        echo "not ok - $name"
        sed 's/^/# /' <<<"status $status: $is" "$work/why" -
        bad=1
    fi
}
export RELEASE KNOWS FENCE
RELEASE=11.8 FENCE=no KNOWS="sm_75 sm_80 sm_86 sm_87 sm_89 sm_90"
finds "11.8: sm_90 without the wide kernels" "sm_80 sm_86 sm_89 sm_90" "compiles sm_90 for sm_90a: nvcc fatal .*'sm_90a' is not defined"
finds "it names what it does not know" "sm_80 sm_86 sm_89 sm_90" "compiles nothing for sm_120: nvcc fatal .*'sm_120' is not defined"
finds "it compiles what is wanted" "sm_80" "" sm_80
finds "and no other" "" "compiles nothing for sm_100: nvcc fatal .*'sm_100'" sm_100
RELEASE=12.0 KNOWS="$KNOWS sm_90a"
finds "12.0 lacks the fence" "sm_80 sm_90" "compiles sm_90 for sm_90a: ptxas .*Parsing error" sm_80 sm_90a
RELEASE=12.4 FENCE=yes
finds "12.4 has it" "sm_80 sm_90a" "" sm_80 sm_90a
RELEASE=13.0 KNOWS="$KNOWS sm_100 sm_103 sm_120 sm_121"
finds "13.0: all" "sm_80 sm_86 sm_89 sm_90a sm_100 sm_120" ""
BROKEN="error: unsupported GNU version" finds "a host compiler that is too new" "" "compiles nothing for sm_80: error: unsupported GNU version"
RELEASE=11.2 finds "11.2" "" "older than CUDA 11.8, the least"
if [ "$(NVCC=$work/none sh src/ops/devices/gpu/cuda/find_nvcc.sh 2>&1)" = "no nvcc: $work/none" ]; then echo "ok - none"; else
    echo "not ok - none"
    bad=1
fi

# One list of kinds, in five places.
list=$(sed -n "s/^option('gpu_kinds'.*choices: \[\([^]]*\)\].*/\1/p" meson_options.txt | tr -d "',")
same() { # same WHERE LIST
    if [ "$2" = "$list" ]; then return; fi
    echo "not ok - $1 has the kinds of meson_options.txt, $list"
    echo "# $2"
    bad=1
}
same "its default" "$(sed -n "s/^option('gpu_kinds'.*value: \[\([^]]*\)\].*/\1/p" meson_options.txt | tr -d "',")"
same run "$(sed -n 's/^all_kinds=//p' run | tr , ' ')"
same find_nvcc.sh "$(sed -n 's/.*|| set -- //p' src/ops/devices/gpu/cuda/find_nvcc.sh)"
same image.c "$(sed -n '/choices\[\]/,/};/p' src/ops/devices/gpu/cuda/image.c | grep -o 'sm_[0-9a]*' | tr '\n' ' ' | sed 's/ $//')"
[ $bad -ne 0 ] || echo "ok - all places name the same kinds"
exit $bad
