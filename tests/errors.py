"""Assert the code and place of an error; messages may be reworded."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from scalesearch.errors import UserError


@contextmanager
def refuses(code: str, *parts: object, key: str | None = None,
            place: str | None = None) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """Assert that the block raises a UserError.

    Args:
        code: the code of the error.
        parts: what the message must contain: the value, file or number at fault, not a phrase.
        key: the key of the error.
        place: the beginning of the message, ``FILE:LINE`` or the name of the invalid part.
    """
    with pytest.raises(UserError) as caught:
        yield caught
    error = caught.value
    assert error.code == code, f"{error.code}: {error}"
    missing = [str(part) for part in parts if str(part) not in str(error)]
    assert not missing, f"{missing} not in: {error}"
    assert key is None or key == error.key, f"{error.key}: {error}"
    assert place is None or str(error).startswith(place), str(error)
