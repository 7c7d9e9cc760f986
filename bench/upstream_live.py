"""upstream_live.py - OmniLMM's and MiniCPM-V's own programs read what sheaf writes, and PEFT's adapters of them merge alike.

  upstream_live.py --sheaf build/sheaf --work DIR [--site DIR] [--omnilmm DIR] [--v2_0 DIR] [--v2_5 DIR] [--v2_6 DIR]

Each DIR is a checkout of upstream's code: of OmniLMM the folder that holds omnilmm/, of MiniCPM-V the folder of a published
model (modeling_minicpmv.py and what it imports). --site: where timm and torchvision are, if not beside torch. Nothing of
upstream is in this repository. Of each version that is given, a small model of upstream's class with random weights, its
config in the published form, is saved as upstream saves it. Compared are
  1. logits of `sheaf eval`, with the class;
  2. names: what `sheaf convert` and `sheaf merge` write is what the class asks for, and its from_pretrained() misses nothing;
  3. adapters that PEFT writes on the class (regular expressions, bias all and lora_only, modules_to_save): `sheaf merge
     --as-peft` bit for bit with merge_and_unload(), of bases in 16 bits too, logits with --adapter, a step of training that
     goes on from them;
  4. an adapter that `sheaf train` made, by PEFT on the class, and its merge, by the class.
Prints "ok - ..." or "not ok - ..." per case; exit code 1 if any failed or nothing was compared.
"""
import argparse
import builtins
import copy
import importlib
import json
import os
import shutil
import sys
import types
import typing

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

from live import Live

FLOAT = 2e-5
TEXT = {"hidden_size": 128, "intermediate_size": 208, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 150, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2,
        "initializer_range": 0.02, "torch_dtype": "float32", "use_cache": False}
PUBLISHED = {"attention_bias": False, "attention_dropout": 0.0, "pretraining_tp": 1, "rope_scaling": None,
             "transformers_version": "4.40.0", "rope_theta": 10000.0, "mm_use_im_start_end": True,
             "_name_or_path": "openbmb/none"}
AUTO = {"AutoConfig": "configuration_minicpm.MiniCPMVConfig", "AutoModel": "modeling_minicpmv.MiniCPMV",
        "AutoModelForCausalLM": "modeling_minicpmv.MiniCPMV"}


# ---- upstream's modules ----

def stub(name, **members):
    """A module that is not there, and not used by what is run."""
    try:
        importlib.import_module(name)
    except ImportError:
        module = types.ModuleType(name)
        vars(module).update(members)
        sys.modules[name] = module


def package(name, folder):
    """modeling_minicpmv of a folder, whose files import each other with or without a dot."""
    for old in ("configuration_minicpm", "modeling_navit_siglip", "resampler", "modeling_minicpmv", "modeling_minicpm"):
        sys.modules.pop(old, None)
    for word in ("Any", "Callable", "Dict", "List", "Optional", "Tuple", "Union"):
        setattr(builtins, word, getattr(typing, word))  # which torch.nn.functional gave them once, by import *
    sys.path.insert(0, folder)
    module = types.ModuleType(name)
    module.__path__ = [folder]
    sys.modules[name] = module
    try:
        return (importlib.import_module(name + ".configuration_minicpm"), importlib.import_module(name + ".modeling_minicpmv"))
    finally:
        sys.path.remove(folder)


class Small:
    """timm.create_model() with the sizes of a small tower."""

    def __init__(self, **sizes):
        self.sizes = sizes

    def __enter__(self):
        import timm
        self.timm, self.was = timm, timm.create_model
        timm.create_model = lambda name, **how: self.was(name, **dict(how, **self.sizes))

    def __exit__(self, *_):
        self.timm.create_model = self.was


def random_weights(model, seed):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("resampler.pos_embed"):
                continue
            x = torch.randn(p.shape, generator=g)
            norm = ("norm" in name or ".ln_" in name) and name.endswith("weight")
            p.copy_(1 + 0.1 * x if norm else 0.1 * x)
    return model.eval()


# ---- versions ----

class MiniCPMV:
    targets = r"llm\..*layers\.\d+\.self_attn\.(q_proj|k_proj|v_proj|o_proj)"
    saved = ["embed_tokens", "resampler", "vpm"]
    grids = [(4, 6), (8, 3), (5, 5)]
    patch, queries, rows = 7, 9, 60
    torch_attention = False

    def forward(self, model, inputs):
        data = {"input_ids": inputs["input_ids"], "position_ids": torch.arange(self.rows)[None],
                "pixel_values": [[x for x in self.pixels(inputs)]], "tgt_sizes": [torch.tensor(self.grids)],
                "image_bound": [inputs["image_bound"]], "image_bounds": [inputs["image_bound"]]}
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        with torch.no_grad():
            return inner(data).logits.float()

    def pixels(self, inputs):
        """As the published processors pack them: [3, patch, patches * patch], patch after patch."""
        for j, (h, w) in enumerate(self.grids):
            x = inputs["image_0_%d_chw" % j].unfold(1, self.patch, self.patch).unfold(2, self.patch, self.patch)
            yield x.permute(0, 3, 1, 2, 4).reshape(3, self.patch, h * w * self.patch)

    def inputs(self, seed):
        g = torch.Generator().manual_seed(seed)
        starts = [3 + j * (self.queries + 4) for j in range(len(self.grids))]
        out = {"input_ids": torch.randint(3, 150, (1, self.rows), generator=g),
               "image_bound": torch.tensor([[s, s + self.queries] for s in starts])}
        out["labels"] = out["input_ids"].clone()
        for j, (h, w) in enumerate(self.grids):
            out["image_0_%d_chw" % j] = torch.randn(3, h * self.patch, w * self.patch, generator=g)
        return out


class Version20(MiniCPMV):
    name, sizes = "v2_0", {"embed_dim": 48, "depth": 3, "num_heads": 4, "mlp_ratio": 2.1, "img_size": 28, "patch_size": 7}
    queries, rows, torch_attention = 16, 80, True

    def config(self):
        text = dict(TEXT, num_key_value_heads=4)
        return dict(text, **PUBLISHED, architectures=["MiniCPMV"], auto_map=AUTO, model_type="minicpmv", dim_model_base=32,
                    scale_depth=1.4, scale_emb=12, drop_vision_last_layer=True, image_size=448, max_slice_nums=9, patch_size=7,
                    query_num=self.queries, scale_resolution=448, slice_mode=True, vision_encoder="vit_so400m_patch14_siglip_384.webli")

    def ours(self, config):
        """Sizes that upstream has from timm by the tower's name."""
        return dict(config, vision={"img_size": 28, "patch_size": 7, "embed_dim": 48, "depth": 3, "num_heads": 4, "mlp_ratio": 2.1})

    def load(self, folder, config):
        transformers.utils.import_utils.is_torch_fx_available = lambda: False  # transformers 4 had it
        c, m = package("upstream_v2_0", folder)
        config = c.MiniCPMVConfig(**config)
        config.rope_scaling = None  # transformers 5 made something of it
        config._attn_implementation = "eager"
        with Small(**self.sizes):
            return m.MiniCPMV(config)

    def pixels(self, inputs):
        for j in range(len(self.grids)):
            yield inputs["image_0_%d_chw" % j]


class Version25(MiniCPMV):
    name = "v2_5"

    def config(self):
        return dict(TEXT, **PUBLISHED, architectures=["MiniCPMV"], auto_map=AUTO, model_type="minicpmv", version="2.5",
                    batch_vision_input=True, drop_vision_last_layer=False, image_size=448, patch_size=7, query_num=self.queries,
                    slice_config={"max_slice_nums": 9, "patch_size": 7, "model_type": "minicpmv"}, slice_mode=True,
                    vision_config={"hidden_size": 48, "image_size": 56, "intermediate_size": 100, "model_type": "idefics2",
                                   "num_attention_heads": 4, "num_hidden_layers": 2, "patch_size": 7})

    def ours(self, config):
        return dict(config, sheaf_padding_seen=True)  # pictures of several sizes, see docs/minicpmv.md

    def load(self, folder, config):
        c, m = package("upstream_" + self.name, folder)
        config = c.MiniCPMVConfig(**copy.deepcopy(config))
        config._attn_implementation = "eager"
        m.AutoProcessor.from_pretrained = staticmethod(lambda *a, **k: None)
        return m.MiniCPMV(config)


def add_masks(module, args, how):
    """A public copy of 2.6's tower, made for ONNX, adds its mask as it is: booleans."""
    mask = how.get("attention_mask")
    if mask is not None and mask.dtype == torch.bool:
        how["attention_mask"] = mask.float() * torch.finfo(torch.float32).min
    return args, how


class Version26(Version25):
    name = "v2_6"

    def config(self):
        c = super().config()
        c["vision_config"]["model_type"] = "siglip_vision_model"
        return dict(c, version=2.6, use_image_id=True, vision_batch_size=16)

    def ours(self, config):
        return config

    def load(self, folder, config):
        model = super().load(folder, config)
        model.vpm.encoder.register_forward_pre_hook(add_masks, with_kwargs=True)
        return model


class OmniLMM:
    name, targets = "omnilmm", r".*layers\.\d+\.self_attn\.(q_proj|k_proj|v_proj|o_proj)"
    saved, torch_attention = ["embed_tokens", "resampler", "vision_tower"], True
    sizes = {"embed_dim": 64, "depth": 4, "num_heads": 4, "mlp_ratio": 2.5, "img_size": 56}

    def config(self):
        return dict(TEXT, architectures=["OmniLMMForCausalLM"], model_type="omnilmm", image_size=84, mm_hidden_size=64,
                    mm_use_im_start_end=True, mm_vision_tower="eva02_enormous_patch14_clip_224.laion2b_plus", num_query=16,
                    pad_token_id=2, rope_theta=10000.0, sliding_window=4096, transformers_version="4.34.1")

    def ours(self, config):
        return dict(config, im_patch_token=147, im_start_token=148, im_end_token=149,
                    vision_config={k: v for k, v in self.sizes.items()} | {"patch_size": 14})

    def load(self, folder, config):
        stub("cv2", setNumThreads=lambda n: None, ocl=types.SimpleNamespace(setUseOpenCL=lambda b: None))
        if folder not in sys.path:
            sys.path.insert(0, folder)
        m = importlib.import_module("omnilmm.model.omnilmm")
        config = m.OmniLMMConfig(**config)
        config._attn_implementation = "eager"
        with Small(**self.sizes):
            model = m.OmniLMMForCausalLM(config, tune_clip=True)
        model.model.vision_config.im_patch_token, model.model.vision_config.use_im_start_end = 147, True
        model.model.vision_config.im_start_token, model.model.vision_config.im_end_token = 148, 149
        return model

    def inputs(self, seed):
        g = torch.Generator().manual_seed(seed)
        ids = torch.randint(3, 147, (2, 30), generator=g)
        for row, start in ((0, 2), (1, 7)):
            ids[row, start: start + 18] = torch.tensor([148] + [147] * 16 + [149])
        return {"input_ids": ids, "labels": ids.clone(), "attention_mask": torch.ones_like(ids),
                "images": torch.randn(2, 3, 84, 84, generator=g)}

    def forward(self, model, inputs):
        with torch.no_grad():
            inner = model.get_base_model() if hasattr(model, "get_base_model") else model
            hidden = inner.model(input_ids=inputs["input_ids"], images=inputs["images"], use_cache=False)[0]
            return inner.lm_head(hidden).float()


# ---- the comparison ----

def beyond(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


class Check:
    def __init__(self, live, version, folder):
        self.live, self.v, self.folder = live, version, folder
        self.config = version.config()
        self.model = random_weights(version.load(folder, self.config), 7)
        self.inputs = version.inputs(5)
        self.data = live.at(version.name + ".safetensors")
        save_file({k: x.contiguous() for k, x in self.inputs.items()}, self.data)
        self.base = live.at(version.name)
        self.write(self.base, self.model)

    def write(self, folder, model):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(self.v.ours(self.config), f)
        save_file({k: x.contiguous() for k, x in model.state_dict().items()}, os.path.join(folder, "model.safetensors"), {"format": "pt"})

    def case(self, what, good, detail=""):
        self.live.case("%s: %s" % (self.v.name, what), good, detail)

    def near(self, what, got, want, bound=FLOAT):
        x = beyond(got, want)
        self.case("%s (%.1e)" % (what, x), x <= bound)

    def out(self, name):
        path = self.live.at("%s-%s" % (self.v.name, name))
        shutil.rmtree(path, ignore_errors=True)
        return path

    def fresh(self):
        model = self.v.load(self.folder, self.config)
        model.load_state_dict(self.model.state_dict())
        return model.eval()

    def reads(self, what, folder):
        """Upstream's class has these names, and computes what sheaf does."""
        tensors = {}
        for name in sorted(os.listdir(folder)):
            if name.endswith(".safetensors"):
                tensors.update(load_file(os.path.join(folder, name)))
        model = self.v.load(self.folder, self.config)
        missing, unexpected = model.load_state_dict(tensors, strict=False)
        self.case(what + ": no name is missing or unexpected", not missing and not unexpected, "%s %s" % (missing[:4], unexpected[:4]))
        self.near(what + ": logits", self.live.logits(self.data, "--model", folder), self.v.forward(model.eval(), self.inputs))

    def pretrained(self, what, folder):
        class_ = type(self.model)
        if not hasattr(self.model, "all_tied_weights_keys"):
            class_.all_tied_weights_keys = {}  # transformers 5 asks for it; upstream's class ends without post_init()
        with Small(**getattr(self.v, "sizes", {})):
            model, info = class_.from_pretrained(folder, config=self.model.config, output_loading_info=True)
        self.case(what + ": from_pretrained() misses nothing", not info["missing_keys"] and not info["unexpected_keys"] and
                  not info.get("mismatched_keys"), str({k: sorted(x)[:3] for k, x in info.items() if x}))

    def run(self):
        self.near("logits of the published form", self.live.logits(self.data, "--model", self.base), self.v.forward(self.model, self.inputs))
        with open(os.path.join(self.base, "config.json"), "w") as f:  # as transformers of today saves it
            json.dump(self.v.ours(json.loads(self.model.config.to_json_string(use_diff=False))), f)
        self.near("logits of a config saved anew", self.live.logits(self.data, "--model", self.base), self.v.forward(self.model, self.inputs))
        self.write(self.base, self.model)
        done = self.out("converted")
        self.live.sheaf("convert", self.base, done, "--to", "hf", "--shard-mb", "1")
        self.reads("converted in shards", done)
        for name, how in self.adapters():
            self.by_peft(name, how)
        for dtype in (torch.bfloat16, torch.float16):
            for name, how in self.adapters():
                self.in_half(name, how, dtype)
        self.by_sheaf()

    def in_half(self, name, how, dtype):
        """The merge alone, of a base in 16 bits."""
        base, adapter, merged = self.out("half"), self.out("adapter"), self.out("merged")
        half = self.fresh().to(dtype)
        self.write(base, half)
        model = self.adapted(half, how)
        model.save_pretrained(adapter)
        self.live.sheaf("merge", base, adapter, merged, "--as-peft")
        self.equal("PEFT, %s, %s: merged bit for bit" % (name, str(dtype)[6:]), merged, model)

    def equal(self, what, merged, model):
        unloaded, mine = model.merge_and_unload().state_dict(), load_file(os.path.join(merged, "model.safetensors"))
        differ = [k for k in sorted(set(unloaded) | set(mine)) if k not in mine or k not in unloaded or not torch.equal(mine[k], unloaded[k])]
        self.case(what, not differ, "%d of %d: %s" % (len(differ), len(mine), differ[:4]))

    def adapted(self, model, how):
        """By PEFT, all that it trains moved a little."""
        model = peft.get_peft_model(model, peft.LoraConfig(task_type=None, **how))
        g = torch.Generator().manual_seed(9)
        with torch.no_grad():
            for p in model.parameters():
                if p.requires_grad:
                    p.add_((0.05 * torch.randn(p.shape, generator=g)).to(p.dtype))
        return model.eval()

    def adapters(self):
        plain = {"r": 4, "lora_alpha": 8, "target_modules": self.v.targets}
        return [("regular expression", plain), ("bias all", dict(plain, bias="all")), ("bias lora_only", dict(plain, bias="lora_only")),
                ("all-linear", dict(plain, target_modules="all-linear")),
                ("modules to save", dict(plain, modules_to_save=self.v.saved)), ("modules to save, bias all", dict(plain, modules_to_save=self.v.saved[:2], bias="all")),
                ("rslora, patterns", dict(plain, use_rslora=True, rank_pattern={"q_proj": 6}, alpha_pattern={"v_proj": 3}))]

    def by_peft(self, name, how):
        adapter, merged = self.out("adapter"), self.out("merged")
        model = self.adapted(self.fresh(), how)
        want = self.v.forward(model, self.inputs)
        model.save_pretrained(adapter)
        told = json.loads(self.live.sheaf("info", adapter, "--json"))["paths"][0]
        self.case("PEFT, %s: info" % name, told["kind"] == "adapter" and not told["findings"] and "odd" not in told, str(told))
        if how["target_modules"] == "all-linear" and self.v.torch_attention:
            self.refused(name, adapter)
            return
        self.near("PEFT, %s: logits with --adapter" % name, self.live.logits(self.data, "--model", self.base, "--adapter", adapter), want)
        self.live.sheaf("merge", self.base, adapter, merged, "--as-peft")
        self.equal("PEFT, %s: merged bit for bit" % name, merged, model)
        self.live.sheaf("train", "--model", self.base, "--adapter", adapter, "--data", self.data, "--steps", "1", "--lr", "0",
                        "--schedule", "constant", "--weight-decay", "0", "--out", self.out("more"))
        again = self.live.at(self.v.name + "-more/adapter/adapter_model.safetensors")
        was, now = load_file(os.path.join(adapter, "adapter_model.safetensors")), load_file(again)
        was = {k: x for k, x in was.items() if ".modules_to_save." not in k and ".original_module." not in k}  # copies of others
        differ = [k for k in sorted(set(was) | set(now)) if k not in was or k not in now or not torch.equal(was[k], now[k])]
        self.case("PEFT, %s: goes on training, at no rate the same adapter" % name, not differ, "%d: %s" % (len(differ), differ[:4]))

    def refused(self, name, adapter):
        """Factors on the output of torch's own attention: PEFT makes them, and torch does not look at them."""
        try:
            self.live.logits(self.data, "--model", self.base, "--adapter", adapter)
            self.case("PEFT, %s: factors without effect are refused" % name, False)
        except RuntimeError as e:
            self.case("PEFT, %s: factors without effect are refused" % name, "resampler.attn.out_proj" in str(e), str(e))

    def by_sheaf(self):
        merged, out = self.out("merged"), self.out("trained")
        self.live.sheaf("train", "--model", self.base, "--data", self.data, "--steps", "3", "--lr", "1e-2", "--schedule", "constant",
                        "--lora-targets", self.v.targets, "--lora-rank", "4", "--modules-to-save", ",".join(self.v.saved), "--out", out)
        adapter = os.path.join(out, "adapter")
        how = peft.PeftConfig.from_pretrained(adapter)
        how.task_type = None  # the class had generate() from transformers 4
        model = peft.PeftModel.from_pretrained(self.fresh(), adapter, config=how).eval()
        result = peft.utils.save_and_load.get_peft_model_state_dict(model)
        mine = load_file(os.path.join(adapter, "adapter_model.safetensors"))
        differ = [k for k in sorted(set(result) | set(mine)) if k not in mine or k not in result or not torch.equal(mine[k], result[k].to(mine[k].dtype))]
        self.case("sheaf's adapter is what PEFT holds of it", not differ, "%d: %s" % (len(differ), differ[:4]))
        self.near("sheaf's adapter by PEFT", self.live.logits(self.data, "--model", self.base, "--adapter", adapter), self.v.forward(model, self.inputs))
        self.live.sheaf("merge", self.base, adapter, merged)
        self.reads("merged", merged)
        self.pretrained("merged", merged)
        full = self.out("full")
        self.live.sheaf("train", "--model", self.base, "--data", self.data, "--steps", "2", "--lr", "1e-3", "--method", "full", "--out", full)
        self.reads("trained in full", os.path.join(full, "model"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--sheaf", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("--site")
    versions = [OmniLMM, Version20, Version25, Version26]
    for v in versions:
        p.add_argument("--" + v.name)
    a = p.parse_args()
    torch.set_num_threads(1)
    if a.site is not None:
        sys.path.append(a.site)
    live, compared = Live(a.sheaf, a.work), 0
    for v in versions:
        folder = getattr(a, v.name)
        if folder is None:
            print("# %s: no code of upstream was given" % v.name)
            continue
        try:
            Check(live, v(), os.path.abspath(folder)).run()
        except Exception as e:  # one version that does not run hides no other
            if os.environ.get("LIVE_TRACE"):
                raise
            live.case("%s: to its end" % v.name, False, "%s: %s" % (type(e).__name__, str(e)[-600:].replace("\n", " ")))
        compared += 1
    print("%d versions compared, %d failures" % (compared, live.failures))
    sys.exit(live.failures > 0 or compared == 0)


if __name__ == "__main__":
    main()
