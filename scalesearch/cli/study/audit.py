"""``scalesearch study audit``: is the study's recipe fair to the architectures that it ranks?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from scalesearch.cli.options import json_option, print_json
from scalesearch.cli.study.shared import with_results
from scalesearch.errors import UserError
from scalesearch.library import require_packages
from scalesearch.terminal import make_table, open_console, print_text

if TYPE_CHECKING:
    from scalesearch.report.fairness import Fairness
    from scalesearch.study.results.audit import AuditPlan
    from scalesearch.study.results.results import Results


@click.command()
@with_results
@click.option("--architectures", default=12, show_default=True, type=click.IntRange(2),
              help="How many, spread over costs and kinds.")
@click.option("--rates", default="0.25,0.5,1,2,4", show_default=True,
              help="Multiples of each trial's learning rate.")
@click.option("--rules", default="",
              help="Further rules of learning rates, such as none,layerwise.")
@click.option("--share", default=0.25, show_default=True,
              type=click.FloatRange(0, 1, min_open=True),
              help="Length of a training, as a share of the study's.")
@click.option("--until", default=0.4, show_default=True, type=click.FloatRange(0, 1, min_open=True),
              help="Share of it after which the worse half of the rates stops; 1: none does.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1),
              help="Trainings at a time, by Ray.")
@click.option("--address", help="Of a running Ray cluster to train on: HOST:PORT, or auto.")
@click.option("--dry-run", is_flag=True, help="Say what would be trained.")
@json_option
def audit(results: Results, architectures: int, rates: str, rules: str, share: float, until: float,
          workers: int, address: str | None, dry_run: bool, as_json: bool) -> None:
    """Train some of a study's architectures at several rates, and say to whom its recipe is unfair.

    It is kept in the study's folder, under audit/; the same command goes on after an interruption,
    and `study report` has a section on it.
    """
    from scalesearch.signals import interrupt_on_signal
    from scalesearch.study.config.sections import Resources
    from scalesearch.study.engine import audit as engine
    from scalesearch.study.executors.factory import make_runner
    from scalesearch.study.results.audit import AuditSettings, study_job

    console = open_console(stderr=as_json)
    plan = engine.load_or_make_plan(
        results, AuditSettings(architectures, _rates(rates), _words(rules), share, until))
    if dry_run:
        print_json({**asdict(plan), "trainings": plan.total_runs, "stretches": plan.stretches,
                    "cpu_seconds": plan.cpu_seconds}) if as_json else _show_plan(plan)
        return
    job = study_job(results.study)
    resources = Resources(threads_per_trial=job["threads"], nice=job.get("nice", 0),
                          address=address, processes_per_trial=job.get("processes", 1))
    backend = "ray" if workers > 1 or address else "inprocess"
    if backend == "ray":
        require_packages("ray")
    runner = make_runner(backend, workers, resources)
    with interrupt_on_signal():
        found = engine.run_audit(results, plan, runner, lambda line: print_text(line, console))
    print_json(found.to_json()) if as_json else _show(found)


def _rates(text: str) -> tuple[float, ...]:
    """Multiples of a rate. Raises UserError where they are none, or 1 is missing."""
    try:
        rates = tuple(sorted({float(one) for one in _words(text)}))
    except ValueError:
        rates = ()
    if 1.0 not in rates or len(rates) < 2 or rates[0] <= 0:
        raise UserError(f"--rates {text}: give multiples of the study's rate, 1 and others, such "
                        "as 0.5,1,2", code="bad-value")
    return rates


def _words(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",") if one.strip())


def _show_plan(plan: AuditPlan) -> None:
    print_text(make_table(("trial", "kinds"),
                          [(member.folder, ", ".join(member.groups))
                           for member in plan.architectures]))
    print_text(f"Would train {len(plan.architectures)} architectures by {len(plan.options)} "
               f"recipes, {plan.total_runs} trainings of {plan.settings.budget_share:g} of the "
               "study's length: at most "
               f"{plan.full_runs_per_architecture * len(plan.architectures):.1f} full trainings in "
               f"all, about {plan.cpu_seconds / 60:.1f} CPU-minutes")


def _show(found: Fairness) -> None:
    from scalesearch.report.fairness import describe_option

    print_text(make_table(("architecture", "regret (loss)", f"regret ({found.metric})", "best"),
                          [(one.architecture, f"{one.loss_regret:.3g}",
                            "" if one.score_regret is None else f"{one.score_regret:.3g}",
                            describe_option(one.best_option)) for one in found.regrets]))
    for line in found.lines():
        print_text(line)
