"""Messages in Python's words: arguments, where the command line has options."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from scalesearch.errors import UserError
from scalesearch.library import import_errors_named

P = ParamSpec("P")
T = TypeVar("T")
# A command stays as it is; an option may be what an error is of, or have its value behind it.
OPTION_PATTERN = re.compile(r"`(?!--)[^`]*`|--set: |--set (?=[\w{])|"
                    r"--(?P<name>[a-z][a-z-]*)(?P<place>: )?(?P<value>[ =](?=['\"\d]))?")
# what was replace_quoted, with a mark below its place
QUOTED_OPTION_PATTERN = re.compile(r"^( *)(--([a-z-]+) )(.*\n)( *)(?=\^)", re.M)
OPTION_TO_ARGUMENT = {"resume": "resume=True", "quantize": "quantize", "for": "each"}


def python_error_messages(**renamed: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorator of functions whose UserErrors name arguments; ``renamed``: of options that have another name here."""
    def decorated(call: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(call)
        def spoken(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                with import_errors_named():
                    return call(*args, **kwargs)
            except UserError as error:
                error.message = options_to_arguments(error.message, renamed)
                error.help = error.help and options_to_arguments(error.help, renamed)
                error.args = (error.message,)
                raise

        return spoken

    return decorated


def options_to_arguments(text: str, renamed: dict[str, str]) -> str:
    """``text`` with arguments in place of options.

    Example:
        >>> translate("choose another folder with --out, or --resume; try `scalesearch cost --sweep`", {})
        'choose another folder with out=, or resume=True; try `scalesearch cost --sweep`'
    """
    def argument(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return "" if match[0].startswith("--") else match[0]
        argument_name = (OPTION_TO_ARGUMENT | renamed).get(name, name.replace("-", "_"))
        if match["place"]:
            return f"{argument_name}: "
        return argument_name if "=" in argument_name else f"{argument_name}="

    def replace_quoted(match: re.Match[str]) -> str:
        indent, option, name, text, blanks = match.groups()
        word = "" if name == "set" else f"{renamed.get(name, name)}="
        return f"{indent}{word}{text}{blanks[len(option) - len(word) :]}"

    return OPTION_PATTERN.sub(argument, QUOTED_OPTION_PATTERN.sub(replace_quoted, text))
