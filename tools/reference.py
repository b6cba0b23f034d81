"""Write docs/reference and docs/schemas: the keys of spaces, study files, recipes and data files.

    python tools/reference.py            # --check: only report whether the files are current
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scalesearch.cli.schema import FILE_TYPES, json_schema
from scalesearch.config.model import schema_of
from scalesearch.data.spec import DataSpec
from scalesearch.spaces.schema.builtin import architecture_schema
from scalesearch.spaces.schema.cost_names import COST_NAMES, PROTOCOL_NAMES
from scalesearch.spaces.schema.type_check import describe_field
from scalesearch.spaces.schema.types import SchemaField, SchemaGroup
from scalesearch.studies.config.spec import StudyFile
from scalesearch.training.recipe import PRESETS, Recipe

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
SCHEMA_FOLDER = FOLDER.parent / "schemas"  # JSON Schema, for editors
SPACE_INTRODUCTION = """\
A file of the space language describes one architecture or a search space. [Search
spaces](../guides/spaces.md) is the guide. A value is a constant, alternatives (`64 | 128`), a range (`1..8
step 2`, `1..8 log`), or computed (`= 4 * width`). Each can have a condition (`2 | 3 if depth > 1 else 1`). A
size in a stack can [differ by layer](../guides/sizes-by-layer.md): a list or a ramp.

Besides the keys below, a file has `space` (its name), `notes`, `where` (a list of conditions over keys and
costs) and `cost` (`protocol` and named `budgets`). Protocols: {protocols}. Costs: {costs}.

In the tables, `….heads` is a key of both `encoder` and `decoder`, and braces list keys that have the same
option: `….local.{{lightweight, dynamic}}.kernel` means two keys. Errors suggest the key for names of other tools: see
[synonyms](synonyms.md).
"""
STUDY_INTRODUCTION = """\
A study file describes a search, ablation, grid, scaling study or compression. [Search](../guides/search.md) is the
guide. `data` and `recipe` hold the keys of a [data file](data-file.md) and of a [recipe](recipe.md), `space`
those of the [space language](space-language.md), or a file. Errors suggest the key for names of other tools: see
[synonyms](synonyms.md).

<!-- check: study -->
```yaml
study: edge
space: {{ file: small/plain, set: {{ width: 64..128 step 16, encoder.depth: 1..4, decoder.depth: 1 | 2 }} }}
data: {{ builtin: grammar, vocab: 1000 }}
recipe: {{ preset: quick, average: ema, lr.base: 1e-3..4e-3 log }}
objectives: {{ bleu: max, params.total: min, macs.total: min }}
protocol: {{ source: 16, target: 16, vocab: corpus }}
budget: params.total <= 1M
trials: 12
rungs: {{ shares: [0.25] }}
seeds: {{ max_per_candidate: 3, extra_runs: 6 }}
```
"""
RECIPE_INTRODUCTION = """\
A recipe describes how a model is trained and decoded. [Recipes](../guides/recipes.md) is the guide. Give the
name of a preset, or keys that override those of `preset: NAME`. Errors suggest the key for names of other tools: see
[synonyms](synonyms.md).

<!-- no run: a part of a study file -->
```yaml
recipe: {{ preset: short, steps: 2000, max_tokens: 1024, beam: 5 }}
```
"""
DATA_INTRODUCTION = """\
A data file describes a corpus: keys at the top of a file, or under `data:` of a study. [Your own
data](../tutorials/own-data.md) is the guide. Errors suggest the key for names of other tools: see [synonyms](synonyms.md).

<!-- no run: names files of the reader -->
```yaml
source: en
target: de
train: text/train            # text/train.en and text/train.de
validation: text/valid
test: text/test
vocab: 8000
```
"""


class Page(NamedTuple):
    """A generated page.

    Attributes:
        title: heading of the page.
        introduction: text before the tables.
        schema: returns the schema of the keys.
        sections: heading to the beginnings of the keys in its table; keys that begin with none of
            these are in the first section.
    """

    title: str
    introduction: str
    schema: Callable[[], SchemaGroup]
    sections: Mapping[str, tuple[str, ...]]


STACK_SECTIONS = {
    "Stacks: depth, attention and heads": (),
    "Mixers": ("mixer",),
    "Second mixer": ("local",),
    "Feed-forward networks": ("ffn",),
    "Feed-forward networks inside heads (PartialFormer)": ("pg",),
    "Sub-layers, branches and layer options": (
        "sublayers", "branches", "paths", "parallel_heads", "middle_width", "step_embedding",
        "solver", "interleaved", "cross", "lift"),
}
PAGES = {
    "space-language": Page(
        "Space language", SPACE_INTRODUCTION, architecture_schema,
        {"Model": (), "Embeddings and output": ("embedding",),
         **{title: tuple(f"{stack}.{key}" for stack in ("encoder", "decoder") for key in keys)
            or ("encoder", "decoder") for title, keys in STACK_SECTIONS.items()},
         "Weight sharing": ("share",), "Layer adaptation": ("adapt",),
         "Structured matrices": ("matrices", "tensor_chain", "low_rank")}),
    "study-file": Page(
        "Study file", STUDY_INTRODUCTION, lambda: schema_of(StudyFile),
        {"Study": (), "Objectives, costs and budget": ("objectives", "protocol", "budget", "exportable"),
         "Sampler, trials and limits": ("sampler", "trials", "compute", "stop", "proxies"),
         "Rungs": ("rungs",), "Seeds": ("seeds", "seed"),
         "Fixed architectures": ("reference", "architectures", "changes", "rules", "held_out"),
         "Teachers and warm start": ("teacher", "warm_start"),
         "Workers and resources": ("workers", "backend", "resources", "ray", "attempts"),
         "Output": ("storage", "loggers", "out")}),
    "recipe": Page(
        "Recipe", RECIPE_INTRODUCTION, lambda: schema_of(Recipe),
        {"Length of training and batches": (),
         "Optimizer and learning rate": (
             "optimizer", "lr", "matrix_lr_factor", "schedule", "warmup", "cooldown", "momentum",
             "beta1", "beta2", "eps", "weight_decay", "clip_norm"),
         "Loss and regularization": (
             "label_smoothing", "distillation_weight", "dropout", "attention_dropout",
             "activation_dropout", "subword_dropout", "rdrop"),
         "Initialization": ("residual_scaling", "zero_init", "init"),
         "Validation and averaging": (
             "validate_every", "validate_metric", "monitor", "patience", "average",
             "average_count", "average_every"),
         "Decoding and scores": (
             "beam", "length_penalty", "max_length_a", "max_length_b", "decode_with",
             "score_splits", "measure"),
         "Precision and device": (
             "precision", "compile", "bucketing", "device", "threads", "checkpoint_minutes")}),
    "data-file": Page(
        "Data file", DATA_INTRODUCTION, lambda: schema_of(DataSpec),
        {"Corpus": (), "Vocabulary and tokenizer": (
            "vocab", "tokenizer", "vocab_type", "character_coverage", "lowercase", "tokenized",
            "tokenize"),
         "Filters": ("max_length", "max_ratio", "max_pairs"),
         "Other tasks and metrics": ("comet", "window", "stride"),
         "Distillation": ("distilled", "mix_distilled", "soft_targets")}),
}
ELSEWHERE = {"data": schema_of(DataSpec), "recipe": schema_of(Recipe)}  # schemas with a page of their own
NOTE = "`python tools/reference.py` writes this page from the schema that reads the file."
TABLE_HEAD = ["| key | meaning | values | default |", "|---|---|---|---|"]
N_MERGED_COMPONENTS = 3  # components of a key, from the left, that may be merged
STACKS = ("encoder", "decoder")
# Forms of the values of messages, and of those in tables.
SHORT_FORMS = ((r"\ba whole number\b", "integer"), (r"\ba number\b", "number"), (">= ", "≥ "),
               ("<= ", "≤ "), ("^(a )?list of whole numbers", "list of integers"),
               (r"^one of (.*`) or (`.*)", r"\1, \2"), ("^one of ", ""))
SHORT_DEFAULTS = {"must be given": "required", "may be left out": "optional"}
Path_ = tuple[str | tuple[str, ...], ...]  # components of a key; merged ones are tuples


def page(name: str) -> str:
    """Text of one page."""
    spec = PAGES[name]
    introduction = spec.introduction.format(
        protocols=_code_list(PROTOCOL_NAMES), costs=_code_list(COST_NAMES))
    parts = [f"# {spec.title}", "", introduction, NOTE, ""]
    tables = _tables(spec)
    for heading, table in tables.items():
        parts += [f"## {heading}", "", *TABLE_HEAD, *table, ""]
    if name == "recipe":
        parts += _presets()
    return "\n".join(parts).rstrip("\n") + "\n"


def _tables(spec: Page) -> dict[str, list[str]]:
    """Table rows by section."""
    sections: dict[str, list[tuple[str, ...]]] = {heading: [] for heading in spec.sections}
    for row in rows(spec.schema()):
        sections[_section_of(row[0].strip("`"), spec)].append(row)
    return {heading: [f"| {' | '.join(map(_cell, cells))} |" for cells in _merged_rows(table)]
            for heading, table in sections.items() if table}


def _section_of(key: str, spec: Page) -> str:
    """Heading of the section with the longest beginning of ``key``."""
    matches = [(len(beginning), heading) for heading, beginnings in spec.sections.items()
               for beginning in beginnings
               if key == beginning or key.startswith((f"{beginning}.", f"{beginning}["))]
    return max(matches)[1] if matches else next(iter(spec.sections))


def _merged_rows(table: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Merge rows that differ in one component of the key, from the left."""
    merged: dict[tuple[Path_, tuple[str, ...]], None] = {}
    for key, meaning, values, unit, default, _ in table:
        stack = key.strip("`").partition(".")[0]
        texts = (_sentence(meaning), values, unit, default)
        if stack in STACKS:  # the default of a size may be computed from a size of its stack
            texts = tuple(text.replace(f"{stack}.", "….") for text in texts)
            texts = (texts[0].replace(f"the {stack}'s", "the stack's"), *texts[1:])
        merged[tuple(key.strip("`").split(".")), texts] = None
    for position in range(N_MERGED_COMPONENTS):
        merged = _merge_at(merged, position)
    for path, (meaning, values, unit, default) in merged:
        unit_text = f" ({unit})" if unit and unit not in values else ""
        for words, replacement in SHORT_FORMS:
            values = re.sub(words, replacement, values)
        yield (f"`{'.'.join(map(_component, path))}`", meaning, values + unit_text,
               SHORT_DEFAULTS.get(default, default))


def _merge_at(merged: Mapping[tuple[Path_, tuple[str, ...]], None],
              position: int) -> dict[tuple[Path_, tuple[str, ...]], None]:
    groups: dict[Any, list[str]] = {}
    for path, texts in merged:
        component = path[position] if position < len(path) else ""
        is_mergeable = isinstance(component, str) and component and (
            component in STACKS if position == 0 else position + 1 < len(path))
        key = ((path[:position], path[position + 1:], texts) if is_mergeable
               else (path, None, texts))
        groups.setdefault(key, []).append(component if isinstance(component, str) else "")
    result: dict[tuple[Path_, tuple[str, ...]], None] = {}
    for (before, after, texts), components in groups.items():
        if after is None:
            result[before, texts] = None
        else:
            component = components[0] if len(components) == 1 else tuple(components)
            result[(*before, component, *after), texts] = None
    return result


def _component(component: str | tuple[str, ...]) -> str:
    if isinstance(component, str):
        return component
    return "…" if set(component) == set(STACKS) else f"{{{', '.join(component)}}}"


def _sentence(text: str) -> str:
    """Text of a meaning without the markup and the full stop of a docstring."""
    return re.sub(r"``([^`]*)``", r"`\1`", text).removesuffix(".")


def _presets() -> list[str]:
    """Section with all keys of each preset."""
    parts = ["## Presets", "", "Keys that a preset sets; all others have their defaults.", ""]
    for name, keys in PRESETS.items():
        values = ", ".join(f"`{key}: {_yaml(value)}`" for key, value in keys.items())
        parts += [f"- **`{name}`**: {values}"]
    return [*parts, ""]


def _yaml(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key}: {_yaml(item)}' for key, item in value.items())} }}"
    return str(value)


def synonyms() -> str:
    """Text of the page of synonyms."""
    parts = ["# Synonyms of keys", "",
             "Names of fairseq, Hugging Face, Optuna, Ray and others are accepted in place of the",
             "keys of a file. Use this page to find the key for a name that you know.", "", NOTE, ""]
    for spec in PAGES.values():
        keys_by_words: dict[tuple[str, str], list[str]] = {}
        for row in rows(spec.schema()):
            if row[5]:
                leaf = row[0].strip("`").rpartition(".")[2].removesuffix("[]")
                keys_by_words.setdefault((leaf, row[5]), []).append(row[0])
        parts += [f"## {spec.title}", "", "| key | also accepted |", "|---|---|"]
        parts += [f"| `{leaf}` | {words} |" for leaf, words in sorted(keys_by_words)]
        parts.append("")
    return "\n".join(parts)


def rows(group: SchemaGroup, path: str = "") -> Iterator[tuple[str, ...]]:
    """Each key beneath ``group``: key, meaning, values, unit, default, synonyms."""
    for name, child in group.fields.items():
        here = f"{path}.{name}" if path else name
        if isinstance(child, SchemaField):
            yield _field(here, child)
            yield from rows(child.items, f"{here}[]") if child.items else ()
            continue
        choice = (f"one of {_code_list(child.variants)}" if child.variants else "keys"
                  if not child.shorthand_key else f"keys; in short, its `{child.shorthand_key}`")
        default = child.default_variant or ("must be given" if child.required else "none"
                                            if child.optional else "")
        yield f"`{here}`", child.doc, choice, "", _default(default), _code_list(child.synonyms)
        yield from rows(child, here) if path or ELSEWHERE.get(name) is None else ()
    for name, variant in group.variants.items():
        inner = f"{path}.{name}"
        yield f"`{inner}`", variant.doc, "keys" if variant.fields else "", "", "", ""
        yield from rows(variant, inner)


def _field(path: str, field: SchemaField) -> tuple[str, ...]:
    default = ("may be left out" if field.optional
               else "must be given") if field.default is None else field.default
    return f"`{path}`", field.doc, describe_field(field), field.unit, _default(default), _code_list(
        field.synonyms)


def _default(text: str) -> str:
    """A value as code; words about it as they are."""
    return f"`{text}`" if text and (" " not in text or text[0] in "=[") else text


def _code_list(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def files() -> dict[Path, str]:
    """The generated files and their contents."""
    pages = {FOLDER / f"{name}.md": page(name) for name in PAGES}
    pages[FOLDER / "synonyms.md"] = synonyms()
    schemas = {SCHEMA_FOLDER / f"{name}.json": json.dumps(json_schema(name)) + "\n"
               for name in FILE_TYPES}
    return {**pages, **schemas}


def stale() -> list[str]:
    """Names of the files that differ from the schemas."""
    return [file.name for file, text in files().items()
            if not file.is_file() or file.read_text("utf-8") != text]


def main() -> None:
    """Write the files; with --check, report the stale ones (exit status 1)."""
    if "--check" in sys.argv[1:]:
        names = stale()
        print(f"stale: {', '.join(names)}; run python tools/reference.py" if names
              else "the files are current")
        raise SystemExit(bool(names))
    for file, text in files().items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
