"""Golden files: identities, costs, checkpoint keys and study files of fixed examples, in tests/golden.

    python -m tools.golden                  # compare the package with the golden files
    python -m tools.golden --write          # accept new names: rewrite the golden files, unless anything else changed
    python -m tools.golden --write --force  # accept every change
    python -m tools.golden --quick [FOLDER] # compare the scores of the quick study (minutes); with
    --write, store them
                                            # for this kind of CPU

The files store the configurations themselves, so the results do not depend on samplers. Parameter
values are stored by position, in the order of ``Space.dimensions()``: renamed parameters keep their
values. Mappings are not sorted: a renamed key stays in its line of the file. Only the ``keys`` in
models.json are read by name: rename them there first.

Values that start with ``=`` are digests without names (:func:`structure`). A rename changes neither
these nor numbers. Other digests and strings depend on names, as do the sizes of exported models,
which contain the names of weights.
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

# The package's names are used by the imports and the functions up to `sample_models` only.
import scalesearch
from scalesearch.blocks.core import canonical_config
from scalesearch.cost import PROTOCOLS, evaluate_cost, find_protocol, load_protocol
from scalesearch.nn.build import build_model
from scalesearch.nn.init import INIT_SCHEMES
from scalesearch.spaces import UnbuildableError, read_space
from scalesearch.spaces.assembly.architecture import assemble
from scalesearch.testing import random_architecture
from scalesearch.training.hardware import read_cpuinfo

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "golden"
QUICK = FOLDER / "quick.json"
OPEN = 40
MODELS = 16
SEED = 1
VOCAB = 16  # configurations per open space, random models, seed, their vocabulary
# spaces whose first configuration is shown
IN_FULL = ("spaces/slim.yaml", "spaces/small/partialformer.yaml")
KEYS_SHOWN = 5  # random models with their checkpoint keys in full; the others have a digest
# shown; the others are in a digest
HEADLINE = ("params.total", "macs.total", "memory.cache", "memory.activations")
FORMATS = ("torch", "ctranslate2-int8", "onnx-int8", "huggingface-none")

# The study of `study.json`: a reference, a rung, a duplicate and two trials, on sixty pairs of
# sentences.
TEXT = {"en": ("one red dog", "the old house", "a big tree stands here", "two cats",
               "the dog sees the cat"),
        "de": ("ein roter Hund", "das alte Haus", "ein großer Baum steht hier", "zwei Katzen",
               "der Hund sieht ihn")}
PAIRS = {"train": 60, "val": 8, "test": 8}
STUDY = """
study: golden
data: { source: en, target: de, train: train, validation: val, test: test, vocab: 60 }
recipe: { steps: 3, max_tokens: 200, lr: 5e-3, precision: fp32, device: cpu, beam: 1, validate_every: 2 }
objectives: { bleu: max, params.total: min }
protocol: { name: forward, source: 8, target: 8, vocab: corpus }
budget: params.total <= 40k
space:
  width: 8 | 16
  encoder: { depth: 1 | 2, heads: 2 }
  decoder: { depth: 1, heads: 2 }
  share: { encoder.ffn: own | one }
sampler: { type: random, seed: 3 }
reference: { name: base, set: { width: 8, encoder.depth: 1, share.encoder.ffn: own } }
rungs: { shares: [0.5] }
trials: 2
workers: 1
backend: inprocess
"""
FILES = ("study.json", "command.json", "space.yaml", "events.jsonl",
         "trials/0001-*/architecture.yaml", "trials/000?-*/job.json", "trials/000?-*/rung-0.json",
         "trials/000?-*/result.json", "trials/0001-*/record.json", "trials/0001-*/data.json")
# Values of these keys differ between runs or machines and are replaced by `<KEY>`; so are the
# folder and versions in
# texts. Other floats in the study's files are compared within TOLERANCE.
MEASURED = {"time", "created", "ended", "id", "crc", "seconds", "cpu_seconds", "wall_seconds",
            "total_seconds", "total_cpu_seconds", "tokens_per_cpu_second", "device", "versions",
            "phases"}
TOLERANCE = 1e-3  # relative; losses after three updates by other kernels differ by less than 1e-4
# The quick study with a budget in updates instead of CPU time, one at a time: no score depends on
# speed.
QUICK_STUDY = ({"recipe.steps": 800, "recipe.cpu_minutes": "none"}, {"workers": 1})


def costs(architecture: Any, settings: Any, exported: bool) -> dict[str, Any]:
    """Every named cost by the space's protocol; MACs by all protocols; bytes of the model if it is ``exported``."""
    own = load_protocol(settings).for_candidates(architecture.config)
    sized = own.with_vocab(architecture.vocab)
    breakdown = evaluate_cost(architecture.block, own)
    values = {**breakdown.values, **breakdown.load_balance,
              "refusals.ctranslate2": breakdown["refusals.ctranslate2"]}
    for name in PROTOCOLS:
        protocol = find_protocol(name, vocab=sized.vocab)
        values[f"macs.total, {name}"] = evaluate_cost(architecture.block, protocol)["macs.total"]
    for name in FORMATS if exported else ():
        try:
            values[f"bytes, {name}"] = evaluate_cost(
                architecture.block, replace(sized, artifact=name))["artifact.bytes"]
        except UnbuildableError:
            values[f"bytes, {name}"] = None
    return values


def model_facts(architecture: Any, shown: bool = True) -> dict[str, Any]:
    """Checkpoint keys with shapes, sums of logits and of each scheme's initial weights, in float64."""
    model = build_model(architecture.block, vocab=VOCAB, seed=SEED, dtype=torch.float64).eval()
    state = {name: list(weight.shape) for name, weight in model.state_dict().items()}
    source = torch.tensor([[5, 6, 7, 8, 2], [9, 4, 2, 0, 0]])
    target = torch.tensor([[1, 4, 5, 6], [1, 7, 8, 9]])
    with torch.no_grad():
        logits = model(source, target)
    schemes = {name: build_model(architecture.block, vocab=VOCAB, init=name, seed=SEED,
                                 dtype=torch.float64) for name in INIT_SCHEMES}
    weights = {name: torch.cat([weight.flatten() for weight in initialized.state_dict().values()])
               for name, initialized in schemes.items()}
    keys = {"state": state} if shown else {"keys": digest("\n".join(state)),
                                           "shapes": structure(state)}
    return {"id": architecture.id, **keys, "logits": sums(logits),
            "schemes": {name: sums(flat) for name, flat in weights.items()}}


def run_study(folder: Path) -> None:
    """Run the study of ``study.json`` in ``folder``."""
    scalesearch.study(folder / "study.yaml", out=folder / "out").run(quiet=True)


def quick_scores(folder: Path) -> list[dict[str, Any]]:
    """Scores of the quick study's trials.

    Trials that are complete in ``folder`` are not trained again.
    """
    changed, settings = QUICK_STUDY
    scalesearch.study("quick", changed, out=folder, **settings).run(quiet=True)
    rows = []
    for file in sorted(folder.glob("trials/*/result.json")):
        result = json.loads(file.read_text())
        metrics = result["metrics"]
        rows.append({"architecture": result["architecture_id"], "params": result["n_params"],
                     "steps": result["steps"], "validation BLEU": metrics["bleu"],
                     "validation loss": metrics["validation_loss"], "test BLEU": metrics["test"]["bleu"],
                     "train loss": result["curve"][-1]["train_loss"]})
    return rows


def space_facts(file: Path, stored: dict[str, Any] | None) -> tuple[dict[str, Any], list[str]]:
    """Facts of one space file with identities and costs of its configurations, and the names of the costs."""
    space = read_space(file)
    names = [name for name, _ in space.parameters()]
    if stored is None:
        rng = random.Random(f"{SEED} {file.name}")
        samples = [space.sample(rng).params for _ in range(OPEN if names else 1)]
        stored = {"rows": [[params.get(name) for name in names] for params in samples]}
    full = f"{file.relative_to(ROOT)}" in IN_FULL
    lists: dict[str,
                list[Any]] = {key: [] for key in ("ids", "texts", "structures", "values", "costs")}
    cost_names: list[str] = []
    first: dict[str, Any] = {}
    for row in stored["rows"]:
        params = dict(zip(names, row, strict=True))
        configuration = space.resolve(lambda name, parameter, params=params: params[name])
        architecture = space.architecture(configuration)
        text = architecture.to_yaml()
        lists["ids"].append(architecture.id)
        # of the canonical configuration, as an architecture file
        lists["texts"].append(digest(text))
        lists["structures"].append(structure(canonical_config(architecture.block)))
        lists["values"].append(structure(dict(configuration)))
        sizes = costs(architecture, space.protocol, exported=not first)
        if not first:
            first = {"costs": [value
                               for name, value in sizes.items()
                               if names or name.startswith("bytes")]}
            first |= {"yaml": text.splitlines(),
                      "canonical": canonical_config(architecture.block)} if full else {}
            cost_names = list(sizes)
        without_bytes = [size for name, size in sizes.items() if not name.startswith("bytes")]
        lists["costs"].append([*(sizes[name] for name in HEADLINE), structure(without_bytes)])
    facts = {"hash": space.hash, "yaml": digest(space.to_yaml()), "parameters": names,
             "rows": stored["rows"], **lists, "first": first}
    return facts, cost_names


def configurations(stored: dict[str, Any] | None) -> dict[str, Any]:
    """Identities, canonical forms and costs of configurations of every space that ships."""
    facts: dict[str, Any] = {"costs": [], "spaces": {}}
    for file in sorted((ROOT / "spaces").rglob("*.yaml")):
        name = str(file.relative_to(ROOT))
        facts["spaces"][name], facts["costs"] = space_facts(
            file, stored and stored["spaces"].get(name))
    return facts


def models(stored: dict[str, Any] | None) -> dict[str, Any]:
    """Checkpoints, initial weights and logits of random small models, and of the papers' small ones."""
    keys, rows = (stored["keys"], stored["rows"]) if stored else sample_models()
    candidates = [{key: value for key, value in zip(keys, row, strict=True) if value is not None}
                  for row in rows]
    papers = (ROOT / "spaces" / "small" / f"{name}.yaml"
              for name in ("anthe", "edgeformer", "partialformer", "plain"))
    facts = [model_facts(assemble(candidate), number < KEYS_SHOWN)
             for number, candidate in enumerate(candidates)]
    return {"keys": keys, "rows": rows, "random": facts,
            "papers": {file.stem: model_facts(read_space(file).single_architecture())
                       for file in papers}}


def sample_models() -> tuple[list[str], list[list[Any]]]:
    """Return keys, and their values in random small models; None if a model lacks the key."""
    rng = random.Random(SEED)
    candidates = [random_architecture(rng).config for _ in range(MODELS)]
    keys = list(dict.fromkeys(key for candidate in candidates for key in candidate))
    return keys, [[candidate.get(key) for key in keys] for candidate in candidates]


def study_files(stored: dict[str, Any] | None = None) -> dict[str, Any]:
    """Files of a tiny study after its end."""
    with tempfile.TemporaryDirectory() as place, patch.dict(
            os.environ, {"XDG_CACHE_HOME": f"{place}/golden/cache"}):
        folder = Path(place).resolve() / "golden"
        folder.mkdir()
        for split, count in PAIRS.items():
            for side, lines in TEXT.items():
                (folder / f"{split}.{side}").write_text(
                    "".join(f"{lines[i % 5]} {i}\n" for i in range(count)))
        (folder / "study.yaml").write_text(STUDY.lstrip())
        with chdir(folder):
            run_study(folder)
        out = folder / "out"
        files = sorted({file for pattern in FILES for file in out.glob(pattern)})
        return {str(file.relative_to(out)): normalized(content(file), str(folder))
                for file in files}


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
        return {key: f"<{key}>" if key in MEASURED and inner not in (None, {})
                else normalized(inner, folder) for key, inner in value.items()}
    if isinstance(value, list):
        return [normalized(inner, folder) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return re.sub(r"version:[\w.]+", "version:<version>", value.replace(folder, "<folder>")) \
        if isinstance(value, str) else value


def sums(weight: torch.Tensor) -> list[float]:
    """Sums of absolute values, unweighted and weighted by position."""
    flat = weight.detach().double().abs().flatten()
    return [float(f"{total.item():.10g}")
            for total in (flat.sum(), flat @ torch.linspace(1, 2, len(flat)).double())]


def digest(text: str) -> str:
    """The first characters of a hash of ``text``."""
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def structure(value: Any) -> str:
    """A digest of ``value`` that does not change if keys and strings are renamed.

    A key is represented by its position, a string by the position of its first occurrence.
    """
    first_positions: dict[str, int] = {}

    def plain(inner: Any) -> Any:
        if isinstance(inner, dict):
            return {str(index): plain(item) for index, item in enumerate(inner.values())}
        if isinstance(inner, list | tuple):
            return [plain(item) for item in inner]
        return f"s{first_positions.setdefault(inner, len(first_positions))}" if isinstance(inner, str) else inner

    return "=" + digest(json.dumps(plain(value)))


def differences(old: Any, new: Any, tolerance: float = 0.0,
                path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Place, old and new value of everything that differs; mappings are compared in their order."""
    if isinstance(old, dict) and isinstance(new, dict) and len(old) == len(new):
        for (key, old_value), (new_key, new_value) in zip(old.items(), new.items()):
            if key != new_key:
                yield f"{path}/{key}", key, new_key
            yield from differences(old_value, new_value, tolerance, f"{path}/{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (old_value, new_value) in enumerate(zip(old, new)):
            yield from differences(old_value, new_value, tolerance, f"{path}/{index}")
    elif isinstance(old, float) and isinstance(new, float):
        if not math.isclose(old, new, rel_tol=tolerance, abs_tol=1e-12):
            yield path, old, new
    elif type(old) is not type(new) or old != new:
        yield path, old, new


def is_name(old: Any, new: Any) -> bool:
    """Whether both values are names: strings other than digests of structures."""
    return isinstance(old, str) and isinstance(new, str) and not old.startswith("=")


def dumped(value: Any, indent: str = "") -> str:
    """JSON with short or flat values on one line."""
    items = list(
        value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    line = json.dumps(value, ensure_ascii=False)
    scalars = isinstance(value, list) and not any(isinstance(item, dict | list) for item in items)
    if not items or len(indent + line) <= 110 or (
            scalars and max(len(str(item)) for item in items) <= 30):
        return line
    deeper = indent + " "
    if isinstance(value, dict):
        keys = [json.dumps(key, ensure_ascii=False) for key in value]
        lines = [f"{deeper}{key}: {dumped(item, deeper)}" for key, item in zip(keys, items)]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return "[\n" + ",\n".join(deeper + dumped(item, deeper) for item in items) + f"\n{indent}]"


def load(name: str) -> dict[str, Any] | None:
    """Read the golden file of a part; None if it does not exist."""
    file = FOLDER / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else None


def changes(name: str) -> list[tuple[str, Any, Any]]:
    """Differences between the package and the golden file of one part."""
    stored = load(name)
    return list(differences(stored, json.loads(json.dumps(PARTS[name](stored))), TOLERANCES[name]))


def update(force: bool) -> int:
    """Write the golden files, unless something other than names changed; return the number of such changes."""
    texts: dict[str, str] = {}
    count = 0
    for name, compute in PARTS.items():
        stored = load(name)
        computed = json.loads(json.dumps(compute(stored)))
        changed = list(differences(stored, computed, TOLERANCES[name])) if stored else []
        wrong = [change for change in changed if not is_name(*change[1:])]
        renamed = Counter((old, new) for _, old, new in changed if is_name(old, new))
        print(f"{name}: {len(changed)} changes, {len(wrong)} of them not in names")
        for (old, new), times in renamed.most_common():
            if not re.fullmatch(r"[0-9a-f]{10,16}", old):
                print(f"  {times} x {old!r} -> {new!r}")
        for path, old, new in wrong[:20]:
            print(f"  not a name: {path}: {repr(old)[:80]} -> {repr(new)[:80]}")
        count += len(wrong)
        texts[name] = dumped(computed) + "\n"
    if count and not force:
        print("nothing is written")
        return count
    for name, text in texts.items():
        (FOLDER / f"{name}.json").write_text(text)
    return 0


def processor() -> str:
    """Properties of the machine that determine the last digits of scores: CPU vendor, instructions, PyTorch."""
    facts = read_cpuinfo()
    bf16 = [flag for flag in ("amx_bf16", "avx512_bf16") if flag in facts.get("flags", "").split()]
    capability = torch.backends.cpu.get_cpu_capability()
    return ", ".join([facts.get("vendor_id", "unknown"), capability, *bf16,
                      f"torch {torch.__version__}"])


def quick(folder: Path, write: bool) -> int:
    """Compare the quick study's scores with those stored for this kind of processor, or store them."""
    stored = json.loads(QUICK.read_text()) if QUICK.exists() else {}
    scores = quick_scores(folder)
    cpu = processor()
    if write:
        QUICK.write_text(dumped({**stored, cpu: scores}) + "\n")
        return 0
    if cpu not in stored:
        print(f"no scores are stored for {cpu}, only for {'; '.join(stored)}")
        return 1
    texts = [dumped(rows).splitlines() for rows in (stored[cpu], scores)]
    print("\n".join(difflib.unified_diff(*texts, "stored", "computed", lineterm=""))
          or "identical scores")
    return int(texts[0] != texts[1])


def main() -> int:
    """Compare, or write."""
    parser = argparse.ArgumentParser(description="Compare the package with tests/golden.")
    parser.add_argument("--write", action="store_true",
                        help="write new names into the golden files")
    parser.add_argument("--force", action="store_true", help="write other changes, too")
    parser.add_argument("--quick", nargs="?", const="", metavar="FOLDER",
                        help="scores of the quick study instead")
    options = parser.parse_args()
    if options.quick is not None:
        with tempfile.TemporaryDirectory() as place:
            return quick(Path(options.quick or f"{place}/quick").resolve(), options.write)
    if options.write:
        return int(update(options.force) > 0)
    failed = 0
    for name in PARTS:
        changed = changes(name)
        failed += bool(changed)
        print(f"{name}: {len(changed)} differences")
        for path, old, new in changed[:10]:
            print(f"  {path}: {str(old)[:80]} -> {str(new)[:80]}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
