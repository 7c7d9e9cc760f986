# plan_peak.sh - compares what `sheaf plan` predicts with the peak a run has; to be sourced after
# lib.sh. Needs $base: the peak of a process that does nothing.

# peak_of ARGUMENT...: the most memory the command with these arguments had, in bytes. As users run it: MALLOC_PERTURB_, which
# meson sets, makes resident what malloc gave and nobody touched, a megabyte of three ranks.
peak_of() { env -u MALLOC_PERTURB_ "$SHEAF_BUILD_ROOT/tests/peak" "$sheaf" "$@"; }
make_tokens() { # make_tokens FILE RECORDS BYTES: text for a byte vocabulary
    awk -v n="$2" -v bytes="$3" 'BEGIN { for (i = 0; i < n; i++) { s = ""; for (j = 0; j < bytes; j++) s = s sprintf("%c", 97 + (i * 7 + j * j) % 26); printf "{\"text\": \"%s\"}\n", s } }' >"$1"
}
make_pictures() { # make_pictures DIR: captchas
    mkdir -p "$1"
    cp "$SHEAF_SOURCE_ROOT/tests/data/images/rgb8.png" "$1/1234.png"
    cp "$SHEAF_SOURCE_ROOT/tests/data/images/turned6.jpg" "$1/98.jpg"
    cp "$SHEAF_SOURCE_ROOT/tests/data/images/cmyk.jpg" "$1/77.jpg"
    cp "$SHEAF_SOURCE_ROOT/tests/data/images/grey16.png" "$1/0.png"
}
make_deep() { # make_deep DIR: 32 small layers, of which the lists are more than the numbers
    sed -e 's/"num_hidden_layers": [0-9]*/"num_hidden_layers": 32/' -e 's/"hidden_size": [0-9]*/"hidden_size": 128/' \
        -e 's/"intermediate_size": [0-9]*/"intermediate_size": 256/' -e 's/"num_key_value_heads": [0-9]*/"num_key_value_heads": 8/' \
        "$SHEAF_SOURCE_ROOT/tests/data/configs/mini.json" >"$1.json"
    "$sheaf" init "$1.json" "$1" --seed 1 >/dev/null 2>&1
}
make_middle() { # make_middle cogvlm|cogagent DIR: hidden 1024, 4 layers, a ViT of 1024, a tower of 512
    "$sheaf" init "$1-tiny" "$2.tiny" --seed 1 >/dev/null 2>&1 || return 1
    sed -e 's/"hidden_size": 128/"hidden_size": 1024/' -e 's/"num_attention_heads": 8/"num_attention_heads": 16/' \
        -e 's/"inner_hidden_size": 352/"inner_hidden_size": 2752/' -e 's/"inner_hidden_size": 256/"inner_hidden_size": 2048/' \
        -e 's/"image_length": 16/"image_length": 64/' -e 's/\[56, 56\]/[112, 112]/' -e 's/"max_sequence_length": 17/"max_sequence_length": 65/' \
        -e 's/"cross_attn_hidden_size": 64/"cross_attn_hidden_size": 512/' -e 's/"width": 64/"width": 512/' -e 's/"head_width": 8/"head_width": 64/' \
        -e 's/"cross_hidden_size_per_attention_head": 8/"cross_hidden_size_per_attention_head": 32/' \
        -e 's/"cross_image_pix": 112/"cross_image_pix": 280/' "$2.tiny/config.json" >"$2.json"
    "$sheaf" init "$2.json" "$2" --seed 1 >/dev/null 2>&1
}
# What may be missing from a plan: the kernel counts resident pages in batches per processor or thread, so a peak, and what
# lies between two peaks, is known to half a megabyte; and a run touches one to two megabytes of the program and its
# libraries that a process which does nothing does not.
predicted() { # predicted MODEL DATA FLAGS...: over $steps, two if that is not set: the second one has the moments, too
    local model=$1 data=$2 plan peak out
    shift 2
    out=$(mktemp -d "$work/peak.XXXXXX")
    plan=$("$sheaf" plan --model "$model" --data "$data" "$@" --json 2>/dev/null | grep -oE '"peak":[0-9]+' | tail -n 1 | cut -d: -f2)
    peak=$(peak_of train --model "$model" --data "$data" --out "$out/run" --steps "${steps:-2}" "$@") || { echo "the run failed"; return 1; }
    rm -rf "$out"
    awk -v plan="$plan" -v peak="$peak" -v base="$base" 'BEGIN { used = peak - base; r = plan / used; printf "planned %.1f MB, measured %.1f MB, ratio %.4f\n", plan / 1e6, used / 1e6, r; exit !(plan + 2097152 >= used && plan <= 1.05 * used + 1048576) }'
}
# The setting that `plan --memory` proposes, run for real: it takes no more than that memory, and what the plan says.
fitted() { # fitted MODEL DATA MEMORY FLAGS...
    local model=$1 data=$2 memory=$3 found flags
    shift 3
    found=$("$sheaf" plan --model "$model" --data "$data" --memory "$memory" "$@" --json 2>/dev/null) || { echo "nothing fits"; return 1; }
    found=${found#*\"proposal\":\{}
    found=${found%%\}*}
    # shellcheck disable=SC2001
    flags=$(sed -e 's/"seq":[0-9]*//; s/"checkpointing":true/--checkpointing/; s/"checkpointing":false//; s/"\([a-z_]*\)":/--\1 /g; s/[",]/ /g; s/micro_batch/micro-batch/; s/keep_activations/keep-activations/' <<<"$(sed 's/\(weights\|moments\),/\1+/g' <<<"$found")")
    flags=${flags//+/,}
    echo "$flags"
    local rest=" $* "
    [[ $rest != *" --micro-batch "* ]] || rest=$(sed 's/ --micro-batch [0-9]* / /' <<<"$rest")
    # shellcheck disable=SC2086
    predicted "$model" "$data" $rest $flags
}
