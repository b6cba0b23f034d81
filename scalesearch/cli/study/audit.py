"""``scalesearch study audit``: fairness of the recipe, and quality of proxies."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from scalesearch.cli.options import option, print_json
from scalesearch.cli.study.shared import load_study, snapshot_console, study_argument
from scalesearch.errors import UserError
from scalesearch.library import require_packages
from scalesearch.terminal import format_count, make_table, open_console, print_text


@click.command()
@study_argument
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
@click.option("--proxies", "audits_proxies", is_flag=True,
              help="Audit proxies instead, without training. STUDY_OR_FOLDER may be a CSV table.")
@option("metric")
@click.option("--cost", metavar="NAME", help="With --proxies: cost of the front and of the groups "
              "of equal cost (default: params.total, or params of a CSV table).")
@click.option("--proxy", "names", multiple=True, metavar="NAME|FILE.csv",
              help="With --proxies: column to audit, or a table with the column `trial` (default: "
              "all). NAME:min if smaller is better. Can be repeated.")
@option("constraint", help="With --proxies: use only rows that meet these conditions, e.g. "
        "'bleu >= 1'.")
@option("confidence")
@option("json")
def audit(study: str, out: Path | None, architectures: int, rates: str, rules: str, share: float,
          until: float, workers: int, address: str | None, dry_run: bool, audits_proxies: bool,
          metric: str | None, cost: str | None, names: tuple[str, ...], constraint: str | None,
          confidence: float, as_json: bool) -> None:
    """Audit the learning rate of a study, or proxies of its scores.

    For the learning rate, some architectures are trained with several rates. Results are stored in
    the folder of the study, under audit/, and shown by `study report`. Run the same command again
    to resume an interrupted audit.

    With --proxies, print how well sizes, early losses and zero-cost scores predict the final score
    of a study, or of a CSV table with a trained architecture per row: `scalesearch study audit
    --proxies table.csv --metric bleu --cost params`.

    \b
    Example: scalesearch study audit runs/my-study --architectures 8
    """
    if audits_proxies:
        _audit_proxies(study, out, metric, cost, names, constraint, confidence, as_json)
        return
    from scalesearch.report.fairness import describe_option
    from scalesearch.signals import interrupt_on_signal
    from scalesearch.studies.config.sections import Resources
    from scalesearch.studies.engine import audit as engine
    from scalesearch.studies.executors.local import make_runner
    from scalesearch.studies.results.audit import AuditSettings, study_job

    results = load_study(study, out)
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
        print_text(f"Would train {format_count(n_architectures, 'architecture')} with "
                   f"{format_count(len(plan.options), 'recipe')}: "
                   f"{format_count(plan.total_runs, 'run')} with "
                   f"{plan.settings.budget_share:g} of the study's length, at most "
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
        print_json(asdict(fairness))
        return
    headings = ("architecture", "regret (loss)", f"regret ({fairness.metric})", "best recipe")
    rows = [(regret.architecture, f"{regret.loss_regret:.3g}",
             "" if regret.score_regret is None else f"{regret.score_regret:.3g}",
             describe_option(regret.best_option)) for regret in fairness.regrets]
    print_text(make_table(headings, rows))
    for line in fairness.lines():
        print_text(line)


def _audit_proxies(study: str, out: Path | None, metric: str | None, cost: str | None,
                   names: tuple[str, ...], constraint: str | None, confidence: float,
                   as_json: bool) -> None:
    """Print the audit of the proxies of a study or of a CSV table."""
    from scalesearch.report.proxies import DEFAULT_COST, audit_proxies, proxy_label, read_table
    from scalesearch.report.trial_filter import filter_trials

    files = [name for name in names if name.endswith(".csv")]
    columns = [name for name in names if name not in files]
    if study.endswith(".csv"):
        if metric is None:
            raise UserError("a CSV table needs --metric NAME, the column of the score",
                            code="option-missing")
        table = read_table(Path(study))
        table = filter_trials(table, constraint) if constraint else table
        cost = cost or ("params" if "params" in table else DEFAULT_COST)
        proxy_audit = audit_proxies(table, metric, cost, columns, confidence)
    else:
        proxy_audit = load_study(study, out).proxy_audit(
            metric, cost, columns, [read_table(Path(name)) for name in files], constraint,
            confidence)
    if as_json:
        print_json(asdict(proxy_audit))
        return
    console = snapshot_console()
    if proxy_audit.proxies:
        headings = ("proxy", "n", "Spearman", "Kendall's tau", "tau at equal cost",
                    f"error ({proxy_audit.metric})", "recall", "regret")
        print_text(make_table(headings, [
            (proxy_label(row.proxy), row.n, f"{row.rho:+.2f}", row.tau, row.tau_at_equal_cost or "",
             row.error, row.recall, row.regret) for row in proxy_audit.proxies]), console)
    for line in proxy_audit.lines():
        print_text(line, console)


def _split(text: str) -> tuple[str, ...]:
    """Split a list at commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
