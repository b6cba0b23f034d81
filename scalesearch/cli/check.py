"""``scalesearch check``: validate a space and sample candidates from it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from scalesearch.cli.options import (
    complete_space,
    describe_problem,
    load_space,
    option,
    print_json,
)
from scalesearch.terminal import (
    escape_control_characters,
    format_count,
    format_share,
    make_table,
    open_console,
    print_text,
)

if TYPE_CHECKING:
    from scalesearch.feasible.costed_candidates import CostedCandidate
    from scalesearch.spaces import Constraint, Space, UnbuildableError
    from scalesearch.spaces.syntax.diagnostics import Problem


CTRANSLATE2_REFUSALS = "refusals.ctranslate2"  # a cost; all other formats support everything


@click.command("check")
@click.argument("file", shell_complete=complete_space)
@option("set")
@click.option("--samples", default=1000, show_default=True, type=click.IntRange(min=0),
              help="Number of random configurations to test.")
@option("seed", default=0)
@click.option("--exportable", is_flag=True,
              help="Also print the share of candidates that each export format supports.")
@option("json")
def command(file: str, settings: tuple[str, ...], samples: int, seed: int, exportable: bool,
            as_json: bool) -> None:
    """Validate the space FILE, and print its size.

    All errors of the file are reported with their positions. The share of candidates that meet each
    constraint is estimated from candidates with uniformly sampled parameters.
    `scalesearch feasible` counts configurations instead, exactly if possible.

    \b
    Example: scalesearch check transformer --set encoder.depth=2..8
    """
    from scalesearch.spaces import ConfigError

    with open_console(stderr=True).status("counting configurations, testing candidates …"):
        report, problems = check_space(load_space(file, settings), samples, seed, exportable)
    if as_json:
        size = report["size"] if isinstance(report["size"], int) else None
        print_json({**report, "size": size, "problems": [*map(describe_problem, problems)]})
        if problems:
            click.echo(escape_control_characters(ConfigError(problems)), err=True)
        raise SystemExit(2 if problems else 0)
    print_report(report, is_valid=not problems)
    if problems:
        raise ConfigError(problems)


def check_space(space: Space, n_samples: int, seed: int,
                exportable: bool) -> tuple[dict[str, Any], list[Problem]]:
    """Test ``n_samples`` random candidates on the constraints and budgets of a space.

    Returns:
        The report as JSON values, where ``size`` is a text if it is infinite or not counted, and
        the problems: constraints that no candidate meets.
    """
    from scalesearch.cost import load_protocol
    from scalesearch.feasible.costed_candidates import CostedCandidate, evaluate_costs
    from scalesearch.feasible.limits import cost_names
    from scalesearch.spaces import UnbuildableError
    from scalesearch.spaces.parameters.count import space_size_or_reason

    rng = random.Random(seed)
    parameters = space.parameters()
    n_samples = n_samples if parameters else min(1, n_samples)  # a fixed architecture
    configs = [space.sample(rng) for _ in range(n_samples)]
    conditions = [(constraint.label, constraint) for constraint in space.constraints]
    conditions += [(f"{name}: {budget.label}", budget) for name, budget in space.budgets.items()]
    costs = {*cost_names(constraint for _, constraint in conditions),
             *[CTRANSLATE2_REFUSALS] * exportable}
    candidates = evaluate_costs([CostedCandidate.from_param_values(config) for config in configs],
                                load_protocol(space.protocol), costs)
    is_built = [candidate.costs is not None for candidate in candidates]
    # results[i][j]: result of condition i for candidate j; None if it needs the costs of a network
    # that cannot be built
    results = [[None if constraint.costs and candidate.costs is None
                else constraint.is_satisfied(candidate.__getitem__) for candidate in candidates]
               for _, constraint in conditions]
    rates = [pass_rate(text, row) for (text, _), row in zip(conditions, results)]
    problems = [_never_satisfied(constraint, [candidate for candidate, result
                                              in zip(candidates, row) if result is not None])
                for (_, constraint), row, rate in zip(conditions, results, rates)
                if rate["n_tested"] and not rate["n_passed"]]
    build_errors: list[UnbuildableError] = []
    for config, built in zip(configs, is_built):
        if not built:
            try:
                space.architecture(config)
            except UnbuildableError as error:
                build_errors.append(error)
    build_problems = [space.problem_of(error) for error in build_errors]
    if build_errors and not any(is_built):
        key = Counter(error.key for error in build_errors).most_common(1)[0][0]
        problems.append(space.problem_of(
            next(error for error in build_errors if error.key == key),
            f"{_none_of(len(build_errors), 'can', 'cannot')} be built: "))
    formats = []
    if exportable:
        is_supported = [bool(candidate.costs and candidate.costs[CTRANSLATE2_REFUSALS] == 0)
                        for candidate in candidates]
        formats = [pass_rate("exportable to ctranslate2", is_supported),
                   pass_rate("exportable to onnx, huggingface", [
                       built and config["model"] != "encoder-only"
                       for config, built in zip(configs, is_built)]),
                   pass_rate("exportable to torch", is_built)]
    n_constraints = len(space.constraints)
    # Several budgets are alternatives; commands choose one of them by its name.
    has_alternatives = len(space.budgets) > 1
    required = results[:n_constraints] if has_alternatives else results
    return {
        "name": space.name, "hash": space.hash, "size": space_size_or_reason(space),
        "parameters": [{"name": name, "values": str(parameter), "count": parameter.count()}
                       for name, parameter in parameters],
        "notes": space.describe_unused(),
        "protocol": space.protocol, "n_samples": n_samples, "seed": seed,
        "buildable": pass_rate("can be built", is_built),
        "constraints": rates[:n_constraints], "budgets": rates[n_constraints:],
        "exportable": formats,
        "all_conditions": pass_rate(
            f"meets all constraints{', without budgets' * has_alternatives}",
            [False not in column for column in zip(is_built, *required)]),
        "build_errors": dict(Counter(f"{problem.position}: {problem.message}"
                                     for problem in build_problems))}, problems


def pass_rate(condition: str, results: Sequence[bool | None]) -> dict[str, Any]:
    """Return number and share of candidates that meet a condition.

    Args:
        results: one per candidate; None if the condition cannot be evaluated. Such candidates are
            not counted; the share is None without others.
    """
    n_passed = sum(map(bool, results))
    n_tested = sum(result is not None for result in results)
    return {"condition": condition, "n_passed": n_passed, "n_tested": n_tested,
            "rate": n_passed / n_tested if n_tested else None}


# -- conditions that no candidate meets


def _none_of(n_candidates: int, verb: str, negated_verb: str) -> str:
    if n_candidates > 1:
        return f"none of the {n_candidates:,} random candidates {verb}"
    return f"the only candidate {negated_verb}"


def _never_satisfied(constraint: Constraint, candidates: Sequence[CostedCandidate]) -> Problem:
    """Report that no candidate meets a constraint, with the distance of the nearest.

    The distance is known for comparisons of a value with a number.
    """
    from scalesearch.spaces.syntax.diagnostics import Problem
    from scalesearch.spaces.syntax.expressions import (
        Compare,
        EvaluationError,
        evaluate,
        format_expr,
        keys_of,
    )

    nearest = min(candidates, key=lambda candidate: constraint.violation(candidate.__getitem__))
    help = None
    match constraint.expression:
        case Compare(first, ((_, other),)) if bool(keys_of(first)) != bool(keys_of(other)):
            side, number = (first, other) if keys_of(first) else (other, first)
            with suppress(EvaluationError):
                value = evaluate(side, nearest.__getitem__)
                limit = evaluate(number, nearest.__getitem__)
                if isinstance(value, int | float) and isinstance(limit, int | float):
                    distance = abs(value - limit)
                    share = f" ({100 * distance / abs(limit):,.1f} %)" if limit else ""
                    direction = "above" if value > limit else "below"
                    relation = f"{_format_number(distance)}{share} {direction}"
                    difference = f"{relation if distance else 'equal to'} {_format_number(limit)}"
                    help = (f"the nearest candidate has {format_expr(side)} = "
                            f"{_format_number(value)}: {difference}")
    subject = _none_of(len(candidates), "satisfies", "does not satisfy")
    return Problem(constraint.position, f"{subject} this constraint", help, code="never-true")


def _format_number(number: int | float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,.6g}"


# -- output


def print_report(report: dict[str, Any], is_valid: bool) -> None:
    """Print the report as tables."""
    from scalesearch.cost import load_protocol
    from scalesearch.spaces.parameters.count import format_space_size, make_parameters_table

    parameters = report["parameters"]
    size = format_space_size(len(parameters), report["size"])
    print_text(f"{report['name'] or 'a space without a name'}{' is valid' * is_valid}: {size}",
               style="bold")
    if parameters:
        print_text(make_parameters_table(parameter.values() for parameter in parameters))
    for note in report["notes"]:
        print_text(f"warning: {note}")
    if report["n_samples"]:
        subject = "the candidate"
        if parameters:
            subject = (f"{format_count(report['n_samples'], 'random candidate')} "
                       f"(seed {report['seed']})")
        print_text(f"{subject}, protocol {load_protocol(report['protocol'])}")
        rates = (report["buildable"], *report["constraints"], *report["budgets"],
                 report["all_conditions"], *report["exportable"])
        n_samples = report["n_samples"]
        print_text(make_table(("constraint", "share of candidates"), [
            (rate["condition"], "—" if rate["rate"] is None else format_share(rate["rate"])
             + f" of {rate['n_tested']:,} that can be built" * (rate["n_tested"] < n_samples))
            for rate in rates]))
    if not report["buildable"]["n_passed"]:
        return  # the error that follows names the most frequent reason
    for text, count in sorted(report["build_errors"].items(), key=lambda item: -item[1])[:3]:
        print_text(f"{text} ({count:,} of {report['n_samples']:,} candidates cannot be built)")
