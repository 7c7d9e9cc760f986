"""What transformers ties, architecture by architecture, against the table of src/checkpoint/merge/ties.c.

    python bench/ties_live.py --table FILE      each row and each architecture: "ok - ..." or "not ok - ..."
    python bench/ties_live.py --rows            the rows as transformers has them, to be put into the table

Each model is made on the meta device from its config's defaults, cut to few layers, with every flag set; where the
defaults make no model, what its class says by itself must do.
"""
import argparse
import collections
import importlib
import inspect
import logging
import os
import re
import signal
import warnings

import torch
import transformers
from transformers import AutoConfig, PreTrainedModel

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
FLAG = "tie_word_embeddings"
PLAIN = re.compile(r"^[A-Za-z0-9_.]+\.(weight|bias|\w*embedding)$")
LAYERS = ("num_hidden_layers", "num_layers", "encoder_layers", "decoder_layers", "n_layer", "num_decoder_layers",
          "depth", "num_experts", "n_routed_experts", "num_local_experts")
# A key of the config that, where it is false, makes another model of the class.
UNLESS = {"Marian": "share_encoder_decoder_embeddings", "Deberta": "legacy"}
# Ties of one part of a model with another beside its tables, and parts that a config chooses: path components, "*" the tables.
UNSURE = {"Zamba": "shared_transf shared_transformer", "Bark": "*", "Csm": "*", "Blt": "*", "DiffusionGemma": "*",
          "PeAudioVideo": "*", "IdeficsFor": "*", "Qwen3OmniMoe": "*", "Rag": "*", "ShieldGemma2": "*"}
PATTERNS = "bbox_embed class_embed enc_bbox_head enc_score_head"
# Of classes whose names do not say that they have no head over a vocabulary.
LISTED = ["BailingHybridForCausalLM", "BigBirdPegasusForCausalLM", "ElectraForPreTraining", "FunnelForPreTraining", "KimiLinearForCausalLM",
          "MllamaForCausalLM", "MllamaForConditionalGeneration", "NemotronHForCausalLM", "PerceiverForMaskedLM",
          "Qwen2AudioForConditionalGeneration", "RemBertForCausalLM", "RemBertForMaskedLM", "xLSTMForCausalLM"]
NONE = re.compile(r"(Model|Encoder|Decoder|For(Sequence|Token|Image|Audio|Video|AudioFrame|Entity|EntityPair|EntitySpan)"
                  r"Classification|ForQuestionAnswering(Simple)?|ForMultipleChoice|ForNextSentencePrediction|ForCTC|ForXVector)$")


def classes():
    root = os.path.join(os.path.dirname(transformers.__file__), "models")
    for folder in sorted(os.listdir(root)):
        for file in sorted(os.listdir(os.path.join(root, folder))) if os.path.isdir(os.path.join(root, folder)) else []:
            if not re.fullmatch(r"modeling_\w+\.py", file):
                continue
            try:
                module = importlib.import_module(f"transformers.models.{folder}.{file[:-3]}")
            except ImportError:
                continue
            for name in getattr(module, "__all__", []):
                c = getattr(module, name, None)
                if inspect.isclass(c) and issubclass(c, PreTrainedModel) and not name.endswith("PreTrainedModel"):
                    if c.__module__ == module.__name__ and c.config_class is not None:
                        yield name, c


def parts(config):
    found = [config]
    for key in getattr(config, "sub_configs", {}):
        part = getattr(config, key, None)
        found += parts(part) if hasattr(part, "to_dict") else []
    return found


def setting(config, key, value):
    try:
        setattr(config, key, value)
    except Exception:  # some are computed from others
        pass


def made(cls):
    config = cls.config_class()
    for part in parts(config):
        for key in LAYERS:
            if isinstance(getattr(part, key, None), int) and getattr(part, key) > 2:
                setting(part, key, 2)
        setting(part, FLAG, True)
    with torch.device("meta"):
        return cls(config)


def keeps(cls):
    """Must the flag stay? The class sets it itself, or computes by it, or another setting goes with it."""
    kind = cls.config_class
    try:
        subs = {key: {FLAG: False} for key, of in getattr(kind, "sub_configs", {}).items() if key == "text_config"}
        no, yes = kind(**{FLAG: False}, **subs), kind(**{FLAG: True})
        others = [k for k in no.to_dict() if no.to_dict()[k] != yes.to_dict().get(k) and k not in (FLAG, "text_config")]
    except Exception:
        return False
    return getattr(no, FLAG, False) is not False or f"config.{FLAG}" in inspect.getsource(cls.forward) or bool(others)


def unsaid(cls):
    """Is it tied where a config says nothing?"""
    try:
        return getattr(cls.config_class(), FLAG, False) is True
    except Exception:
        return False


def groups_of(ties, first):
    """ "source=target=target source=target", each group headed by the table that tokens are looked up in."""
    found = collections.defaultdict(list)
    for target, source in ties.items():
        found[source].append(target)
    out = []
    for source, targets in found.items():
        names = [source] + sorted(targets, key=lambda n: ("lm_head" not in n, n))
        if first in names:
            names = [first] + [n for n in names if n != first]
        out.append("=".join(names))
    return " ".join(sorted(out, key=lambda g: (first not in g, "weight" not in g, g)))


def facts(name, cls):
    """(groups, keeps the flag, tied unsaid, unless, unsure), or None: nothing is tied."""
    unsure = next((w for begin, w in UNSURE.items() if name.startswith(begin)), "")
    unless = next((w for begin, w in UNLESS.items() if name.startswith(begin)), "")
    said = cls._tied_weights_keys
    own, first = said if isinstance(said, dict) else {}, ""
    ties = dict(own)
    if said and (not own or any(not PLAIN.match(n) for pair in own.items() for n in pair)) and not unsure:
        return "", False, False, "", PATTERNS
    try:
        signal.alarm(30)
        model = made(cls)
        ties = dict(model.all_tied_weights_keys)
        table = model.get_input_embeddings()
        first = next((n + ".weight" for n, m in model.named_modules() if m is table), "")
    except Exception:
        if name in LISTED:
            raise
    finally:
        signal.alarm(0)
    chosen = [k for k, of in getattr(cls.config_class, "sub_configs", {}).items() if of is AutoConfig]
    if unsure == "*" or (chosen and any(k not in own for k in ties)):
        return "", False, False, "", PATTERNS if any("class_embed" in n for n in ties) else "*"
    ties = {t: s for t, s in ties.items() if not any(w in t.split(".") for w in unsure.split())}
    if any("class_embed" in n for n in ties):
        return "", False, False, "", PATTERNS
    if not ties and not unsure and name not in LISTED:
        return None
    return groups_of(ties, first), bool(ties) and keeps(cls), bool(ties) and unsaid(cls), unless, unsure


def rows():
    found, none = collections.defaultdict(list), []
    for name, cls in classes():
        fact = facts(name, cls)
        if fact is None:
            none.append(name)
        else:
            found[fact].append(name)
    return found, none


def quoted(words, indent, width=100):
    lines, line = [], ""
    for word in words:
        if line and len(indent) + len(line) + len(word) + 4 > width:
            lines.append(line + " ")
            line = word
        else:
            line += (" " if line else "") + word
    return [f'"{one}"' for one in lines + [line]]


# Endings of groups that many rows share: macros of the table.
ENDINGS = {"PREDICTIONS": "cls.predictions.decoder.weight cls.predictions.bias=cls.predictions.decoder.bias",
           "DECODER": "lm_head.decoder.weight lm_head.bias=lm_head.decoder.bias"}


def row(groups, names, keep, unsaid, unless, unsure):
    """A row of the table, its lines filled."""
    ending = next((name for name, text in ENDINGS.items() if groups.endswith(text)), None)
    one = [f'"{groups[:-len(ENDINGS[ending])]}" {ending}'] if ending else quoted(groups.split(" "), "      ")
    tail = ["TIED"] * unsaid + ["KEEPS"] * keep + [f'.{k} = "{x}"' for k, x in (("unless", unless), ("unsure", unsure)) if x]
    pieces, lines = [], []
    for item in [one, quoted(names, "      ")] + [[t] for t in tail]:
        pieces += item[:-1] + [item[-1] + ","]
    for piece in pieces[:-1] + [pieces[-1][:-1] + " },"]:
        if lines and len(lines[-1]) + 1 + len(piece) <= 100:
            lines[-1] += " " + piece
        else:
            lines.append(("      " if lines else "    { ") + piece)
    return "\n".join(lines)


def table_of(path):
    found = {}
    text = open(path).read()
    for name, ending in ENDINGS.items():
        text = re.sub(rf'" {name}\b', ending + '"', text)
    for fields in re.findall(r"^    \{ ((?:[^{}]|\n)*?) \},$", text, re.M):
        fields = ["".join(re.findall(r"^\s*(\.\w+ = )", f)) + ("".join(re.findall(r'"([^"]*)"', f)) if '"' in f else f.strip()) for f in re.split(r",\n? *(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", fields)]
        named = dict(f[1:].split(" = ") for f in fields if f.startswith("."))
        for name in fields[1].split():
            found[name] = (fields[0], "KEEPS" in fields, "TIED" in fields, named.get("unless", ""), named.get("unsure", ""))
    return found


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--table")
    p.add_argument("--rows", action="store_true")
    args = p.parse_args()
    found, none = rows()
    if args.rows:
        for fact in sorted(found, key=lambda f: (f[4] == "*", -len(found[f]), f)):
            groups, keep, unsaid, unless, unsure = fact
            print(row(groups, sorted(found[fact]), keep, unsaid, unless, unsure))
        print("/* none, by name:", sorted(n for n in none if not NONE.search(n)), "*/")
        print("/* tied, though its name says none:", sorted(n for f in found for n in found[f] if NONE.search(n)), "*/")
        return
    live = {name: fact for fact, names in found.items() for name in names}
    table = table_of(args.table)
    for name in sorted(set(live) | set(table)):
        if live.get(name) == table.get(name):
            print(f"ok - {name}: what is tied")
        else:
            print(f"not ok - {name}: transformers {live.get(name)}, the table {table.get(name)}")
    for name in none:
        if name in table:
            print(f"not ok - {name}: transformers ties nothing")
    print(f"{len(table)} architectures compared, transformers {transformers.__version__}")


if __name__ == "__main__":
    main()
