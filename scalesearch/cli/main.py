"""Entry point of ``scalesearch``: finds the command and reports errors."""

import atexit
import gc
import importlib
import os
import select
import sys
from io import TextIOWrapper

import click

from scalesearch import __version__
from scalesearch.errors import UserError
from scalesearch.library import file_errors_named, import_errors_named
from scalesearch.signals import SignalInterrupt, interrupt_on_signal
from scalesearch.terminal import escape_control_characters

# Module and summary of each command.
COMMANDS = {
    "check": ("check", "Validate a space file; print its size and the share of candidates that "
              "meet each constraint."),
    "cost": ("cost",
             "Compute the exact params, MACs, FLOPs and memory of an architecture."),
    "import": ("import_", "Convert the config.json of a Hugging Face model to a space file."),
    "feasible": ("feasible", "Count the candidates that fit a budget; print the "
                 "limiting constraints and the cost front."),
    "reference": ("reference", "Recompute the sizes reported in papers, under their own protocol "
                  "and under a common one."),
    "solve": ("solve",
              "Find the largest size within a budget, or sizes that keep a cost constant."),
    "train": ("train", "Train one architecture on a parallel corpus."),
    "distill": ("distill",
                "Write the translations or soft targets of a teacher, to train students on."),
    "translate": ("translate", "Translate lines from standard input with a trained model."),
    "generate": ("generate", "Continue a text with a trained language model."),
    "score": ("score", "Score trained models on any files, with intervals and paired tests."),
    "analyze": ("analyze", "Analyze the heads, tokens, activations and gradients of a trained "
                "model."),
    "export": ("export", "Export a trained model for another runtime."),
    "latency": ("latency", "Measure the latency and peak memory of exported models; fit a latency "
                "model for a space."),
    "schema": ("schema", "Print the JSON Schema of study, space, recipe or data files, for "
               "editors."),
    "mcp": ("mcp_", "Serve commands as tools for coding agents (Model Context Protocol)."),
    "study": ("study.group",
              "Run searches, ablations and scaling studies; inspect their results.")}
EARLIER_NAMES = {"analyse": "analyze"}  # hidden, for scripts


class LazyGroup(click.Group):
    """Lists its commands without importing them, so that ``--help`` is fast."""

    def resolve_command(self, ctx: click.Context, args: list[str]
                        ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; the error for an unknown name suggests a similar one."""
        is_name = bool(args) and not args[0].startswith("-") and not ctx.resilient_parsing
        if is_name and self.get_command(ctx, args[0]) is None:
            from difflib import get_close_matches

            match = get_close_matches(args[0], COMMANDS, 1)
            suggestion = f" Did you mean {match[0]!r}?" if match else ""
            ctx.fail(f"No such command {args[0]!r}.{suggestion}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name == "soften":  # the earlier name of ``distill --targets soft``
            return importlib.import_module("scalesearch.cli.distill").soften
        name = EARLIER_NAMES.get(name, name)
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(
            f"scalesearch.cli.{COMMANDS[name][0]}").command
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run the command.

        A closed pipe of standard output, as with ``head``, is not a failure; click treats it as
        one.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            pipe = select.poll()
            pipe.register(sys.stdout.fileno(), 0)
            if not any(event & select.POLLERR for _, event in pipe.poll(0)):  # it has a reader
                raise
            _discard_output()
            ctx.exit(0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_) for name, (_, help_) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def app() -> None:
    """Search efficient Transformer architectures under a budget."""


def _print_json_problems(error: UserError | click.ClickException) -> None:
    """After ``--json``, print the problems of an error on standard output, for programs.

    They are one line, because `translate --json` has a value per line.
    """
    if "--json" in sys.argv:
        from scalesearch.cli.options import print_json, problem_records

        try:
            print_json({"problems": problem_records(error)}, indent=None)
        except OSError:  # a closed pipe, or a full disk
            _discard_output()


def _discard_output() -> None:
    """Discard the rest of standard output; flushing it at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_output_full(error: OSError) -> bool:
    """Return whether ``error`` comes from standard output, a file on a full disk."""
    from scalesearch.files import DISK_FULL_ADVICE

    if error.errno not in DISK_FULL_ADVICE:
        return False
    try:
        os.write(sys.stdout.fileno(), b"\n")  # fails again if it is this file
    except OSError:
        return True
    return False


def main() -> None:
    """Entry point of the ``scalesearch`` command.

    The exit status is 0; 1 if a training run failed or nothing fits; 2 if the user must change
    something; 130 after Ctrl-C; 143 after SIGTERM.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # of characters that its encoding does not have
    # Skip the last garbage collection: it takes a fifth of the time of a report.
    atexit.register(gc.freeze)
    try:
        with interrupt_on_signal(), import_errors_named(), file_errors_named():
            sys.exit(app(prog_name="scalesearch", standalone_mode=False))
    except click.ClickException as error:
        _print_json_problems(error)
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:
        click.echo("Interrupted.", err=True)
        sys.exit((error if isinstance(error, SignalInterrupt) else SignalInterrupt("")).status)
    except UserError as error:
        _print_json_problems(error)
        click.echo(escape_control_characters(error), err=True)
        sys.exit(2)
    except OSError as error:
        if not _is_output_full(error):
            raise
        _discard_output()
        click.echo(f"standard output: cannot be written: {error.strerror}", err=True)
        sys.exit(2)
