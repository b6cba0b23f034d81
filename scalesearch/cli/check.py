"""``scalesearch check FILE``: is the space sound, how large is it, what passes its constraints."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import json_option, load_space, print_json, set_option
from scalesearch.errors import UserError
from scalesearch.terminal import make_table, say

if TYPE_CHECKING:
    from scalesearch.cli.calculator.unmet import Nearest
    from scalesearch.space import Answers, Constraint, Space
    from scalesearch.space.syntax.diagnostics import Problem


@dataclass
class Share:
    """How many of the samples asked met something."""

    text: str
    met: int = 0
    of: int = 0
    nearest: "Nearest | None" = field(default=None, repr=False)

    @property
    def share(self) -> float | None:
        """The fraction; ``None`` where nothing could be asked."""
        return self.met / self.of if self.of else None

    def count(self, met: bool) -> None:
        """Counts one sample."""
        self.met += met
        self.of += 1

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {"text": self.text, "met": self.met, "of": self.of, "share": self.share}


@dataclass
class Report:
    """What ``check`` found out."""

    name: str
    hash: str
    size: int | str
    dimensions: list[tuple[str, str, int | None]]
    protocol: dict[str, Any]
    samples: int = 0
    seed: int = 0
    built: Share = field(default_factory=lambda: Share("can be built"))
    where: list[Share] = field(default_factory=list)
    budgets: list[Share] = field(default_factory=list)
    all: Share = field(default_factory=lambda: Share("passes everything"))
    unbuildable: dict[str, int] = field(default_factory=dict)

    @property
    def problems(self) -> tuple["Problem", ...]:
        """Constraints that no sample met, though some could be asked."""
        unmet = [share for share in (*self.where, *self.budgets) if share.of and not share.met]
        return tuple(share.nearest.problem(share.of) for share in unmet if share.nearest)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``; ``size`` is null where it is endless or not counted."""
        record = {item.name: getattr(self, item.name) for item in fields(self)}
        record["size"] = self.size if isinstance(self.size, int) else None
        names = ("name", "values", "count")
        record["dimensions"] = [dict(zip(names, dimension, strict=True)) for dimension in self.dimensions]
        record |= {key: getattr(self, key).to_json() for key in ("built", "all")}
        record |= {key: [share.to_json() for share in getattr(self, key)] for key in ("where", "budgets")}
        return record | {"problems": [problem.to_json() for problem in self.problems]}


@click.command("check")
@click.argument("file")
@set_option
@click.option("--samples", default=1000, show_default=True, type=click.IntRange(min=0), help="Random candidates.")
@click.option("--seed", default=0, show_default=True, help="Of the random candidates.")
@json_option
def command(file: str, settings: tuple[str, ...], samples: int, seed: int, as_json: bool) -> None:
    """Validate the space FILE; say how large it is and what share of samples passes each constraint."""
    from scalesearch.space import SpaceErrors

    try:
        report = examine(load_space(file, settings), samples, seed)
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
        raise SpaceErrors(report.problems)


def problems_json(error: UserError, file: str) -> list[dict[str, Any]]:
    """What is wrong with ``file``, for machines: each problem with its place, or the message where there is none."""
    unplaced = {"file": file, "line": None, "column": None, "code": error.code, "message": str(error), "help": None}
    return [problem.to_json() for problem in getattr(error, "problems", ())] or [unplaced]


def examine(space: "Space", samples: int, seed: int) -> Report:
    """Describes ``space`` and tries ``samples`` random candidates on its constraints and budgets."""
    from scalesearch.cli.calculator.unmet import Nearest

    dimensions = [(name, str(parameter), parameter.count()) for name, parameter in space.dimensions()]
    report = Report(space.name, space.hash, _size(space), dimensions, space.protocol, samples, seed)
    report.where = [Share(constraint.text, nearest=Nearest(constraint)) for constraint in space.where]
    report.budgets = [
        Share(f"{name}: {constraint.text}", nearest=Nearest(constraint))
        for name, constraint in space.budgets.items()
    ]
    rng, bill = random.Random(seed), _biller(space)
    for _ in range(samples):
        _try(space, space.sample(rng), bill, report)
    return report


def _size(space: "Space") -> int | str:
    """How many answer sheets there are, or why nobody says."""
    from scalesearch.space.questionnaire.count import TooTangled

    try:
        size = space.size()
    except TooTangled as error:
        return f"not counted: {error}"
    return "endless: a range is continuous" if size is None else size


def _biller(space: "Space") -> Callable[["Answers"], Any]:
    """``bill(answers)``: the cost of the network, as a lookup by name. Raises Unbuildable."""
    from scalesearch.cost import cost, protocol_of

    protocol = protocol_of(space.protocol)
    needed = any(constraint.costs for constraint in (*space.where, *space.budgets.values()))

    def bill(answers: "Answers") -> Any:
        block = space.architecture(answers).block
        return cost(block, protocol) if needed else {}

    return bill


def _try(space: "Space", answers: "Answers", bill: Callable[["Answers"], Any], report: Report) -> None:
    """Counts one candidate."""
    from scalesearch.space import Unbuildable

    costs: Any = None
    try:
        costs = bill(answers)
    except Unbuildable as error:
        report.unbuildable[str(error)] = report.unbuildable.get(str(error), 0) + 1
    report.built.count(costs is not None)
    met = [
        *_count(space.where, report.where, answers, costs),
        *_count(space.budgets.values(), report.budgets, answers, costs),
    ]
    report.all.count(costs is not None and all(met))


def _count(constraints: Iterable["Constraint"], shares: list[Share], answers: "Answers", costs: Any) -> list[bool]:
    """Counts every constraint that can be asked: one over costs needs a network that can be built."""
    found = []
    for constraint, share in zip(constraints, shares, strict=True):
        needed = constraint.costs
        if needed and costs is None:
            continue
        lookup = partial(_value, needed, costs, answers)
        met = constraint.holds(lookup)
        if share.nearest and not met and not share.met:
            share.nearest.see(lookup)
        share.count(met)
        found.append(met)
    return found


def _value(needed: set[str], costs: Any, answers: "Answers", name: str) -> Any:
    """A cost or an answer, by name."""
    return costs[name] if name in needed else answers[name]


def show(report: Report) -> None:
    """Prints the report as tables."""
    size = f"{report.size:,} answer sheet{'s' * (report.size != 1)}" if isinstance(report.size, int) else report.size
    parameters = f"{len(report.dimensions)} parameter{'s' * (len(report.dimensions) != 1)}"
    sound = "" if report.problems else " is sound"
    say(f"{report.name or 'a space without a name'}{sound}: {parameters}, {size}", style="bold")
    if report.dimensions:
        say(make_table(("parameter", "values", "count"), [
            (name, values, "∞" if count is None else f"{count:,}") for name, values, count in report.dimensions
        ], (0, 1)))
    if report.samples:
        sizes = ", ".join(f"{key} {value}" for key, value in report.protocol.items() if key != "name")
        protocol = f"{report.protocol['name']}{f' ({sizes})' if sizes else ''}"
        tried = f"{report.samples:,} random candidate{'s' * (report.samples != 1)}"
        say(f"{tried} (seed {report.seed}), protocol {protocol}")
        say(make_table(("constraint", "share"), [
            (share.text, "—" if share.share is None else f"{share.share:.1%}")
            for share in (report.built, *report.where, *report.budgets, report.all)
        ]))
    for text, count in sorted(report.unbuildable.items(), key=lambda item: -item[1])[:3]:
        say(f"cannot be built ({count}×): {text}")
