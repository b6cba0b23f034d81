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


REFUSALS = "refusals.ctranslate2"  # of the one format that does not take everything


@dataclass(frozen=True)
class Share:
    """How many candidates meet something, of those that could be asked; a ``share`` of None where none could."""

    text: str
    met: int
    of: int
    share: float | None

    @classmethod
    def count(cls, text: str, met: Sequence[bool | None]) -> Share:
        """Counts candidates; None is one that could not be asked."""
        hits, asked = sum(map(bool, met)), sum(one is not None for one in met)
        return cls(text, hits, asked, hits / asked if asked else None)


@dataclass(frozen=True)
class Report:
    """What ``check`` found out; ``size`` is a text where it is endless or not counted."""

    name: str
    hash: str
    size: int | str
    dimensions: list[dict[str, Any]]
    protocol: dict[str, Any]
    samples: int
    seed: int
    built: Share
    where: list[Share]
    budgets: list[Share]
    exportable: list[Share]
    all: Share
    unbuildable: dict[str, int]
    problems: list[Problem]

    def to_json(self) -> dict[str, Any]:
        """For ``--json``; ``size`` is null where it is endless or not counted."""
        shares = {"built": asdict(self.built), "where": [asdict(share) for share in self.where],
                  "budgets": [asdict(share) for share in self.budgets],
                  "exportable": [asdict(share) for share in self.exportable], "all": asdict(self.all)}
        size = self.size if isinstance(self.size, int) else None
        return {**vars(self), **shares, "size": size, "problems": [problem.to_json() for problem in self.problems]}


@click.command("check")
@click.argument("file")
@set_option
@click.option("--samples", default=1000, show_default=True, type=click.IntRange(min=0), help="Random candidates.")
@seed_option(0, "Of the random candidates.")
@click.option("--exportable", is_flag=True, help="Also say what share each format of `scalesearch export` takes.")
@json_option
def command(file: str, settings: tuple[str, ...], samples: int, seed: int, exportable: bool, as_json: bool) -> None:
    """Validate the space FILE; say how large it is and what share of samples passes each constraint."""
    from rich.console import Console

    from scalesearch.space import ConfigError

    try:
        with Console(stderr=True).status("counting answer sheets, trying candidates …"):
            report = examine(load_space(file, settings), samples, seed, exportable)
    except UserError as error:
        if not as_json:
            raise
        print_json({"problems": problems_json(error, file)})
        raise SystemExit(2) from None
    if as_json:
        print_json(report.to_json())
        raise SystemExit(2 if report.problems else 0)
    show(report)
    if report.problems:
        raise ConfigError(report.problems)


def problems_json(error: UserError, file: str) -> list[dict[str, Any]]:
    """What is wrong with ``file``, for machines: each problem with its place, or the message where there is none."""
    unplaced = {"file": file, "line": None, "column": None, "code": error.code, "message": str(error), "help": None}
    return [problem.to_json() for problem in getattr(error, "problems", ())] or [unplaced]


def examine(space: Space, samples: int, seed: int, exportable: bool = False) -> Report:
    """Describes ``space`` and tries ``samples`` random candidates on its constraints and budgets."""
    from scalesearch.api.space import size_of
    from scalesearch.cost import load_protocol
    from scalesearch.feasible.costed_candidates import CostedCandidate, evaluate_costs
    from scalesearch.feasible.limits import cost_names

    rng, dimensions = random.Random(seed), space.parameters()
    samples = samples if dimensions else min(1, samples)  # of a space that leaves nothing open, there is one
    sheets = [space.sample(rng) for _ in range(samples)]
    named = [(c.text, c) for c in space.constraints] + [(f"{name}: {c.text}", c) for name, c in space.budgets.items()]
    costs = {*cost_names(constraint for _, constraint in named), *[REFUSALS] * exportable}
    candidates = evaluate_costs([CostedCandidate.from_param_values(sheet) for sheet in sheets], load_protocol(space.protocol), costs)
    built = [candidate.costs is not None for candidate in candidates]
    met = [[_holds(constraint, candidate) for candidate in candidates] for _, constraint in named]
    shares = [Share.count(text, one) for (text, _), one in zip(named, met)]
    problems = [_unmet(constraint, [c for c, one in zip(candidates, answers) if one is not None])
                for (_, constraint), answers, share in zip(named, met, shares) if share.of and not share.met]
    every = [all(one is not False for one in (ok, *answers)) for ok, *answers in zip(built, *met)]
    asked = [{"name": name, "values": str(p), "count": p.count()} for name, p in dimensions]
    reasons = [_reason(space, sheet) for sheet, ok in zip(sheets, built) if not ok]
    unbuildable = Counter(map(str, reasons))
    problems += [_never_built(space, reasons)] if reasons and not any(built) else []
    taken = [bool(one.costs and one.costs[REFUSALS] == 0) for one in candidates] if exportable else []
    formats = [Share.count("exportable to ctranslate2", taken), Share.count("exportable to onnx, huggingface, torch",
                                                                            built)] if exportable else []
    split = len(space.constraints)
    return Report(space.name, space.hash, size_of(space), asked, space.protocol, samples, seed,
                  Share.count("can be built", built), shares[:split], shares[split:], formats,
                  Share.count("passes everything", every), dict(unbuildable), problems)


def _holds(constraint: Constraint, candidate: CostedCandidate) -> bool | None:
    """Whether it holds; None where it is over costs, and no network can be built."""
    return None if constraint.costs and candidate.costs is None else constraint.is_satisfied(candidate.__getitem__)


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
    built = f"none of the {len(reasons):,} random candidates can" if len(reasons) > 1 else "the only candidate cannot"
    return space.problem_of(next(error for error in reasons if error.key == path), f"{built} be built: ")


def _unmet(constraint: Constraint, candidates: Iterable[CostedCandidate]) -> Problem:
    """The complaint that none of the ``candidates`` meets the constraint, and by how much the nearest misses it."""
    from scalesearch.space.syntax.diagnostics import Problem

    tried = list(candidates)
    several = f"none of the {len(tried):,} random candidates satisfies"
    subject = several if len(tried) > 1 else "the only candidate does not satisfy"
    nearest = min(tried, key=lambda candidate: constraint.violation(candidate.__getitem__))
    return Problem(constraint.position, f"{subject} this constraint", _miss(constraint, nearest), code="never-true")


def _miss(constraint: Constraint, candidate: CostedCandidate) -> str | None:
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
    return f"the nearest candidate has {format_expr(side)} = {_number(value)}: {miss if away else 'just not enough'}"


def _number(number: int | float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,.6g}"


# -- for people


def show(report: Report) -> None:
    """Prints the report as tables."""
    from scalesearch.api.space import parameters_table, size_words

    sound = "" if report.problems else " is sound"
    size = size_words(len(report.dimensions), report.size)
    print_text(f"{report.name or 'a space without a name'}{sound}: {size}", style="bold")
    if report.dimensions:
        print_text(parameters_table((d["name"], d["values"], d["count"]) for d in report.dimensions))
    if report.samples:
        sizes = ", ".join(f"{key} {value}" for key, value in report.protocol.items() if key != "name")
        protocol = f"{report.protocol['name']}{f' ({sizes})' if sizes else ''}"
        tried = f"{report.samples:,} random candidates (seed {report.seed})" if report.dimensions else "the candidate"
        print_text(f"{tried}, protocol {protocol}")
        print_text(make_table(("constraint", "share"), [
            (share.text, "—" if share.share is None else f"{share.share:.1%}")
            for share in (report.built, *report.where, *report.budgets, report.all, *report.exportable)
        ]))
    for text, count in sorted(report.unbuildable.items(), key=lambda item: -item[1])[:3]:
        print_text(f"cannot be built ({count}×): {text}")
