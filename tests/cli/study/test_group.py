"""The ``study`` commands with a study that takes milliseconds."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from scalesearch.cli.study.group import command
from scalesearch.cli.study.shared import trials_to_json
from scalesearch.cost import find_protocol
from scalesearch.report.labels import format_value
from scalesearch.spaces.syntax.parameters import Choice, IntRange
from scalesearch.studies.executors.worker import finish_job
from scalesearch.studies.results.results import load_results
from scalesearch.studies.trials.evaluator import Evaluator
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import State
from tests.cli.study.commands import call_study as call
from tests.errors import refuses
from tests.studies.event_study import EventStudy
from tests.studies.fakes import FakeSpace, fake_result, make_driver, make_plan
from tests.studies.noisy import noisy_work, seeded_plan
from tests.studies.pages import page_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("study") / "fake"
    driver = make_driver(where, make_plan(8))
    driver.study.update_meta(total_trials=8)
    driver.run()
    return str(where)


def test_json_keys_have_the_same_type_for_the_front_and_all_trials(folder):
    types = {}
    for options in ([], ["--all"]):
        for row in json.loads(call("front", folder, "--json", *options)):
            for key, value in row.items():
                if value is not None:
                    types.setdefault(key, set()).add(type(value))
    assert {key: value_types for key, value_types in types.items() if len(value_types) > 1} == {}


def test_numbers_in_json_have_all_digits(tmp_path):
    rate = 3.1234567890123e-5
    facts = {"recipe_params": {"lr": rate}, "params": {"recipe.lr": rate}}
    costs = {"params.total": 1000, "macs.total": 10**19}  # more than 63 bits
    (EventStudy(tmp_path).propose(0, costs=costs, **facts).end(0, 1.0, bleu=100 / 3)
     .propose(1, state=State.INFEASIBLE, constraints={"budget": 1.0}, **facts))
    results = load_results(tmp_path)
    for row in trials_to_json(results, results.table):
        assert row["param.recipe.lr"] == rate
        assert row["bleu"] == (None if row["trial"] else 100 / 3)
        assert row["macs.total"] == (9000 if row["trial"] else 10**19)


def test_output_formats_exclude_each_other(folder):
    with refuses("options-conflict", "use one of them"):
        call("front", folder, "--csv", "--json")


def test_front_as_table_csv_and_json(folder):
    table = call("front", folder)
    csv = call("front", folder, "--csv")
    rows = json.loads(call("front", folder, "--json"))
    assert (
        "candidates trained to the end" in " ".join(table.split())
        and "Costs: protocol forward" in table
        and "synthetic" in table
    )
    assert csv.splitlines()[0].startswith("trial,state,front,id") and len(
        csv.splitlines()) == len(rows) + 1
    assert all(row["front"] for row in rows)
    assert "rougeL" not in rows[0] and list(rows[0]) == csv.splitlines()[0].split(",")
    assert len(json.loads(call("front", folder, "--json", "--all"))) > len(rows)


def test_status_as_table_and_json(folder):
    output = call("status", folder)
    assert "8 of 8 full-budget runs" in output and "8 candidates complete" in output
    assert "Front so far: " in output
    assert "Early measurements" in output
    report = json.loads(call("status", folder, "--json"))
    assert report["counts"]["complete"] == 8 and report["hypervolume"]["reference_point"]
    assert report["front"] == json.loads(call("front", folder, "--json"))
    assert report["progress"]["candidates"] == [8.0, 8.0] and report["owner"]["state"] == "unknown"


def test_audit_of_proxies_of_a_study_and_of_a_table(folder, tmp_path):
    audit = json.loads(call("audit", folder, "--proxies", "--json"))
    assert (audit["metric"], audit["cost"], audit["n"]) == ("bleu", "params.total", 8)
    assert audit["proxies"][0]["proxy"] == "params.total"
    own = tmp_path / "own.csv"
    own.write_text("trial,wisdom\n" + "".join(f"{trial},{trial * 7 % 5}\n" for trial in range(40)))
    named = json.loads(call("audit", folder, "--proxies", "--proxy", f"{own}", "--proxy",
                            "width", "--constraint", "bleu >= 0", "--json"))
    assert [row["proxy"] for row in named["proxies"]] == ["params.total", "param.width", "wisdom"]
    table = tmp_path / "table.csv"
    table.write_text(call("front", folder, "--all", "--csv"))
    same = json.loads(call("audit", "--proxies", table, "--metric", "bleu", "--cost",
                           "params.total", "--proxy", "width", "--json"))
    assert same["proxies"] == named["proxies"][:2]
    assert "a random choice recalls" in call("audit", folder, "--proxies")
    with refuses("option-missing"):
        call("audit", "--proxies", table)
    own.write_text("number,wisdom\n1,2\n")
    with refuses("unknown-metric"):
        call("audit", folder, "--proxies", "--proxy", own)


def test_plot_prints_its_files(folder, tmp_path):
    files = call("plot", folder, "--to", tmp_path).removeprefix("Written: ").strip().split(", ")
    assert len(files) == 4 and all((tmp_path / file).exists() for file in files)
    assert json.loads(call("plot", folder, "--to", tmp_path, "--json"))["files"] == files


def test_folder_without_study_is_a_user_error(tmp_path):
    done = subprocess.run([sys.executable, "-c", "from scalesearch.cli.main import main; main()",
                           "study", "front", str(tmp_path)], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 2 and str(tmp_path) in done.stderr
    assert "Traceback" not in done.stderr


def test_locked_folder_is_refused_before_data_are_loaded(folder, monkeypatch):
    monkeypatch.setattr("scalesearch.studies.engine.corpora.load_corpus",
                        lambda *_: pytest.fail("loaded"))
    with refuses("study-exists", StudyDir(Path(folder)).read_meta().meta.name, "quick") as caught:
        call("run", "quick", "--out", folder, "--backend", "inprocess")
    assert "--resume" not in str(caught.value)


def test_second_start_of_a_running_study_reports_that_it_is_running(folder):
    with StudyDir(Path(folder)).exclusive(), refuses("study-running", str(folder)):
        call("run", "quick", "--out", folder, "--backend", "inprocess")


def test_dry_run_refuses_invalid_folder(tmp_path):
    (tmp_path / "file").touch()
    with refuses("cannot-write", tmp_path / "file"):
        call("run", "quick", "--dry-run", "--set", f"out={tmp_path / 'file' / 'inside'}")


@pytest.mark.parametrize("options", [
    ("--trials", 5, "--set", "trials=7"), ("--set", "trials=5", "--set", "trials=7"),
    ("--out", "a", "--set", "out=b"), ("--address", "auto", "--set", "ray.address=a:1"),
    ("--backend", "pool", "--set", "backend=inprocess")])
def test_key_is_set_once(options):
    with refuses("given-twice", "--set"):
        call("run", "quick", "--dry-run", *options)


@pytest.mark.full
def test_workers_option_conflicts_with_inprocess_backend(tmp_path):
    dry = ("run", "quick", "--dry-run", "--out", tmp_path / "new", "--set", "data.pairs=500",
           "--set", "data.vocab=400", "--measure", 0)
    with refuses("one-worker-only", "--backend pool", "--workers 1", place="workers: 2"):
        call(*dry, "--backend", "inprocess", "--workers", 2)
    output = call(*dry, "--backend", "inprocess")
    assert "Learning rates of" in output and "Forecast" not in output
    output_json = call(*dry[:-1], 0.1, "--backend", "inprocess", "--json", "--set",
                  "recipe.optimizer=muon")
    report = json.loads(output_json[output_json.index("{") :])
    updates = report["forecast"]["efforts"]["updates"]["cpu_seconds"]
    assert updates == pytest.approx(8 * 0.8 * 60)  # known from the budget, unlike the rest
    assert report["forecast"]["cpu_seconds_low"] <= sum(effort["cpu_seconds"]
                                           for effort in report["forecast"]["efforts"].values())
    first = next(row for row in report["proposals"] if row["state"] == "pending")
    assert sum(row["params"] for row in report["learning_rates"]) == first["costs"]["params.total"]
    assert {row["optimizer"] for row in report["learning_rates"]} == {"muon", "adamw"}
    assert (
        "one candidate at a time, not the file's 2" in output
        and "1 at a time (inprocess)" in output
    )


def test_help_prints_the_full_summary_of_each_command():
    output = " ".join(call("--help").split())
    assert "..." not in output.partition("Commands:")[2]
    assert "compare Compare two studies (folders or study files) by hypervolume." in output


def test_replicates_in_table_and_json(tmp_path):
    driver = make_driver(tmp_path / "fake", seeded_plan(6), work=noisy_work)
    driver.run()
    shown = call("front", tmp_path / "fake")
    assert " ± " in shown and "one seed per candidate" not in shown
    report = json.loads(call("status", tmp_path / "fake", "--json"))
    seeds = report["seeds"]
    assert (seeds["max_per_candidate"], seeds["confidence"], seeds["runs"]) == (
        3, 0.9, len(driver.trials.replicates()))
    assert report["counts"]["complete"] == 6 and seeds["noise"]["bleu"]["sd"] > 0 and seeds[
        "comparisons"]
    assert {"seeds", "bleu.sd", "bleu.half_width"} <= set(report["front"][0])
    summary = report["front_summary"]
    assert summary["size"] == len(report["front"]) > 0
    assert {member["trial"] for member in summary["members"]} == {
        row["trial"] for row in report["front"]}


def test_front_on_narrow_terminal_has_all_members(folder):
    rows = json.loads(call("front", folder, "--json"))
    shown = CliRunner().invoke(command, ["front", folder], env={"COLUMNS": "80"},
                               catch_exceptions=False).output
    assert all(len(line) <= 80 for line in shown.splitlines()[:6])
    names = [name
             for name in rows[0]
             if name.startswith("param.") and len({str(row[name]) for row in rows}) > 1]
    assert names and len(rows) > 1
    words = " ".join(shown.split())
    for row in rows:
        assert f"trial {row['trial']}: " in words
        shown_params = [f"{name.removeprefix('param.')} {format_value(row[name])}"
                   for name in names if format_value(row[name]) != "–"]
        assert [value for value in shown_params if value not in words] == []


def test_front_as_latex_and_all_proposals(folder):
    rows = json.loads(call("front", folder, "--json"))
    table = call("front", folder, "--latex")
    assert table.startswith(r"\begin{tabular}")
    assert table.partition("midrule")[2].count(r"\\") == len(rows)
    assert "% Costs: protocol forward" in table
    states = {row["state"] for row in json.loads(call("front", folder, "--json", "--all"))}
    assert "complete" in states
    assert all(state in call("front", folder, "--all") for state in states)


def test_best_trial_within_constraints(folder):
    rows = json.loads(call("front", folder, "--json", "--all"))
    complete = [row for row in rows if row["state"] == "complete" and row["is_feasible"]]
    middle = sorted(row["params.total"] for row in complete)[len(complete) // 2]
    fitting = [row for row in complete if row["params.total"] <= middle]
    expected = max(fitting, key=lambda row: row["bleu"])["trial"]
    condition = f"params.total <= {middle}"
    for name in ("--constraint", "--under"):
        assert json.loads(call("best", folder, name, condition, "--json"))["trial"] == expected
    assert f"Trial {expected}, " in call("best", folder, "--constraint", condition)
    smallest = json.loads(call("best", folder, "--objective", "params.total", "--json"))
    assert smallest["costs"]["params.total"] == min(row["params.total"] for row in complete)


def test_study_is_found_by_name_next_to_a_space_of_that_name(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, tmp_path / "runs" / "tiny")
    (tmp_path / "tiny.yaml").write_text("width: 16\n")
    for name in ("tiny", "runs/tiny"):
        assert call("front", name, "--json") == call("front", folder, "--json")


def repeated_result(folder, job):
    result = fake_result(folder, job)
    result["metrics"] |= {"validation_loss": 1.0, "perplexity": 3.0, "validation_perplexity": 4.0,
                          "synthetic": False}
    return result


def test_show_prints_the_status_of_a_trial_in_training(tmp_path):
    study = EventStudy(tmp_path).propose(0)
    study.write_worker_files(0, step=100, share=0.25, seconds=30)
    assert re.search(r"state +pending \(training\)", call("show", tmp_path, 0))


def test_show_prints_each_score_once(tmp_path):
    make_driver(tmp_path / "fake", make_plan(2),
                lambda folder: finish_job(Path(folder), repeated_result)).run()
    names = [line.split()[0] for line in call("show", tmp_path / "fake", 0).splitlines() if line]
    assert {"loss", "perplexity", "validation_perplexity"} <= set(names)
    assert {"validation_loss", "synthetic"}.isdisjoint(names)
    shown = call("show", tmp_path / "fake", 0)
    for line in (r"loss +[\d.]+ +nats per token", r"params.total +[\d,]+ +parameters",
                 r"macs.total +[\d,]+ +multiply-accumulates per example", r"bleu +[\d.]+"):
        assert re.search(rf"\n {line} *\n", shown), line


class RangeSpace(FakeSpace):
    """The width is one of two ranges; with a flag."""

    branch = Choice(("8..32 step 8", "40..64 step 8"))
    ranges = {"8..32 step 8": IntRange(8, 32, 8), "40..64 step 8": IntRange(40, 64, 8)}

    def parameters(self):
        inner = [(f"width ({text})", domain) for text, domain in self.ranges.items()]
        return [("width", self.branch), *inner, *super().parameters()[1:],
                ("flag", Choice((True, False)))]

    def resolve(self, ask):
        branch = ask("width", self.branch)
        name = f"width ({branch})"
        config = super().resolve(lambda key, domain: ask(name, self.ranges[branch])
                                 if key == "width" else ask(key, domain))
        config["flag"] = ask("flag", Choice((True, False)))
        config.params = {**config, "width": branch, name: config["width"]}
        return config


def test_values_replace_ranges_and_flags_are_yes_or_no(tmp_path):
    folder = tmp_path / "fake"
    evaluator = Evaluator(RangeSpace(), find_protocol("forward", 10, 10, 100), ())
    make_driver(folder, make_plan(6, evaluator=evaluator), kind="random").run()
    row = json.loads(call("front", folder, "--json"))[0]
    assert re.search(rf"\n width +{row['param.width']} *\n", call("show", folder, row["trial"]))
    alts = page_of(folder).alts()
    assert any("over width, depth" in alt for alt in alts) and "step 8" not in "".join(alts)
    for text in (call("front", folder), call("show", folder, row["trial"]), "".join(alts)):
        assert re.search("flag +(yes|no)", text) and not re.search("True|False", text)


def test_show_prints_one_trial(folder):
    row = json.loads(call("front", folder, "--json"))[0]
    shown = call("show", folder, row["trial"])
    for words in (row["id"], f"{int(row['params.total']):,}", "on the front", "yes", "complete",
                  "width", "Files: "):
        assert words in shown
    report = json.loads(call("show", folder, row["trial"], "--json"))
    assert report["trial"] == row["trial"] and report["record"]["metrics"]["bleu"] == pytest.approx(
        row["bleu"])
    with refuses("no-such-trial", "999"):
        call("show", folder, 999)


def test_figures_have_the_requested_formats(folder, tmp_path):
    report = json.loads(call("plot", folder, "--format", "pdf", "--to", tmp_path, "--json"))
    files = [Path(file) for file in report["files"]]
    assert files and {file.suffix for file in files} == {".pdf"}
    assert all(file.read_bytes().startswith(b"%PDF") for file in files)
    with refuses("cannot-write", "fig.pdf"):
        call("plot", folder, "--to", tmp_path / "fig.pdf")
