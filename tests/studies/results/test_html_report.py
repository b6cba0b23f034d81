"""Report page: valid HTML, completeness and escaping, for different studies."""

import json
import os
import re
from types import SimpleNamespace

import numpy as np
import optuna
import pandas as pd
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.importance import PedAnovaImportanceEvaluator

from scalesearch.cli.study.group import command
from scalesearch.cost import evaluate_cost, load_protocol
from scalesearch.library import find_file
from scalesearch.report.labels import format_scientific
from scalesearch.schedule import Rungs
from scalesearch.spaces import read_space
from scalesearch.studies.results.page.facts import PageFacts
from scalesearch.studies.results.page.front import cost_choices, hypervolume_history
from scalesearch.studies.results.page.hyperparameters import (
    MIN_TRIALS,
    QUANTILE,
    UNSET_POSITION,
    importances,
    parallel_axis,
    parallel_picture,
)
from scalesearch.studies.results.page.render import render, write_page
from scalesearch.studies.results.page.tables import architecture_text, trial_module_costs
from scalesearch.studies.results.results import load_results
from scalesearch.studies.trials.evaluator import flatten_costs
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import State, Trial
from scalesearch.terminal import format_count
from tests.errors import refuses
from tests.studies.engine.test_promotion import work as rung_work
from tests.studies.fakes import META, fake_work, make_driver, make_plan
from tests.studies.noisy import SEEDS, noisy_work, seeded_plan
from tests.studies.pages import FAULT, HOSTILE, Page, page_of, references_only, revise, study

SECTIONS = {"front", "trials", "reliability", "hypervolume", "hyperparameters", "importance",
            "curves", "costs", "failures", "provenance"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def page(folder):
    return page_of(folder)


@pytest.mark.full
def test_page_is_well_formed_and_fetches_nothing(page):
    assert page.problems == [] and set(page.ids) >= SECTIONS
    assert "://" not in re.sub(r'xmlns(:xlink)?="[^"]*"', "", page.file.read_text())
    assert len(page.alts()) >= 8 and all(page.alts())


def test_finished_trials_have_rows_and_links_to_files(page, folder):
    results = load_results(folder)
    for trial in results.study.trials.with_state(State.COMPLETE):
        assert f"trial-{trial.number}" in page.ids
        for name in ("architecture.yaml", "record.json"):
            assert f"trials/{trial.folder}/{name}" in page.hrefs
    rows = [attributes for tag, attributes in page.tags
            if tag == "tr" and attributes.get("class") == "front"]
    assert {row["id"] for row in rows} == {f"trial-{number}" for number in results.front["trial"]}


def test_costs_can_be_selected_and_rows_link_to_costs_and_curves(page, folder):
    results = load_results(folder)
    costs = {attributes["data-x"] for tag, attributes in page.tags
             if tag == "figure" and "data-x" in attributes}
    assert costs >= {"params.total", "macs.total", "flops.total", "memory.weights"}
    boxes = [attributes for tag, attributes in page.tags
             if tag == "input" and attributes.get("type") == "checkbox"]
    assert {box["value"] for box in boxes} == costs
    assert {box["value"] for box in boxes if "checked" in box} == {"params.total", "macs.total"}
    text = page.file.read_text()
    # the figures have one common caption
    assert "figcaption" not in text[text.index('id="front-panels"'):text.index('id="front-others"')]
    for number in results.front["trial"]:
        assert f"#costs-{number}" in page.hrefs
        assert ("a", {"href": "#curves", "data-mark": str(number)}) in page.tags
    assert any(href.endswith("job.json") for href in page.hrefs)


def test_page_starts_with_best_member_and_budget(page, folder):
    front = load_results(folder).front
    best = front.loc[front["bleu"].astype(float).idxmax()]
    assert f"Best on the front: trial {best['trial']}" in page.text
    assert "; difference to the best reference (" in page.text
    assert "Budget: params.total <= 6,000." in page.text
    rows = [attributes for tag, attributes in page.tags
            if tag == "tr" and "data-trial" in attributes]
    members = [row.get("class") == "front" for row in rows]
    assert members == sorted(members, reverse=True) and any(members)


@pytest.mark.full
def test_page_of_a_language_model_names_no_sentence_pairs(tmp_path):
    folder = study(tmp_path)
    revise(folder, protocol={**META.protocol, "length": 64, "cache": "bf16"})
    text = page_of(folder).text
    assert "MACs per example" in text or "multiply-accumulates per example" in text
    assert "key-value cache in bf16 after 64 tokens" in text and "sentence pair" not in text


def test_cost_choices_include_cost_objectives():
    """Costs of an artifact are only shown if they are objectives."""
    table = pd.DataFrame({"params.total": [1, 2], "artifact.bytes": [3, 4], "load.mean": [1.0, 2.0],
                          "bleu": [1, 2]})
    objectives = {"bleu": "max", "artifact.bytes": "min"}
    facts = SimpleNamespace(results=SimpleNamespace(objectives=objectives), finished_rows=table)
    assert cost_choices(facts) == (["artifact.bytes", "params.total"], [])


def test_names_of_parallel_axes_are_left_of_all_lines(monkeypatch):
    figures = []
    monkeypatch.setattr("scalesearch.studies.results.page.hyperparameters.picture",
                        lambda figure, *_: figures.append(figure))
    trials = {0: Trial(0, State.COMPLETE), 1: Trial(1, State.COMPLETE)}
    facts = SimpleNamespace(main_metric="bleu", trials=trials, sampled=(), front_members=[1])
    rows = pd.DataFrame({"trial": [0, 1], "label": None, "seeds": 1, "bleu": [1.0, 2.0]})
    names = ["width", "decoder.ffn.relu.hidden", "encoder.mixer.attention." + "long_name." * 9]
    parallel_picture(facts, rows, [parallel_axis(name, [8, 16]) for name in names])
    axes = figures[0].axes[0]
    left = axes.transData.transform((UNSET_POSITION, 0))[0]
    labels = [text for text in axes.texts if text.get_weight() == "bold"]
    boxes = [label.get_window_extent() for label in labels]
    assert len(boxes) == 3 and all(box.x0 >= 0 and box.x1 < left for box in boxes)


@pytest.mark.parametrize(("value", "words"),
                         [(2.23618e14, "2.23618 · 10¹⁴"), (1234.5, "1,234.5"), (0.0, "0"),
                          (1.5e-7, "1.5 · 10⁻⁷")])
def test_format_scientific(value, words):
    assert format_scientific(value) == words


@pytest.mark.full
def test_text_of_figures_is_readable_on_phone(tmp_path):
    """On a screen of 390 pixels, figures are scaled to a width of 358 pixels."""
    page = page_of(study(tmp_path, MIN_TRIALS + 6, most=10**6))
    assert "importance-figure" in page.ids and "parallel" in page.ids
    drawings = re.findall(r"<svg .*?</svg>", page.file.read_text(), re.DOTALL)
    for drawing in drawings:
        width = float(re.search(r'viewBox="0 0 ([\d.]+) ', drawing)[1])
        letters = [float(size)
                   for size in re.findall(r"font(?:-size)?: ?(?:bold )?([\d.]+)px", drawing)]
        assert letters and min(letters) * min(1, 358 / width) > 6.5
    assert len(drawings) > 9


@pytest.mark.full
def test_standalone_page_has_no_file_links(folder, tmp_path):
    standalone = Page(write_page(load_results(folder), tmp_path / "alone.html", alone=True))
    assert standalone.problems == [] and standalone.hrefs and all(
        href.startswith(("#", "data:")) for href in standalone.hrefs)


def test_failures_and_infeasible_proposals_are_listed(page, folder):
    trials = load_results(folder).study.trials
    failed = trials.with_state(State.FAILED)
    assert failed and page.text.count(FAULT) == len(failed)
    infeasible = trials.with_state(State.INFEASIBLE)
    assert infeasible and "params.total" in page.text
    assert f"not trained: {format_count(len(infeasible), 'proposal')}." in page.text
    assert f"{format_count(len(failed), 'failed trial')}." in page.text


def test_marks_have_coordinates_of_points(page, folder):
    results = load_results(folder)
    text = page.file.read_text().partition('<figure id="front-params-total-bleu"')[2]
    coordinates = re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)"', text.partition("</svg>")[0])
    points = [(float(x), float(y)) for x, y in coordinates]
    marks = json.loads(re.search(r'<script type="application/json">(.*?)</script>', text)[1])
    done = {trial.number: trial for trial in results.study.trials.with_state(State.COMPLETE)}
    assert {trial for trial, _, _ in marks} == set(done)
    for trial, words, ((x, y),) in marks:
        assert min(abs(x - point_x) + abs(y - point_y) for point_x, point_y in points) < 0.2
        values = done[trial].values
        assert f"{values['bleu']:.2f}" in words and f"{int(values['params.total']):,}" in words


def test_labels_are_escaped(page):
    assert HOSTILE in page.text and not any(tag == "img" for tag, _ in page.tags)
    scripts = [attributes.get("type") for tag, attributes in page.tags if tag == "script"]
    assert scripts.count(None) == 1 and set(scripts) == {None, "application/json"}
    assert page.file.read_text().count("<script") == len(scripts)
    assert any(HOSTILE in text for marks in page.marks for _, text, _ in marks)


def test_page_names_protocol_signature_and_hash(page, folder):
    for words in ("forward: 10 source, 10 target tokens, vocabulary 100", "sig|v:1", "abc",
                  "synthetic corpus", "one seed per candidate",
                  f"{MIN_TRIALS} feasible finished trials are needed"):
        assert words in page.text
    front = load_results(folder).front.iloc[0]
    assert f"{int(front['params.total']):,}" in page.text


@pytest.mark.full
def test_page_is_deterministic(folder, tmp_path):
    first, second = (write_page(load_results(folder), tmp_path / name / "a b.html")
                     for name in "xy")
    assert first.read_bytes() == second.read_bytes()
    assert page_of(folder, tmp_path / "elsewhere.html").problems == []


def test_hypervolume_history_ends_with_hypervolume_of_front(folder, page):
    facts = PageFacts(load_results(folder), folder)
    now, _ = facts.results.hypervolume()
    trials, volumes = zip(*hypervolume_history(facts))
    assert volumes[-1] == pytest.approx(now) and f"{format_scientific(now)} after" in page.text
    assert np.all(np.diff(volumes) >= 0) and trials[-1].training_hours > 0


def test_page_of_study_without_finished_trials(tmp_path):
    make_driver(tmp_path, make_plan(1))
    page = page_of(tmp_path)
    assert page.problems == [] and set(page.ids) >= SECTIONS
    for words in ("No finished trials", "No feasible finished trials",
                  "No training run has failed"):
        assert words in page.text


@pytest.mark.full
def test_page_of_running_study(tmp_path):
    events = (study(tmp_path, 6) / "events.jsonl").read_text().splitlines(keepends=True)
    ended = [index for index, line in enumerate(events) if json.loads(line)["type"] == "ended"]
    (tmp_path / "events.jsonl").write_text("".join(events[: ended[3]]))
    page = page_of(tmp_path)
    assert page.problems == []
    assert "Some trials are not finished" in page.text and "pending" in page.text


@pytest.mark.full
def test_page_shows_rungs_and_stopped_trials(tmp_path):
    rungs = Rungs((0.1, 0.3, 1.0), 2)
    make_driver(tmp_path, make_plan(8, rungs=rungs), work=rung_work).run()
    revise(tmp_path, rungs=rungs)
    page = page_of(tmp_path)
    n_reached = sum(bool(trial.rungs) for trial in load_results(tmp_path).study.trials)
    assert page.problems == []
    assert "Rungs of successive halving" in page.text and f"1 10 % {n_reached} " in page.text
    early = {trial.number for trial in load_results(tmp_path).study.trials.with_state(State.PAUSED)}
    assert early and "stopped at a rung: only the cost is known" in page.text
    assert early == {number for marks in page.marks
                     for number, words, _ in marks if "stopped at a rung" in words}


@pytest.mark.full
def test_page_shows_seed_analysis(tmp_path):
    make_driver(tmp_path, seeded_plan(), noisy_work).run()
    revise(tmp_path, seeds=SEEDS)
    page = page_of(tmp_path)
    results = load_results(tmp_path)
    assert page.problems == []
    assert "runs with further seeds" in page.text and "±" in page.text
    for line in results.seed_analysis.sentences():
        assert " ".join(line.split()) in page.text


@pytest.mark.full
def test_page_of_references_only(tmp_path):
    page = page_of(references_only(tmp_path))
    results = load_results(tmp_path)
    assert page.problems == [] and set(page.ids) >= {
        "front", "named", "trials", "curves", "costs", "provenance"}
    assert not set(page.ids) & {"hyperparameters", "importance", "hypervolume"}
    for words in ("2 architectures of the study file", "Score against cost",
                  "No training run has failed"):
        assert words in page.text
    for words in ("on the front", "infeasible", "No trial", "proposal"):
        assert words not in page.text
    assert {"costs-0", "costs-1"} <= set(page.ids) and len(results.front) == 0


@pytest.mark.full
def test_page_of_ablation(tmp_path):
    revise(references_only(tmp_path, params={}, most=20000), type="ablation", base=HOSTILE)
    page = page_of(tmp_path)
    results = load_results(tmp_path)
    assert page.problems == [] and set(page.ids) >= {
        "front", "named", "hypervolume"} and len(results.front) == 2
    assert not set(page.ids) & {"hyperparameters", "importance"} and "infeasible" not in page.text
    assert f"difference to {HOSTILE}" in page.text and {"costs-0", "costs-1"} <= set(page.ids)


def test_base_is_first_architecture(tmp_path):
    page = page_of(references_only(tmp_path))
    results = load_results(tmp_path)
    small, large = (trial.values["bleu"]
                    for trial in results.study.trials.with_state(State.COMPLETE))
    assert f"{large - small:+.2f}" in page.text and "± –" not in page.text
    assert f"{small:.2f}" in page.text
    assert "No architecture has a second seed" in page.text and "#trial-0" in page.hrefs


@pytest.mark.full
def test_base_is_first_finished_architecture(tmp_path):
    configs = {"fails": {"width": 8, "depth": 8, "kind": "plain"},
              "one": {"width": 16, "depth": 2, "kind": "plain"},
              "two": {"width": 24, "depth": 2, "kind": "plain"}}
    page = page_of(references_only(tmp_path, configs))
    assert page.problems == []
    assert "difference to one" in page.text and "Without a finished run: " in page.text


@pytest.mark.full
def test_removed_architecture_is_not_in_table(tmp_path):
    configs = {name: {"width": width, "depth": 2, "kind": "plain"}
              for name, width in (("a", 8), ("b", 16), ("c", 24))}
    configs["the same"] = configs["a"]
    revise(references_only(tmp_path, configs, params={}), architectures=("a", "c", "the same"))
    page = page_of(tmp_path)
    assert page.problems == []
    assert "3 named architectures" in page.text and "#trial-1" not in page.hrefs
    assert "1 named architecture duplicated another trial of the study" in page.text


def test_page_without_named_architectures(page):
    assert "named" not in page.ids and "figures" not in page.ids


@pytest.mark.full
def test_study_figures_have_titles_and_unique_ids(folder, tmp_path):
    figure = Figure()
    axes = figure.add_subplot()
    axes.plot([1, 2], [3, 4], label="law")
    axes.annotate("framed, with an arrow", (1, 3), (1.5, 3.5), arrowprops={"arrowstyle": "-"},
                  bbox={"pad": 1})
    figures = (("Law & order", figure, "BLEU by <size>."), ("Law & order", figure, "The same."))
    file = tmp_path / "page.html"
    file.write_text(render(PageFacts(load_results(folder), figures=figures)))
    page = Page(file)
    assert page.problems == []
    assert "figures" in page.ids and page.text.count("Law & order") == 2
    assert "BLEU by <size>." in page.text and "Law & order. BLEU by <size>." in page.alts()


def test_module_costs_agree_with_architecture_file(tmp_path):
    space = read_space(find_file("transformer", "spaces"))
    architecture = space.single_architecture()
    costs = evaluate_cost(architecture.block,
                         load_protocol({"name": "forward", "source": 10, "target": 10,
                                        "vocab": 100}))
    study = StudyDir(tmp_path)
    study.create(META, "width: 8\n")
    trial = Trial(0, State.COMPLETE, architecture=architecture.id, costs=flatten_costs(costs))
    study.trial_folder(trial).mkdir(parents=True)
    assert architecture_text(study, trial) == "" and trial_module_costs(study, trial) == ()
    file = study.trial_folder(trial) / "architecture.yaml"
    file.write_bytes(b"width: \xff\n")
    assert architecture_text(study, trial) == "width: \ufffd\n"
    assert trial_module_costs(study, trial) == ()
    file.write_text(architecture.to_yaml())
    modules = trial_module_costs(study, trial)
    assert "width: 512" in architecture_text(study, trial)
    assert sum(row.params for row in modules if row.level == 0) == costs["params.total"]
    assert sum(row.macs for row in modules if row.level == 0) == costs["macs.total"]
    other = trial.replace(costs={**trial.costs, "macs.total": trial.costs["macs.total"] + 1})
    assert trial_module_costs(study, other) == ()


def test_damaged_files_of_rungs_have_no_curve(tmp_path):
    study = StudyDir(tmp_path)
    study.create(META, "width: 8\n")
    trial = Trial(0, State.PAUSED, architecture="a")
    folder = study.trial_folder(trial)
    folder.mkdir(parents=True)
    facts = PageFacts(load_results(tmp_path))
    curve = [{"step": 1, "validation_loss": 3.0}]
    (folder / "rung-0.json").write_text(json.dumps({"curve": curve}))
    for content in (b"[]", b'{"curve": 3}', b"\xff", b'{"curve": [3]}', None):
        later = folder / "rung-1.json"
        os.mkfifo(later) if content is None else later.write_bytes(content)
        assert facts.validations(trial) == curve
        later.unlink()


def test_importance_of_decisive_parameter():
    rng = np.random.default_rng(3)
    configs = [{"width": int(rng.integers(1, 9)), "kind": str(rng.choice(["a", "b"])),
                "norm": "pre", **({"slope": float(rng.random())} if index % 2 else {})}
               for index in range(60)]
    result = importances(configs, [-float(config["width"]) for config in configs])
    assert result[0].name == "width" and result[0].value > 0.8
    assert result[0].low <= result[0].value
    assert {importance.name for importance in result} == {"width", "kind", "slope"}
    assert sum(importance.value for importance in result) == pytest.approx(1)
    assert importances(configs[: MIN_TRIALS - 1], [0.0, 1.0] * 10) == []


@pytest.mark.parametrize("seed", range(4))
def test_importances_agree_with_optuna(seed):
    rng = np.random.default_rng(seed)
    params = [{"width": int(rng.integers(1, 90)), "depth": int(rng.integers(1, 5)),
               "kind": str(rng.choice(["a", "b"])), "wide": bool(rng.random() < 0.3),
               **({"slope": float(rng.normal())} if rng.random() < 0.4 else {}),
               **({"rare": index} if index in (1, 2) else {})} for index in range(80)]
    losses = [-trial_params["width"] / 10 - trial_params.get("slope", 0) + rng.normal()
              for trial_params in params]
    domains = {"width": IntDistribution, "depth": IntDistribution, "rare": IntDistribution,
               "slope": FloatDistribution}
    study = optuna.create_study()
    ranges = {}
    for name, distribution in domains.items():
        values = [trial_params[name] for trial_params in params if name in trial_params]
        ranges[name] = distribution(min(values), max(values))
    for trial_params, loss in zip(params, losses):
        distributions = {name: ranges[name] for name in domains if name in trial_params}
        distributions |= {"kind": CategoricalDistribution(["a", "b"]),
                          "wide": CategoricalDistribution([False, True])}
        study.add_trial(optuna.create_trial(value=loss, params=trial_params,
                                            distributions=distributions))
    expected = PedAnovaImportanceEvaluator(target_quantile=QUANTILE,
                                           evaluate_on_local=False).evaluate(study)
    total = sum(expected.values())
    computed = {importance.name: importance.value for importance in importances(params, losses)}
    assert computed == pytest.approx(
        {name: value / total for name, value in expected.items()}, abs=1e-9)


@pytest.mark.full
def test_report_command_writes_page(tmp_path):
    make_driver(tmp_path / "fake", make_plan(3), fake_work).run()
    call = CliRunner().invoke
    result = call(command, ["report", str(tmp_path / "fake")], catch_exceptions=False)
    assert result.output == f"Written: {tmp_path / 'fake' / 'report.html'}\n"
    target = tmp_path / "other" / "page.html"
    output = json.loads(
        call(command, ["report", str(tmp_path / "fake"), "--to", str(target), "--json"]).output)
    assert output == {"files": [str(target)]} and target.is_file()
    with refuses("cannot-write"):  # checked with the options
        call(command, ["report", str(tmp_path / "fake"), "--to", str(tmp_path)],
             catch_exceptions=False)
    with refuses("is-a-folder"):
        write_page(load_results(tmp_path / "fake"), tmp_path)
