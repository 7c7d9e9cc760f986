# rivals.sh - sourced by bench/run.sh and tests/soak.sh: a Python environment with
# PyTorch, transformers and PEFT in build/bench-venv. Defines rivals_python.
rivals_venv=build/bench-venv
rivals_python=$rivals_venv/bin/python
if ! "$rivals_python" -c 'import torch, transformers, peft, safetensors' 2>/dev/null; then
    echo "== installing PyTorch, transformers and PEFT into $rivals_venv (about 6 GB)"
    python3 -m venv "$rivals_venv" || { echo "needs the package python3-venv" >&2; exit 3; }
    "$rivals_python" -m pip install --quiet torch==2.13.0 transformers==5.23.0 peft==0.21.2 safetensors ||
        "$rivals_python" -m pip install --quiet torch transformers peft safetensors ||
        { echo "could not install PyTorch, transformers and PEFT; is there a network?" >&2; exit 3; }
fi
