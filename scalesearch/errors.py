"""Errors that a user can act on: printed without a traceback, exit status 2."""

from collections.abc import Iterator
from contextlib import contextmanager


class UserError(Exception):
    """Something the user gave is wrong; the message says what, where, and what would be right.

    Attributes:
        code: which error it is, in kebab-case (``study-exists``), for programs and tests: a message
            may be reworded, a
            code stays. One code may have several messages that mean the same. Every ``raise`` names
            one, or its class
            does. People do not see it; ``--json`` shows it.
        message: what is wrong.
        help: what would be right, where the message does not say so.
        key: of a study, recipe or data file, whose value is at fault; ``data.train`` of one inside
            another.
    """

    code = ""  # a subclass that stands for one error has its code here

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
    """Errors raised inside are of ``key``, unless they say another."""
    try:
        yield
    except UserError as error:
        error.key = error.key or key
        raise
