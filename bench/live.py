"""live.py - what the programs that hold sheaf against transformers and PEFT share."""
import os
import subprocess
import warnings

import torch
import transformers
from safetensors.torch import load_file

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
warnings.filterwarnings("ignore")


class Live:
    """Runs the command and counts the comparisons that failed."""

    def __init__(self, sheaf, work):
        self.command, self.work, self.failures = sheaf, work, 0
        os.makedirs(work, exist_ok=True)

    def case(self, name, good, detail=""):
        """One line for each comparison; the detail where it failed."""
        print("%s - %s%s" % ("ok" if good else "not ok", name, "" if good or not detail else ": " + detail), flush=True)
        self.failures += not good

    def sheaf(self, *words):
        """Runs the command; what it says last is the exception's text if it fails."""
        done = subprocess.run([self.command, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise RuntimeError("sheaf %s: %s" % (" ".join(words), done.stderr[-500:]))
        return done.stdout

    def at(self, name):
        return os.path.join(self.work, name)

    def logits(self, data, *words):
        """Of every row of `data`, by `sheaf eval`."""
        path = self.at("logits.safetensors")
        if os.path.exists(path):
            os.remove(path)
        self.sheaf("eval", "--data", data, "--save-logits", path, *([] if "--dtype" in words else ["--dtype", "float32"]), *words)
        return load_file(path)["logits"]


def logits_of(model, inputs):
    """The same by a model of transformers."""
    model.eval()
    with torch.no_grad():
        return model(input_ids=inputs["input_ids"].long(), attention_mask=inputs["attention_mask"].long()).logits.float()


def base_model(path, dtype=torch.float32):
    config = transformers.AutoConfig.from_pretrained(path)
    config._experts_implementation = "eager"  # of a mixture; its other way takes no odd sizes
    return transformers.AutoModelForCausalLM.from_pretrained(path, config=config, dtype=dtype, attn_implementation="eager")
