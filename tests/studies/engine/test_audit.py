"""Fairness audits: training runs, resume, command and report."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from scalesearch.cli.main import main
from scalesearch.files import DiskFullError
from scalesearch.report.fairness import AuditRun
from scalesearch.spaces import read_space
from scalesearch.studies.engine.audit import load_or_make_plan, run_audit
from scalesearch.studies.executors.base import CRASH_DISK_FULL, CRASH_FAULT, CRASH_LOST
from scalesearch.studies.executors.local import InProcessRunner, PoolRunner
from scalesearch.studies.executors.worker import finish_job
from scalesearch.studies.results.audit import (
    AuditPlan,
    AuditSettings,
    architecture_groups,
    audit_findings,
    scale_recipe,
    select_diverse,
)
from scalesearch.studies.results.results import load_results
from scalesearch.studies.trials.trial import State, Trial
from scalesearch.training.recipe import Recipe
from tests.corpora import DATA, write_text
from tests.errors import refuses
from tests.processes import command
from tests.studies.fakes import FaultyRunner

STUDY = f"""\
study: fair
data: {DATA}
recipe: {{ steps: 40, max_tokens: 256, beam: 1, average: none, validate_every: 0, lr: 2e-3, \
warmup: 10 }}
objectives: {{ loss: min, params.total: min }}
protocol: {{ name: forward, source: 12, target: 12, vocab: corpus }}
space:
  width: 16 | 32
  norm: pre | post
  encoder: {{ depth: 1, heads: 2, head_dim: 8, ffn: {{ relu: {{ hidden: 32 }} }} }}
  decoder: {{ depth: 1, heads: 2, head_dim: 8, ffn: {{ relu: {{ hidden: 32 }} }} }}
sampler: grid
trials: 4
proxies: no
out: found
"""


def work(folder):
    """Write losses without training; post-norm needs a quarter of the learning rate."""
    def run(place, job):
        params = read_space(place / "architecture.yaml").single_architecture().config
        best = 2e-3 if params["norm"] == "pre" else 5e-4
        loss = 2 + 8 / params["width"] + 0.1 * math.log2(job["recipe"]["lr"]["base"] / best) ** 2
        with (folder_of(place) / "trained").open("a") as file:
            file.write(f"{job.get('until_share', 1.0)}\n")
        state = "paused" if "until_share" in job else "complete"
        return {"state": state, "seconds": 1.0,
                "metrics": {"loss": loss, "validation_loss_per_char": loss}}

    finish_job(Path(folder), run)


def folder_of(place):
    return next(folder for folder in (place, *place.parents) if folder.name == "found")


@pytest.fixture(scope="module")
def trained_folder(tmp_path_factory):
    """A folder with a study that ``work`` has trained."""
    folder = tmp_path_factory.mktemp("study")
    write_text(folder)
    (folder / "fair.yaml").write_text(STUDY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scalesearch.studies.executors.local.PoolRunner",
                      lambda _, *resources: InProcessRunner(work))
        command(folder, "study", "run", "fair.yaml")
    return folder


@pytest.fixture
def call(trained_folder, tmp_path, monkeypatch, capsys):
    """Function that runs ``study`` in a copy of the folder with the trained study."""
    shutil.copytree(trained_folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments, status=0, by=work):
        runner = (lambda _, *resources: InProcessRunner(by)) if by else PoolRunner
        monkeypatch.setattr("scalesearch.studies.executors.local.PoolRunner", runner)
        monkeypatch.setattr("sys.argv", ["scalesearch", "study", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        output = capsys.readouterr()
        assert (ended.value.code or 0) == status, output.out + output.err
        return output.out if "--json" in arguments else output.out + output.err

    return run


def legs():
    file = Path("found/trained")
    return file.read_text().split() if file.is_file() else []


@pytest.mark.full
def test_audit_finds_disadvantaged_group_and_resumes(call):
    before = len(legs())
    forecast = json.loads(call("audit", "found", "--dry-run", "--json"))
    assert (forecast["runs"], forecast["stretches"]) == (20, 36)
    assert len(forecast["architectures"]) == 4 and not Path("found/audit").exists()

    def broken(folder):
        if len(legs()) - before >= 7:
            raise KeyboardInterrupt
        work(folder)

    output = call("audit", "found", status=130, by=broken)
    assert "7 of at most 36" in output
    findings = json.loads(call("audit", "found", "--json"))
    trained = legs()[before:]
    assert trained.count("0.4") == 20  # each rate once, in spite of the interruption
    assert trained.count("1.0") == 4 * 3  # the better half, which contains the study's rate
    # no run is repeated
    assert call("audit", "found") and len(legs()) == before + len(trained)
    assert [regret["loss_regret"] for regret in findings["regrets"]] == pytest.approx(
        [0.4, 0.4, 0.0, 0.0]
    )
    assert all(
        regret["is_best_at_edge"] == (regret["loss_regret"] > 0) for regret in findings["regrets"]
    )
    kinds = {group["name"]: group["mean_regret"]["value"] for group in findings["groups"]}
    assert kinds["norm post"] == pytest.approx(0.4) and kinds["norm pre"] == pytest.approx(0.0)
    assert findings["study_option"] == ["none", 1.0] and json.loads(
        Path("found/audit/findings.json").read_text()) == findings
    call("report", "found")
    page = Path("found/report.html").read_text()
    assert "Fairness of the recipe" in page and "norm post" in page and "fairness-losses" in page
    output = call("audit", "found", "--share", "0.5", status=2)
    assert "found/audit" in output


def test_audit_runs_have_requested_rates_and_rules(call):
    call("audit", "found", "--architectures", "2", "--rates", "1,2", "--rules", "layerwise",
         "--until", "1")
    results = load_results(Path("found"))
    plan = load_or_make_plan(results,
                             AuditSettings(2, (1.0, 2.0), ("layerwise",), early_stop_share=1.0))
    assert set(plan.options) == {("none", 1.0), ("none", 2.0), ("layerwise", 1.0),
                                 ("layerwise", 2.0)}
    for member in plan.architectures:
        for option in plan.options:
            place = plan.run_folder(results.study.folder, member, option)
            job = json.loads((place / "job.json").read_text())
            recipe = Recipe.from_mapping(job["recipe"])
            assert (recipe.steps, recipe.warmup) == (10, 2.5)
            assert (recipe.lr.rule, recipe.lr.base) == (option[0], 2e-3 * option[1])
            assert (recipe.lr.reference_sizes.width is None) == (option[0] == "none")
            assert (place / "architecture.yaml").read_bytes() == \
                (results.study.folder / "trials" / member.folder / "architecture.yaml").read_bytes()
    assert {alternative.option for alternative in audit_findings(results).alternatives} == set(
        plan.options
    )


def test_failed_run_has_infinite_regret(call):
    results = load_results(Path("found"))
    plan = load_or_make_plan(results, AuditSettings(4, (0.5, 1.0, 2.0)))

    def breaks(folder):
        if folder.endswith("none-2"):
            raise RuntimeError("the worker broke")
        work(folder)

    findings = run_audit(results, plan, InProcessRunner(breaks), str)
    assert len(findings.regrets) == 4
    assert findings.alternatives[-1].option == (
        "none", 2.0) and findings.alternatives[-1].mean_regret.value == math.inf


def test_lost_node_costs_an_audit_run_no_attempt(call):
    results = load_results(Path("found"))
    plan = load_or_make_plan(results, AuditSettings(2, (0.5, 1.0)))
    runner = FaultyRunner(work, *[CRASH_LOST] * 4, CRASH_FAULT, CRASH_FAULT)
    findings = run_audit(results, plan, runner, str)
    assert all(math.isfinite(regret.loss_regret) for regret in findings.regrets)


def test_full_disk_stops_an_audit_that_can_be_resumed(call):
    results = load_results(Path("found"))
    plan = load_or_make_plan(results, AuditSettings(2, (0.5, 1.0)))
    with pytest.raises(DiskFullError, match="injected"):
        run_audit(results, plan, FaultyRunner(work, CRASH_DISK_FULL), str)
    assert not list(Path("found/audit").rglob("result.json"))
    findings = run_audit(results, plan, InProcessRunner(work), str)
    assert all(math.isfinite(regret.loss_regret) for regret in findings.regrets)


@pytest.mark.parametrize("put", [lambda file: file.write_text("{"), Path.mkdir],
                         ids=["half a file", "folder"])
def test_damaged_result_of_an_audit_run_counts_as_a_crash(call, put):
    results = load_results(Path("found"))
    plan = load_or_make_plan(results, AuditSettings(2, (0.5, 1.0), early_stop_share=1.0))

    def damage(folder):
        if folder.endswith("none-0.5"):
            put(Path(folder) / "result.json")
        else:
            work(folder)

    findings = run_audit(results, plan, InProcessRunner(damage), str)
    assert {alternative.option: alternative.mean_regret.value for alternative
            in findings.alternatives} == {("none", 0.5): math.inf, ("none", 1.0): 0.0}


def test_invalid_audits_are_refused(call):
    for rates in ("0.5,2", "1", "x,1", "-1,1"):
        call("audit", "found", "--rates", rates, status=2)
    call("audit", "found", "--rules", "mupp", status=2)
    results = load_results(Path("found"))
    for trial in results.study.trials.with_state(State.COMPLETE)[1:]:
        (results.study.trial_folder(trial) / "architecture.yaml").unlink()
    with refuses("nothing-finished"):
        load_or_make_plan(results, AuditSettings())


@pytest.mark.full
def test_audit_with_real_training(call, monkeypatch):
    from scalesearch.studies.executors.worker import train_job

    call("audit", "found", "--architectures", "2", "--rates", "1,4", "--share", "0.1", "--until",
         "0.5", by=train_job)
    findings = audit_findings(load_results(Path("found")))
    assert len(findings.regrets) == 2 and all(
        regret.loss_regret >= 0 and math.isfinite(regret.loss_regret) for regret in findings.regrets
    )
    for result in Path("found/audit").glob("*/*/result.json"):
        assert json.loads(result.read_text())["steps"] == 4


@pytest.mark.slow
def test_audit_in_pool_equals_audit_in_process(call):
    from scalesearch.studies.executors.worker import train_job

    arguments = ("audit", "found", "--architectures", "2", "--rates", "1,4", "--share", "0.1",
                 "--until", "0.5")
    call(*arguments, by=train_job)
    in_process = audit_findings(load_results(Path("found")))
    Path("found/audit").rename("found/audit-in-process")
    call(*arguments, "--workers", "2", by=None)
    in_pool = audit_findings(load_results(Path("found")))
    assert len(in_pool.regrets) == 2 and in_pool == in_process


# -- Selection of architectures and runs


def trial(number, size, **config):
    return Trial(number, State.COMPLETE, architecture=f"a{number}", costs={"params.total": size},
                 config=config)


def test_architecture_groups():
    share = "share.encoder.ffn"
    chain = "tensor_chain.ffn"
    kinds = architecture_groups([trial(0, 10, norm="pre", width=8, **{share: "own", chain: "off"}),
                      trial(1, 20, norm="post", width=9, **{share: "cycle(2)", chain: 0.1}),
                      trial(2, 30, norm="post", width=7, **{share: "runs(1, 3)", chain: 0.2})])
    assert kinds[0] == ("norm pre", "share.encoder.ffn own", "tensor_chain.ffn off", "smaller half")
    assert kinds[2] == ("norm post", "share.encoder.ffn shared", "tensor_chain.ffn on",
                        "larger half")


def test_selection_covers_sizes_and_groups():
    trials = [
        trial(number, 100 * 2 ** (number // 2), norm="pre" if number % 2 else "post")
        for number in range(12)
    ]
    chosen = select_diverse(trials, architecture_groups(trials), 4)
    assert [trial.costs["params.total"] for trial in chosen] == sorted(
        trial.costs["params.total"] for trial in chosen)
    assert {100, 3200} <= {trial.costs["params.total"] for trial in chosen}
    assert {trial.config["norm"] for trial in chosen} == {"pre", "post"}
    assert len(select_diverse(trials, architecture_groups(trials), 99)) == 12


def test_worse_rates_stop_and_study_rate_continues():
    plan = AuditPlan(AuditSettings(), (), "none", {})
    blank = [AuditRun("a", (), "none", rate) for rate in plan.settings.rates]
    assert list(plan.due_runs(blank)) == [(run, False) for run in blank]
    rungs = [replace(run, rung_loss=loss) for run, loss in zip(blank, (1.0, 2.0, 9.0, 3.0, 5.0))]
    assert list(plan.due_runs(rungs[:4] + blank[4:])) == [(blank[4], False)]
    assert [
        run.rate_factor for run, whole in plan.due_runs(rungs) if whole] == [0.25, 0.5, 1.0, 2.0]
    done = [replace(run, loss=1.0) for run in rungs]
    assert list(plan.due_runs(done)) == [] and [
        run.rate_factor for run, _ in plan.due_runs([*done[:2], *rungs[2:]])] == [1.0, 2.0]
    whole = replace(plan, settings=AuditSettings(early_stop_share=1.0))
    assert list(whole.due_runs(blank)) == [(run, True) for run in blank]


def test_shortened_recipe_keeps_proportions():
    recipe = Recipe(steps=1000, epochs=3.0, warmup=400.0, validate_every=0.1, average_every=1000.0)
    short = Recipe.from_mapping(scale_recipe(recipe.model_dump(), 0.25))
    assert (short.steps, short.epochs, short.warmup, short.validate_every, short.average_every) == \
        (250, 0.75, 100.0, 0.1, 250.0)
