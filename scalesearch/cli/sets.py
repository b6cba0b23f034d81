"""The option ``--set KEY=VALUE``, shared by the verbs that read a space."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from scalesearch.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])


def parse_sets(ctx: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """``("encoder.depth=12",)`` as a mapping. Raises UserError for what is no ``key=value``."""
    found: dict[str, str] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key.strip() or not text.strip():
            raise UserError(f"--set {value}: write --set KEY=VALUE, such as --set encoder.depth=12")
        found[key.strip()] = text.strip()
    return found


def set_option(command: F) -> F:
    """Adds ``--set``; the command receives ``sets``, a mapping from key to text."""
    help = "Give a key anew, in the language of space files; may be repeated."
    return click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", callback=parse_sets, help=help)(command)
