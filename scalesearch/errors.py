"""Errors that a user can fix: printed without a traceback, exit status 2."""

from collections.abc import Iterator
from contextlib import contextmanager


class UserError(Exception):
    """An error in the user's input. The message names the problem, its place and the fix.

    Attributes:
        code: identifier in kebab-case (``study-exists``), for programs and tests. A message may
            change, a code does not. Several messages with the same meaning share a code. Every
            ``raise`` or its class sets one. ``--json`` prints it; other output does not.
        message: the problem.
        help: the fix, if the message does not contain it.
        key: the key of a study, recipe or data file with the invalid value; ``data.train`` for
            nested keys.
    """

    code = ""  # a subclass for a single error sets its code here

    def __init__(self, message: str = "", *, code: str = "", help: str | None = None,
                 key: str | None = None) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.message = message
        self.help = help
        self.key = key

    def __str__(self) -> str:
        return f"{self.message}; {self.help}" if self.help else str(self.message)


@contextmanager
def error_context(key: str) -> Iterator[None]:
    """Context that sets the key of UserErrors that do not have one."""
    try:
        yield
    except UserError as error:
        error.key = error.key or key
        raise
