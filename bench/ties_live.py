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
from transformers import PreTrainedModel

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
FLAG = "tie_word_embeddings"
PLAIN = re.compile(r"^[A-Za-z0-9_.]+\.weight$")
LAYERS = ("num_hidden_layers", "num_layers", "encoder_layers", "decoder_layers", "n_layer", "num_decoder_layers",
          "depth", "num_experts", "n_routed_experts", "num_local_experts")
HEADS = re.compile(r"(ForCausalLM|LMHeadModel|ForConditionalGeneration)$")
HEADLESS = re.compile(r"(Model|ForSequenceClassification|ForTokenClassification|ForQuestionAnswering)$")


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


def facts(cls):
    """(table, head, tied unsaid), ("", "", False): nothing is tied, or None: other ties, or not known."""
    said = cls._tied_weights_keys
    own = said if isinstance(said, dict) else {}
    if said and (not own or any(not PLAIN.match(n) for pair in own.items() for n in pair)):
        return None
    ties, first = dict(own), ""
    try:
        signal.alarm(30)
        model = made(cls)
        ties = dict(model.all_tied_weights_keys)
        table = model.get_input_embeddings()  # which some classes lack
        first = next((n + ".weight" for n, m in model.named_modules() if m is table), "")
    except Exception:
        pass
    finally:
        signal.alarm(0)
    if not ties:
        return "", "", False
    names = list(ties.items())[0] if len(ties) == 1 else ()
    if not names or keeps(cls):
        return None
    head, source = names
    return (head, source, unsaid(cls)) if first == head else (source, head, unsaid(cls))


def rows():
    found = collections.defaultdict(list)
    for name, cls in classes():
        if HEADS.search(name) or HEADLESS.search(name):
            found[facts(cls)].append(name)
    return found


def quoted(words, indent, width=100):
    lines, line = [], ""
    for word in words:
        if line and len(indent) + len(line) + len(word) + 4 > width:
            lines.append(line + " ")
            line = word
        else:
            line += (" " if line else "") + word
    return [f'"{one}"' for one in lines + [line]]


def row(table, head, names, tied):
    """A row of the table, its lines filled."""
    pieces = [f'"{table}",', f'"{head}",'] + quoted(names, "      ")
    pieces += ["TIED"] if tied else []
    if tied:
        pieces[-2] += ","
    lines = []
    for piece in pieces[:-1] + [pieces[-1] + " },"]:
        if lines and len(lines[-1]) + 1 + len(piece) <= 100:
            lines[-1] += " " + piece
        else:
            lines.append(("      " if lines else "    { ") + piece)
    return "\n".join(lines)


def table_of(path):
    found = {}
    for fields in re.findall(r"^    \{ ((?:[^{}]|\n)*?) \},$", open(path).read(), re.M):
        table, head, names = re.findall(r'((?:"[^"]*"\s*)+)', fields)[:3] if '""' not in fields else ('""', '""', fields.split('"",')[-1])
        strings = ["".join(re.findall(r'"([^"]*)"', f)) for f in (table, head, names)]
        for name in strings[2].split():
            found[name] = (strings[0], strings[1], fields.rstrip().endswith("TIED"))
    return found


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--table")
    p.add_argument("--rows", action="store_true")
    args = p.parse_args()
    found = rows()
    table = table_of(args.table) if args.table else {}
    if args.rows:
        for fact in sorted((f for f in found if f), key=lambda f: (not f[0], -len(found[f]), f)):
            print(row(fact[0], fact[1], sorted(n for n in found[fact] if HEADS.search(n)), fact[2]))
        return
    live = {name: fact for fact, names in found.items() for name in names}
    for name in sorted(table):
        if live.get(name) == table[name]:
            print(f"ok - {name}: what is tied")
        else:
            print(f"not ok - {name}: transformers {live.get(name)}, the table {table[name]}")
    for name, fact in sorted(live.items()):
        stem = HEADLESS.sub("", name)
        known = any(stem + end in table for end in ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration"))
        if name not in table and HEADLESS.search(name) and known and (fact is None or fact[0]):
            print(f"not ok - {name}: tied, though its name says that it has no head")
    print(f"{len(table)} architectures compared, transformers {transformers.__version__}")


if __name__ == "__main__":
    main()
