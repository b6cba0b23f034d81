"""Errors of a run, located in the study file. A missing corpus shows only when it is looked for."""

from collections.abc import Sequence

from scalesearch.errors import UserError
from scalesearch.space.binding.constants import placed
from scalesearch.space.syntax.diagnostics import Problem, SpaceErrors
from scalesearch.study.config.spec import StudySpec
from scalesearch.study.config.storage_url import hide


def at_its_place(error: UserError, spec: StudySpec) -> UserError:
    """Adds file, line and column to ``error``, where it is of a key that the file has."""
    located = placed(error, spec.places)
    return shown(located.problems) if isinstance(located, SpaceErrors) and located is not error else error


def shown(problems: Sequence[Problem]) -> SpaceErrors:
    """Error with all problems. The lines of the file in it hold no password of a storage."""
    return SpaceErrors(problems, hide(str(SpaceErrors(problems))))
