"""Options and printing that several verbs share."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.errors import UserError
from scalesearch.space.schema.settings import MAX_SEED
from scalesearch.terminal import CONTROL_CHARACTERS, open_console

if TYPE_CHECKING:
    from scalesearch.cost import CostBreakdown, Protocol
    from scalesearch.space import Space
    from scalesearch.space.assembly.architecture import ModelSpec

THREAD_COUNT = click.IntRange(1, 1024)
PROTOCOL_OPTIONS = ("protocol", "source", "target", "vocab", "artifact", "latency")
set_option = click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
                          help="Answer or change a key: --set encoder.depth=12.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON value instead.")


class OutputPath(click.Path):
    """Where a verb writes: a file, or a ``is_folder``; that it can is found with the options, before any work."""

    def __init__(self, is_folder: bool = False) -> None:
        super().__init__(file_okay=not is_folder, dir_okay=is_folder, path_type=Path)
        self.is_folder = is_folder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from scalesearch.files import why_not_writable

        option = param.opts[0] if param else "output"
        try:
            reason = why_not_writable(Path(value), self.is_folder)
        except (OSError, ValueError) as error:  # a name that is too long, or holds a NUL
            reason = getattr(error, "strerror", None) or str(error)
        if reason:
            raise UserError(f"{option} {value!s}: {reason}".replace("\0", "\\0"),
                            code="cannot-write")
        return super().convert(value, param, ctx)


def seed_option(default: int, help: str) -> Callable[..., Any]:
    """``--seed``, within what every generator takes."""
    return click.option("--seed", type=click.IntRange(0, MAX_SEED), default=default,
                        show_default=True, help=help)


def protocol_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--protocol`` and its lengths, vocabulary and artifact: ``protocol_overrides``."""

    @functools.wraps(command)
    def gathered(**options: Any) -> Any:
        lengths = {name: options.pop(name) for name in PROTOCOL_OPTIONS}
        return command(protocol_overrides={"name": lengths.pop("protocol"), **lengths}, **options)

    for option in (
            click.option("--latency", metavar="FIT.json",
                         help="Of latency.predicted: see `scalesearch latency`."),
            click.option("--artifact", metavar="FORMAT",
                         help="Of artifact.bytes, such as ctranslate2-int8."),
            click.option("--vocab", type=int, metavar="V", help="Vocabulary size."),
            click.option("--target", type=int, metavar="T", help="Target tokens a sentence."),
            click.option("--source", type=int, metavar="S", help="Source tokens a sentence."),
            click.option("--protocol", metavar="NAME",
                         help="forward, decode, decode-uncached, edgeformer or delight.")):
        gathered = option(gathered)
    return gathered


def parse_settings(settings: tuple[str, ...], option: str = "--set") -> dict[str, str]:
    """``("a.b=c", …)`` as a mapping."""
    for setting in settings:
        if "=" not in setting:
            raise UserError(f"{option} {setting}: write KEY=VALUE, for example {option} "
                            "encoder.depth=12", code="not-key-value")
    return {key.strip(): value.strip()
            for key, _, value in (setting.partition("=") for setting in settings)}


def load_space(file: str, settings: tuple[str, ...]) -> Space:
    """The space in ``file`` (a path, or the name of a shipped one), changed by ``settings``."""
    from scalesearch.api.space import space

    return space(file).set(parse_settings(settings)).definition


def load_architecture(file: str, settings: tuple[str, ...] = ()) -> tuple[Space, ModelSpec]:
    """The one architecture in ``file``.

    Raises:
        UserError: the file leaves something to choose, or no network can be built from it.
    """
    from scalesearch.space import ConfigError, UnbuildableError

    space = load_space(file, settings)
    try:
        return space, space.single_architecture(file)
    except UnbuildableError as error:
        raise ConfigError([space.problem_of(error)]) from None


def write_csv(result: Any, file: str) -> None:
    """Writes what has a ``frame()``. Raises UserError where the file cannot be written."""
    from scalesearch.files import write_text
    from scalesearch.report.text_tables import to_csv

    try:
        write_text(Path(file), to_csv(result.frame()))
    except OSError as error:
        raise UserError(f"--csv {file}: {error.strerror or error}", code="cannot-write") from None


def weight_only_macs_lines(costs: Mapping[str, CostBreakdown]) -> list[str]:
    """What each architecture computes on weights alone, which its total may leave out."""
    return [name + ": " * bool(name) + line for name, cost in costs.items()
            for line in cost.protocol.weight_work_lines(cost["macs.once"])]


def print_costs(record: Mapping[str, Any], protocol: Protocol) -> None:
    """Prints costs as one JSON value, which says what they leave out."""
    print_json({**record, "conventions": protocol.conventions})


def print_json(value: Any) -> None:
    """One JSON value on standard output, in which nothing steers a terminal."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    click.echo(CONTROL_CHARACTERS.sub(lambda found: json.dumps(found[0])[1:-1], text))


@contextmanager
def progress_bars(interrupt_message: str = "") -> Iterator[Callable[[str, int, int], None]]:
    """A bar on standard error for each thing that is counted; ``interrupt_message``: what Ctrl-C
    has left, and how to go on."""
    from rich.progress import Progress

    console = open_console(stderr=True)
    with Progress(console=console) as progress:
        tasks: dict[str, Any] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done)

        try:
            yield tell
        except KeyboardInterrupt:
            if interrupt_message:
                console.print(interrupt_message)
            raise
