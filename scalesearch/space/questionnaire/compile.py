"""Makes the plan for what was read."""

import re
from typing import Any

from scalesearch.space.questionnaire.plans import Ask, CallPlan, Compute, Fixed, Fork, Nothing, Pick, Plan, Switch
from scalesearch.space.questionnaire.schedules import Call, Reference
from scalesearch.space.schema.types import Field
from scalesearch.space.syntax.domains import (
    Alternatives,
    Between,
    CallOf,
    Computed,
    Conditional,
    Indexed,
    Items,
    Literal,
    Spec,
)
from scalesearch.space.syntax.expressions import write
from scalesearch.space.syntax.parameters import Choice

SIZE = Field("size")


def plan_for(spec: Spec, name: str, field: Field) -> Plan:
    """The plan for ``spec``; ``name`` is what its question is called."""
    constant = constant_of(spec, field)
    if constant is not None:
        return Fixed(constant[0])
    match spec:
        case Between(found):
            return Ask(name, found)
        case Computed(expression):
            return Compute(expression, field)
        case CallOf(call, arguments):
            names = [name if len(arguments) == 1 else f"{name} #{at + 1}" for at in range(len(arguments))]
            plans = [plan_for(argument, own, SIZE) for argument, own in zip(arguments, names, strict=True)]
            return CallPlan(call, tuple(plans))
        case Conditional(then, condition, other):
            first = plan_for(then, name, field)
            asks = any(True for _ in first.dimensions())
            return Switch(condition, first, plan_for(other, f"{name} (else)" if asks else name, field))
        case Alternatives(options):
            return _alternatives(options, name, field)
    return Nothing()


def constant_of(spec: Spec, field: Field) -> tuple[Any] | None:
    """The one value that ``spec`` stands for, in a tuple; ``None`` where it has to be asked or computed."""
    match spec:
        case Literal(value):
            return (value,)
        case Items(values):
            return (tuple(values) if field.kind == "schedule" else list(values),)
        case Indexed(path, index):
            return (Reference(path, write(index)),)
        case CallOf(name, arguments) if all(isinstance(argument, Literal) for argument in arguments):
            return (Call(name, tuple(int(a.value) for a in arguments if isinstance(a, Literal))),)
    return None


def _alternatives(options: tuple[Spec, ...], name: str, field: Field) -> Plan:
    constants = [constant_of(option, field) for option in options]
    labels = [_label(option, constant) for option, constant in zip(options, constants, strict=True)]
    question = Choice(tuple(labels))
    values = tuple(constant[0] for constant in constants if constant is not None)
    if len(values) == len(options):
        return Pick(name, question, values)
    return Fork(name, question, tuple(plan_for(option, f"{name} ({option})", field) for option in options))


def _label(option: Spec, constant: tuple[Any] | None) -> Any:
    if constant is not None and isinstance(constant[0], int | float | str):
        return constant[0]
    return re.sub(r"\s+", " ", str(option))
