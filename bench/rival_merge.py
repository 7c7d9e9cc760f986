"""rival_merge.py - merge_and_unload() and save_pretrained() with PEFT; prints one JSON object."""
import json
import sys
import time

begin = time.perf_counter()
import torch
import transformers
import peft

imported = time.perf_counter()
base, adapter, out = sys.argv[1:4]
torch.set_num_threads(2)
transformers.logging.set_verbosity_error()
model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
model = peft.PeftModel.from_pretrained(model, adapter).merge_and_unload()
model.save_pretrained(out)
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
print(json.dumps({"seconds": time.perf_counter() - imported, "import_seconds": imported - begin, "peak": peak,
                  "torch": torch.__version__, "peft": peft.__version__}))
