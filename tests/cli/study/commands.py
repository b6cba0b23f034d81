"""Calls of ``scalesearch study`` in this process."""

from click.testing import CliRunner

from scalesearch.cli.study.group import command


def call_study(*arguments, **environment):
    """Return the output of a command, which must succeed."""
    result = CliRunner().invoke(command, [*map(str, arguments)], catch_exceptions=False,
                                env=environment)
    assert result.exit_code == 0, result.output
    return result.output
