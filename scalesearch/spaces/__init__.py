"""The space language: parameter spaces of architectures.

``read_space`` reads a file, ``Space.parse`` a text, ``Space.from_python`` nested Python mappings. A
sampler returns a value for each parameter that ``Space.resolve`` requests.
"""

from scalesearch.spaces.parameters.constraints import Constraint
from scalesearch.spaces.parameters.param_values import ParamValues
from scalesearch.spaces.space import Space, read_space
from scalesearch.spaces.syntax.diagnostics import ConfigError, Problem, UnbuildableError
from scalesearch.spaces.syntax.domains import LayerReference, ScheduleCall
from scalesearch.spaces.syntax.parameters import Choice, FloatRange, IntRange, Parameter
from scalesearch.spaces.syntax.parser import parse_schedule

__all__ = ["ParamValues", "ScheduleCall", "Choice", "Constraint", "FloatRange", "IntRange",
           "Problem", "Parameter", "LayerReference", "Space", "ConfigError", "UnbuildableError",
           "parse_schedule", "read_space"]
