"""``scalesearch VERB FILE``: finds the verb, turns user errors into one message and exit status 2."""

import atexit
import gc
import importlib
import os
import select
import sys
from typing import TextIO

import click

from scalesearch import __version__
from scalesearch.errors import UserError
from scalesearch.signals import SignalInterrupt, interrupt_on_signal
from scalesearch.terminal import escape_control_characters

COMMANDS = {
    "check": ("check",
              "Validate a space file; say how large it is and what passes its constraints."),
    "cost": ("calculator.cost", "Params, MACs, FLOPs and memory of an architecture, exactly."),
    "feasible": ("calculator.feasible",
                 "What of a space fits a budget, exactly where it can be counted; what binds; the "
                 "best shapes."),
    "reference": ("reference",
                  "What three papers print of their models, " "recomputed, and on one ruler."),
    "solve": ("calculator.solve",
              "The largest size within a budget, and trades between sizes, exactly."),
    "train": ("train", "Train one architecture on a parallel corpus."),
    "distill": ("distill",
                "A teacher's " "translations of the training text, as a corpus for students."),
    "soften": ("soften",
               "A teacher's probabilities at every place of the training pairs, for students."),
    "translate": ("translate", "Translate lines from standard input with a trained checkpoint."),
    "score": ("score", "Score trained checkpoints on any files, with intervals and paired tests."),
    "analyze": ("analyze",
                "Heads, tokens, activations, load and gradients of a trained checkpoint."),
    "export": ("export",
               "A study's best model, or a training, as an artifact that other runtimes load."),
    "latency": ("latency",
                "Latency and peak memory of artifacts; a predictor of it for a whole space."),
    "study": ("study.group", "Search a space for its Pareto front; show and plot it.")}


class LazyGroup(click.Group):
    """Lists its verbs without importing them: ``--help`` stays fast, and torch waits until it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return importlib.import_module(f"scalesearch.cli.{COMMANDS[name][0]}").command

    def invoke(self, ctx: click.Context) -> object:
        """Runs the verb.

        Whoever reads what it prints may stop reading: to click that would be a failure.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            if not _reader_closed(sys.stdout):
                raise
            # else what is still to be written fails
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, help_) for name, (_, help_) in COMMANDS.items()])


def _reader_closed(stream: TextIO) -> bool:
    """Whether a stream is a pipe that nobody reads any more."""
    pipe = select.poll()
    pipe.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in pipe.poll(0))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def app() -> None:
    """Search efficient Transformer architectures under a budget."""


def main() -> None:
    """Entry point of the ``scalesearch`` command.

    Exits with 0, 1 where a training failed, 2 where the user has to change something, 130 on
    Ctrl-C, 143 on SIGTERM.
    """
    # else Python looks for garbage in all that is loaded: a fifth of what a report takes
    atexit.register(gc.freeze)
    try:
        with interrupt_on_signal():
            sys.exit(app(prog_name="scalesearch", standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:
        click.echo("Interrupted.", err=True)
        cause = error.__cause__ if isinstance(error, click.Abort) else error
        sys.exit(cause.status if isinstance(cause, SignalInterrupt) else SignalInterrupt("").status)
    except UserError as error:
        click.echo(escape_control_characters(error), err=True)
        sys.exit(2)
    except OSError as error:
        if error.filename is None:
            raise
        click.echo(escape_control_characters(f"{error.filename}: {error.strerror}"), err=True)
        sys.exit(2)
