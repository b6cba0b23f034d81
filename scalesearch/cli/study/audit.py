"""``scalesearch study audit``: fairness of the recipe to the architectures."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from scalesearch.cli.options import option, print_json
from scalesearch.cli.study.shared import with_results
from scalesearch.errors import UserError
from scalesearch.files import replace_non_finite
from scalesearch.library import require_packages
from scalesearch.terminal import make_table, open_console, print_text

if TYPE_CHECKING:
    from scalesearch.studies.results.results import Results


@click.command()
@with_results
@click.option("--architectures", default=12, show_default=True, type=click.IntRange(2),
              help="Number of architectures, spread over costs and architecture groups.")
@click.option("--rates", default="0.25,0.5,1,2,4", show_default=True,
              help="Learning rates to test, as multiples of each trial's learning rate.")
@click.option("--rules", default="",
              help="Additional learning-rate scaling rules, e.g. none,layerwise.")
@click.option("--share", default=0.25, show_default=True,
              type=click.FloatRange(0, 1, min_open=True),
              help="Length of each training run, as a share of the study's.")
@click.option("--until", default=0.4, show_default=True, type=click.FloatRange(0, 1, min_open=True),
              help="Share of the run after which the worse half of the rates stops; 1 disables "
              "this.")
@option("workers", default=1, help="Number of parallel training runs.")
@option("address")
@click.option("--dry-run", is_flag=True, help="Print the plan without training.")
@option("json")
def audit(results: Results, architectures: int, rates: str, rules: str, share: float, until: float,
          workers: int, address: str | None, dry_run: bool, as_json: bool) -> None:
    """Check whether the study's learning rate disadvantages some architectures.

    Some architectures of the study are trained with several learning rates. Results are stored in
    the folder of the study, under audit/, and shown by `study report`. Run the same command again
    to resume an interrupted audit.

    \b
    Example: scalesearch study audit runs/my-study --architectures 8
    """
    from scalesearch.report.fairness import describe_option
    from scalesearch.signals import interrupt_on_signal
    from scalesearch.studies.config.sections import Resources
    from scalesearch.studies.engine import audit as engine
    from scalesearch.studies.executors.local import make_runner
    from scalesearch.studies.results.audit import AuditSettings, study_job

    console = open_console(stderr=as_json)
    try:
        multiples = tuple(sorted({float(number) for number in _split(rates)}))
    except ValueError:
        multiples = ()
    if 1.0 not in multiples or len(multiples) < 2 or multiples[0] <= 0:
        raise UserError(f"--rates {rates}: expected multiples of the study's learning rate, 1 and "
                        "others, such as 0.5,1,2", code="bad-value")
    plan = engine.load_or_make_plan(
        results, AuditSettings(architectures, multiples, _split(rules), share, until))
    if dry_run:
        if as_json:
            print_json({**asdict(plan), "runs": plan.total_runs, "stretches": plan.stretches,
                        "cpu_seconds": plan.cpu_seconds})
            return
        print_text(make_table(("trial", "groups"), [(member.folder, ", ".join(member.groups))
                                                    for member in plan.architectures]))
        n_architectures = len(plan.architectures)
        print_text(f"Would train {n_architectures} architectures with {len(plan.options)} "
                   f"recipes: {plan.total_runs} runs with {plan.settings.budget_share:g} of the "
                   "study's length, at most "
                   f"{plan.full_runs_per_architecture * n_architectures:.1f} full-budget runs in "
                   f"total, about {plan.cpu_seconds / 60:.1f} CPU-minutes")
        return
    job = study_job(results.study)
    resources = Resources(threads_per_trial=job["threads"], nice=job.get("nice", 0),
                          address=address)
    if address:
        require_packages("ray")
    runner = make_runner("ray" if address else "pool", workers, resources)
    with interrupt_on_signal():
        fairness = engine.run_audit(results, plan, runner, lambda line: print_text(line, console))
    if as_json:
        print_json(replace_non_finite(asdict(fairness)))
        return
    headings = ("architecture", "regret (loss)", f"regret ({fairness.metric})", "best recipe")
    rows = [(regret.architecture, f"{regret.loss_regret:.3g}",
             "" if regret.score_regret is None else f"{regret.score_regret:.3g}",
             describe_option(regret.best_option)) for regret in fairness.regrets]
    print_text(make_table(headings, rows))
    for line in fairness.lines():
        print_text(line)


def _split(text: str) -> tuple[str, ...]:
    """Split a list at commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
