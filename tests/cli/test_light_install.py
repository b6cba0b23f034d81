"""The core installation: calculators work, and other commands print how to install their extra."""

import json
import subprocess
import sys

import pytest

from scalesearch.library import EXTRA_OF_PACKAGE

# Runs commands in one process in which no optional package can be imported. Prints exit status,
# output, and the heavy packages that were loaded or looked for.
SCRIPT = """
import contextlib, importlib.machinery, io, json, sys
blocked = set(json.loads(sys.argv[1]))
heavy = set()
find_spec = importlib.machinery.PathFinder.find_spec
def find_unblocked(name, path=None, target=None):
    if name in ("torch", "optuna", "pandas", "pydantic", "ray", "matplotlib"):
        heavy.add(name)
    return None if name.partition(".")[0] in blocked else find_spec(name, path, target)
importlib.machinery.PathFinder.find_spec = find_unblocked
from scalesearch.cli.main import main
results = []
for arguments in json.loads(sys.argv[2]):
    sys.argv = ["scalesearch", *arguments]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            main()
        except SystemExit as error:
            results.append([error.code or 0, output.getvalue(), sorted(heavy)])
print(json.dumps(results))
"""

INVALID = {  # command to a part of its error
    ("cost", "transformer", "--set", "encoder.dpeth=3"): "encoder.depth",
    ("solve", "transformer", "max width", "--budget", "params.total <= 10Q"): "`10Q`",
    ("reference", "--paper", "edge"): "did you mean edgeformer",
    ("check", "no-such.yaml"): "no-such.yaml: no such file"}
WITHOUT_HEAVY_PACKAGES = [  # run first; the others may load pandas
    ["--help"], ["study", "--help"], ["study", "run", "--help"], ["train", "--help"],
    ["cost", "transformer"], ["reference", "--paper", "anthe"],
    ["check", "small/edgeformer", "--samples", "5"],
    ["solve", "transformer", "max width", "--budget", "params.total <= 10M"]]
CALCULATORS = [
    ["cost", "transformer", "--formula"],
    ["cost", "transformer", "--sweep", "width=128..256 step 64", "--json"],
    ["cost", "transformer", "--artifact", "ctranslate2-int8", "--vocab", "8000"],
    ["cost", "small/device", "--random"],
    ["check", "transformer", "--set", "encoder.depth=2..8"],
    ["feasible", "small/anthe", "--budget", "params.total <= 10M"]]
NEED_AN_EXTRA = {
    "mcp": [["mcp"]],
    "train": [["train", "transformer", "--out", "model"], ["translate", "model"],
              ["distill", "model", "--data", "builtin", "--out", "kd"],
              ["score", "model", "--source", "a", "--target", "b"],
              ["analyze", "model", "--data", "builtin"],
              ["export", "model", "--to", "ctranslate2"], ["cost", "transformer", "--verify"]],
    "study": [["study", "run", "quick"], ["study", "front", "study"],
              ["feasible", "small/anthe", "--budget", "params.total <= 10M", "--plot", "figures"]]}


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict[tuple[str, ...], tuple[int, str, list[str]]]:
    """Exit status, output and heavy packages of each command, without optional packages."""
    commands = [*WITHOUT_HEAVY_PACKAGES, *map(list, INVALID), *CALCULATORS,
                *(command for group in NEED_AN_EXTRA.values() for command in group)]
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps([*EXTRA_OF_PACKAGE]), json.dumps(commands)],
        cwd=tmp_path_factory.mktemp("light"), capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return dict(zip(map(tuple, commands), json.loads(process.stdout)))


def test_calculators_need_no_optional_package(results):
    for command in [*WITHOUT_HEAVY_PACKAGES, *CALCULATORS]:
        status, output, _ = results[tuple(command)]
        assert status == 0, (command, output)


def test_light_commands_load_no_heavy_package(results):
    for command in [*map(tuple, WITHOUT_HEAVY_PACKAGES), *INVALID]:
        assert results[command][2] == [], command


def test_errors_exit_with_2_without_traceback(results):
    for command, part in INVALID.items():
        status, output, _ = results[command]
        assert status == 2 and part in output and "Traceback" not in output, (command, output)


@pytest.mark.parametrize("extra", NEED_AN_EXTRA)
def test_commands_print_how_to_install_their_extra(results, extra):
    for command in NEED_AN_EXTRA[extra]:
        status, output, _ = results[tuple(command)]
        assert status == 2 and f"[{extra}]" in output, (command, output)
        assert "Traceback" not in output
