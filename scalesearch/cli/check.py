"""``scalesearch check``: validate a space and sample candidates from it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import json_option, load_space, print_json, seed_option, set_option
from scalesearch.errors import UserError
from scalesearch.terminal import make_table, print_text

if TYPE_CHECKING:
    from scalesearch.feasible.costed_candidates import CostedCandidate
    from scalesearch.spaces import Constraint, Space, UnbuildableError
    from scalesearch.spaces.syntax.diagnostics import Problem


CTRANSLATE2_REFUSALS = "refusals.ctranslate2"  # a cost; all other formats support everything


@dataclass(frozen=True)
class PassRate:
    """Number and share of candidates that meet a condition.

    ``n_tested`` excludes candidates for which the condition cannot be evaluated. ``rate`` is None
    if it cannot be evaluated for any candidate.
    """

    condition: str
    n_passed: int
    n_tested: int
    rate: float | None

    @classmethod
    def from_results(cls, condition: str, results: Sequence[bool | None]) -> PassRate:
        """Count the results per candidate; None means that it could not be evaluated."""
        n_passed = sum(map(bool, results))
        n_tested = sum(result is not None for result in results)
        return cls(condition, n_passed, n_tested, n_passed / n_tested if n_tested else None)


@dataclass(frozen=True)
class SpaceCheckReport:
    """Result of ``check``; ``size`` is a text if it is infinite or not counted."""

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
        """Convert to JSON; ``size`` is null if it is infinite or not counted."""
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
              help="Number of random configurations to test.")
@seed_option(0, "Random seed.")
@click.option("--exportable", is_flag=True,
              help="Also print the share of candidates that each export format supports.")
@json_option
def command(file: str, settings: tuple[str, ...], samples: int, seed: int, exportable: bool,
            as_json: bool) -> None:
    """Validate the space FILE, and print its size.

    All errors of the file are reported with their positions. The share of candidates that meet each
    constraint is estimated from random candidates.

    \b
    Example: scalesearch check transformer --set encoder.depth=2..8
    """
    from rich.console import Console

    from scalesearch.spaces import ConfigError

    try:
        with Console(stderr=True).status("counting configurations, testing candidates …"):
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
    """Convert an error of ``file`` to JSON: one entry per problem, or the message."""
    without_position = {"file": file, "line": None, "column": None, "code": error.code,
                        "message": str(error), "help": None}
    problems = [problem.to_json() for problem in getattr(error, "problems", ())]
    return problems or [without_position]


def check_space(space: Space, n_samples: int, seed: int,
                exportable: bool = False) -> SpaceCheckReport:
    """Test ``n_samples`` random candidates on the constraints and budgets of a space."""
    from scalesearch.api.space import space_size_or_reason
    from scalesearch.cost import load_protocol
    from scalesearch.feasible.costed_candidates import CostedCandidate, evaluate_costs
    from scalesearch.feasible.limits import cost_names

    rng = random.Random(seed)
    parameters = space.parameters()
    n_samples = n_samples if parameters else min(1, n_samples)  # a fixed architecture
    configs = [space.sample(rng) for _ in range(n_samples)]
    conditions = [(constraint.text, constraint) for constraint in space.constraints]
    conditions += [(f"{name}: {budget.text}", budget) for name, budget in space.budgets.items()]
    costs = {*cost_names(constraint for _, constraint in conditions),
             *[CTRANSLATE2_REFUSALS] * exportable}
    candidates = evaluate_costs([CostedCandidate.from_param_values(config) for config in configs],
                                load_protocol(space.protocol), costs)
    is_built = [candidate.costs is not None for candidate in candidates]
    # results[i][j]: result of condition i for candidate j
    results = [[_is_satisfied(constraint, candidate) for candidate in candidates]
               for _, constraint in conditions]
    rates = [PassRate.from_results(text, row) for (text, _), row in zip(conditions, results)]
    problems = [_never_satisfied(constraint, [candidate for candidate, result
                                              in zip(candidates, row) if result is not None])
                for (_, constraint), row, rate in zip(conditions, results, rates)
                if rate.n_tested and not rate.n_passed]
    meets_all = [False not in column for column in zip(is_built, *results)]
    build_errors = [_build_error(space, config)
                    for config, built in zip(configs, is_built) if not built]
    if build_errors and not any(is_built):
        problems.append(_never_built(space, build_errors))
    formats = []
    if exportable:
        is_supported = [bool(candidate.costs and candidate.costs[CTRANSLATE2_REFUSALS] == 0)
                        for candidate in candidates]
        formats = [PassRate.from_results("exportable to ctranslate2", is_supported),
                   PassRate.from_results("exportable to onnx, huggingface, torch", is_built)]
    n_constraints = len(space.constraints)
    return SpaceCheckReport(
        space.name, space.hash, space_size_or_reason(space),
        [{"name": name, "values": str(parameter), "count": parameter.count()}
         for name, parameter in parameters],
        space.protocol, n_samples, seed, PassRate.from_results("can be built", is_built),
        rates[:n_constraints], rates[n_constraints:], formats,
        PassRate.from_results("meets all constraints", meets_all),
        dict(Counter(map(str, build_errors))), problems)


def _is_satisfied(constraint: Constraint, candidate: CostedCandidate) -> bool | None:
    """Evaluate a constraint; None if it needs costs and the network cannot be built."""
    if constraint.costs and candidate.costs is None:
        return None
    return constraint.is_satisfied(candidate.__getitem__)


def _build_error(space: Space, config: Any) -> UnbuildableError:
    """Return the reason why the network of a configuration cannot be built."""
    from scalesearch.spaces import UnbuildableError

    try:
        space.architecture(config)
    except UnbuildableError as error:
        return error
    raise AssertionError("a candidate without costs can be built")


# -- conditions that no candidate meets


def _never_built(space: Space, errors: Sequence[UnbuildableError]) -> Problem:
    """Report that no candidate can be built, at the most frequent key of the errors."""
    key = Counter(error.key for error in errors).most_common(1)[0][0]
    subject = "the only candidate cannot"
    if len(errors) > 1:
        subject = f"none of the {len(errors):,} random candidates can"
    return space.problem_of(next(error for error in errors if error.key == key),
                            f"{subject} be built: ")


def _never_satisfied(constraint: Constraint, candidates: Sequence[CostedCandidate]) -> Problem:
    """Report that no candidate meets a constraint, with the distance of the nearest."""
    from scalesearch.spaces.syntax.diagnostics import Problem

    subject = "the only candidate does not satisfy"
    if len(candidates) > 1:
        subject = f"none of the {len(candidates):,} random candidates satisfies"
    nearest = min(candidates, key=lambda candidate: constraint.violation(candidate.__getitem__))
    return Problem(constraint.position, f"{subject} this constraint",
                   _distance_to_limit(constraint, nearest), code="never-true")


def _distance_to_limit(constraint: Constraint, candidate: CostedCandidate) -> str | None:
    """Describe the distance to the limit of a comparison of a value with a number."""
    from scalesearch.spaces.syntax.expressions import Compare, EvaluationError, evaluate, format_expr, keys_of

    match constraint.expression:
        case Compare(first, ((_, other),)) if bool(keys_of(first)) != bool(keys_of(other)):
            side, number = (first, other) if keys_of(first) else (other, first)
        case _:
            return None
    try:
        value = evaluate(side, candidate.__getitem__)
        limit = evaluate(number, candidate.__getitem__)
    except EvaluationError:
        return None
    if not isinstance(value, int | float) or not isinstance(limit, int | float):
        return None
    prefix = f"the nearest candidate has {format_expr(side)} = {_format_number(value)}: "
    distance = abs(value - limit)
    if not distance:
        return f"{prefix}just not enough"
    share = f" ({100 * distance / abs(limit):,.1f} %)" if limit else ""
    direction = "above" if value > limit else "below"
    return f"{prefix}{_format_number(distance)}{share} {direction} {_format_number(limit)}"


def _format_number(number: int | float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,.6g}"


# -- output


def print_report(report: SpaceCheckReport) -> None:
    """Print the report as tables."""
    from scalesearch.api.space import format_space_size, make_parameters_table

    valid = "" if report.problems else " is valid"
    size = format_space_size(len(report.parameters), report.size)
    print_text(f"{report.name or 'a space without a name'}{valid}: {size}", style="bold")
    if report.parameters:
        print_text(make_parameters_table((parameter["name"], parameter["values"],
                                          parameter["count"])
                                         for parameter in report.parameters))
    if report.n_samples:
        sizes = ", ".join(f"{key} {value}"
                          for key, value in report.protocol.items() if key != "name")
        protocol = f"{report.protocol['name']}{f' ({sizes})' if sizes else ''}"
        subject = "the candidate"
        if report.parameters:
            subject = f"{report.n_samples:,} random candidates (seed {report.seed})"
        print_text(f"{subject}, protocol {protocol}")
        rates = (report.buildable, *report.constraints, *report.budgets, report.all_conditions,
                 *report.exportable)
        print_text(make_table(("constraint", "share of candidates"), [
            (rate.condition, "—" if rate.rate is None else f"{100 * rate.rate:.1f} %")
            for rate in rates]))
    for text, count in sorted(report.build_errors.items(), key=lambda item: -item[1])[:3]:
        print_text(f"cannot be built ({count}×): {text}")
