"""Where in a study file stands what a run found wrong: a missing corpus shows only when it is looked for."""

from collections.abc import Sequence

from scalesearch.errors import UserError
from scalesearch.space.binding.constants import placed
from scalesearch.space.syntax.diagnostics import Problem, SpaceErrors
from scalesearch.study.config.spec import StudySpec
from scalesearch.study.config.storage_url import hide


def at_its_place(error: UserError, spec: StudySpec) -> UserError:
    """``error`` with file, line and column, where it is of a key that the file has; else as it is."""
    found = placed(error, spec.places)
    return shown(found.problems) if isinstance(found, SpaceErrors) and found is not error else error


def shown(problems: Sequence[Problem]) -> SpaceErrors:
    """All of them; the lines of the file that they show hold no password of a storage."""
    return SpaceErrors(problems, hide(str(SpaceErrors(problems))))
