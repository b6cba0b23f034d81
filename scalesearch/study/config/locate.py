"""Where in a study file stands what a run found wrong: a missing corpus shows only when it is looked for."""

from collections.abc import Sequence

from scalesearch.errors import UserError
from scalesearch.space.syntax.diagnostics import Problem, SpaceErrors
from scalesearch.study.config.spec import StudySpec
from scalesearch.study.config.storage_url import hide

ALSO = {"ray": "resources"}  # where an address may stand as well


def at_its_place(error: UserError, spec: StudySpec) -> UserError:
    """``error`` with file, line and column, where its message begins with a key that the file has; else as it is."""
    message = str(error)
    key = message.partition(":")[0]
    place = spec.places.get(key) or spec.places.get(ALSO.get(key, key))
    if type(error) is not UserError or place is None:
        return error
    return shown([Problem(place, message)])


def shown(problems: Sequence[Problem]) -> SpaceErrors:
    """All of them; the lines of the file that they show hold no password of a storage."""
    return SpaceErrors(problems, hide(str(SpaceErrors(problems))))
