"""Errors that a user can fix: printed without a traceback, exit status 2."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

# Argument names of the Python function that runs, if they differ from the options; None in the
# command line.
_argument_names: ContextVar[Mapping[str, str] | None] = ContextVar("argument_names", default=None)


class UserError(Exception):
    """An error in the user's input.

    The message names the problem, its place and the fix.

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


def first_line(error: BaseException) -> str:
    """Return the first line of an error that is not empty, or the name of its class."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def option(name: str, value: object = None) -> str:
    """Return the name of an option in a message; in Python, that of the argument.

    Example:
        >>> option("out"), option("hold", "'macs.total within 1%'")
        ('--out', "--hold 'macs.total within 1%'")
        >>> with python_arguments({"to": "format"}):
        ...     option("out"), option("resume"), option("to", "onnx"), option("set", "width=64")
        ('out=', 'resume=True', 'format=onnx', 'width=64')
    """
    names = _argument_names.get()
    if value is not None:
        return f"{option_prefix(name)}{value}"
    if names is None:
        return f"--{name}"
    return "resume=True" if name == "resume" else option_prefix(name)


def option_prefix(name: str) -> str:
    """Return what stands before the value of an option; in Python, of an argument."""
    names = _argument_names.get()
    if names is None:
        return f"--{name} "
    return "" if name == "set" else f"{names.get(name, name.replace('-', '_'))}="


@contextmanager
def python_arguments(names: Mapping[str, str]) -> Iterator[None]:
    """Context in which messages name arguments instead of options.

    Args:
        names: option to argument, if another one than the option with underscores.
    """
    token = _argument_names.set({"for": "for_each", **names})
    try:
        yield
    finally:
        _argument_names.reset(token)


@contextmanager
def error_context(key: str) -> Iterator[None]:
    """Context that sets the key of UserErrors that do not have one."""
    try:
        yield
    except UserError as error:
        error.key = error.key or key
        raise
