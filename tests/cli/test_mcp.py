"""``scalesearch mcp``, with the protocol's own client in this process."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest

from scalesearch.cli.mcp_ import TOOLS, make_server

mcp = pytest.importorskip("mcp")
SPACE = """\
width: 64 | 96
encoder: { depth: 2, heads: 4, ffn: { relu: { hidden: 128 } } }
decoder: { depth: 1, heads: 4, ffn: { relu: { hidden: 128 } } }
cost: { protocol: { source: 20, target: 20, vocab: 8000 } }
"""


def call(folder: Path, name: str, allow_training: bool = False, **arguments: Any) -> Any:
    """Call a tool; the result has ``is_error``, ``structured_content`` and ``content``."""
    import anyio

    async def run() -> Any:
        async with mcp.Client(make_server(allow_training, folder)) as client:
            return await client.call_tool(name, arguments)

    return anyio.run(run)


def listed_tools(folder: Path, allow_training: bool) -> dict[str, Any]:
    import anyio

    async def run() -> Any:
        async with mcp.Client(make_server(allow_training, folder)) as client:
            return (await client.list_tools()).tools

    return {tool.name: tool for tool in anyio.run(run)}


def test_training_is_offered_only_if_allowed(tmp_path: Path) -> None:
    reading = listed_tools(tmp_path, allow_training=False)
    assert {*reading} == {"check", "cost", "feasible", "solve", "study_status", "study_front",
                          "study_best", "study_show", "study_plan"}
    assert all(tool.annotations.read_only_hint for tool in reading.values())
    training = listed_tools(tmp_path, allow_training=True)
    assert {*training} - {*reading} == {"study_run"}
    assert training["study_run"].annotations.read_only_hint is False
    assert call(tmp_path, "study_run", study="quick").is_error


@pytest.mark.parametrize("name", TOOLS)
def test_schemas_are_valid_and_reading_tools_write_no_files(name: str) -> None:
    schema = TOOLS[name].input_schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert TOOLS[name].trains or not {"plot", "csv", "plot_folder", "to"} & {*schema["properties"]}
    assert all("description" in argument for argument in schema["properties"].values())


@pytest.mark.parametrize("name", TOOLS)
def test_arguments_have_the_names_of_the_options(name: str) -> None:
    options = {option for parameter in TOOLS[name].command.params for option in parameter.opts}
    arguments = TOOLS[name].parameters
    assert {f"--{argument.replace('_', '-')}" for argument, parameter in arguments.items()
            if isinstance(parameter, click.Option)} <= options
    assert not {"json", "csv", "latex"} & {*arguments}  # the result is always JSON


@pytest.mark.full
def test_results_are_those_of_the_command_line(tmp_path: Path) -> None:
    result = call(tmp_path, "cost", files=["transformer"], set=["encoder.depth=2"], vocab=8000)
    printed = subprocess.run(
        [sys.executable, "-m", "scalesearch", "cost", "transformer", "--set", "encoder.depth=2",
         "--vocab", "8000", "--json"], capture_output=True, text=True, check=True).stdout
    assert result.structured_content == json.loads(printed) and not result.is_error


def test_file_may_be_given_as_text(tmp_path: Path) -> None:
    report = call(tmp_path, "check", file=SPACE, samples=5).structured_content
    assert report["size"] == 2 and report["problems"] == []
    counts = call(tmp_path, "feasible", file=SPACE, budget=["params.total <= 1"])
    assert counts.structured_content and not counts.is_error  # exit status 1: none fits
    solution = call(tmp_path, "solve", file="transformer", goal="max width",
                    budget=["params.total <= 10M"]).structured_content["solutions"][0]
    assert solution["best"]["value"] == 165


def test_errors_are_those_of_the_command_line(tmp_path: Path) -> None:
    result = call(tmp_path, "check", file="widht: 64\nencoder: { depth: 2 }\n")
    assert result.is_error
    assert "width" in json.dumps(result.structured_content["problems"])
    result = call(tmp_path, "cost", files=["no-such"])
    assert result.is_error and "no-such" in result.content[0].text
    assert call(tmp_path, "cost", files=["transformer"], plot="x.png").is_error


@pytest.mark.slow
def test_study_is_planned_started_and_read(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    study: dict[str, Any] = {"study": "quick", "trials": 1, "set": [
        "recipe={preset: quick, steps: 4}", "data.vocab=500", f"out={folder}"]}
    plan = call(tmp_path, "study_plan", **study).structured_content
    assert plan["out"] == str(folder) and not folder.exists()
    started = call(tmp_path, "study_run", True, **study, backend="inprocess")
    assert not started.is_error, started.content[0].text
    log = Path(started.structured_content["log"])
    deadline = time.monotonic() + 300
    while "The study ended" not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(1)
    status = call(tmp_path, "study_status", study=str(folder)).structured_content
    assert status["study"] == "quick"
    assert len(call(tmp_path, "study_front", study=str(folder)).structured_content["trials"]) == 1
