#!/usr/bin/env bash
# --quantize: a plain base is quantised while it is loaded. The same bytes at every number of ranks, threads and stages, where
# frozen weights lie in a file, and across a resume; the setting stays with the run and its adapter; peaks are those of the plan;
# what cannot be is refused.
. "$(dirname "$0")/lib.sh"
. "$SHEAF_SOURCE_ROOT/tests/plan_peak.sh"

mini=$work/mini large=$work/large # the second one is measured
sed 's/_size": 512/_size": 128/; s/_size": 1408/_size": 384/' "$SHEAF_SOURCE_ROOT/tests/data/configs/mini.json" >"$work/mini.json"
"$sheaf" init "$work/mini.json" "$mini" --seed 1 --dtype bfloat16 >/dev/null 2>&1 || fail "init of a model"
"$sheaf" init "$SHEAF_SOURCE_ROOT/tests/data/configs/mini.json" "$large" --seed 1 --dtype bfloat16 >/dev/null 2>&1 || fail "init of a larger model"
for ((i = 0; i < 24; i++)); do printf '{"text": "row %d %0120d"}\n' $i $i; done >"$work/rows.jsonl"
how=(--model "$mini" --data "$work/rows.jsonl" --micro-batch 2 --accumulate 2 --save-every 2 --keep 0 --lr 1e-3 --schedule constant)

# ---- the same bytes ----
lora=(--steps 2 --lora-targets all-linear)
compare() { # compare FORM FLAG...: the run has the bytes of the one without these flags
    local q=$1
    shift
    rm -rf "$work/other"
    runs "$q $*" 0 . train "${how[@]}" "${lora[@]}" --out "$work/other" --quantize "$q" "$@"
    same "$q $*: the same checkpoint" "$work/$q/checkpoints" "$work/other/checkpoints"
    same "$q $*: the same adapter" "$work/$q/adapter" "$work/other/adapter"
}
for q in nf4 nf4-double int8; do
    runs "$q" 0 . train "${how[@]}" "${lora[@]}" --out "$work/$q" --quantize $q
    check "$q is stored" grep -qx "quantize: $q" "$work/$q/settings"
    compare $q --tp 3 --threads 5
done
compare nf4 --tp 8 --checkpointing
compare nf4 --tp 2 --offload weights

# ---- where others may not read the memory of tensors, and on emulated GPUs: what devices.sh has not ----
tiny=${SHEAF_RECORDINGS:-$SHEAF_SOURCE_ROOT/tests/data}/quant/tiny_llama
[ -d "$tiny" ] || fail "recordings in $tiny"
sheaf=$SHEAF_BUILD_ROOT/tests/sheaf_devices
while read -r q flags; do
    for device in cpu checked cuda; do
        rm -rf "$work/at.$device"
        # shellcheck disable=SC2086
        runs "$q $flags on $device" 0 . train --model "$tiny/base_bf16" --data "$tiny/fwd_inputs.safetensors" --quantize $q --lora-targets all-linear \
            --micro-batch 2 --accumulate 2 --steps 2 --lr 1e-3 --threads 2 --out "$work/at.$device" --device $device $flags
        [ $device = cpu ] || same "$q $flags on $device: the same checkpoint" "$work/at.cpu/checkpoints" "$work/at.$device/checkpoints"
    done
done <<'END'
nf4 --dtype float32
nf4-double --dtype bfloat16 --sums mma16 --tp 2
int8 --dtype float32
int8 --dtype bfloat16 --sums mma16 --tp 2
END
sheaf=$SHEAF_BUILD_ROOT/src/cli/sheaf

rm -rf "$work/other"
runs "one step" 0 . train "${how[@]}" --steps 1 --out "$work/other" --quantize nf4 --lora-targets all-linear
runs "the same on" 0 . train --out "$work/other" --resume --steps 2 --tp 5
same "a resumed run" "$work/nf4/checkpoints/step-00000002" "$work/other/checkpoints/step-00000002"
runs "another form" 2 'quantize.*expected: +nf4.*found: +int8' train --out "$work/other" --resume --steps 3 --quantize int8

# ---- a folder that is quantised ----
runs "converted" 0 . convert "$mini" "$work/mini4" --to hf --quantize nf4
rm -rf "$work/other"
runs "trained on that folder" 0 . train --model "$work/mini4" "${how[@]:2}" "${lora[@]}" --out "$work/other"
same "with the same bytes" "$work/nf4/adapter/adapter_model.safetensors" "$work/other/adapter/adapter_model.safetensors"
rm -rf "$work/other"
runs "one step, quantised while it is loaded" 0 . train "${how[@]}" --steps 1 --out "$work/other" --quantize nf4 --lora-targets all-linear
runs "goes on with that folder" 0 . train --out "$work/other" --resume --steps 2 --model "$work/mini4"
same "with the same bytes" "$work/nf4/checkpoints/step-00000002/slice_000.safetensors" "$work/other/checkpoints/step-00000002/slice_000.safetensors"
runs "in 8 bits" 0 . convert "$mini" "$work/mini8" --to hf --quantize int8
runs "not with other codes" 2 'the base model: weights' train --out "$work/other" --resume --steps 3 --model "$work/mini8"
rm -rf "$work/other"
runs "trained on that folder again" 0 . train --model "$work/mini4" "${how[@]:2}" "${lora[@]}" --out "$work/other"
print() { grep -oE '"weights": "[0-9a-f]{32}"' "$1/checkpoints/step-00000002/manifest.json"; }
check "it is the base that was quantised while it was loaded" test -n "$(print "$work/nf4")" -a "$(print "$work/nf4")" = "$(print "$work/other")"

# ---- the bytes of a plain base of these values: fused layers, experts, pictures, both ways of a cut ----
mkdir "$work/pictures"
cp "$SHEAF_SOURCE_ROOT/tests/data/images/rgb8.png" "$work/pictures/1234.png"
cp "$SHEAF_SOURCE_ROOT/tests/data/images/grey16.png" "$work/pictures/0.png"
tokens_file "$work/ids.safetensors" 2 6 "3 4 5 6 7 8 9 10 11 12 13 14" "3 4 5 6 7 8 9 10 11 12 13 14"
for family in cogvlm-tiny phi3 mixtral mixtral_coded; do
    data=$work/ids.safetensors from=$SHEAF_SOURCE_ROOT/tests/data/families/$family/hf/config.json
    [ $family != cogvlm-tiny ] || data=$work/pictures from=$family
    rm -rf "$work"/{plain,codes,values}*
    if [ $family = mixtral_coded ]; then # routers and experts too, as programs before transformers 5 wrote them
        cp -r "$SHEAF_SOURCE_ROOT/tests/data/quant/$family" "$work/codes"
        runs "$family is sound" 0 '14 of 19' info "$work/codes"
    else
        "$sheaf" init "$from" "$work/plain" --seed 1 --dtype float32 >/dev/null 2>&1
        runs "$family in codes" 0 . convert "$work/plain" "$work/codes" --to hf --quantize nf4-double
    fi
    runs "$family dequantised" 0 . convert "$work/codes" "$work/values" --to hf --dequantize
    for of in codes values; do
        runs "$family trained on $of" 0 . train --model "$work/$of" --data "$data" --micro-batch 2 --accumulate 2 --steps 2 --lr 1e-2 --lora-targets all-linear \
            --out "$work/$of.run" --tp 3 --threads 2 --dtype float32
    done
    runs "$family: the same masters and moments" 1 ' 0 of [0-9]+ tensors differ; 1 config key;' diff "$work/codes.run/checkpoints/step-00000002" "$work/values.run/checkpoints/step-00000002"
done

# ---- MXFP4: what is read are the values of its definition, made here, and runs have their bytes ----
sed 's/: 512/: 64/; s/: 1408/: 160/; s/_layers": 4/_layers": 2/; s/_heads": 8/_heads": 4/; s/value_heads": 4/value_heads": 2/' \
    "$SHEAF_SOURCE_ROOT/tests/data/configs/mini.json" >"$work/small.json"
"$sheaf" init "$work/small.json" "$work/small" --seed 1 --dtype bfloat16 >/dev/null 2>&1 || fail "init of a small model"
python3 - "$work/small" "$work/mx" "$work/mx_values" <<'PYTHON'
import json, math, os, struct, sys
source, coded, plain = sys.argv[1:]
with open(source + "/model.safetensors", "rb") as file:
    data = file.read()
size = struct.unpack("<Q", data[:8])[0]
NUMBERS = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
def as_bf16(x): return struct.unpack("<I", struct.pack("<f", x))[0] >> 16 # each is exact
def group(values):
    largest = max(map(abs, values))
    exponent = math.frexp(largest)[1] - 3 if largest else 0
    codes = []
    for x in values:
        code = min(range(8), key=lambda c: abs(NUMBERS[c] - math.ldexp(abs(x), -exponent)))
        codes.append(code | (8 if x < 0 else 0))
    return codes, exponent
def write(folder, tensors, config):
    os.makedirs(folder)
    header, body = {}, b""
    for name, (dtype, shape, part) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(part)]}
        body += part
    text = json.dumps(header).encode()
    with open(folder + "/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)
    with open(folder + "/config.json", "w") as file:
        json.dump(config, file)
packed, values = {}, {}
for name, entry in json.loads(data[8:8 + size]).items():
    if name == "__metadata__":
        continue
    begin, end = entry["data_offsets"]
    part, shape = data[8 + size + begin:8 + size + end], entry["shape"]
    packed[name] = values[name] = (entry["dtype"], shape, part)
    if not name.endswith("_proj.weight") or shape[1] % 32:
        continue
    x = [struct.unpack("<f", struct.pack("<I", bits << 16))[0] for (bits,) in struct.iter_unpack("<H", part)]
    groups = [group(x[i:i + 32]) for i in range(0, len(x), 32)]
    codes = [c for g, _ in groups for c in g]
    del packed[name]
    packed[name + "_packed"] = ("U8", [shape[0], shape[1] // 2], bytes(a | b << 4 for a, b in zip(codes[::2], codes[1::2])))
    packed[name + "_scale"] = ("U8", [shape[0], shape[1] // 32], bytes(e + 127 for _, e in groups))
    values[name] = ("BF16", shape, b"".join(struct.pack("<H", as_bf16(math.copysign(math.ldexp(NUMBERS[c & 7], e), -1 if c & 8 else 1)))
                                            for g, e in groups for c in g))
config = json.load(open(source + "/config.json"))
write(plain, values, config)
weights = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True, "scale_dtype": "torch.uint8"}
write(coded, packed, dict(config, quantization_config={"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized",
      "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}}))
PYTHON
runs "it is named" 0 'MXFP4, groups of 32; 1[0-9] of ' info "$work/mx"
runs "and sound" 0 'sound' verify "$work/mx"
runs "dequantised" 0 . convert "$work/mx" "$work/mx_plain" --to hf --dequantize
runs "to the values of the definition" 0 'equal' diff "$work/mx_plain" "$work/mx_values"
# trains_alike CODES VALUES DTYPE: both folders give the same masters, moments and answer.
trains_alike() {
    local of
    for of in "$1" "$2"; do
        runs "trained on $of" 0 . train --model "$work/$of" "${how[@]:2}" "${lora[@]}" --out "$work/$of.run" --tp 3 --dtype "$3"
        runs "$of answers" 0 . generate --model "$work/$of" --tokens 3,4,5 --max-new 8 --greedy --dtype "$3" --json
        grep -o '"tokens": *\[[^]]*\]' "$work/stdout" >"$work/$of.answer"
    done
    runs "with the same masters and moments" 1 ' 0 of [0-9]+ tensors differ' diff "$work/$1.run/checkpoints/step-00000002" "$work/$2.run/checkpoints/step-00000002"
    check "and the same answer" test -s "$work/$1.answer"
    same "token by token" "$work/$1.answer" "$work/$2.answer"
}
trains_alike mx mx_values float32
python3 - "$work/mx" <<'PYTHON'
import json, struct, sys
with open(sys.argv[1] + "/model.safetensors", "r+b") as file:
    size = struct.unpack("<Q", file.read(8))[0]
    file.seek(8 + size + json.loads(file.read(size))["model.layers.1.mlp.up_proj.weight_scale"]["data_offsets"][0] + 5)
    file.write(b"\xff") # the exponent that is no number
PYTHON
runs "a scale that is no number is found" 1 'layers.1.mlp.up_proj.weight.*1 NaN' verify "$work/mx"
runs "and not trained on" 3 'layers.1.mlp.up_proj.weight_scale: scale of row 2, block 1.*a finite number' train --model "$work/mx" "${how[@]:2}" "${lora[@]}" --out "$work/no"

# ---- GPTQ and AWQ, written here ----
for form in gptq gptq-8 awq; do
    runs "in $form" 0 '14 weights quantised' convert "$work/small" "$work/$form" --to hf --quantize $form --group-size 32 --dtype float16
    runs "which is sound" 0 'sound' verify "$work/$form"
    runs "and its values" 0 . convert "$work/$form" "$work/$form.values" --to hf --dequantize
    trains_alike $form $form.values float16
done
runs "named" 0 'AWQ, 4 bits, groups of 32, zeros; 14 of ' info "$work/awq"
runs "no group of another size" 2 '--group-size.*32, 64 or 128' convert "$work/small" "$work/no" --to hf --quantize awq --group-size 16
runs "and none of bitsandbytes" 2 '--group-size.*--quantize gptq' convert "$work/small" "$work/no" --to hf --quantize nf4 --group-size 32

# ---- a mixture, whose router and experts stay plain ----
runs "a mixture" 0 . train --model "$work/values" --data "$work/ids.safetensors" --steps 1 --quantize nf4 --out "$work/mixture"
runs "which answers" 0 . generate --model "$work/mixture" --tokens 3,4,5 --max-new 2

# ---- answers ----
answer() { "$sheaf" generate "$@" --prompt "row 3" --max-new 12 --greedy --json 2>/dev/null | grep -o '"tokens": *\[[^]]*\]'; }
answer --model "$work/nf4" >"$work/one"
check "a run answers" grep -q '[0-9]' "$work/one"
for flags in "--tp 3" "--place 2" "--threads 1"; do
    # shellcheck disable=SC2086
    answer --model "$work/nf4" $flags >"$work/two"
    same "$flags answers the same" "$work/one" "$work/two"
done
answer --model "$mini" --adapter "$work/nf4/adapter" --quantize nf4 >"$work/two"
same "so does the adapter on the base quantised again" "$work/one" "$work/two"
cp -r "$work/nf4/adapter" "$work/alone"
runs "but not on the plain one, away from its run" 3 'its base.*--quantize' generate --model "$mini" --adapter "$work/alone" --prompt "row 3" --max-new 2
# OUT/adapter is OUT: its settings say the form of the base, the dtype and the slices
runs "a run of other settings" 0 . train "${how[@]}" "${lora[@]}" --out "$work/own" --quantize nf4 --dtype bfloat16 --slices 4
for of in "--model $work/own" "--model $work/own/adapter" "--model $mini --adapter $work/own" "--model $mini --adapter $work/own/adapter" "--model $work/mini4 --adapter $work/own/adapter"; do
    for does in "generate --prompt row --max-new 12 --greedy --logprobs 1" "eval --data $work/rows.jsonl"; do
        # shellcheck disable=SC2086
        runs "${does%% *} ${of//$work\//}" 0 '4 slices, as in the run .*activations in bfloat16, as in the run' $does $of --json
        [ -e "$work/of.${does%% *}" ] || cp "$work/stdout" "$work/of.${does%% *}"
        same "as the run does" "$work/of.${does%% *}" "$work/stdout"
    done
done

# ---- memory ----
base=$(peak_of version)
for flags in "--quantize nf4" "--quantize nf4-double --tp 3" "--quantize int8 --dtype float32" "--quantize nf4 --checkpointing --lora-targets all-linear"; do
    # shellcheck disable=SC2086
    check "planned and measured: $flags" predicted "$large" "$work/rows.jsonl" $flags
done
runs "converted" 0 . convert "$large" "$work/large4" --to hf --quantize nf4
check "planned and measured: a quantised folder" predicted "$work/large4" "$work/rows.jsonl" --tp 2
weights() { "$sheaf" plan "${how[@]:2:4}" "$@" --json 2>/dev/null | grep -oE '"text":\{"weights":[0-9]+' | head -n 1 | cut -d: -f3; }
is=$(weights --model "$large" --quantize nf4)
check "less than 5 bits a weight, not 16" test $((is * 32)) -lt $(($(weights --model "$large") * 10))
check "the folder takes the same" test "$(weights --model "$work/large4")" = "$is"
check "its config alone too" test "$(weights --config "$work/large4/config.json")" = "$is"

# ---- what is trained in full ----
runs "some layers" 0 . train "${how[@]}" --steps 1 --out "$work/some" --quantize nf4 --method head --train 'model.layers.1.mlp.*,lm_head.weight'
"$sheaf" eval --model "$work/some/checkpoints/step-00000001" --data "$work/rows.jsonl" --json >"$work/loss" 2>/dev/null
rm -rf "$work/other"
runs "the same, evaluated" 0 . train "${how[@]}" --steps 1 --out "$work/other" --quantize nf4 --method head --train 'model.layers.1.mlp.*,lm_head.weight' --eval-data "$work/rows.jsonl"
check "a checkpoint is on the quantised base" near "$(json_number "$work/loss" loss)" "$(json_number "$work/other/metrics.jsonl" eval_loss)" 1e-12
runs "saved beside an adapter" 0 . train "${how[@]}" --steps 1 --out "$work/saved" --quantize nf4 --modules-to-save lm_head

# ---- a config that came with a quantised form ----
cp -r "$mini" "$work/stale"
sed -i '1s/{/{"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true},/' "$work/stale/config.json"
rm -rf "$work/other"
runs "is named where the plain weights are trained" 0 'warning: .*stale/config.json: weights in floats: quantization_config .* is left out' train --model "$work/stale" "${how[@]:2}" --steps 1 --out "$work/other"
runs "and evaluated" 0 'warning: .*stale/config.json: weights in floats' eval "$work/stale" "$work/rows.jsonl"

# ---- refused ----
runs "all is trained" 2 '\-\-quantize.*--method lora or head' train "${how[@]}" --steps 1 --out "$work/no" --quantize nf4 --method full
runs "the head is trained beside it" 0 . train "${how[@]}" --steps 1 --out "$work/head" --quantize nf4 --method head
runs "quantised twice" 3 'quantised already.*leave --quantize out' train --model "$work/mini4" "${how[@]:2}" --steps 1 --out "$work/no" --quantize nf4
runs "planned twice" 3 'quantised already' plan --model "$work/mini4" --quantize int8
runs "all of a quantised folder" 3 'codes have no gradient.*--method lora' train --model "$work/mini4" "${how[@]:2}" --steps 1 --out "$work/no" --method full
runs "some of it" 3 "layers.1.mlp.*codes have no gradient" train --model "$work/mini4" "${how[@]:2}" --steps 1 --out "$work/no" --train 'model.layers.1.mlp.*'
runs "saved beside an adapter of it" 3 "q_proj.*codes have no gradient" train --model "$work/mini4" "${how[@]:2}" --steps 1 --out "$work/no" --modules-to-save q_proj
runs "its head" 0 . train --model "$work/mini4" "${how[@]:2}" --steps 1 --out "$work/head4" --method head
check "gives a plain model" test -z "$(grep quantization "$work/head4/model/config.json")"
runs "no form" 2 'expected: +none, nf4, nf4-double or int8' train "${how[@]}" --steps 1 --out "$work/no" --quantize int4
absent "nothing is written" "$work/no"
finish
