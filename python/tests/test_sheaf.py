"""The module `sheaf` as a user has it: `python3 -m unittest` with the unpacked wheel in PYTHONPATH.

Needs nothing but Python; the models are those of tests/data. $SHEAF_SOURCE_ROOT is the repository.
"""

import ctypes
import inspect
import json
import logging
import os
import signal
import struct
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

import sheaf
from sheaf import _structs, runs
from sheaf.errors import spelled

ROOT = Path(os.environ["SHEAF_SOURCE_ROOT"])
COMMAND = os.environ.get("SHEAF_COMMAND", f"{Path(sheaf.__file__).parent}/native/sheaf")
LLAMA = ROOT / "tests/data/llama/tiny_llama"
MODEL, ADAPTER, DATA = LLAMA / "hf", LLAMA / "lora/adapter_final", LLAMA / "fwd_inputs.safetensors"
SMALL = {"method": "lora", "lora_rank": 4, "micro_batch": 2, "lr": 1e-2, "seed": 7, "threads": 2}


def files(folder):
    return {p.relative_to(folder): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class Abi(unittest.TestCase):
    def test_structs_are_those_of_the_headers(self):
        """tests/abi has the offset of each member; a struct with a size may lack the newest ones."""
        known, at = {}, None
        for line in (ROOT / "tests/abi/types.txt").read_text().splitlines():
            words = line.split()
            if line.startswith("structure"):
                at = known[words[1]] = {"": int(words[2])}
            elif line.startswith("    ") and at is not None:
                at[words[0]] = int(words[1])
            else:
                at = None
        mine = [k for k in vars(_structs).values() if isinstance(k, type) and k.__name__.startswith("sheaf_")]
        self.assertGreater(len(mine), 15)
        for kind in mine:
            members = {name: getattr(kind, name).offset for name, *_ in kind._fields_}
            theirs = known[kind.__name__]
            size = theirs.pop("")
            self.assertEqual(list(members.items()), list(theirs.items())[: len(members)], kind.__name__)
            if not issubclass(kind, _structs.Sized):
                self.assertEqual((len(members), ctypes.sizeof(kind)), (len(theirs), size), kind.__name__)

    def test_every_function_is_in_the_headers(self):
        headers = (ROOT / "tests/abi/functions.txt").read_text()
        self.assertGreater(len(_structs.functions), 100)
        for name, (_, parameters) in _structs.functions.items():
            line = next(line for line in headers.splitlines() if f"{name} (" in line)
            said = line[line.index("(") :]
            self.assertEqual(len(parameters), 0 if said == "(void)" else said.count(",") + 1, name)


class Keywords(unittest.TestCase):
    def test_each_is_documented(self):
        for function, text in (
            *((f, f.__doc__) for f in (sheaf.open, sheaf.verify, sheaf.convert, sheaf.merge, sheaf.train, sheaf.plan)),
            (sheaf.Model.__init__, sheaf.Model.__doc__),
            (sheaf.Model.generate, sheaf.Model.generate.__doc__),
            (sheaf.Model.generate_all, sheaf.Model.generate_all.__doc__),
        ):
            said = [line.strip().split(":")[0] for line in text.splitlines() if ": " in line]
            wanted = [name for name in inspect.signature(function).parameters if name != "self"]
            self.assertEqual([name for name in said if name in wanted], wanted, function.__qualname__)

    def test_a_wrong_one_names_the_one_that_was_meant(self):
        for call, meant in (
            (lambda: sheaf.merge(MODEL, [ADAPTER], "out", requantise=True), "requantise is none .*; requantize is"),
            (lambda: sheaf.convert(MODEL, "out", to="hf", torch_dtype="bfloat16"), "; dtype is"),
            (lambda: sheaf.Model(MODEL, load_in_4bit=True), "; quantize is"),
            (lambda: sheaf.Model.generate(None, "x", max_new_tokens=3), r"generate\(\): max_new_tokens .*; max_new is"),
            (lambda: sheaf.Model.generate_all(None, ["x"], temprature=1), "; temperature is"),
            (lambda: sheaf.verify(MODEL, zebra=1), "zebra is none of its keywords: path, quick"),
        ):
            with self.assertRaisesRegex(TypeError, meant):
                call()
        with self.assertRaises(sheaf.ArgumentError) as caught:
            sheaf.train(MODEL, DATA, "out", learning_rate=1)
        self.assertIn("lr", caught.exception.try_)


class Checkpoints(InFolder):
    def test_open_lists_and_reads_tensors(self):
        with sheaf.open(MODEL) as weights:
            self.assertEqual((weights.kind, weights.dialect), ("model", "hf"))
            name = "model.embed_tokens.weight"
            self.assertEqual(len(list(weights)), len(weights))
            self.assertIn(name, weights)
            self.assertNotIn("nothing", weights)
            tensor = weights[name]
            self.assertEqual((tensor.name, tensor.dtype, len(tensor.shape)), (name, "F32", 2))
            whole, rows = weights.read(name), weights.read(name, 3, 2)
            self.assertEqual((tuple(whole.shape), tuple(rows.shape)), (tensor.shape, (2, tensor.shape[1])))
            self.assertEqual(rows.tobytes(), whole.tobytes()[3 * 4 * tensor.shape[1] : 5 * 4 * tensor.shape[1]])
            self.assertEqual(float(rows[1, 0]), struct.unpack_from("<f", whole.tobytes(), 4 * 4 * tensor.shape[1])[0])
            vector = weights.read("model.norm.weight")
            self.assertEqual(len(vector), weights["model.norm.weight"].shape[0])
            with self.assertRaises(KeyError):
                weights.read("nothing")
            with self.assertRaises(sheaf.ArgumentError):
                weights.read(name, 0, tensor.shape[0] + 1)
        with self.assertRaises(ValueError):
            len(weights)

    def test_an_error_has_four_answers(self):
        with self.assertRaises(sheaf.Error) as caught:
            sheaf.convert(MODEL, self.folder / "out", to="gguffaw")
        error = caught.exception
        self.assertIsInstance(error, ValueError)
        self.assertTrue(error.where and error.expected and error.found, error)
        self.assertIn("expected:", str(error))
        with self.assertRaises(sheaf.SystemRefused) as caught:
            sheaf.open(self.folder / "nothing")
        self.assertIn("nothing", caught.exception.where)
        with self.assertRaises(ValueError):
            sheaf.open("a\0b")

    def test_verify_finds_what_is_missing(self):
        sound = sheaf.verify(MODEL)
        self.assertTrue(sound and sound.full)
        self.assertEqual((sound.model, sound.step), ("llama", -1))
        broken = self.folder / "broken"
        broken.mkdir()
        for name, data in files(MODEL).items():
            (broken / name).write_bytes(data[:-8] if name.suffix == ".safetensors" else data)
        result = sheaf.verify(broken)
        self.assertFalse(result)
        self.assertIn("defect", [f.severity for f in result.findings])
        self.assertTrue(all(f.code for f in result.findings))

    def test_convert_there_and_back(self):
        there = sheaf.convert(MODEL, self.folder / "half", to="hf", dtype="bfloat16", threads=1)
        self.assertGreater(there.tensors, 10)
        with sheaf.open(self.folder / "half") as weights:
            self.assertEqual(weights["model.norm.weight"].dtype, "BF16")
            self.assertEqual(weights.read("model.norm.weight").itemsize, 2)
        events = []
        with self.assertRaises(sheaf.ArgumentError):
            sheaf.convert(MODEL, self.folder / "half", to="hf", on_event=events.append)
        with self.assertRaisesRegex(ValueError, "float12"):
            sheaf.convert(MODEL, self.folder / "other", to="hf", dtype="float12")

    def test_convert_to_gguf(self):
        with self.assertLogs("sheaf", "WARNING"):  # a model without a tokenizer
            there = sheaf.convert(MODEL, self.folder / "it.gguf", to="gguf", quantize="q8_0", modelfile=True, threads=1)
        self.assertGreater(there.quantised, 0)
        self.assertIn("it.gguf", (self.folder / "Modelfile").read_text())
        with sheaf.open(self.folder / "it.gguf") as weights:
            self.assertEqual(weights.dialect, "gguf")

    def test_merge(self):
        merged = sheaf.merge(MODEL, [ADAPTER], self.folder / "merged", mode="like-peft")
        self.assertGreater(merged.changed, 0)
        self.assertEqual(merged.adapted, merged.changed)
        self.assertTrue(sheaf.verify(self.folder / "merged"))
        with self.assertRaises(ValueError):
            sheaf.merge(MODEL, [ADAPTER], self.folder / "m2", combine="linear", weights=[1, 2])

    def test_what_a_callback_raises_ends_the_call(self):
        def refuse(_event):
            raise RuntimeError("enough")

        with self.assertRaisesRegex(RuntimeError, "enough"):
            sheaf.merge(MODEL, [ADAPTER], self.folder / "merged", on_event=refuse)


class Training(InFolder):
    def setUp(self):
        super().setUp()
        # What a shell starts in the background has SIGINT ignored, and Python then leaves it so.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)

    def train(self, out, **more):
        return sheaf.train(MODEL, DATA, self.folder / out, **{"steps": 4, **SMALL, **more})

    def test_a_callback_hears_of_each_step(self):
        heard = []
        done = self.train("run", on_step=heard.append)
        self.assertEqual([s.step for s in heard], [1, 2, 3, 4])
        self.assertEqual(heard[-1].loss, done.loss)
        self.assertLess(heard[-1].loss, heard[0].loss)
        self.assertEqual((done.step, done.adapter, done.figures["step"]), (4, True, 4))
        self.assertEqual(sheaf.open(self.folder / "run/adapter").kind, "adapter")

    def test_stopped_by_its_callback_it_goes_on_to_the_same_bytes(self):
        self.train("whole")
        with self.assertRaises(sheaf.Stopped):
            self.train("run", on_step=lambda s: s.step < 2)
        done = sheaf.train(out=self.folder / "run", resume=True, tp=2)
        self.assertEqual((done.first, done.step), (2, 4))
        self.assertEqual(files(self.folder / "whole/adapter"), files(self.folder / "run/adapter"))

    def test_an_exception_of_the_callback_stops_and_saves(self):
        def fail(step):
            if step.step == 3:
                raise LookupError("at three")

        with self.assertRaisesRegex(LookupError, "at three"):
            self.train("run", on_step=fail)
        self.assertEqual(sheaf.train(out=self.folder / "run", resume=True).first, 3)

    def test_ctrl_c_stops_and_saves(self):
        begun = threading.Event()

        def interrupt():
            begun.wait(60)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with self.assertRaises(KeyboardInterrupt):
            self.train("run", steps=100000, on_step=lambda s: begun.set())
        with self.assertRaises(sheaf.Stopped):
            sheaf.train(out=self.folder / "run", resume=True, on_step=lambda s: False)

    def test_ctrl_c_while_the_thread_begins(self):
        start = threading.Thread.start

        def interrupted(begins):
            def instead(thread):
                if begins:
                    start(thread)
                raise KeyboardInterrupt

            return mock.patch.object(threading.Thread, "start", instead)

        with self.assertRaises(KeyboardInterrupt), interrupted(True):
            self.train("run", steps=100000)
        with self.assertRaises(KeyboardInterrupt), interrupted(False):
            self.train("never", steps=100000)
        self.assertFalse((self.folder / "never").exists())
        self.assertEqual([t for t in threading.enumerate() if t.name == "sheaf"], [])
        self.assertEqual(self.train("again", steps=1).step, 1)

    def test_other_threads_run_meanwhile(self):
        begun, counted = time.monotonic(), []
        stop = threading.Event()

        def count():
            while not stop.wait(0.001):
                counted.append(time.monotonic() - begun)

        counter = threading.Thread(target=count)
        counter.start()
        self.train("run", steps=20)
        stop.set()
        counter.join()
        self.assertGreater(len(counted), 5)

    def test_it_runs_in_another_thread_too(self):
        done = []
        worker = threading.Thread(target=lambda: done.append(self.train("run", steps=1)))
        worker.start()
        worker.join()
        self.assertEqual(done[0].step, 1)

    def test_settings_are_lines_of_a_recipe(self):
        lines = runs.recipe({"lora_rank": 8, "pack": True, "lora-targets": ["q_proj", "it's"], "notes": None})
        self.assertEqual(lines, "lora-rank: 8\npack: true\nlora-targets: 'q_proj,it''s'\n")
        with self.assertRaises(ValueError):
            runs.recipe({"query": "two\nlines"})
        with self.assertRaises(sheaf.ArgumentError) as caught:
            self.train("run", lora_rnak=4)
        self.assertIn("lora-rank", caught.exception.try_)

    def test_errors_name_keywords(self):
        with self.assertRaises(sheaf.ArgumentError) as caught:
            self.train("run", tp=9)
        self.assertEqual(caught.exception.where, "tp=")
        self.assertNotIn("`", str(caught.exception))
        with self.assertRaises(sheaf.ArgumentError) as caught:
            self.train("run", warmup=2, schedule="wsd")
        self.assertEqual((caught.exception.where, caught.exception.expected), ("schedule=wsd", "decay_steps=N beside it"))
        self.assertEqual(spelled('"`tp`" is no `lora-rank 8`'), '"`tp`" is no lora_rank=8')

    def test_notes_go_to_the_logger(self):
        with self.assertLogs("sheaf", logging.DEBUG) as logged:
            logging.getLogger("sheaf").debug("at least this")
            self.train("run", steps=1, lr=5.0)
        self.assertTrue(all(r.name == "sheaf" for r in logged.records))

    def test_plan(self):
        needs = sheaf.plan(MODEL, seq=64, **SMALL)
        self.assertEqual(json.loads(json.dumps(needs)), needs)
        self.assertIn("ranks", needs)
        with self.assertRaises(sheaf.Error):
            sheaf.plan(self.folder / "nothing", **SMALL)
        with self.assertRaises(sheaf.ArgumentError) as caught:
            sheaf.plan(MODEL, tp=2**32 + 1, **SMALL)
        self.assertEqual((caught.exception.where, caught.exception.found), ("tp", str(2**32 + 1)))
        with self.assertRaisesRegex(ValueError, "ranks, methods"):
            sheaf.plan(MODEL, table="columns", **SMALL)


class Answers(unittest.TestCase):
    def test_generate(self):
        with sheaf.Model(MODEL, tp=2, threads=2) as model:
            self.assertEqual(model.family, "llama")
            answer = model.generate([5, 6, 7], max_new=12, logprobs=True, top_logprobs=2)
            self.assertEqual(answer.tokens, [49, 49, 41, 41, 436, 173, 444, 42, 312, 436, 213, 42])
            self.assertEqual(answer.ending, "length")
            self.assertEqual(len(answer.logprobs), 12)
            self.assertEqual(answer.top(0)[0], (49, float(answer.logprobs[0])))
            self.assertEqual((answer.top(99), len(answer.top(1))), ([], 2))
            tokens = answer.tokens
            self.assertIs(type(tokens), list)
            del answer
            two = model.generate_all([[5, 6, 7], [9, 8]], max_new=3)
            self.assertEqual([len(a.tokens) for a in two], [3, 3])
            self.assertIsNone(two[0].logprobs)
            self.assertEqual(tokens[:3], two[0].tokens)
            with self.assertRaises(sheaf.ArgumentError):
                model.generate([])
            with self.assertRaises(sheaf.ArgumentError) as caught:
                model.generate([5, 2**32 + 6])
            self.assertEqual(caught.exception.found, str(2**32 + 6))
            with self.assertRaises(sheaf.ArgumentError):
                model.generate([5], max_new=1, seed=-1)
            with self.assertRaises(sheaf.Unsupported):
                model.generate("a text, and no tokenizer")
            with self.assertRaises(TypeError):
                model.generate_all("one text")
            for one in ({"stop": "end"}, {"images": "a.png"}):  # no list of letters
                with self.assertRaisesRegex(TypeError, next(iter(one))):
                    model.generate([5], max_new=1, **one)
            self.assertEqual(model.generate_all([]), [])
        with self.assertRaises(ValueError):
            model.generate([5])

    def test_defaults_are_those_of_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in MODEL.iterdir():
                (Path(folder) / path.name).symlink_to(path)
            wants = Path(folder) / "generation_config.json"
            wants.unlink(missing_ok=True)
            wants.write_text('{"do_sample": true, "temperature": 3.0, "max_new_tokens": 5}')
            with sheaf.Model(folder) as model:
                drawn, greedy = model.generate([5, 6, 7]).tokens, model.generate([5, 6, 7], greedy=True).tokens
                plain = model.generate([5, 6, 7], model_defaults=False).tokens
            for flags, tokens in ([], drawn), (["--greedy"], greedy):
                words = [COMMAND, "generate", folder, "--tokens", "5,6,7", "--json", *flags]
                said = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
                self.assertEqual(json.loads(said.stdout)["tokens"], tokens)
            self.assertNotEqual(drawn, greedy)
            self.assertEqual((len(drawn), greedy, len(plain)), (5, plain[:5], 64))

    def test_what_the_callback_of_a_model_raises_ends_an_answer(self):
        def fail():
            raise LookupError("while it was loaded")

        with sheaf.Model(MODEL) as model:
            model._call.guarded(None, fail)  # an event of loading, of which this model sends none
            with self.assertRaisesRegex(LookupError, "while it was loaded"):
                model.generate([5, 6, 7], max_new=1)
            self.assertEqual(len(model.generate([5, 6, 7], max_new=1).tokens), 1)

    def test_closed_during_an_answer_it_is_freed_after_it(self):
        model = sheaf.Model(MODEL)
        wanted = list(model.generate([5, 6, 7], max_new=60).tokens)
        got, begun = [], threading.Event()
        generate_all = sheaf.model.lib.sheaf_model_generate_all

        def late(*arguments):
            begun.set()
            return generate_all(*arguments)

        with mock.patch.object(sheaf.model.lib, "sheaf_model_generate_all", late):
            other = threading.Thread(target=lambda: got.extend(model.generate([5, 6, 7], max_new=60).tokens))
            other.start()
            begun.wait()
            model.close()  # it returns at once, or when the answer is there
            other.join(timeout=60)
        self.assertEqual(got, wanted)
        with self.assertRaisesRegex(ValueError, "closed"):
            model.generate([5])
        model.close()

    def test_texts_come_as_they_are_said(self):
        with tempfile.TemporaryDirectory() as folder:
            talk = ROOT / "tests/data/talk"
            model = Path(folder) / "model"
            spec = Path(folder) / "config.json"
            spec.write_text(json.dumps(json.loads((talk / "config.json").read_text())))
            subprocess.run([COMMAND, "init", spec, model, "--seed", "3"], capture_output=True, check=True)
            for name in ("tokenizer.json", "tokenizer_config.json"):
                (model / name).write_bytes((talk / name).read_bytes())
            with sheaf.Model(model, threads=2) as it:
                heard = []
                answer = it.generate("Hello", max_new=8, on_text=lambda i, text: heard.append((i, text)))
                self.assertEqual("".join(t for _, t in heard), answer.text)
                self.assertEqual({i for i, _ in heard} - {0}, set())
                said = it.generate([{"role": "user", "content": "Hello"}], max_new=8)
                self.assertGreater(len(said.tokens), 0)

                def enough(_i, _text):
                    raise LookupError("enough")

                with self.assertRaisesRegex(LookupError, "enough"):
                    it.generate("Hello", max_new=100, on_text=enough)
                self.assertEqual(it.generate("Hello", max_new=8).text, answer.text)
                closed = it.generate("Hello", max_new=8, on_text=lambda _i, _text: it.close())
                self.assertEqual(closed.text, answer.text)


if __name__ == "__main__":
    unittest.main()
