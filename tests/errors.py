"""Asserts which error is raised by its code and place; messages may be reworded."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from scalesearch.errors import UserError


@contextmanager
def refuses(code: str, *parts: object, key: str | None = None,
            place: str | None = None) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """Expects a UserError.

    Args:
        code: the error's.
        parts: what the message must name: the value, file or number at fault, never a phrase.
        key: the error's key .
        place: how the message begins, ``FILE:LINE`` or the name of what is wrong.
    """
    with pytest.raises(UserError) as caught:
        yield caught
    error = caught.value
    assert error.code == code, f"{error.code}: {error}"
    missing = [str(part) for part in parts if str(part) not in str(error)]
    assert not missing, f"{missing} not in: {error}"
    assert key is None or key == error.key, f"{error.key}: {error}"
    assert place is None or str(error).startswith(place), str(error)
