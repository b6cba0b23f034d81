"""``scalesearch check FILE``: is the space sound, how large is it, what passes its constraints."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import json_option, load_space, print_json, seed_option, set_option
from scalesearch.errors import UserError
from scalesearch.terminal import make_table, print_text

if TYPE_CHECKING:
    from scalesearch.feasible.costed_candidates import CostedCandidate
    from scalesearch.space import Constraint, Space, UnbuildableError
    from scalesearch.space.syntax.diagnostics import Problem


CTRANSLATE2_REFUSALS = "refusals.ctranslate2"  # of the one format that does not take everything


@dataclass(frozen=True)
class PassRate:
    """How many candidates meet something, of those that could be asked; a ``rate`` of None where none could."""

    condition: str
    n_passed: int
    n_tested: int
    rate: float | None

    @classmethod
    def from_results(cls, condition: str, results: Sequence[bool | None]) -> PassRate:
        """Counts candidates; None is one that could not be asked."""
        hits = sum(map(bool, results))
        asked = sum(one is not None for one in results)
        return cls(condition, hits, asked, hits / asked if asked else None)


@dataclass(frozen=True)
class SpaceCheckReport:
    """What ``check`` found out; ``size`` is a text where it is endless or not counted."""

    name: str
    hash: str
    size: int | str
    parameters: list[dict[str, Any]]
    protocol: dict[str, Any]
    n_samples: int
    seed: int
    buildable: PassRate
    constraints: list[PassRate]
    budgets: list[PassRate]
    exportable: list[PassRate]
    all_conditions: PassRate
    build_errors: dict[str, int]
    problems: list[Problem]

    def to_json(self) -> dict[str, Any]:
        """For ``--json``; ``size`` is null where it is endless or not counted."""
        shares = {"buildable": asdict(self.buildable),
                  "constraints": [asdict(share) for share in self.constraints],
                  "budgets": [asdict(share) for share in self.budgets],
                  "exportable": [asdict(share) for share in self.exportable],
                  "all_conditions": asdict(self.all_conditions)}
        size = self.size if isinstance(self.size, int) else None
        return {**vars(self), **shares, "size": size,
                "problems": [problem.to_json() for problem in self.problems]}


@click.command("check")
@click.argument("file")
@set_option
@click.option("--samples", default=1000, show_default=True, type=click.IntRange(min=0),
              help="Random candidates.")
@seed_option(0, "Of the random candidates.")
@click.option("--exportable", is_flag=True,
              help="Also say what share each format of `scalesearch export` takes.")
@json_option
def command(file: str, settings: tuple[str, ...], samples: int, seed: int, exportable: bool,
            as_json: bool) -> None:
    """Validate the space FILE; say how large it is and what share of samples passes each constraint."""
    from rich.console import Console

    from scalesearch.space import ConfigError

    try:
        with Console(stderr=True).status("counting answer sheets, trying candidates …"):
            report = check_space(load_space(file, settings), samples, seed, exportable)
    except UserError as error:
        if not as_json:
            raise
        print_json({"problems": problems_json(error, file)})
        raise SystemExit(2) from None
    if as_json:
        print_json(report.to_json())
        raise SystemExit(2 if report.problems else 0)
    print_report(report)
    if report.problems:
        raise ConfigError(report.problems)


def problems_json(error: UserError, file: str) -> list[dict[str, Any]]:
    """What is wrong with ``file``, for machines: each problem with its place, or the message where there is none."""
    unplaced = {"file": file, "line": None, "column": None, "code": error.code,
                "message": str(error), "help": None}
    return [problem.to_json() for problem in getattr(error, "problems", ())] or [unplaced]


def check_space(space: Space, n_samples: int, seed: int,
                exportable: bool = False) -> SpaceCheckReport:
    """Describes ``space`` and tries ``n_samples`` random candidates on its constraints and budgets."""
    from scalesearch.api.space import space_size_or_reason
    from scalesearch.cost import load_protocol
    from scalesearch.feasible.costed_candidates import CostedCandidate, evaluate_costs
    from scalesearch.feasible.limits import cost_names

    rng = random.Random(seed)
    dimensions = space.parameters()
    # of a space that leaves nothing open, there is one
    n_samples = n_samples if dimensions else min(1, n_samples)
    sheets = [space.sample(rng) for _ in range(n_samples)]
    named = [(c.text, c) for c in space.constraints] + [
        (f"{name}: {c.text}", c) for name, c in space.budgets.items()]
    costs = {*cost_names(constraint for _, constraint in named),
             *[CTRANSLATE2_REFUSALS] * exportable}
    candidates = evaluate_costs([CostedCandidate.from_param_values(sheet) for sheet in sheets],
                                load_protocol(space.protocol), costs)
    built = [candidate.costs is not None for candidate in candidates]
    met = [[_holds(constraint, candidate) for candidate in candidates] for _, constraint in named]
    shares = [PassRate.from_results(text, one) for (text, _), one in zip(named, met)]
    problems = [_never_satisfied(constraint,
                                 [c for c, one in zip(candidates, answers) if one is not None])
                for (_, constraint), answers, share in zip(named, met, shares)
                if share.n_tested and not share.n_passed]
    every = [all(one is not False for one in (ok, *answers)) for ok, *answers in zip(built, *met)]
    asked = [{"name": name, "values": str(p), "count": p.count()} for name, p in dimensions]
    reasons = [_reason(space, sheet) for sheet, ok in zip(sheets, built) if not ok]
    unbuildable = Counter(map(str, reasons))
    problems += [_never_built(space, reasons)] if reasons and not any(built) else []
    taken = [bool(one.costs and one.costs[CTRANSLATE2_REFUSALS] == 0)
             for one in candidates] if exportable else []
    formats = [PassRate.from_results("exportable to ctranslate2", taken),
               PassRate.from_results("exportable to onnx, huggingface, torch",
                                     built)] if exportable else []
    split = len(space.constraints)
    return SpaceCheckReport(
        space.name, space.hash, space_size_or_reason(space), asked, space.protocol, n_samples, seed,
        PassRate.from_results("can be built", built), shares[:split], shares[split:], formats,
        PassRate.from_results("passes everything", every), dict(unbuildable), problems)


def _holds(constraint: Constraint, candidate: CostedCandidate) -> bool | None:
    """Whether it holds; None where it is over costs, and no network can be built."""
    return None if constraint.costs and candidate.costs is None else constraint.is_satisfied(
        candidate.__getitem__)


def _reason(space: Space, sheet: Any) -> UnbuildableError:
    """Why no network can be built."""
    from scalesearch.space import UnbuildableError

    try:
        space.architecture(sheet)
    except UnbuildableError as error:
        return error
    raise AssertionError("a candidate without costs can be built")


# -- what no candidate meets


def _never_built(space: Space, reasons: Sequence[UnbuildableError]) -> Problem:
    """The complaint that none of the candidates can be built, at the key that is at fault most often."""
    path = Counter(error.key for error in reasons).most_common(1)[0][0]
    built = f"none of the {len(reasons):,} random candidates can" if len(
        reasons) > 1 else "the only candidate cannot"
    return space.problem_of(next(error for error in reasons if error.key == path),
                            f"{built} be built: ")


def _never_satisfied(constraint: Constraint, candidates: Iterable[CostedCandidate]) -> Problem:
    """The complaint that none of the ``candidates`` meets the constraint, and by how much the nearest misses it."""
    from scalesearch.space.syntax.diagnostics import Problem

    tried = list(candidates)
    several = f"none of the {len(tried):,} random candidates satisfies"
    subject = several if len(tried) > 1 else "the only candidate does not satisfy"
    nearest = min(tried, key=lambda candidate: constraint.violation(candidate.__getitem__))
    return Problem(constraint.position, f"{subject} this constraint",
                   _distance_to_limit(constraint, nearest), code="never-true")


def _distance_to_limit(constraint: Constraint, candidate: CostedCandidate) -> str | None:
    """How far ``candidate`` is away, where a constraint compares something with a number."""
    from scalesearch.space.syntax.evaluator import EvaluationError, evaluate
    from scalesearch.space.syntax.expressions import Compare, format_expr, keys_of

    match constraint.expression:
        case Compare(first, ((_, other),)) if bool(keys_of(first)) != bool(keys_of(other)):
            side, number = (first, other) if keys_of(first) else (other, first)
        case _:
            return None
    try:
        value, limit = (evaluate(one, candidate.__getitem__) for one in (side, number))
    except EvaluationError:
        return None
    if not isinstance(value, int | float) or not isinstance(limit, int | float):
        return None
    away = abs(value - limit)
    share = f" ({away / abs(limit):,.1%})" if limit else ""
    miss = f"{_number(away)}{share} {'above' if value > limit else 'below'} {_number(limit)}"
    return (f"the nearest candidate has {format_expr(side)} = {_number(value)}: "
            f"{miss if away else 'just not enough'}")


def _number(number: int | float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,.6g}"


# -- for people


def print_report(report: SpaceCheckReport) -> None:
    """Prints the report as tables."""
    from scalesearch.api.space import format_space_size, make_parameters_table

    sound = "" if report.problems else " is sound"
    size = format_space_size(len(report.parameters), report.size)
    print_text(f"{report.name or 'a space without a name'}{sound}: {size}", style="bold")
    if report.parameters:
        print_text(make_parameters_table((d["name"], d["values"], d["count"])
                                         for d in report.parameters))
    if report.n_samples:
        sizes = ", ".join(f"{key} {value}"
                          for key, value in report.protocol.items() if key != "name")
        protocol = f"{report.protocol['name']}{f' ({sizes})' if sizes else ''}"
        tried = (f"{report.n_samples:,} random candidates (seed {report.seed})" if report.parameters
                 else "the candidate")
        print_text(f"{tried}, protocol {protocol}")
        print_text(make_table(("constraint", "share"),
                              [(share.condition, "—" if share.rate is None else f"{share.rate:.1%}")
                               for share in (report.buildable, *report.constraints, *report.budgets,
                                             report.all_conditions, *report.exportable)]))
    for text, count in sorted(report.build_errors.items(), key=lambda item: -item[1])[:3]:
        print_text(f"cannot be built ({count}×): {text}")
