"""Study files: what is right is understood, what is wrong is said with its place, all at once."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from scalesearch.cli.study.run import dry_run_to_json
from scalesearch.config.model import Name, SettingError
from scalesearch.errors import UserError
from scalesearch.feasible.pick import pick_candidate
from scalesearch.samplers import SAMPLER_NAMES, SamplerSpec, make_sampler
from scalesearch.spaces.schema.cost_names import PROTOCOL_NAMES
from scalesearch.spaces.syntax.diagnostics import format_alternatives
from scalesearch.studies.config.reader import read_study
from scalesearch.studies.config.sections import Seeds
from scalesearch.studies.config.values import read_seconds
from scalesearch.studies.engine.dry_run import MAX_FEASIBLE_SAMPLES, dry_run
from scalesearch.studies.engine.setup import check_feasible, make_evaluator
from tests.errors import refuses

SPACE = """\
space:
  width: 32 | 64
  encoder: { depth: 1..2, heads: 2, head_dim: 16, ffn: { relu: { hidden: 64 } } }
  decoder: { depth: 1, heads: 2, head_dim: 16, ffn: { relu: { hidden: 64 } } }
  cost: { budgets: { small: params.total <= 100k } }
"""
REST = """\
data: { builtin: grammar, pairs: 500, vocab: 400 }
recipe: { steps: 5 }
objectives: { bleu: max, params.total: min }
"""


def write(folder, text):
    file = folder / "s.yaml"
    file.write_text(text)
    return file


def problems(folder, text, **more):
    with pytest.raises(UserError) as error:
        read_study(write(folder, text), **more)
    return str(error.value).replace(f"{folder}/", "")


def test_defaults_of_a_minimal_file(tmp_path):
    spec = read_study(write(tmp_path, SPACE + REST))
    assert (spec.name, spec.out, spec.trials) == ("s", Path("runs/s"), 20)
    assert (spec.backend, spec.sampler.name) == ("pool", "bayes")
    assert [str(objective) for objective in spec.objectives] == ["bleu: max", "params.total: min"]
    assert spec.space.n_configurations() == 4 and spec.budget is None and spec.storage is None


def test_every_key_is_read(tmp_path):
    text = f"""\
study: full
{SPACE}{REST}
protocol: {{ name: decode, source: 9, target: 8, vocab: corpus }}
budget: small
exportable: ctranslate2
sampler: {{ type: nsga2, seed: 4, population: 8 }}
trials: 7
workers: 3
backend: ray
resources:
  {{ cpus_per_trial: 2, gpus_per_trial: 0.25, threads_per_trial: 2, address: "head:6379" }}
storage: postgresql://somewhere/db
out: elsewhere
seed: 5
attempts: 2
reference:
  - transformer
  - {{ name: wide, set: {{ width: 64, encoder.depth: 2 }} }}
"""
    spec = read_study(write(tmp_path, text))
    assert spec.protocol == {"name": "decode", "source": 9, "target": 8, "vocab": "corpus"}
    assert spec.budget is not None and spec.budget.text.startswith("params.total <= ")
    assert spec.budget.text.endswith(" and refusals.ctranslate2 <= 0")
    assert spec.sampler == SamplerSpec("nsga2", {"population_size": 8}, 4)
    assert spec.seed == 5
    assert (spec.resources.gpus_per_trial, spec.resources.address) == (0.25, "head:6379")
    assert [reference.label for reference in spec.references] == ["transformer", "wide"]
    config = spec.references[1].architecture.config
    assert (config["width"], config["encoder.depth"]) == (64, 2)


def test_shipped_space_is_found_and_overridden(tmp_path):
    text = REST + "space: { file: transformer, set: { width: 64 | 128, encoder.depth: 1..3 } }\n"
    assert read_study(write(tmp_path, text)).space.n_configurations() == 6


def test_builtin_is_the_built_in_corpus(tmp_path):
    short = read_study(
        write(tmp_path,
              SPACE + REST.replace("{ builtin: grammar, pairs: 500, vocab: 400 }", "builtin")))
    assert short.data.model_dump() == read_study(
        write(tmp_path, SPACE + REST), ["data={builtin: grammar}"]).data.model_dump()


def test_overrides_change_add_and_replace_keys(tmp_path):
    sets = ["recipe.steps=9", "trials=3", "sampler.type=random", "data.pairs=600",
            "objectives.macs.total=min", "space.encoder.depth=1 | 2 | 4"]
    spec = read_study(write(tmp_path, SPACE + REST), sets)
    assert spec.space.n_configurations() == 6 and str(spec.objectives[-1]) == "macs.total: min"
    assert (
        spec.recipe.steps, spec.trials, spec.sampler.name, spec.data.pairs) == (9, 3, "random", 600)
    whole = read_study(write(tmp_path, SPACE + REST), ["objectives={loss: min, macs.total: min}"])
    assert [str(objective) for objective in whole.objectives] == ["loss: min", "macs.total: min"]
    assert problems(tmp_path, SPACE + REST,
                    overrides=["trials"]).startswith("--set trials: write it as key=value")


def test_all_errors_are_reported_together(tmp_path):
    text = SPACE.replace("width: 32 | 64", "width: 64..32") + """\
data: { builtin: grammer }
recipe: { step: 5 }
objectives: { blue: max, params.total: less, bleu: max, bleu: max }
trails: 8
workers: many
sampler: { type: tpee }
protocol: { name: foward }
reference: [ { name: a } ]
"""
    message = problems(tmp_path, text)
    assert message == """\
s.yaml:2:10: this range is empty: its start is above its end
2 |   width: 64..32
  |          ^^^^^^
  = help: write `32..64`

s.yaml:6:18: data.builtin: expected `grammar`, or `none`, found `grammer`
6 | data: { builtin: grammer }
  |                  ^^^^^^^
  = help: did you mean `grammar`?

s.yaml:7:11: unknown key `step` in `recipe`
7 | recipe: { step: 5 }
  |           ^^^^
  = help: did you mean `steps`?

s.yaml:8:15: unknown metric or cost `blue`
8 | objectives: { blue: max, params.total: less, bleu: max, bleu: max }
  |               ^^^^
  = help: did you mean `bleu`?

s.yaml:8:40: params.total: the direction is `min` or `max`, not `less`
8 | objectives: { blue: max, params.total: less, bleu: max, bleu: max }
  |                                        ^^^^

s.yaml:8:57: the objective bleu is given twice
8 | objectives: { blue: max, params.total: less, bleu: max, bleu: max }
  |                                                         ^^^^
  = help: keep one of them

s.yaml:9:1: unknown key `trails`
9 | trails: 8
  | ^^^^^^
  = help: did you mean `trials`?

s.yaml:10:10: workers: expected a whole number >= 1, or `auto`, found `many`
10 | workers: many
   |          ^^^^

s.yaml:11:18: sampler.type: expected one of KINDS, found `tpee`
11 | sampler: { type: tpee }
   |                  ^^^^
  = help: did you mean `tpe`?

s.yaml:12:19: protocol.name: expected one of PROTOCOLS, found `foward`
12 | protocol: { name: foward }
   |                   ^^^^^^
  = help: did you mean `forward`?

s.yaml:13:14: reference: expected a file, params under `set`, or both
13 | reference: [ { name: a } ]
   |              ^^^^^^^^^^^
  = help: such as `{name: wide, set: {width: 256}}`

11 problems""".replace("KINDS", format_alternatives(SAMPLER_NAMES)).replace(
        "PROTOCOLS", format_alternatives(PROTOCOL_NAMES))


@pytest.mark.parametrize(("key", "line", "code"), [
    ("space", 1, "cannot-read"), ("data", 2, "no-such-file"), ("reference", 5, "cannot-read"),
    ("warm_start", 5, "folder-misplaced")])
def test_name_too_long_for_a_file_is_reported_at_its_key(tmp_path, key, line, code):
    lines = {"space": "space: transformer", **{text.partition(":")[0]: text
                                               for text in REST.splitlines()}}
    lines[key] = f"{key}: {'x' * 300}"
    file = write(tmp_path, "\n".join(lines.values()))
    with refuses(code, "x" * 300, place=f"{file}:{line}:"):
        read_study(file)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("", Seeds(1, 0)), ("seeds: none\n", Seeds(1, 0)), ("seeds: 1\n", Seeds(1, 0)),
     ("seeds: 3\ntrials: 7\n", Seeds(3, 4)), ("seeds: {max_per_candidate: 2}\n", Seeds(2, 10)),
     ("seeds: {max_per_candidate: 4, extra_runs: 6, confidence: 0.95}\n", Seeds(4, 6, 0.95)),
     ("seeds: {max_per_candidate: 1, extra_runs: 6}\n", Seeds(1, 0)),
     ("seeds: {max_per_candidate: 1, references: 3}\n", Seeds(1, 10, 0.9, 3)),
     ("seeds: {extra_runs: 6}\n", Seeds(3, 6)),
     ("seeds: {max_per_candidate: 2, extra_runs: 1, references: 4}\n", Seeds(2, 1, 0.9, 4))])
def test_seeds_are_a_number_or_a_mapping(tmp_path, text, seeds):
    assert read_study(write(tmp_path, SPACE + REST + text)).seeds == seeds


def test_seeds_can_be_set_from_outside(tmp_path):
    assert read_study(write(tmp_path, SPACE + REST),
                      ["seeds.max_per_candidate=2", "seeds.extra_runs=3"]).seeds == Seeds(2, 3)
    assert read_study(write(tmp_path, SPACE + REST + "seeds: 3\n"),
                      ["seeds=none"]).seeds == Seeds(1, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [(SPACE + REST + "seeds: many\n",
      "s.yaml:9:8: seeds.max_per_candidate: expected a whole number >= 1, found `many`"),
     (SPACE + REST + "seeds: {max_per_candidate: 0}\n", "s.yaml:9:28: seeds.max_per_candidate: 0"),
     (SPACE + REST + "seeds: {confidence: 90}\n", "s.yaml:9:21: seeds.confidence: 90"),
     (SPACE + REST + "seeds: {mots: 3}\n", "the keys in `seeds` are"),
     (SPACE + REST.replace("bleu: max, ", "macs.total: min, ") + "seeds: 3\n",
      "none of the objectives is measured"), ("", "the file is empty"),
     ("study: x\n", "`space` is missing"),
     (REST + "space: { norm: pre }\n", "s.yaml:4:8: `width` is missing"),
     (REST + "space: nowhere\n",
      "nowhere: no such file. The spaces that come with scalesearch: "),
     (REST + "space: [1]\n",
      "s.yaml:4:8: expected a file, `{file: …, set: {…}}`, or the space itself"),
     (SPACE + REST.replace("params.total: min", "params.total: max"),
      "params.total: a lower cost is better"),
     (REST + "space: {file: transformer, set: {widht: 64, encoder.heads: four}}\n",
      "s.yaml:4:34: unknown key `widht`"),
     (REST + "space: {file: transformer, set: {widht: 64, encoder.heads: four}}\n",
      "s.yaml:4:60: expected a whole number"),
     (SPACE + REST + "budget: smal\n", "the space has no budget `smal`"),
     (SPACE + REST + "budget: params.totl <= 5M\n", "params.totl"),
     (SPACE + REST + "budget: [a]\n", "s.yaml:9:9: budget: "),
     (SPACE + REST + "compute: 20\n", "s.yaml:9:10: this duration has no unit"),
     (SPACE + REST + "stop: 1\n", "s.yaml:9:7: 1 is a growth of 100 %"),
     (SPACE + REST + "stop: {gain: 5}\n", "write `5%`"),
     (SPACE + REST + "backend: slurm\n", "s.yaml:9:10: backend: expected one of"),
     (SPACE + REST + "data: {}\n", "`data` is given twice"),
     (SPACE + REST.replace("data", "date"), "`data` is missing"),
     (SPACE + REST + "reference: [{name: a, file: x}, {name: a, file: y}]\n",
      "two references have the same name"),
     (SPACE + REST + "resources: 3\n", "its keys are `cpus_per_trial`"),
     (SPACE + REST + "resources: {processes_per_trial: 2}\n", "help: it was removed: each trial"),
     ("a: [", "not YAML")])
def test_each_error_has_its_message(tmp_path, text, message):
    assert message in problems(tmp_path, text)


def test_table_instead_of_a_data_file_is_reported(tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"source": "one", "target": "eins"}\n')
    builtin = "{ builtin: grammar, pairs: 500, vocab: 400 }"
    message = problems(tmp_path, SPACE + REST.replace(builtin, "pairs.jsonl"))
    assert "data: pairs.jsonl is a table" in message and "`train`" in message


def test_unknown_objective_is_the_only_error(tmp_path):
    """Whether seeds are useful is not judged by the other objectives."""
    message = problems(tmp_path, SPACE + REST.replace("bleu: max", "blue: max") + "seeds: 3\n")
    assert "`bleu`" in message and "seeds" not in message and "problems" not in message


@pytest.mark.parametrize(
    ("text", "place", "meant"),
    [("batch_size: 64", "9:1", "`recipe.max_tokens`"), ("searcher: tpe", "9:1", "`sampler`"),
     ("n_trials: 64", "9:1", "`trials`"), ("layers: 6", "9:1", None),
     ("steps: 9", "9:1", "`recipe.steps`"), ("resources: {num_gpus: 1}", "9:13", "gpus_per_trial`"),
     ("trials: {a: 1}", "9:9", None), ("rungs: {reduction_factor: 3}", "9:9", "`rungs.eta`"),
     ("teacher: {file: a, beam_size: 3}", "9:20", "beam`")])
def test_keys_of_other_tools_are_mapped_to_suggestions(tmp_path, text, place, meant):
    message = problems(tmp_path, SPACE + REST + text + "\n")
    assert message.startswith(f"s.yaml:{place}: ") and (meant is None or meant in message), message


@pytest.mark.parametrize(("sampler", "expected"), [
    ("tpe", ("tpe", {}, 5)), ("{type: local, startup: 3}", ("local", {"n_startup_trials": 3}, 5)),
    ("{class_name: TPESampler, multivariate: yes, n_ei_candidates: 48, seed: 2}",
     ("TPESampler", {"multivariate": True, "n_ei_candidates": 48}, 2)),
    ("{class_name: mine, prior: 1e-3, name: 'yes'}", ("mine", {"prior": 1e-3, "name": "yes"}, 5)),
])
def test_sampler_is_short_name_or_class_with_arguments(tmp_path, sampler, expected):
    spec = read_study(write(tmp_path, SPACE + REST + f"seed: 5\nsampler: {sampler}\n"))
    assert spec.sampler == SamplerSpec(*expected)


def test_sampler_with_type_and_class_is_rejected(tmp_path):
    message = problems(tmp_path, SPACE + REST + "sampler: {type: tpe, class_name: TPESampler}\n")
    assert message.startswith("s.yaml:9:34: sampler.class_name: ")


@pytest.mark.parametrize("form, column, key", [("{type: grid, startup: 5}", 32, "startup"),
                                               ("{type: random, startup: 5}", 34, "startup"),
                                               ("{type: tpe, population: 5}", 34, "population"),
                                               ("{population: 5}", 23, "population")])
def test_settings_that_a_sampler_lacks_are_rejected(
        tmp_path: Path, form: str, column: int, key: str) -> None:
    message = problems(tmp_path, SPACE + REST + f"sampler: {form}\n")
    assert message.startswith(f"s.yaml:9:{column}: sampler.{key}: ")


def test_override_changes_one_key_of_a_preset(tmp_path):
    text = SPACE + REST.replace("{ steps: 5 }", "short")
    recipe = read_study(write(tmp_path, text), ["recipe.lr=2e-3"]).recipe
    assert (recipe.lr.base, recipe.cpu_minutes, recipe.name) == (0.002, 5.0, "short")


@pytest.mark.parametrize(("text", "message"),
                         [(SPACE + REST + "budget: params.total <= 10\n",
                           "The smallest costs in the space are params.total "),
                          (SPACE + REST + "budget: params.total <= 10\nprotocol: {source: 9, "
                           "target: 8, vocab: 50}\n",
                           "with forward (S=9, T=8, V=50)"),
                          (SPACE
                           + REST.replace("{ builtin: grammar, pairs: 500, vocab: 400 }",
                                          "{ source: en, target: de, train: gone/train, "
                                          "valid: gone/v, test: gone/t }"), "gone/train.en"),
                          (SPACE + REST + "reference: [{name: a, set: {widht: 32}}]\n",
                           "s.yaml:9:29: unknown key `widht`"),
                          (SPACE + REST + "reference: [{name: open, set: {width: 32}}]\n",
                           "reference open: it leaves encoder.depth open")])
def test_dry_run_reports_errors_before_the_start(tmp_path, text, message):
    with pytest.raises(UserError) as error:
        dry_run(read_study(write(tmp_path, text)))
    assert message in str(error.value)


@pytest.mark.full
def test_costs_use_the_vocabulary_of_the_corpus_by_default(tmp_path):
    space = SPACE.replace("cost: {", "cost: { protocol: { name: decode, source: 7, vocab: 9000 },")
    protocol = dry_run_to_json(dry_run(read_study(write(tmp_path, space + REST))))["protocol"]
    assert (protocol["name"], protocol["source"], protocol["vocab"]) == ("decode", 7, 400)
    file = write(tmp_path, space + REST + "protocol: { vocab: 77 }\n")
    protocol = dry_run_to_json(dry_run(read_study(file)))["protocol"]
    assert (protocol["name"], protocol["source"], protocol["vocab"]) == ("decode", 7, 77)


@pytest.mark.full
def test_dry_run_describes_the_study_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path, SPACE + REST + "budget: params.total <= 50k\n")
    preview = dry_run_to_json(dry_run(read_study(file, ["seeds=3"])))
    assert preview["seeds"] == {"max_per_candidate": 3, "extra_runs": 10, "confidence": 0.9}
    assert preview["space"]["size"] == 4
    assert preview["feasible"] == MAX_FEASIBLE_SAMPLES < preview["sampled"] < 2000
    assert all(p["is_feasible"] == (p["costs"]["params.total"] <= 50_000)
               for p in preview["proposals"])
    assert list(tmp_path.iterdir()) == [file]


def test_selection_on_the_test_split_is_rejected(tmp_path):
    message = problems(tmp_path, SPACE + REST.replace("steps: 5", "steps: 5, score_splits: test"))
    assert "score_splits to `both`" in message and "s.yaml" in message
    chosen = read_study(
        write(tmp_path, SPACE + REST.replace("steps: 5", "steps: 5, score_splits: validation")))
    assert (chosen.recipe.score_splits,
            read_study(write(tmp_path, SPACE + REST)).recipe.score_splits) == ("validation", "both")


TASK_FILES = "source: a, target: b, train: t, validation: v, test: w"
ONLY = SPACE.replace("space:\n", "space:\n  model: decoder-only\n").replace(
    "  encoder: { depth: 1..2, heads: 2, head_dim: 16, ffn: { relu: { hidden: 64 } } }\n", "")


def of_task(data, objectives, space=SPACE):
    return f"{space}data: {{ {data} }}\nrecipe: {{ steps: 5 }}\nobjectives: {{ {objectives} }}\n"


@pytest.mark.parametrize(
    ("data", "objectives", "space"),
    [(f"{TASK_FILES}, tokenized: true", "tokenized_bleu: max, chrf: max, params.total: min",
      SPACE),
     (f"task: summarization, {TASK_FILES}",
      "rouge1: max, rouge2: max, rougeL: max, loss: min, memory.weights: min", SPACE),
     (f"task: correction, {TASK_FILES}", "f05: max, precision: max, recall: max", SPACE),
     ("task: language-model, train: t, validation: v, test: w",
      "perplexity: min, word_perplexity: min", ONLY)])
def test_metrics_of_every_task_are_objectives(tmp_path, data, objectives, space):
    spec = read_study(write(tmp_path, of_task(data, objectives, space)))
    assert ", ".join(map(str, spec.objectives)) == objectives and spec.recipe.measure == "none"


@pytest.mark.parametrize(("objectives", "measured"), [
    ("bleu: max, latency: min", "latency"), ("bleu: max, memory: min", "memory"),
    ("bleu: max, memory: min, latency: min", "both"),
])
def test_measurements_follow_from_the_objectives(tmp_path, objectives, measured):
    assert read_study(write(tmp_path, of_task(TASK_FILES, objectives))).recipe.measure == measured


@pytest.mark.parametrize(
    ("data", "objectives", "space", "parts"),
    [(f"task: summarization, {TASK_FILES}", "bleu: max", SPACE,
      ["s.yaml:8:15: `bleu` is a metric of translation, and the data's task "
       "is summarization",
       "its metrics are rougeL, rouge1, rouge2, loss, perplexity, "
       "loss_per_char, latency, memory"]),
     (TASK_FILES, "tokenized_bleu: max", SPACE,
      ["s.yaml:8:15:", "`tokenized_bleu`", "`tokenized: true`"]),
     (TASK_FILES, "comet: max", SPACE, ["s.yaml:8:15:", "`comet`", "`comet: MODEL`"]),
     (f"{TASK_FILES}, comet: some/model", "comet: max", SPACE, ["pip install unbabel-comet"]),
     ("task: language-model, train: t, valid: v, test: w", "perplexity: min", SPACE,
      ["the task language-model needs `model: decoder-only`, and this architecture is "
       "encoder-decoder"]),
     ("task: language-model, train: t, validation: v, test: w", "perplexity: min",
      ONLY.replace("decoder-only", "decoder-only | encoder-decoder"),
      ["needs `model: decoder-only`"])])
def test_objective_of_another_task_is_rejected(
        tmp_path, monkeypatch, data, objectives, space, parts):
    if "comet" in data:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    message = problems(tmp_path, of_task(data, objectives, space))
    assert all(part in message for part in parts)


def test_warm_start_is_a_folder_a_list_or_a_mapping(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "study.json").write_text("{}")
    first = tmp_path / "a"
    second = tmp_path / "b"
    for text, expected in (
            (f"{first}", ((str(first),), None)),
            (f"[{first}, {second}]", ((str(first), str(second)), None)),
            (f"{{from: [{first}], max_candidates: 2}}", ((str(first),), 2)), ("none", None)):
        spec = read_study(write(tmp_path, SPACE + REST + f"warm_start: {text}\n"))
        assert spec.warm_start is None if expected is None else (
            spec.warm_start.folders, spec.warm_start.max_candidates) == expected


@pytest.mark.parametrize(("text", "part"), [
    ("nowhere", "no folder `nowhere`"),
    ("[., nowhere]", "holds no study (no study.json)"),
    ("{ from: [] }", "expected a folder, or a list of folders"),
    ("{ from: nowhere, more: 1 }", "unknown key `more` in `warm_start`"),
    ("{ from: nowhere, max_candidates: -1 }", "max_candidates: "),
    ("[[a]]", "expected a folder, or a list of folders"),
])
def test_invalid_warm_start_is_reported_at_its_position(tmp_path, monkeypatch, text, part):
    monkeypatch.chdir(tmp_path)
    message = problems(tmp_path, SPACE + REST + f"warm_start: {text}\n")
    assert part in message and "s.yaml:9:" in message


def test_warm_start_from_the_study_itself_is_rejected(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "s").mkdir(parents=True)
    (tmp_path / "runs" / "s" / "study.json").write_text("{}")
    assert "is this study's own folder" in problems(tmp_path, SPACE + REST + "warm_start: runs/s\n")


def test_proxies_are_boolean(tmp_path):
    assert read_study(write(tmp_path, SPACE + REST)).proxies
    assert not read_study(write(tmp_path, SPACE + REST + "proxies: no\n")).proxies
    assert "s.yaml:9:10" in problems(tmp_path, SPACE + REST + "proxies: some\n")


WIDE = SPACE.replace("width: 32 | 64", "width: 16..512 step 8").replace(
    "hidden: 64", "hidden: 64..4096 step 64")


@pytest.mark.full
def test_rarely_met_budget_is_accepted(tmp_path):
    """One width in 63 and two sizes in 64 per stack: about two of 100,000 random candidates."""
    spec = read_study(
        write(tmp_path, WIDE + REST + "protocol: { vocab: 400 }\nbudget: params.total <= 26k\n"))
    evaluator = make_evaluator(spec, None)
    check_feasible(evaluator, spec.sampler.seed)
    # found by repair: no random candidate is feasible
    assert 0 < evaluator.feasible_region.feasible_share < 1e-3
    impossible = read_study(
        write(tmp_path, SPACE + REST + "protocol: { vocab: 400 }\nbudget: params.total <= 9k\n"))
    evaluator = make_evaluator(impossible, None)
    smallest, _ = pick_candidate(impossible.space, "smallest", 0, evaluator.protocol)
    params = evaluator.evaluate(smallest.params).costs["params.total"]
    with refuses("budget-unmet", "smallest costs", f"{params:,}", key="budget"):
        check_feasible(evaluator, 1)
    too_large = read_study(
        write(tmp_path, SPACE + REST + "protocol: { vocab: 400 }\nbudget: params.total >= 9M\n"))
    with refuses("budget-unmet", "add larger models", key="budget"):
        check_feasible(make_evaluator(too_large, None), 1)


def test_space_that_the_format_does_not_support_is_refused_with_the_reason(tmp_path):
    """The message was about a budget, also without one."""
    space = SPACE.replace("heads: 2,", "heads: 2, head_scaling: mlp,")
    spec = read_study(write(tmp_path, space + REST + "protocol: { vocab: 400, artifact: "
                            "ctranslate2-int8 }\n"))
    with refuses("unbuildable", "ctranslate2", key="space"):
        check_feasible(make_evaluator(spec, None), 1)


def test_contradictions_of_a_budget_are_found_when_the_study_is_read(tmp_path):
    space = SPACE.rstrip() + "\n  where: [params.total <= 90k]\n"
    for budget, word in (("params.total <= 60k and params.total >= 70k", "itself"),
                         ("params.total >= 100k", "params.total <= 90k")):
        file = write(tmp_path, space + REST + f"budget: {budget}\n")
        with refuses("budgets-contradict", word, place=f"{file}:10:9"):
            read_study(file)


@settings(max_examples=300)
@given(st.one_of(st.text(max_size=12), st.text("./\\~ a\0\n", min_size=1, max_size=8),
                 st.text("ab", min_size=190)))
def test_name_is_one_component_of_a_path(text):
    """Names of studies and languages become components of paths."""
    try:
        name = TypeAdapter(Name).validate_python(text)
    except ValidationError:
        return
    inside = Path(os.path.normpath(Path("/runs") / name))
    assert inside.parent == Path("/runs") and len(inside.name.encode()) < 256
    assert "\n" not in name


@pytest.mark.parametrize(
    "name", ["../../escaped", "..", ".", "/tmp/escaped", "a/b", '"a\\0b"', '"a\\nb"', "x" * 300])
def test_names_cannot_leave_the_folder(tmp_path, name):
    assert "s.yaml:1:8: expected a name" in problems(tmp_path, f"study: {name}\n" + SPACE + REST)
    data = REST.replace("{ builtin: grammar, pairs: 500, vocab: 400 }",
                        f"{{ source: {name}, target: de, train: a, validation: b, test: c }}")
    assert "s.yaml:6:17: expected a name" in problems(tmp_path, SPACE + data)


@pytest.mark.parametrize(("loggers", "names"),
                         [("tensorboard", ("tensorboard",)), ("none", ()), ("[]", ()),
                          ("[mlflow, tensorboard]", ("mlflow", "tensorboard"))])
def test_loggers_are_named(tmp_path, loggers, names):
    assert read_study(write(tmp_path, SPACE + REST + f"loggers: {loggers}\n")).loggers == names
    assert "s.yaml:9:11: expected `tensorboard`" in problems(
        tmp_path, SPACE + REST + "loggers: [tensorbord]\n")


@pytest.mark.parametrize("cost, key",
                         [("artifact.bytes", "artifact"), ("latency.predicted", "latency")])
def test_artifact_cost_needs_an_artifact_in_the_protocol(tmp_path, cost, key):
    """As an objective and in the budget."""
    for text in (REST.replace("params.total: min", f"{cost}: min"),
                 REST + f"budget: {cost} <= 1M\n"):
        assert f"`{cost}`: the protocol names no {key}" in problems(tmp_path, SPACE + text)
    read_study(write(tmp_path,
                     SPACE + REST
                     + "budget: artifact.bytes <= 1M\nprotocol: { artifact: torch }\n"))


def test_refusals_of_a_format_are_no_objective(tmp_path):
    assert "unknown metric or cost `refusals.ctranslate2`" in problems(
        tmp_path, SPACE + REST.replace("params.total: min", "refusals.ctranslate2: min"))


def test_required_format_limits_candidates_without_a_budget(tmp_path):
    def costs(recipe, more=""):
        budget = read_study(
            write(tmp_path, SPACE + REST.replace("steps: 5", f"steps: 5{recipe}") + more)).budget
        return None if budget is None else tuple(budget.costs)

    held = ("refusals.ctranslate2",)
    assert costs("",
                 "exportable: ctranslate2\n") == costs(", decode_with: ctranslate2-int8") == held
    assert costs(", decode_with: onnx-int8") is None  # which holds everything


@pytest.mark.parametrize(("old", "new"), [
    ("proposer: tpe", "sampler: tpe"),
    ("proposer: {sampler: TPESampler, multivariate: yes}",
     "sampler: {class_name: TPESampler, multivariate: yes}"),
    ("seeds: {most: 3, trials: 6}", "seeds: {max_per_candidate: 3, extra_runs: 6}"),
    ("seeds.most: 4", "seeds.max_per_candidate: 4"),
    ("stop: {within: 5}", "stop: {horizon: 5}"),
    ("recipe.zero_out: yes", "recipe.zero_init: yes"),
    ("recipe: {residual: plain, watch: loss, steps: 3}",
     "recipe: {residual_scaling: none, monitor: loss, steps: 3}"),
    ("budget: artefact.bytes <= 1M", "budget: artifact.bytes <= 1M"),
])
def test_deprecated_keys_are_accepted_with_a_warning(tmp_path, capsys, old, new):
    keys = REST.replace("recipe: { steps: 5 }\n", "") if old.startswith("recipe: ") else REST
    protocol = "protocol: { artifact: torch }\n" if "bytes" in old else ""
    expected = read_study(write(tmp_path, SPACE + keys + protocol + new + "\n"))
    assert not capsys.readouterr().err
    study = read_study(write(tmp_path, SPACE + keys + protocol + old + "\n"))
    for key in ("sampler", "seeds", "stop", "recipe", "budget"):
        assert getattr(study, key) == getattr(expected, key)
    assert "s.yaml:" in (warning := capsys.readouterr().err) and "is now" in warning


@pytest.mark.parametrize("name", ["artefact.bytes", "artifact.bytes"])
def test_error_of_an_objective_is_reported_at_its_deprecated_name(tmp_path, name):
    keys = REST.replace("params.total: min", f"{name}: min")
    message = problems(tmp_path, SPACE + keys)
    assert message.startswith("s.yaml:8:") and "the protocol names no artifact" in message
    study = read_study(write(tmp_path, SPACE + keys + "protocol: { artifact: torch }\n"))
    assert [objective.name for objective in study.objectives] == ["bleu", "artifact.bytes"]


def test_deprecated_key_next_to_the_present_one_is_an_error(tmp_path):
    message = problems(tmp_path, SPACE + REST + "sampler: tpe\nproposer: gp\n")
    assert message.startswith("s.yaml:10:1: ") and "given twice" in message


@pytest.mark.parametrize(("text", "seconds"), [
    ("1d", 86_400), ("0.5h", 1800), ("2 h", 7200), ("1h30m", 5400), ("1h 30m", 5400),
    ("1.5d 10s", 129_610), ("90m", 5400)])
def test_durations_are_read(text: str, seconds: float) -> None:
    assert read_seconds(text, "expected a duration", "such as `2h`") == seconds


@pytest.mark.parametrize("text", ["", "h", "2", "30m 1h", "1y", "-1h", "40000d"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(SettingError):
        read_seconds(text, "expected a duration", "such as `2h`")


@pytest.mark.parametrize("word", ["asha", "Hyperband", "bohb"])
def test_early_stopping_is_not_a_sampler_but_rungs(tmp_path, word):
    with refuses("bad-value", "`rungs: {}`", word):
        read_study(write(tmp_path, SPACE + REST), [f"sampler={word}"])


@pytest.mark.parametrize("text", ["2h", "0.5h", "1d"])
def test_compute_is_a_duration(tmp_path, text):
    spec = read_study(write(tmp_path, SPACE + REST), [f"compute={text}"])
    assert spec.compute == read_seconds(text, "", "")


def test_the_limit_of_a_search_is_in_words(tmp_path):
    file = write(tmp_path, SPACE + REST)
    assert read_study(file, ["compute=90m"]).trials_text == "candidates for 1:30:00 of CPU time"
    both = read_study(file, ["compute=90m", "trials=7"]).trials_text
    assert "7 candidates" in both and "1:30:00" in both
    assert read_study(file, ["trials=7"]).trials_text == "7 candidates"


def test_searched_values_of_the_recipe_are_in_its_words(tmp_path):
    file = write(tmp_path, SPACE + REST)
    assert "searched" not in read_study(file).recipe_text
    assert read_study(file, ["recipe.dropout=0 | 0.1"]).recipe_text.endswith(
        "; searched: dropout 0.0 | 0.1")


def test_proxy_of_the_sampler(tmp_path):
    spec = read_study(write(tmp_path,
                            SPACE + REST + "sampler: { type: bayes, proxy: wisdom.csv }\n"))
    assert spec.sampler.arguments == {"proxy": str(tmp_path / "wisdom.csv")}
    spec = read_study(write(tmp_path, SPACE + REST + "sampler: { proxy: encoder.depth }\n"))
    assert spec.sampler.arguments == {"proxy": "encoder.depth"}
    assert "`random` has no `proxy`" in problems(
        tmp_path, SPACE + REST + "sampler: { type: random, proxy: encoder.depth }\n")


def test_share_in_training_of_the_sampler(tmp_path):
    study = SPACE + REST + "sampler: { type: bayes, max_in_training: 1 }\n"
    assert make_sampler(read_study(write(tmp_path, study)).sampler, None).max_in_training == 1
    assert "max_in_training: 1.5" in problems(tmp_path, study.replace(": 1 }", ": 1.5 }"))
    assert "`tpe` has no `max_in_training`" in problems(tmp_path, study.replace("bayes", "tpe"))
