"""A fairness audit: what it trains, that it can be gone on with, and what its verb and the page show."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from scalesearch.cli.main import main
from scalesearch.report.fairness import AuditRun
from scalesearch.space import read_space
from scalesearch.study.engine.audit import load_or_make_plan, run_audit
from scalesearch.study.executors.local import InProcessRunner, PoolRunner
from scalesearch.study.executors.worker import finish_job
from scalesearch.study.results.audit import (
    AuditPlan,
    AuditSettings,
    architecture_groups,
    audit_findings,
    select_diverse,
    shorten_recipe,
)
from scalesearch.study.results.results import load_results
from scalesearch.study.trials.trial import State, Trial
from scalesearch.train.recipe import Recipe
from tests.corpora import DATA, write_text
from tests.errors import refuses

STUDY = f"""\
study: fair
data: {DATA}
recipe: {{ steps: 40, max_tokens: 256, beam: 1, average: none, validate_every: 0, lr: 2e-3, warmup: 10 }}
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
    """Trains in no time: pre-norm is best at the study's rate, post-norm at a quarter of it."""
    def run(place, job):
        answers = read_space(place / "architecture.yaml").single_architecture().config
        best = 2e-3 if answers["norm"] == "pre" else 5e-4
        loss = 2 + 8 / answers["width"] + 0.1 * math.log2(job["recipe"]["lr"]["base"] / best) ** 2
        with (folder_of(place) / "trained").open("a") as file:
            file.write(f"{job.get('until_share', 1.0)}\n")
        state = "paused" if "until_share" in job else "complete"
        return {"state": state, "seconds": 1.0,
                "metrics": {"loss": loss, "validation_loss_per_char": loss}}

    finish_job(Path(folder), run)


def folder_of(place):
    return next(one for one in (place, *place.parents) if one.name == "found")


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """The command line, in a folder with a study that was run by ``work``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    write_text(tmp_path)
    (tmp_path / "fair.yaml").write_text(STUDY)

    def run(*arguments, status=0, by=work):
        runner = (lambda _, *resources: InProcessRunner(by)) if by else PoolRunner
        monkeypatch.setattr("scalesearch.study.executors.local.PoolRunner", runner)
        monkeypatch.setattr("sys.argv", ["scalesearch", "study", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert (ended.value.code or 0) == status, said.out + said.err
        return said.out if "--json" in arguments else said.out + said.err

    run("run", "fair.yaml")
    return run


def legs():
    file = Path("found/trained")
    return file.read_text().split() if file.is_file() else []


def test_an_audit_finds_the_kind_that_the_recipe_is_unfair_to_and_is_gone_on_with(call):
    before = len(legs())
    foretold = json.loads(call("audit", "found", "--dry-run", "--json"))
    assert (foretold["trainings"], foretold["stretches"]) == (20, 36)
    assert len(foretold["architectures"]) == 4 and not Path("found/audit").exists()

    def broken(folder):
        if len(legs()) - before >= 7:
            raise KeyboardInterrupt
        work(folder)

    said = call("audit", "found", status=130, by=broken)
    assert "7 of at most 36" in said
    found = json.loads(call("audit", "found", "--json"))
    trained = legs()[before:]
    assert trained.count("0.4") == 20  # each rate once, whatever was interrupted
    assert trained.count("1.0") == 4 * 3  # the better half, in which the study's own rate is here
    # nothing is trained again
    assert call("audit", "found") and len(legs()) == before + len(trained)
    assert [one["loss_regret"] for one in found["regrets"]] == pytest.approx([0.4, 0.4, 0.0, 0.0])
    assert all(one["is_best_at_edge"] == (one["loss_regret"] > 0) for one in found["regrets"])
    kinds = {one["name"]: one["mean_regret"]["value"] for one in found["groups"]}
    assert kinds["norm post"] == pytest.approx(0.4) and kinds["norm pre"] == pytest.approx(0.0)
    assert found["study_option"] == ["none", 1.0] and json.loads(
        Path("found/audit/findings.json").read_text()) == found
    call("report", "found")
    page = Path("found/report.html").read_text()
    assert "Fairness of the recipe" in page and "norm post" in page and "fairness-losses" in page
    said = call("audit", "found", "--share", "0.5", status=2)
    assert "found/audit" in said


def test_trainings_are_those_of_the_trainer_by_the_rates_and_rules_asked_for(call):
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
    assert {one.option for one in audit_findings(results).alternatives} == set(plan.options)


def test_a_training_that_breaks_counts_as_failed_and_stops_nothing(call):
    results = load_results(Path("found"))
    plan = load_or_make_plan(results, AuditSettings(4, (0.5, 1.0, 2.0)))

    def breaks(folder):
        if folder.endswith("none-2"):
            raise RuntimeError("the worker broke")
        work(folder)

    found = run_audit(results, plan, InProcessRunner(breaks), str)
    assert len(found.regrets) == 4
    assert found.alternatives[-1].option == (
        "none", 2.0) and found.alternatives[-1].mean_regret.value == math.inf


def test_what_cannot_be_audited_is_said(call):
    for rates in ("0.5,2", "1", "x,1", "-1,1"):
        call("audit", "found", "--rates", rates, status=2)
    call("audit", "found", "--rules", "mupp", status=2)
    results = load_results(Path("found"))
    for trial in results.study.trials.with_state(State.COMPLETE)[1:]:
        (results.study.trial_folder(trial) / "architecture.yaml").unlink()
    with refuses("nothing-finished"):
        load_or_make_plan(results, AuditSettings())


def test_a_real_audit_of_a_tiny_study(call, monkeypatch):
    from scalesearch.study.executors.worker import train_job

    call("audit", "found", "--architectures", "2", "--rates", "1,4", "--share", "0.1", "--until",
         "0.5", by=train_job)
    found = audit_findings(load_results(Path("found")))
    assert len(found.regrets) == 2 and all(one.loss_regret >= 0 and math.isfinite(one.loss_regret)
                                           for one in found.regrets)
    for result in Path("found/audit").glob("*/*/result.json"):
        assert json.loads(result.read_text())["steps"] == 4


@pytest.mark.slow
def test_audit_in_pool_equals_audit_in_process(call):
    from scalesearch.study.executors.worker import train_job

    arguments = ("audit", "found", "--architectures", "2", "--rates", "1,4", "--share", "0.1",
                 "--until", "0.5")
    call(*arguments, by=train_job)
    in_process = audit_findings(load_results(Path("found")))
    Path("found/audit").rename("found/audit-in-process")
    call(*arguments, "--workers", "2", by=None)
    in_pool = audit_findings(load_results(Path("found")))
    assert len(in_pool.regrets) == 2 and in_pool == in_process


# -- what is chosen, and what goes on


def trial(number, size, **answers):
    return Trial(number, State.COMPLETE, architecture=f"a{number}", costs={"params.total": size},
                 config=answers)


def test_kinds_are_words_that_differ_shared_weights_chains_and_the_half_by_size():
    share = "share.encoder.ffn"
    chain = "tensor_chain.ffn"
    kinds = architecture_groups([trial(0, 10, norm="pre", width=8, **{share: "own", chain: "off"}),
                      trial(1, 20, norm="post", width=9, **{share: "cycle(2)", chain: 0.1}),
                      trial(2, 30, norm="post", width=7, **{share: "runs(1, 3)", chain: 0.2})])
    assert kinds[0] == ("norm pre", "share.encoder.ffn own", "tensor_chain.ffn off", "smaller half")
    assert kinds[2] == ("norm post", "share.encoder.ffn shared", "tensor_chain.ffn on",
                        "larger half")


def test_the_chosen_are_spread_over_sizes_and_kinds():
    trials = [trial(at, 100 * 2 ** (at // 2), norm="pre" if at % 2 else "post") for at in range(12)]
    chosen = select_diverse(trials, architecture_groups(trials), 4)
    assert [one.costs["params.total"] for one in chosen] == sorted(
        one.costs["params.total"] for one in chosen)
    assert {100, 3200} <= {one.costs["params.total"] for one in chosen}
    assert {one.config["norm"] for one in chosen} == {"pre", "post"}
    assert len(select_diverse(trials, architecture_groups(trials), 99)) == 12


def test_the_worse_rates_stop_and_the_study_s_goes_on():
    plan = AuditPlan(AuditSettings(), (), "none", {})
    blank = [AuditRun("a", (), "none", rate) for rate in plan.settings.rates]
    assert list(plan.due_runs(blank)) == [(one, False) for one in blank]
    rungs = [replace(one, rung_loss=loss) for one, loss in zip(blank, (1.0, 2.0, 9.0, 3.0, 5.0))]
    assert list(plan.due_runs(rungs[:4] + blank[4:])) == [(blank[4], False)]
    assert [
        one.rate_factor for one, whole in plan.due_runs(rungs) if whole] == [0.25, 0.5, 1.0, 2.0]
    done = [replace(one, loss=1.0) for one in rungs]
    assert list(plan.due_runs(done)) == [] and [
        one.rate_factor for one, _ in plan.due_runs([*done[:2], *rungs[2:]])] == [1.0, 2.0]
    whole = replace(plan, settings=AuditSettings(early_stop_share=1.0))
    assert list(whole.due_runs(blank)) == [(one, True) for one in blank]


def test_a_shorter_training_keeps_its_shape():
    recipe = Recipe(steps=1000, epochs=3.0, warmup=400.0, validate_every=0.1, average_every=1000.0)
    short = Recipe.from_mapping(shorten_recipe(recipe.to_json(), 0.25))
    assert (short.steps, short.epochs, short.warmup, short.validate_every, short.average_every) == \
        (250, 0.75, 100.0, 0.1, 250.0)
