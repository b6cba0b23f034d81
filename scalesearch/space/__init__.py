"""The space language: which models may be proposed.

A space is a questionnaire; whatever can answer a parameter can propose a model. ``read_space`` reads a file,
``Space.parse`` a text, ``Space.of`` Python forms; all three have one meaning.
"""

from scalesearch.space.questionnaire.answers import Answers
from scalesearch.space.questionnaire.constraints import Constraint
from scalesearch.space.space import Space, read_space
from scalesearch.space.syntax.diagnostics import Problem, SpaceErrors, Unbuildable
from scalesearch.space.syntax.parameters import Choice, FloatRange, IntRange, Parameter
from scalesearch.space.syntax.schedules import Call, Reference
from scalesearch.space.syntax.value_parser import parse_schedule

__all__ = ["Answers", "Call", "Choice", "Constraint", "FloatRange", "IntRange", "Problem", "Parameter", "Reference",
           "Space", "SpaceErrors", "Unbuildable", "parse_schedule", "read_space"]
