"""The core installation: calculators work, and other commands print the command that installs their extra."""

import json
import subprocess
import sys

import pytest

from scalesearch.library import EXTRA_OF_PACKAGE

# Runs commands in one process in which no optional package can be imported.
SCRIPT = """
import contextlib, importlib.machinery, io, json, sys
blocked = set(json.loads(sys.argv[1]))
find_spec = importlib.machinery.PathFinder.find_spec
importlib.machinery.PathFinder.find_spec = lambda name, path=None, target=None: (
    None if name.partition(".")[0] in blocked else find_spec(name, path, target))
from scalesearch.cli.main import main
results = []
for arguments in json.loads(sys.argv[2]):
    sys.argv = ["scalesearch", *arguments]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            main()
        except SystemExit as error:
            results.append([error.code, output.getvalue()])
print(json.dumps(results))
"""

CALCULATORS = [
    ["--help"], ["study", "--help"], ["train", "--help"],
    ["cost", "transformer", "--formula"],
    ["cost", "transformer", "--sweep", "width=128..256 step 64", "--json"],
    ["cost", "transformer", "--artifact", "ctranslate2-int8", "--vocab", "8000"],
    ["cost", "small/device", "--random"],
    ["check", "transformer", "--set", "encoder.depth=2..8"],
    ["feasible", "small/anthe", "--budget", "params.total <= 10M"],
    ["solve", "transformer", "max width", "--budget", "params.total <= 10M"]]
NEED_AN_EXTRA = {
    "train": [["train", "transformer", "--out", "model"], ["translate", "model"],
              ["distill", "model", "--data", "builtin", "--out", "kd"],
              ["score", "model", "--source", "a", "--target", "b"],
              ["analyze", "model", "--data", "builtin"],
              ["export", "model", "--to", "ctranslate2"], ["cost", "transformer", "--verify"]],
    "study": [["study", "run", "quick"], ["study", "front", "study"],
              ["feasible", "small/anthe", "--budget", "params.total <= 10M", "--plot", "figures"]]}


def run_commands(commands: list[list[str]], folder) -> list[tuple[int, str]]:
    """Run commands without optional packages; return exit status and output of each."""
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps([*EXTRA_OF_PACKAGE]), json.dumps(commands)],
        cwd=folder, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_calculators_need_no_optional_package(tmp_path):
    for command, (status, output) in zip(CALCULATORS, run_commands(CALCULATORS, tmp_path)):
        assert status in (None, 0), (command, output)


@pytest.mark.parametrize("extra", NEED_AN_EXTRA)
def test_commands_print_how_to_install_their_extra(extra, tmp_path):
    commands = NEED_AN_EXTRA[extra]
    for command, (status, output) in zip(commands, run_commands(commands, tmp_path)):
        assert status == 2 and f"[{extra}]" in output, (command, output)
        assert "Traceback" not in output
