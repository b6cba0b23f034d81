"""Options and output functions that several commands share."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch.config.model import MAX_SEED
from scalesearch.errors import UserError
from scalesearch.terminal import CONTROL_CHARACTERS, open_console

if TYPE_CHECKING:
    from scalesearch.cost import CostBreakdown, Protocol
    from scalesearch.spaces import Space
    from scalesearch.spaces.assembly.architecture import ModelSpec

THREAD_COUNT = click.IntRange(1, 1024)
PROTOCOL_OPTIONS = ("protocol", "source", "target", "vocab", "artifact", "latency")
set_option = click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
                          help="Set a parameter, for example --set encoder.depth=12. Can be "
                          "repeated.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class RenamedOption(click.Option):
    """An option with earlier names, which still work but are not shown in the help."""

    def __init__(self, param_decls: Sequence[str], earlier: Sequence[str] = (),
                 **attributes: Any) -> None:
        super().__init__([*param_decls, *earlier], **attributes)
        self.earlier = earlier

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None:
            return None
        names, text = record
        for name in self.earlier:
            names = names.replace(f", {name}", "")
        return names, text


class OutputPath(click.Path):
    """An output file or folder, checked to be writable before any work is done."""

    def __init__(self, is_folder: bool = False) -> None:
        super().__init__(file_okay=not is_folder, dir_okay=is_folder, path_type=Path)
        self.is_folder = is_folder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from scalesearch.files import why_not_writable

        option = param.opts[0] if param else "output"
        try:
            reason = why_not_writable(Path(value), self.is_folder)
        except (OSError, ValueError) as error:  # the name is too long, or contains a NUL
            reason = getattr(error, "strerror", None) or str(error)
        if reason:
            raise UserError(f"{option} {value!s}: {reason}".replace("\0", "\\0"),
                            code="cannot-write")
        return super().convert(value, param, ctx)


def seed_option(default: int, help: str) -> Callable[..., Any]:
    """``--seed``, in the range that all random generators accept."""
    return click.option("--seed", type=click.IntRange(0, MAX_SEED), default=default,
                        show_default=True, help=help)


def protocol_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of the cost protocol, passed to the command as ``protocol_overrides``."""

    @functools.wraps(command)
    def wrapper(**options: Any) -> Any:
        overrides = {name: options.pop(name) for name in PROTOCOL_OPTIONS}
        overrides["name"] = overrides.pop("protocol")
        return command(protocol_overrides=overrides, **options)

    for option in (
            click.option("--latency", metavar="FIT.json",
                         help="Latency model (from `latency calibrate`) for latency.predicted."),
            click.option("--artifact", cls=RenamedOption, earlier=("--artefact",),
                         metavar="FORMAT",
                         help="Export format for artifact.bytes, e.g. ctranslate2-int8."),
            click.option("--vocab", type=int, metavar="V", help="Vocabulary size."),
            click.option("--target", type=int, metavar="T", help="Target tokens per sentence."),
            click.option("--source", type=int, metavar="S", help="Source tokens per sentence."),
            click.option("--protocol", metavar="NAME", help="Cost protocol: forward, decode, "
                         "decode-uncached, edgeformer or delight.")):
        wrapper = option(wrapper)
    return wrapper


def parse_settings(settings: tuple[str, ...], option: str = "--set") -> dict[str, str]:
    """Convert ``("a.b=c", …)`` to a mapping."""
    for setting in settings:
        if "=" not in setting:
            raise UserError(f"{option} {setting}: write KEY=VALUE, for example {option} "
                            "encoder.depth=12", code="not-key-value")
    return {key.strip(): value.strip()
            for key, _, value in (setting.partition("=") for setting in settings)}


def load_space(file: str, settings: tuple[str, ...]) -> Space:
    """Load the space ``file`` (a path or a built-in name) with ``settings``."""
    from scalesearch.api.space import space

    definition = space(file).definition
    overrides = parse_settings(settings)
    return definition.with_overrides(overrides) if overrides else definition


def load_architecture(file: str, settings: tuple[str, ...] = ()) -> tuple[Space, ModelSpec]:
    """Load the single architecture in ``file``.

    Raises:
        UserError: the file has free parameters, or the network cannot be built.
    """
    from scalesearch.spaces import ConfigError, UnbuildableError

    space = load_space(file, settings)
    try:
        return space, space.single_architecture(file)
    except UnbuildableError as error:
        raise ConfigError([space.problem_of(error)]) from None


def write_csv(result: Any, file: str) -> None:
    """Write ``result.frame()`` as CSV. Raises UserError if the file cannot be written."""
    from scalesearch.files import write_text
    from scalesearch.report.text_tables import to_csv

    try:
        write_text(Path(file), to_csv(result.frame()))
    except OSError as error:
        raise UserError(f"--csv {file}: {error.strerror or error}", code="cannot-write") from None


def weight_only_macs_lines(costs: Mapping[str, CostBreakdown]) -> list[str]:
    """Describe MACs on weights only, which the total of an architecture may exclude."""
    return [name + ": " * bool(name) + line for name, cost in costs.items()
            for line in cost.protocol.weight_work_lines(cost["macs.once"])]


def print_costs(record: Mapping[str, Any], protocol: Protocol) -> None:
    """Print costs as JSON, with the conventions of the protocol."""
    print_json({**record, "conventions": protocol.conventions})


def print_json(value: Any) -> None:
    """Print JSON with escaped control characters."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    click.echo(CONTROL_CHARACTERS.sub(lambda match: json.dumps(match[0])[1:-1], text))


@contextmanager
def progress_bars(interrupt_message: str = "") -> Iterator[Callable[[str, int, int], None]]:
    """Show one progress bar per counter on standard error.

    Yields a function of name, count and total. ``interrupt_message`` is printed after Ctrl-C.
    """
    from rich.progress import Progress

    console = open_console(stderr=True)
    with Progress(console=console) as progress:
        tasks: dict[str, Any] = {}

        def update(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=total)
            progress.update(tasks[name], completed=done)

        try:
            yield update
        except KeyboardInterrupt:
            if interrupt_message:
                console.print(interrupt_message)
            raise
