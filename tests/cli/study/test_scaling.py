"""``study scaling`` over studies that take milliseconds."""

import json

import pandas as pd
import pytest
from click.testing import CliRunner

from scalesearch.cli.study.group import command
from scalesearch.cli.study.tables import parse_cost_size
from scalesearch.errors import UserError
from scalesearch.report.figures.plot import plot_tradeoff
from scalesearch.studies.config.fixed_architectures import FixedArchitecture
from scalesearch.studies.config.sections import Seeds
from scalesearch.studies.results.page.render import study_figures
from scalesearch.studies.results.publish import scaling_of, write_scaling
from scalesearch.studies.results.results import load_results
from tests.errors import refuses
from tests.studies.fakes import architecture_of, make_driver, make_plan
from tests.studies.noisy import noisy_work
from tests.studies.pages import revise

DEPTHS = (2, 4, 8)
WIDTHS = (24, 32, 40)
ROWS = {"base": (16, 1), **{f"deeper: {depth}": (16, depth) for depth in DEPTHS},
        **{f"wider: {width}": (width, 1) for width in WIDTHS}, "hybrid: 2, 24": (24, 2),
        "hybrid: 2, 32": (32, 2)}
RULES = {"deeper": [f"deeper: {depth}" for depth in DEPTHS],
         "wider": [f"wider: {width}" for width in WIDTHS],
         "hybrid": ["deeper: 2", "hybrid: 2, 24", "hybrid: 2, 32"]}


def make_study(folder, started=tuple(ROWS), seeds=2, type="scaling"):
    """Run a study whose architectures ``started`` are trained with ``seeds`` seeds."""
    params_by_label = {label: {"width": ROWS[label][0], "depth": ROWS[label][1], "kind": "plain"}
               for label in started}
    named = tuple(FixedArchitecture(label, architecture_of(params), params)
                  for label, params in params_by_label.items())
    plan = make_plan(0, most=4000, references=named, seeds=Seeds(1, 0, references=seeds))
    driver = make_driver(folder, plan, work=noisy_work)
    driver.run()
    driver.study.update_meta(type=type, architectures=tuple(ROWS), bounds={"params.total": 4000},
                        scaling={"base": "base", "rules": RULES, "held_out": "largest"})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "one"
    make_study(folder)
    return folder


def call(*arguments, code=0):
    result = CliRunner(env={"COLUMNS": "80"}).invoke(
        command, ["scaling", *map(str, arguments)], catch_exceptions=True)
    if code == 0:
        assert result.exit_code == 0, result.output
        return result.output
    assert isinstance(result.exception, UserError), result.exception
    return str(result.exception)


@pytest.mark.full
def test_finished_study_is_printed_and_written(finished):
    output = call(finished)
    for word in ("Sizes", "Laws", "Next size", "bleu per million parameters",
                 "Rules at 4k params (the budget)", "protocol forward", "Written: "):
        assert word in output
    tables = [line for line in output.splitlines() if line[:1] in "┏┃┡│└"]
    assert tables and max(map(len, tables)) <= 80
    files = {file.name for file in finished.iterdir()}
    assert {"scaling.md", "scaling.csv", "scaling.json", "scaling-curves.png", "scaling-params.svg",
            "scaling-macs.png"} <= files


@pytest.mark.full
def test_json_equals_files(finished, tmp_path):
    report = json.loads(call(finished, "--json", "--to", tmp_path / "new", "--at", "macs.total=20k",
                            "--metric", "chrf", "--confidence", "0.8"))
    assert (report["metric"], report["confidence"], report["base"]) == ("chrf", 0.8, "base")
    assert [(ranking["cost"], ranking["size"], ranking["size_source"])
            for ranking in report["rankings"]] == [("macs.total", 20_000, "requested")]
    written = json.loads((tmp_path / "new" / "scaling.json").read_text())
    assert written == {key: value for key, value in report.items() if key != "files"}
    rows = pd.read_csv(tmp_path / "new" / "scaling.csv")
    assert set(rows["label"]) == set(ROWS) and rows["seeds"].eq(2).all()
    assert len(report["files"]) == 9
    assert json.loads(call(finished, "--json", "--to", tmp_path, "--metric",
                           "test.bleu"))["signature"] == "sig|v:1"


@pytest.mark.full
def test_unfinished_study_reports_missing_trials(tmp_path):
    make_study(tmp_path / "half", ("base", "deeper: 2", "wider: 24", "wider: 32"), seeds=2)
    output = call(tmp_path / "half")
    assert "deeper: 8: not started" in output and "hybrid: 2, 32: not started" in output
    assert "deeper against params" in output
    assert "only wider has a law" in output
    make_study(tmp_path / "begun", (), seeds=1)
    assert "Without a score" in call(tmp_path
                                     / "begun") and not list((tmp_path / "begun").glob("*.png"))


@pytest.mark.full
def test_end_of_study_writes_the_same_files(finished, tmp_path):
    files = write_scaling(scaling_of(load_results(finished)), tmp_path)
    assert [file.name for file in files][:3] == ["scaling.md", "scaling.csv", "scaling.json"]
    assert all(file.parent == tmp_path and file.stat().st_size
               for file in files) and len(files) == 9


def test_invalid_options_are_refused(finished, tmp_path):
    make_study(tmp_path / "grid", ("base",), 1, type="grid")
    assert "this study has the type grid, not scaling" in call(tmp_path / "grid", code=2)
    assert "--metric rouge: no finished training run has that score" in call(
        finished, "--metric", "rouge", code=2)
    assert "--at params.totl: not a size" in call(finished, "--at", "params.totl=2M", code=2)


@pytest.mark.parametrize("text",
                         ["params.total", "params.total=", "=2M", "params.total=many",
                          "params.total=0", "params.total=-2M", "params.total=1..2",
                          "params.total=yes"])
def test_at_option_needs_cost_and_size(text):
    with refuses("not-cost-and-size"):
        parse_cost_size(text)
    assert parse_cost_size("params.total=2M") == (
        "params.total", 2e6) and parse_cost_size(" macs.total = 1.5G ")[1] == 1.5e9


@pytest.mark.full
def test_rules_are_ranked_at_the_budget(finished):
    assert "At 4k params (the budget)" in call(finished) and "At 4k" not in call(
        finished, "--at", "params.total=1k")


@pytest.mark.full
def test_report_has_figures_and_best_rule(finished, tmp_path):
    figures = study_figures(load_results(finished))
    assert [title for title, _, _ in figures] == ["Scores by size", "Power laws over params.total",
                                                  "Power laws over macs.total"]
    assert "params (the budget)" in figures[0][2]
    result = CliRunner().invoke(command,
                                ["report", str(finished), "--to", str(tmp_path / "page.html")])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "page.html").read_text()
    assert all(title in page for title, _, _ in figures)


def test_report_of_other_studies_has_no_scaling_figures(tmp_path):
    make_study(tmp_path / "table", type="ablation")
    make_study(tmp_path / "new", started=())
    assert study_figures(load_results(tmp_path / "table")) == study_figures(
        load_results(tmp_path / "new")) == ()


def test_named_architectures_have_the_noun_of_the_study_type(tmp_path):
    make_study(tmp_path / "one", started=("base", "deeper: 2"), seeds=1)
    for study_type, noun in (("scaling", "scaling size"), ("ablation", "ablation row")):
        revise(tmp_path / "one", type=study_type)
        shown = CliRunner().invoke(command, ["show", str(tmp_path / "one"), "1"]).output
        assert noun in shown and "deeper: 2" in shown and "reference" not in shown
        results = load_results(tmp_path / "one")
        figure = plot_tradeoff(results.table, results.subject, "params.total")
        legend = figure.axes[0].get_legend()
        assert noun in [text.get_text() for text in legend.get_texts()]
