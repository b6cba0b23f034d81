"""The space language: which models may be proposed.

A space is a questionnaire; whatever can answer a question can propose a model. ``read_space`` reads a file,
``Space.parse`` a text, ``Space.of`` Python forms; all three have one meaning.
"""

from scalesearch.space.answers import Answers
from scalesearch.space.constraints import Constraint
from scalesearch.space.problems import Problem, SpaceErrors, Unbuildable
from scalesearch.space.questions import Choice, FloatRange, IntRange, Question
from scalesearch.space.schedules import Call, Reference, parse_schedule
from scalesearch.space.space import Space, read_space

__all__ = [
    "Answers",
    "Call",
    "Choice",
    "Constraint",
    "FloatRange",
    "IntRange",
    "Problem",
    "Question",
    "Reference",
    "Space",
    "SpaceErrors",
    "Unbuildable",
    "parse_schedule",
    "read_space",
]
