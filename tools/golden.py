"""Golden files: identities, costs, checkpoint keys and study files of fixed examples, in tests/golden.

    python -m tools.golden                  # compare the package with the golden files
    python -m tools.golden --write          # write the new names into the golden files; refuse any other change
    python -m tools.golden --write --force  # write them whatever changed
    python -m tools.golden --quick [FOLDER] # compare the scores of the quick study (minutes), --write to store them

The files store the configurations themselves, so samplers may change. Parameters are stored by position, in the order
of ``Space.dimensions()``, so that renamed parameters are still found. Mappings keep the package's own order: a renamed
key stays in its line, which sorted keys would not.

Values that start with ``=`` are digests of structures without names (:func:`structure`). A rename changes
none of them, and no number. All other digests, and all strings, may change with the names.
"""

import argparse
import difflib
import hashlib
import json
import math
import os
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

# The package is used here and in the functions of the first section only.
import scalesearch
from scalesearch.blocks.core import canonical
from scalesearch.cost import PROTOCOLS, cost, find_protocol, protocol_of
from scalesearch.nn.build import build
from scalesearch.nn.init import SCHEMES
from scalesearch.space import Unbuildable, read_space
from scalesearch.space.assembly.architecture import assemble
from scalesearch.testing import random_architecture
from scalesearch.train.hardware import cpu_facts

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "golden"
QUICK = FOLDER / "quick.json"
OPEN, MODELS, SEED, VOCAB = 40, 16, 1, 16  # configurations per open space, random models, seed, their vocabulary
IN_FULL = ("spaces/slim.yaml", "spaces/small/partialformer.yaml")  # spaces whose first configuration is shown
KEYS_SHOWN = 5  # random models whose checkpoint keys are shown; of the others there is a digest
HEADLINE = ("params.total", "macs.total", "memory.cache", "memory.activations")  # shown; the others are in a digest
FORMATS = ("torch", "ctranslate2-int8", "onnx-int8", "huggingface-none")

# The study of `study.json`: a reference, a rung, a duplicate and two trials, on sixty pairs of sentences.
TEXT = {"en": ("one red dog", "the old house", "a big tree stands here", "two cats", "the dog sees the cat"),
        "de": ("ein roter Hund", "das alte Haus", "ein großer Baum steht hier", "zwei Katzen", "der Hund sieht ihn")}
PAIRS = {"train": 60, "val": 8, "test": 8}
STUDY = """
study: golden
data: { source: en, target: de, train: train, valid: val, test: test, vocab: 60 }
recipe: { steps: 3, max_tokens: 200, lr: 5e-3, precision: fp32, device: cpu, beam: 1, validate_every: 2 }
objectives: { bleu: max, params.total: min }
protocol: { name: forward, source: 8, target: 8, vocab: corpus }
budget: params.total <= 40k
space:
  width: 8 | 16
  encoder: { depth: 1 | 2, heads: 2 }
  decoder: { depth: 1, heads: 2 }
  share: { encoder.ffn: own | one }
proposer: { kind: random, seed: 3 }
reference: { name: base, set: { width: 8, encoder.depth: 1, share.encoder.ffn: own } }
rungs: { shares: [0.5] }
trials: 2
workers: 1
backend: inprocess
"""
FILES = ("study.json", "command.json", "space.yaml", "events.jsonl", "trials/0001-*/architecture.yaml",
         "trials/000?-*/job.json", "trials/000?-*/rung-0.json", "trials/000?-*/result.json",
         "trials/0001-*/record.json", "trials/0001-*/data.json")
# All that differs from run to run or from machine to machine. Floats are compared within TOLERANCE.
MEASURED = {"time", "created", "ended", "id", "crc", "seconds", "cpu_seconds", "wall_seconds", "total_seconds",
            "total_cpu_seconds", "tokens_per_cpu_second", "device", "versions"}
TOLERANCE = 1e-3  # relative; losses after three updates by other kernels differ by less than 1e-4
# The quick study by updates in place of minutes, and one process: nothing in it depends on time.
QUICK_STUDY = ({"recipe.steps": 800}, {"backend": "inprocess", "workers": 1})


def costs(architecture: Any, settings: Any, exported: bool) -> dict[str, Any]:
    """Every named cost by the space's protocol; MACs by all protocols; bytes of the model if it is ``exported``."""
    own = protocol_of(settings).of(architecture.answers)
    sized = own.at(architecture.vocab)
    found = cost(architecture.block, own)
    values = {**found.values, **found.load, "refusals.ctranslate2": found["refusals.ctranslate2"]}
    for name in PROTOCOLS:
        protocol = find_protocol(name, vocab=sized.vocab)
        values[f"macs.total, {name}"] = cost(architecture.block, protocol)["macs.total"]
    for name in FORMATS if exported else ():
        try:
            values[f"bytes, {name}"] = cost(architecture.block, replace(sized, artefact=name))["artefact.bytes"]
        except Unbuildable:
            values[f"bytes, {name}"] = None
    return values


def model_facts(architecture: Any, shown: bool = True) -> dict[str, Any]:
    """Checkpoint keys with shapes, sums of logits and of each scheme's initial weights, in float64."""
    made = build(architecture.block, vocab=VOCAB, seed=SEED, dtype=torch.float64).eval()
    state = {name: list(weight.shape) for name, weight in made.state_dict().items()}
    source, target = torch.tensor([[5, 6, 7, 8, 2], [9, 4, 2, 0, 0]]), torch.tensor([[1, 4, 5, 6], [1, 7, 8, 9]])
    with torch.no_grad():
        logits = made(source, target)
    schemes = {name: build(architecture.block, vocab=VOCAB, init=name, seed=SEED, dtype=torch.float64)
               for name in SCHEMES}
    keys = {"state": state} if shown else {"keys": digest("\n".join(state)), "shapes": structure(state)}
    return {"id": architecture.id, **keys, "logits": sums(logits),
            "schemes": {name: sums(torch.cat([weight.flatten() for weight in one.state_dict().values()]))
                        for name, one in schemes.items()}}


def run_study(folder: Path) -> None:
    """Run the study of ``study.json`` in ``folder``."""
    scalesearch.study(folder / "study.yaml", out=folder / "out").run(quiet=True)


def quick_scores(folder: Path) -> list[dict[str, Any]]:
    """Scores of the quick study's trials, trained in ``folder`` unless they are there."""
    changed, settings = QUICK_STUDY
    scalesearch.study("quick", changed, out=folder, **settings).run(quiet=True)
    rows = []
    for file in sorted(folder.glob("trials/*/result.json")):
        found = json.loads(file.read_text())
        rows.append({"architecture": found["architecture_id"], "params": found["params"], "steps": found["steps"],
                     "validation BLEU": found["metrics"]["bleu"], "validation loss": found["metrics"]["valid_loss"],
                     "test BLEU": found["metrics"]["test"]["bleu"], "train loss": found["curve"][-1]["train_loss"]})
    return rows


def space_facts(file: Path, stored: dict[str, Any] | None) -> tuple[dict[str, Any], list[str]]:
    """Facts of one space file, with the identities and costs of its configurations; and the names of the costs."""
    space = read_space(file)
    names = [name for name, _ in space.dimensions()]
    if stored is None:
        rng = random.Random(f"{SEED} {file.name}")
        drawn = [space.sample(rng).params for _ in range(OPEN if names else 1)]
        stored = {"rows": [[params.get(name) for name in names] for params in drawn]}
    full = f"{file.relative_to(ROOT)}" in IN_FULL
    lists: dict[str, list[Any]] = {key: [] for key in ("ids", "texts", "structures", "values", "costs")}
    names_of_costs: list[str] = []
    first: dict[str, Any] = {}
    for row in stored["rows"]:
        params = dict(zip(names, row, strict=True))
        answers = space.answer(lambda name, parameter, params=params: params[name])
        architecture = space.architecture(answers)
        text = architecture.to_yaml()
        lists["ids"].append(architecture.id)
        lists["texts"].append(digest(text))  # of the canonical configuration, as an architecture file
        lists["structures"].append(structure(canonical(architecture.block)))
        lists["values"].append(structure(dict(answers)))
        bill = costs(architecture, space.protocol, exported=not first)
        if not first:
            first = {"costs": [value for name, value in bill.items() if names or name.startswith("bytes")]}
            first |= {"yaml": text.splitlines(), "canonical": canonical(architecture.block)} if full else {}
            names_of_costs = list(bill)
        sizes = [value for name, value in bill.items() if not name.startswith("bytes")]
        lists["costs"].append([*(bill[name] for name in HEADLINE), structure(sizes)])
    facts = {"hash": space.hash, "yaml": digest(space.to_yaml()), "parameters": names, "rows": stored["rows"],
             **lists, "first": first}
    return facts, names_of_costs


# From here on the package is not used.


def configurations(stored: dict[str, Any] | None) -> dict[str, Any]:
    """Identities, canonical forms and costs of configurations of every space that ships."""
    found: dict[str, Any] = {"costs": [], "spaces": {}}
    for file in sorted((ROOT / "spaces").rglob("*.yaml")):
        name = str(file.relative_to(ROOT))
        found["spaces"][name], found["costs"] = space_facts(file, stored and stored["spaces"][name])
    return found


def models(stored: dict[str, Any] | None) -> dict[str, Any]:
    """Checkpoints, initial weights and logits of random small models, and of the papers' small ones."""
    keys, rows = (stored["keys"], stored["rows"]) if stored else drawn_models()
    sheets = [{key: value for key, value in zip(keys, row, strict=True) if value is not None} for row in rows]
    papers = (ROOT / "spaces" / "small" / f"{name}.yaml" for name in ("anthe", "edgeformer", "partialformer", "plain"))
    return {"keys": keys, "rows": rows,
            "random": [model_facts(assemble(sheet), at < KEYS_SHOWN) for at, sheet in enumerate(sheets)],
            "papers": {file.stem: model_facts(read_space(file).closed()) for file in papers}}


def drawn_models() -> tuple[list[str], list[list[Any]]]:
    """Keys, and their values for each of some random small models; None where a model has no such key."""
    rng = random.Random(SEED)
    sheets = [random_architecture(rng).answers for _ in range(MODELS)]
    keys = list(dict.fromkeys(key for sheet in sheets for key in sheet))
    return keys, [[sheet.get(key) for key in keys] for sheet in sheets]


def study_files(stored: dict[str, Any] | None = None) -> dict[str, Any]:
    """Files of a tiny study after its end."""
    with tempfile.TemporaryDirectory() as place, patch.dict(os.environ, {"XDG_CACHE_HOME": f"{place}/golden/cache"}):
        folder = Path(place).resolve() / "golden"
        folder.mkdir()
        for split, count in PAIRS.items():
            for side, lines in TEXT.items():
                (folder / f"{split}.{side}").write_text("".join(f"{lines[i % 5]} {i}\n" for i in range(count)))
        (folder / "study.yaml").write_text(STUDY.lstrip())
        with chdir(folder):
            run_study(folder)
        there = sorted({file for pattern in FILES for file in (folder / "out").glob(pattern)})
        return {str(file.relative_to(folder / "out")): normalized(content(file), str(folder)) for file in there}


PARTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "configurations": configurations, "models": models, "study": study_files}
TOLERANCES = {"configurations": 0.0, "models": 1e-5, "study": TOLERANCE}


def content(file: Path) -> Any:
    """The JSON value, events or lines in ``file``."""
    text = file.read_text()
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text) if file.suffix == ".json" else text.splitlines()


def normalized(value: Any, folder: str) -> Any:
    """``value`` without what is measured, and with ``folder`` and versions in strings replaced."""
    if isinstance(value, dict):
        return {key: f"<{key}>" if key in MEASURED and inner not in (None, {}) else normalized(inner, folder)
                for key, inner in value.items()}
    if isinstance(value, list):
        return [normalized(inner, folder) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return re.sub(r"version:[\w.]+", "version:<version>", value.replace(folder, "<folder>")) \
        if isinstance(value, str) else value


def sums(weight: torch.Tensor) -> list[float]:
    """Sum of absolute values, and the same weighted by position: each changes if values do, the second with order."""
    flat = weight.detach().double().abs().flatten()
    return [float(f"{one.item():.10g}") for one in (flat.sum(), flat @ torch.linspace(1, 2, len(flat)).double())]


def digest(text: str) -> str:
    """The first characters of a hash of ``text``."""
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def structure(value: Any) -> str:
    """A digest of ``value`` that renamed keys and strings leave as it is.

    Keys count by their position only, strings by where they first occurred in it.
    """
    seen: dict[str, int] = {}

    def plain(inner: Any) -> Any:
        if isinstance(inner, dict):
            return {str(at): plain(one) for at, one in enumerate(inner.values())}
        if isinstance(inner, list | tuple):
            return [plain(one) for one in inner]
        return f"s{seen.setdefault(inner, len(seen))}" if isinstance(inner, str) else inner

    return "=" + digest(json.dumps(plain(value)))


def differences(old: Any, new: Any, tolerance: float = 0.0, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Place, old and new value of everything that differs; mappings are compared in their order."""
    if isinstance(old, dict) and isinstance(new, dict) and len(old) == len(new):
        for (key, one), (name, other) in zip(old.items(), new.items()):
            if key != name:
                yield f"{path}/{key}", key, name
            yield from differences(one, other, tolerance, f"{path}/{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for at, (one, other) in enumerate(zip(old, new)):
            yield from differences(one, other, tolerance, f"{path}/{at}")
    elif isinstance(old, float) and isinstance(new, float):
        if not math.isclose(old, new, rel_tol=tolerance, abs_tol=1e-12):
            yield path, old, new
    elif type(old) is not type(new) or old != new:
        yield path, old, new


def is_name(old: Any, new: Any) -> bool:
    """Whether a difference is one of names: of strings that are no digests of a structure."""
    return isinstance(old, str) and isinstance(new, str) and not (old + new).count("=" if old[:1] == "=" else "\0")


def dumped(value: Any, indent: str = "") -> str:
    """JSON with short or flat values on one line."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    line = json.dumps(value, ensure_ascii=False)
    flat = isinstance(value, list) and not any(isinstance(one, dict | list) for one in inner)
    if not inner or len(indent + line) <= 110 or (flat and not any(len(str(one)) > 30 for one in inner)):
        return line
    deeper = indent + " "
    if isinstance(value, dict):
        items = [f"{deeper}{json.dumps(key, ensure_ascii=False)}: {dumped(one, deeper)}" for key, one in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    return "[\n" + ",\n".join(deeper + dumped(one, deeper) for one in inner) + f"\n{indent}]"


def load(name: str) -> dict[str, Any] | None:
    """The golden file of one part; None if there is none."""
    file = FOLDER / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else None


def changes(name: str) -> list[tuple[str, Any, Any]]:
    """What differs between the package and the golden file of one part."""
    stored = load(name)
    return list(differences(stored, json.loads(json.dumps(PARTS[name](stored))), TOLERANCES[name]))


def update(name: str, force: bool) -> int:
    """Write one golden file; return how many changes that are none of names keep it from being written."""
    stored = load(name)
    found = json.loads(json.dumps(PARTS[name](stored)))
    changed = list(differences(stored, found, TOLERANCES[name])) if stored else []
    wrong = [change for change in changed if not is_name(*change[1:])]
    renamed = Counter((old, new) for _, old, new in changed if is_name(old, new))
    for (old, new), count in renamed.most_common():
        if not re.fullmatch(r"[0-9a-f]{8,16}", old):
            print(f"{name}: {count:5} x {old!r} -> {new!r}")
    for change in wrong[:20]:
        print(f"{name}: not a name: {change[0]}: {change[1]!r} -> {change[2]!r}")
    if stored is None or force or (changed and not wrong):
        (FOLDER / f"{name}.json").write_text(dumped(found) + "\n")
        print(f"{name}: written; {len(changed)} changes, of which {len(wrong)} are none of names")
        return 0
    return len(wrong)


def processor() -> str:
    """What decides about the last digits of scores: vendor, vector instructions, bf16, PyTorch."""
    facts = cpu_facts()
    bf16 = [flag for flag in ("amx_bf16", "avx512_bf16") if flag in facts.get("flags", "").split()]
    capability = torch.backends.cpu.get_cpu_capability()
    return ", ".join([facts.get("vendor_id", "unknown"), capability, *bf16, f"torch {torch.__version__}"])


def quick(folder: Path, write: bool) -> int:
    """Compare the quick study's scores with those stored for this kind of processor, or store them."""
    stored = json.loads(QUICK.read_text()) if QUICK.exists() else {}
    found, kind = quick_scores(folder), processor()
    if write:
        QUICK.write_text(dumped({**stored, kind: found}) + "\n")
        return 0
    if kind not in stored:
        print(f"no scores are stored for {kind}; there are: {'; '.join(stored)}")
        return 1
    pairs = [dumped(rows).splitlines() for rows in (stored[kind], found)]
    print("\n".join(difflib.unified_diff(*pairs, "stored", "found", lineterm="")) or "the same scores")
    return int(pairs[0] != pairs[1])


def main() -> int:
    """Compare, or write."""
    parser = argparse.ArgumentParser(description="Compare the package with tests/golden.")
    parser.add_argument("--write", action="store_true", help="write new names into the golden files")
    parser.add_argument("--force", action="store_true", help="write other changes, too")
    parser.add_argument("--quick", nargs="?", const="", metavar="FOLDER", help="scores of the quick study instead")
    options = parser.parse_args()
    if options.quick is not None:
        with tempfile.TemporaryDirectory() as place:
            return quick(Path(options.quick or f"{place}/quick").resolve(), options.write)
    if options.write:
        return int(sum(update(name, options.force) for name in PARTS) > 0)
    failed = 0
    for name in PARTS:
        found = changes(name)
        failed += bool(found)
        print(f"{name}: {len(found)} differences")
        for path, old, new in found[:10]:
            print(f"  {path}: {str(old)[:80]} -> {str(new)[:80]}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
