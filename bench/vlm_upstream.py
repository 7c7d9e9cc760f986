"""vlm_upstream.py - LoRA steps of OmniLMM or MiniCPM-V 2.6 by upstream's own classes; prints one JSON object.

  vlm_upstream.py --code DIR [--site DIR] --model FOLDER --data FILE --steps N --dtype DTYPE ...

--code, --site: upstream's code, as upstream_live.py takes it. What is upstream's: the classes, what they do with a batch
(MiniCPM-V 2.6 pads pictures to the longest and masks that; attention of its tower and of resamplers is not fused), every
logit, the loss in the logits' dtype, LoRA by PEFT. What is the benchmark's, to be the same work as vlm_rival.py's: the model
and its sizes, rows that are tokenised already, rank, targets, modules saved, no dropout, AdamW (fused, the fastest).
--attention is the text model's; --checkpoint yes recomputes layers as finetune_lora.sh and finetune_ds.sh do.

Upstream's OmniLMM keeps only the last of several pictures of a row (docs/omnilmm.md). As the rows have two, that is mended
while its module is read: the next picture goes into what the last one gave.
"""
import time

started = time.time()
import glob
import importlib
import importlib.util
import os
import sys

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file

import rival_args
import rival_steps
import vlm_torch
from upstream_live import Small, add_masks, package, stub

imported = rival_steps.loaded_now(started)
LAST_ALONE, ALL = "cur_image_idx += 1\n", "cur_image_idx += 1; cur_input_embeds = cur_new_input_embeds\n"


# ---- the families ----

class OmniLMM:
    def __init__(self, code, c, attention):
        stub("cv2", setNumThreads=lambda n: None, ocl=type("ocl", (), {"setUseOpenCL": lambda b: None}))
        sys.path.insert(0, code)
        m = self.mended("omnilmm.model.omnilmm")
        words = {k: v for k, v in c.items() if k not in ("architectures", "model_type", "vision_config", "torch_dtype")}
        config = m.OmniLMMConfig(sliding_window=None, use_cache=False, **words)
        config._attn_implementation = attention
        vision = c["vision_config"]
        with Small(**{k: vision[k] for k in ("embed_dim", "depth", "num_heads", "mlp_ratio", "img_size")}):
            self.model = m.OmniLMMForCausalLM(config, tune_clip=True)
        marks = self.model.model.vision_config
        marks.use_im_start_end = True
        marks.im_patch_token, marks.im_start_token, marks.im_end_token = (c["im_%s_token" % which] for which in ("patch", "start", "end"))

    def mended(self, name):
        spec = importlib.util.find_spec(name)
        with open(spec.origin) as f:
            source = f.read()
        if LAST_ALONE not in source:
            sys.exit("vlm_upstream: %s: expected \"%s\", where a row's next picture begins; another version of upstream?" % (spec.origin, LAST_ALONE.strip()))
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        exec(compile(source.replace(LAST_ALONE, ALL), spec.origin, "exec"), vars(module))
        return module

    def batches(self, data, size):
        ids, images = data["input_ids"], data["images"]
        each = len(images) // len(ids)
        for i in range(0, len(ids), size):
            yield {"input_ids": ids[i:i + size], "labels": data["labels"][i:i + size], "images": images[i * each:(i + size) * each],
                   "attention_mask": data["attention_mask"][i:i + size]}

    def step(self, module, batch):
        """(loss, logits, the label of each)"""
        out = module(**batch)
        return out.loss, out.logits[:, :-1], batch["labels"][:, 1:]


class MiniCPMV:
    def __init__(self, code, c, attention):
        configuration, m = package("upstream_v2_6", code)
        text = {k: v for k, v in c["text"].items() if k not in ("model_type", "qkv_bias")}
        config = configuration.MiniCPMVConfig(
            **text, use_cache=False, version=2.6, batch_vision_input=True, drop_vision_last_layer=False, image_size=448, query_num=c["query_num"],
            slice_config={"max_slice_nums": 9, "patch_size": 14, "model_type": "minicpmv"}, use_sliding_window=False,
            vision_config=dict(c["vision"], model_type="siglip_vision_model"))
        config._attn_implementation = attention
        self.model = m.MiniCPMV(config)
        self.model.vpm.encoder.register_forward_pre_hook(add_masks, with_kwargs=True)
        self.model.vpm.requires_grad_(False)  # tune_vision false
        self.patch = c["vision"]["patch_size"]

    def packed(self, image):
        """finetune/dataset.py's reshape_by_patch(): [3, patch, patches * patch]"""
        x = image.unfold(1, self.patch, self.patch).unfold(2, self.patch, self.patch)
        return x.permute(0, 3, 1, 2, 4).reshape(3, self.patch, -1)

    def batches(self, data, size):
        """As finetune/dataset.py collates them; whoever reads the records has cut and packed the pictures."""
        ids, counts, at = data["input_ids"], data["images_per_row"].tolist(), 0
        rows = []
        for r, count in enumerate(counts):
            images = [data["image_%d_%d_chw" % (r, j)] for j in range(count)]
            sizes = torch.tensor([[x.shape[1] // self.patch, x.shape[2] // self.patch] for x in images], dtype=torch.int32)
            rows.append((data["image_bound"][at:at + count], sizes, [self.packed(x) for x in images]))
            at += count
        for i in range(0, len(ids), size):
            bound, sizes, pixels = zip(*rows[i:i + size])
            yield {"input_ids": ids[i:i + size], "position_ids": torch.arange(ids.shape[1]).repeat(len(sizes), 1), "image_bound": list(bound),
                   "tgt_sizes": list(sizes), "pixel_values": list(pixels), "labels": data["labels_shifted"][i:i + size],
                   "attention_mask": data["attention_mask"][i:i + size].bool()}

    def step(self, module, batch):
        """finetune/trainer.py's compute_loss()"""
        data = {k: x for k, x in batch.items() if k != "labels"}
        with module._enable_peft_forward_hooks(data=data):
            logits = module.base_model(data=data, use_cache=False).logits
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), batch["labels"].flatten().long()), logits, batch["labels"]


# ---- a step ----

def load(args):
    """The family, and the class with the folder's weights under PEFT's LoRA."""
    c, dtype = vlm_torch.read_config(args.model), getattr(torch, args.dtype)
    torch.set_default_dtype(dtype)  # as from_pretrained(torch_dtype=) does while it makes the model
    family = (MiniCPMV if "text" in c else OmniLMM)(os.path.abspath(args.code), c, args.attention)
    torch.set_default_dtype(torch.float32)
    state = {}
    for path in sorted(glob.glob(os.path.join(args.model, "model*.safetensors"))):
        state.update(load_file(path))
    family.model.load_state_dict({n: x.to(dtype) for n, x in state.items()}, assign=True)
    targets = vlm_torch.TARGETS["minicpmv" if "text" in c else "omnilmm"]
    how = LoraConfig(r=args.rank, lora_alpha=2 * args.rank, target_modules=targets, modules_to_save=["resampler"])
    module = get_peft_model(family.model, how, autocast_adapter_dtype=args.adapters == "float32")
    for name, p in module.named_parameters():
        if name.endswith("pos_embed"):
            p.requires_grad_(False)
    if args.checkpoint == "yes":
        family.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        family.model.disable_input_require_grads()  # needless so, and MiniCPM-V writes its pictures into what the embedding gave
    return family, module.train()


def main():
    args = rival_args.read("code", "site", adapters=["base", "float32"], attention=["sdpa", "eager"], checkpoint=["no", "yes"])
    if args.site:
        sys.path.append(args.site)
    family, module = load(args)
    trained = [p for p in module.parameters() if p.requires_grad]
    rows, told = list(family.batches(load_file(args.data), args.micro_batch)), {}

    def loss_of(step):
        loss, logits, labels = family.step(module, rows[step % len(rows)])
        if not told:  # the loss in the logits' dtype has three digits in bfloat16: the comparison takes this one
            with torch.no_grad():
                there = labels.reshape(-1) != -100
                told["first_loss"] = F.cross_entropy(logits.reshape(-1, logits.shape[-1])[there].float(), labels.reshape(-1)[there].long()).item()
        return loss

    rival_steps.take(args, started, imported, trained, loss_of, rows[0]["input_ids"].numel(), told)


main()
