"""Options and output functions that several commands share.

``OPTIONS`` defines each option that several commands have once; a command may change its default
or help.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from glob import escape, glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from scalesearch.config import MAX_BEAM, MAX_SEED
from scalesearch.errors import UserError
from scalesearch.files import replace_non_finite
from scalesearch.library import require_packages, shipped_names
from scalesearch.report.figures import FIGURE_METADATA
from scalesearch.spaces.schema.cost_names import CACHE_TYPES
from scalesearch.spaces.schema.types import MAX_SIZE
from scalesearch.spaces.syntax.diagnostics import ConfigError, Problem
from scalesearch.terminal import CONTROL_CHARACTERS, open_console, print_data

if TYPE_CHECKING:
    from scalesearch.cost import CostBreakdown, Protocol
    from scalesearch.spaces import Space
    from scalesearch.spaces.assembly.architecture import ModelSpec

QUANTIZATIONS = ("none", "int8", "int16", "bf16")


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


def complete_file(category: str) -> Callable[..., list[CompletionItem]]:
    """Return the shell completion of the name of a shipped file, or of the path of another one."""

    def complete(context: click.Context, parameter: click.Parameter,
                 incomplete: str) -> list[CompletionItem]:
        names = [name for name in shipped_names(category) if name.startswith(incomplete)]
        names += sorted(glob(f"{escape(incomplete)}*.yaml"))
        # the shell completes other paths
        return [*map(CompletionItem, names)] or [CompletionItem(incomplete, type="file")]

    return complete


complete_space = complete_file("spaces")
complete_study = complete_file("studies")


class OutputPath(click.Path):
    """An output file or folder, checked to be writable before any work is done."""

    def __init__(self, is_folder: bool = False) -> None:
        super().__init__(file_okay=not is_folder, dir_okay=is_folder, path_type=Path)
        self.is_folder = is_folder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from scalesearch.files import why_not_writable

        option = param.opts[0] if param else "output"
        path = Path(value)
        if self.is_folder and path.suffix[1:] in FIGURE_METADATA and not path.is_dir():
            raise UserError(f"{option} {path}: a folder is expected, not a file",
                            help=f"use {option} {path.with_suffix('')}; commands that draw figures "
                            "have --format", code="cannot-write")
        try:
            reason = why_not_writable(Path(value), self.is_folder)
        except (OSError, ValueError) as error:  # the name is too long, or contains a NUL
            reason = getattr(error, "strerror", None) or str(error)
        if reason:
            raise UserError(f"{option} {value!s}: {reason}".replace("\0", "\\0"),
                            code="cannot-write")
        return super().convert(value, param, ctx)


class Size(click.ParamType):
    """A number of tokens or of entries of a vocabulary; 8k is 8000, as in files."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        size = self.parse(value, param, ctx)
        if size > MAX_SIZE:
            self.fail(f"{value!r} is too large: at most {MAX_SIZE:,}", param, ctx)
        return size

    def parse(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the whole number of an option."""
        from scalesearch.spaces.syntax.lexer import ValueSyntaxError, tokenize

        with suppress(ValueError):
            return int(value)
        try:
            number, end = tokenize(value)
            if value.endswith("B"):
                raise ValueError("a number of bytes")
        except (ValueSyntaxError, ValueError):
            self.fail(f"{value!r} is not a number such as 8000 or 8k", param, ctx)
        if end.type != "end" or not isinstance(number.value, int):
            self.fail(f"{value!r} is not a whole number", param, ctx)
        return int(number.value)


COUNT = click.IntRange(1)
SIZE = Size()
FOLDER = OutputPath(is_folder=True)
THREADS = click.IntRange(1, 1024)


def _use_figure_style(context: click.Context, parameter: click.Parameter, style: str) -> None:
    """Draw the figures of the command in ``style``."""
    if style == "paper":
        require_packages("matplotlib")
        from scalesearch.report.figures.style import paper_style

        context.with_resource(paper_style())


def _use_figure_formats(context: click.Context, parameter: click.Parameter,
                        formats: Sequence[str]) -> None:
    """Write the figures of the command in ``formats``, if there are any."""
    if formats:
        require_packages("matplotlib")
        from scalesearch.report.figures.style import figure_formats

        context.with_resource(figure_formats(formats))


OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "set": {"name": "settings", "multiple": True, "metavar": "KEY=VALUE",
            "help": "Set a parameter, for example --set encoder.depth=12. Can be repeated."},
    "json": {"name": "as_json", "is_flag": True, "help": "Print JSON."},
    "csv": {"type": OutputPath(), "help": "Write the table as CSV."},
    "seed": {"type": click.IntRange(0, MAX_SEED), "help": "Random seed."},
    "style": {"type": click.Choice(("screen", "paper")), "default": "screen",
              "expose_value": False, "callback": _use_figure_style,
              "help": "Style of figures; paper is 3.3 inches wide, for one column."},
    "format": {"type": click.Choice(tuple(FIGURE_METADATA)), "multiple": True,
               "expose_value": False, "callback": _use_figure_formats,
               "help": "Format of figures (default: png and svg). Can be repeated."},
    "budget": {"name": "budgets", "multiple": True, "metavar": "LIMITS",
               "help": "Budget, e.g. 'params.non_embedding <= 10M and macs.total <= 2G', or the "
               "name of a budget of the file. Can be repeated."},
    "samples": {"earlier": ("--draws",), "type": click.IntRange(100)},
    "data": {"metavar": "FILE", "help": "Data file (YAML), or `builtin`."},
    "out": {"type": FOLDER, "help": "Output folder."},
    "to-folder": {"option": "to", "type": FOLDER, "help": "Output folder."},
    # the cost protocol
    "protocol": {"metavar": "NAME", "help": "Cost protocol: forward, decode, decode-uncached, "
                 "edgeformer, delight or train."},
    "source": {"type": SIZE, "metavar": "S", "help": "Source tokens per sentence."},
    "target": {"type": SIZE, "metavar": "T", "help": "Target tokens per sentence."},
    "length": {"type": SIZE, "metavar": "N", "help": "Tokens of a language model's context, and "
               "of source and target; adds macs.prefill and macs.decode_step."},
    "cache": {"type": click.Choice(tuple(CACHE_TYPES)),
              "help": "Type of the numbers in memory.cache.  [default: float32]"},
    "vocab": {"type": SIZE, "metavar": "V", "help": "Vocabulary size."},
    "shortlist": {"type": SIZE, "metavar": "N",
                  "help": "Tokens whose logits a decoding step computes (default: all)."},
    "artifact": {"earlier": ("--artefact",), "metavar": "FORMAT",
                 "help": "Export format for artifact.bytes, e.g. ctranslate2-int8."},
    "latency": {"metavar": "FIT.json",
                "help": "Latency model (from `latency calibrate`) for latency.predicted."},
    "recipe": {"metavar": "NAME|FILE", "help": "Recipe for macs.update, macs.run, "
               "memory.optimizer and memory.training: a preset or a file."},
    "pairs": {"type": COUNT, "help": "Sentence pairs of an epoch; needs a recipe in epochs."},
    # models
    "to": {"name": "format_name", "default": "ctranslate2",
           "help": "Export format of models that are not exported yet."},
    "quantize": {"type": click.Choice(QUANTIZATIONS),
                 "help": "Weight type (default: that of the format; none is float32)."},
    "sentences": {"type": COUNT},
    "threads": {"default": 1, "type": THREADS, "help": "Number of threads, and of cores to which "
                "they are pinned."},
    "beam": {"type": click.IntRange(1, MAX_BEAM), "help": "Beam size; 1 is greedy."},
    "length-penalty": {"type": click.FloatRange(0), "show_default": "the model's",
                       "help": "α in log-probability / length^α."},
    "max-length-a": {"type": click.FloatRange(0, 1000), "show_default": "the model's",
                     "help": "A translation has at most A · source tokens + B tokens."},
    "max-length-b": {"type": click.IntRange(0, 100_000), "show_default": "the model's",
                     "help": "B in --max-length-a."},
    "allow-unk": {"is_flag": True, "help": "Allow unknown tokens in translations; each is printed "
                  "as ⁇."},
    "batch": {"default": 6144, "type": COUNT, "help": "Source tokens per batch."},
    # studies
    "workers": {"type": COUNT, "help": "Number of parallel workers."},
    "address": {"help": "Address of a running Ray cluster: HOST:PORT, or auto."},
    "metric": {"metavar": "NAME",
               "help": "Metric (default: the task's main metric). Test scores: test.bleu."},
    "constraint": {"earlier": ("--under",), "metavar": "CONDITIONS"},
    "confidence": {"default": 0.9, "type": click.FloatRange(0.5, 0.9999),
                   "help": "Confidence level of the intervals."},
    "resamples": {"type": click.IntRange(10), "help": "Number of bootstrap resamples."},
}


def option(key: str, **changes: Any) -> Callable[..., Any]:
    """Return the decorator of an option of ``OPTIONS``, with other values of some attributes."""
    attributes = {"show_default": True, **OPTIONS[key], **changes}
    if attributes.get("required"):
        attributes.pop("default", None)
    names = [f"--{attributes.pop('option', key)}"]
    if "name" in attributes:
        names.append(attributes.pop("name"))
    return click.option(*names, cls=RenamedOption, **attributes)


def grouped_options(parameter: str, convert: Callable[..., Any],
                    **options: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decorator with several options, whose values are passed as one parameter.

    Args:
        parameter: name of the parameter.
        convert: function of the values by name.
        options: the options by the name of their value, in the order of the help.
    """
    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def wrapper(**arguments: Any) -> Any:
            values = {name: arguments.pop(name) for name in options}
            return command(**{parameter: convert(**values)}, **arguments)

        for add_option in reversed(options.values()):
            wrapper = add_option(wrapper)
        return wrapper

    return decorate


def _protocol_overrides(protocol: str | None, recipe: str | None, pairs: int | None,
                        **overrides: Any) -> dict[str, Any]:
    for name, value in overrides.items():
        if value == "":
            raise UserError(f"--{name}: the value is empty", code="bad-value")
    overrides["name"] = protocol
    if recipe is None:
        return {"pairs": pairs, **overrides}
    from scalesearch.training.input_files import load_training_costs

    return {**load_training_costs(recipe, pairs), **overrides}


protocol_options = grouped_options(
    "protocol_overrides", _protocol_overrides,
    **{name: option(name) for name in ("protocol", "source", "target", "length", "cache", "vocab",
                                       "shortlist", "recipe", "pairs", "artifact", "latency")})
# Beam and length penalty default to those of the model.
search_options = grouped_options(
    "search", dict, beam=option("beam", show_default="the model's"),
    length_penalty=option("length-penalty"), max_length_a=option("max-length-a"),
    max_length_b=option("max-length-b"), allow_unk=option("allow-unk"),
    batch_tokens=option("batch", name="batch_tokens"))


def parse_settings(settings: Sequence[str], option_name: str = "--set") -> dict[str, str]:
    """Convert ``("a.b=c", …)`` to a mapping.

    Raises:
        UserError: a setting has another form, or a key is given twice.
    """
    for setting in settings:
        if not setting.partition("=")[0].strip() or "=" not in setting:
            other_file = ("; to compare two files, write `scalesearch cost FILE FILE`"
                          if option_name == "--against" else "")
            raise UserError(f"{option_name} {setting}: write KEY=VALUE, for example {option_name} "
                            f"encoder.depth=12{other_file}", code="not-key-value")
    check_keys_differ(settings, option_name)
    return {key.strip(): value.strip()
            for key, _, value in (setting.partition("=") for setting in settings)}


def distinct_names(folders: Sequence[str]) -> list[str]:
    """Return the shortest last parts of the paths that are different for different folders.

    If a folder is given twice, its name is followed by its number.
    """
    paths = [Path(folder).resolve().parts for folder in folders]
    for count in range(1, max(map(len, paths)) + 1):
        names = [str(Path(*parts[-count:])) for parts in paths]
        if len(set(names)) == len(set(paths)):
            break
    return [name if names.count(name) == 1 else f"{name} ({number})"
            for number, name in enumerate(names, 1)]


def check_keys_differ(settings: Sequence[str], option_name: str) -> None:
    """Check that an option has each key once.

    Raises:
        UserError: a key is given twice.
    """
    keys = [setting.partition("=")[0].strip() for setting in settings]
    for key in keys:
        if keys.count(key) > 1:
            raise UserError(f"{option_name}: {key} is given twice", help="remove one of the two; "
                            f"several values are written {option_name} 'width=64 | 128'",
                            code="given-twice")


def load_space(file: str, settings: Sequence[str] = ()) -> Space:
    """Load the space ``file`` (a path or a built-in name) with ``settings``."""
    from scalesearch.library import find_file
    from scalesearch.spaces import read_space

    space = read_space(find_file(file, "spaces"))
    overrides = parse_settings(settings)
    return space.with_overrides(overrides) if overrides else space


def load_architecture(file: str, settings: Sequence[str] = (),
                      against: Sequence[str] = ()) -> tuple[Space, ModelSpec]:
    """Load the single architecture in ``file``, with the changes of --set and of --against.

    Raises:
        UserError: the file has free parameters, or the network cannot be built.
    """
    from scalesearch.spaces import ConfigError, UnbuildableError

    space = load_space(file, settings)
    if against:
        space = space.with_overrides(parse_settings(against, "--against"), "against")
    try:
        return space, space.single_architecture(file)
    except UnbuildableError as error:
        raise ConfigError([space.problem_of(error)]) from None


def not_expressed_record(space: Space) -> dict[str, Any]:
    """Differences to a Hugging Face model as an entry of JSON; empty without differences."""
    if not space.not_expressed:
        return {}
    return {"not_expressed": [vars(difference) for difference in space.not_expressed]}


@contextmanager
def write_errors_named(option_name: str, path: object) -> Iterator[None]:
    """Context in which a failed write is an error of the option with the output path."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{option_name} {path}: {error.strerror or error}",
                        code="cannot-write") from None


def write_csv(result: Any, file: Path) -> None:
    """Write ``result.frame()`` as CSV. Raises UserError if the file cannot be written."""
    from scalesearch.files import write_text
    from scalesearch.report.text_tables import to_csv

    with write_errors_named("--csv", file):
        write_text(file, to_csv(result.frame()))


def weight_only_macs_lines(costs: Mapping[str, CostBreakdown]) -> list[str]:
    """Describe MACs on weights only, which the total of an architecture may exclude."""
    return [name + ": " * bool(name) + line for name, cost in costs.items()
            for line in cost.protocol.weight_work_lines(cost["macs.once"])]


def print_costs(record: Mapping[str, Any], protocol: Protocol) -> None:
    """Print costs as JSON, with the conventions of the protocol."""
    print_json({**record, "conventions": protocol.conventions})


def print_json(value: Any, indent: int | None = 2) -> None:
    """Print JSON with escaped control characters; on one line if ``indent`` is None.

    NaN and infinite numbers, which JSON does not have, are null.
    """
    text = json.dumps(replace_non_finite(value), indent=indent, ensure_ascii=False)
    print_data(CONTROL_CHARACTERS.sub(lambda match: json.dumps(match[0])[1:-1], text))


def describe_problem(problem: Problem) -> dict[str, str | int | None]:
    """Return a problem as JSON values; lines and columns count from 1."""
    position = problem.position
    has_lines = position.source.has_lines
    return {"file": position.source.name, "line": position.line + 1 if has_lines else None,
            "column": position.column + 1 if has_lines else None, "code": problem.code,
            "message": problem.message, "help": problem.help}


def problem_records(error: UserError | click.ClickException
                    ) -> list[dict[str, str | int | None]]:
    """Return the problems of an error as JSON values."""
    nowhere = {"file": None, "line": None, "column": None}
    match error:
        case ConfigError(problems=(_, *_)):
            return [*map(describe_problem, error.problems)]
        case UserError(code=code, message=message, help=help):
            return [{**nowhere, "code": code, "message": message, "help": help}]
    return [{**nowhere, "code": "usage", "message": error.format_message(), "help": None}]


@contextmanager
def progress_bars(interrupt_message: str = "") -> Iterator[Callable[[str, int, int], None]]:
    """Show one progress bar per counter on standard error.

    Yields a function of name, count and total. ``interrupt_message`` is printed after Ctrl-C, after
    the counts.
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
                counts = (f"{task.completed:,.0f} of {task.total:,.0f} are saved. "
                          for task in progress.tasks)
                console.print("".join([*counts, interrupt_message]))
            raise
