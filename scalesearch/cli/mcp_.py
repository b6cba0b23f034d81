"""``scalesearch mcp``: commands as tools of the Model Context Protocol."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalesearch import __version__
from scalesearch.cli.options import OutputPath
from scalesearch.library import library_folder, require_packages

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.types import CallToolResult

INSTRUCTIONS = """\
Exact costs of Transformer architectures before training, and searches under a budget.

A file argument is a path, the name of a shipped file, the config.json of a Hugging Face model, or \
the text of a file of several lines, for example:

width: 64..256 step 32
encoder: { depth: 2..6, heads: 4, ffn: { relu: { hidden: = 4 * width } } }
decoder: { depth: 1..3, heads: 4, ffn: { relu: { hidden: = 2 * width } } }
cost: { protocol: { source: 20, target: 20, vocab: 8000 } }

Shipped spaces: """
FILE_DESCRIPTION = "Path, name of a shipped file, config.json, or text of several lines."
ARGUMENT_DESCRIPTIONS = {
    "file": FILE_DESCRIPTION, "files": FILE_DESCRIPTION,
    "study": "Path or text of a study file, name of a shipped study, or folder of a study.",
    "goal": "'max KEY' or 'min KEY'.", "trial": "Number of the trial."}
START_SECONDS = 10  # in which errors of a started study are returned to the caller


@dataclass(frozen=True)
class CommandTool:
    """A command of the command line that is offered as a tool.

    Attributes:
        path: words of the command, such as ("study", "status").
        fixed: options that every call has.
        hidden: names of parameters that a call cannot set.
        trains: whether the command runs in the background and trains models.
    """

    path: tuple[str, ...]
    fixed: tuple[str, ...] = ("--json",)
    hidden: tuple[str, ...] = ("json",)
    trains: bool = False

    @property
    def command(self) -> click.Command:
        """The command of click."""
        from scalesearch.cli.main import app

        command: click.Command = app
        for word in self.path:
            assert isinstance(command, click.Group), f"{word} is a command of a group"
            child = command.get_command(click.Context(command), word)
            assert child is not None, f"{word} is a command"
            command = child
        return command

    @property
    def parameters(self) -> dict[str, click.Parameter]:
        """Parameters of the tool by name; a tool that only reads has no output files."""
        parameters = {argument_name(parameter): parameter for parameter in self.command.params
                      if parameter.expose_value}
        return {name: parameter for name, parameter in parameters.items()
                if name not in self.hidden
                and (self.trains or not isinstance(parameter.type, OutputPath))}

    @property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of the parameters.

        Example:
            >>> TOOLS["solve"].input_schema["required"]
            ['file']
        """
        schema = {"type": "object", "additionalProperties": False,
                  "properties": {name: parameter_schema(parameter)
                                 for name, parameter in self.parameters.items()}}
        required = [name for name, parameter in self.parameters.items() if parameter.required]
        return schema | ({"required": required} if required else {})

    def arguments(self, values: Mapping[str, Any], folder: Path) -> list[str]:
        """Return the words of the command line; texts of files are written to ``folder``."""
        options: list[str] = []
        operands: list[str] = []
        for name, parameter in self.parameters.items():
            value = values.get(name)
            if value is None or value is False:
                continue
            items = value if isinstance(value, list) else [value]
            if isinstance(parameter, click.Option):
                option = max(parameter.opts, key=len)
                options += [option if item is True else f"{option}={item}" for item in items]
            else:
                operands += [write_file_text(item, folder) for item in items]
        return [*self.path, *self.fixed, *options, "--", *operands]


TOOLS = {"_".join(tool.path): tool for tool in (
    CommandTool(("check",)), CommandTool(("cost",)), CommandTool(("feasible",)),
    CommandTool(("solve",)), CommandTool(("study", "status")),
    CommandTool(("study", "front"), hidden=("json", "csv", "latex")),
    CommandTool(("study", "best")), CommandTool(("study", "show")))}
TOOLS["study_plan"] = CommandTool(
    ("study", "run"), ("--json", "--dry-run", "--measure=0"),
    ("json", "dry_run", "measure", "resume"))
TOOLS["study_run"] = CommandTool(
    ("study", "run"), (), ("json", "dry_run", "measure"), trains=True)


def argument_name(parameter: click.Parameter) -> str:
    """Return the name of a parameter in a call: that of its option, such as ``budget``."""
    option = next((option for option in parameter.opts if option.startswith("--")), "")
    return option[2:].replace("-", "_") or str(parameter.name)


def parameter_schema(parameter: click.Parameter) -> dict[str, Any]:
    """Return the JSON Schema of a parameter of a command."""
    value_type = parameter.type
    schema: dict[str, Any] = {"type": "string"}
    if getattr(parameter, "is_flag", False):
        schema = {"type": "boolean"}
    elif isinstance(value_type, click.Choice):
        schema = {"enum": list(value_type.choices)}
    elif isinstance(value_type, (click.types.IntParamType, click.types.FloatParamType)):
        is_integer = isinstance(value_type, click.types.IntParamType)
        bounds = {"minimum": getattr(value_type, "min", None),
                  "maximum": getattr(value_type, "max", None)}
        schema = {"type": "integer" if is_integer else "number",
                  **{name: bound for name, bound in bounds.items() if bound is not None}}
    if parameter.multiple or parameter.nargs == -1:
        schema = {"type": "array", "items": schema}
    return {**schema, "description": getattr(parameter, "help", None)
            or ARGUMENT_DESCRIPTIONS[str(parameter.name)]}


def write_file_text(value: Any, folder: Path) -> str:
    """Return ``value``; a text of several lines is written to a file, whose path is returned."""
    text = str(value)
    if "\n" not in text:
        return text
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", dir=folder, delete=False,
                                     encoding="utf-8") as file:
        file.write(text)
    return file.name


def make_server(allow_training: bool, folder: Path) -> Server[Any]:
    """Return the server.

    Args:
        allow_training: whether ``study_run`` is offered.
        folder: folder for texts of files.
    """
    from mcp.server import Server
    from mcp.types import ListToolsResult, Tool, ToolAnnotations

    tools = {name: tool for name, tool in TOOLS.items() if allow_training or not tool.trains}
    shipped = library_folder("spaces")
    names = sorted(str(file.relative_to(shipped).with_suffix(""))
                   for file in shipped.rglob("*.yaml"))

    async def list_tools(context: Any, parameters: Any) -> ListToolsResult:
        return ListToolsResult(tools=[
            Tool(name=name, input_schema=tool.input_schema,
                 description=(tool.command.help or "").replace("\b\n", ""),
                 annotations=ToolAnnotations(read_only_hint=not tool.trains))
            for name, tool in tools.items()])

    async def call_tool(context: Any, parameters: Any) -> CallToolResult:
        tool = tools.get(parameters.name)
        values = parameters.arguments or {}
        if tool is None:
            return _result(f"unknown tool {parameters.name}", is_error=True)
        if unknown := {*values} - {*tool.parameters}:
            return _result(f"{', '.join(sorted(unknown))}: {parameters.name} has the arguments "
                           f"{', '.join(tool.parameters)}", is_error=True)
        if tool.trains:
            return await _start_study(tool, values, folder)
        return await _run_command(tool.arguments(values, folder))

    return Server("scalesearch", version=__version__, instructions=INSTRUCTIONS + ", ".join(names),
                  on_list_tools=list_tools, on_call_tool=call_tool)


async def _run_command(arguments: list[str]) -> CallToolResult:
    """Run a command in a process of its own; exit status 1 with JSON is also a result."""
    import anyio

    process = await anyio.run_process([sys.executable, "-m", "scalesearch", *arguments],
                                      check=False, stdin=subprocess.DEVNULL)
    output = process.stdout.decode()
    try:
        record = json.loads(output)
    except ValueError:
        return _result(process.stderr.decode() or output, is_error=True)
    if isinstance(record, list):  # the protocol has only objects
        record = {"trials": record}
    return _result(output, record, is_error="problems" in record and process.returncode != 0)


async def _start_study(tool: CommandTool, values: Mapping[str, Any],
                       folder: Path) -> CallToolResult:
    """Start a study in the background, after a dry run without errors."""
    import anyio

    plan_values = {name: value for name, value in values.items() if name != "resume"}
    arguments = tool.arguments(values, folder)
    plan = await _run_command([*TOOLS["study_plan"].path, *TOOLS["study_plan"].fixed,
                               *tool.arguments(plan_values, folder)[len(tool.path):]])
    if plan.is_error:
        return plan
    study = plan.structured_content["out"]
    log = Path(f"{study}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        process = subprocess.Popen([sys.executable, "-m", "scalesearch", *arguments],
                                   stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                   start_new_session=True)
    with anyio.move_on_after(START_SECONDS):
        while process.poll() is None:
            await anyio.sleep(0.1)
    if process.poll():
        return _result(log.read_text(encoding="utf-8"), is_error=True)
    record = {"study": study, "log": str(log), "pid": process.pid}
    return _result(json.dumps(record), record)


def _result(text: str, record: Any = None, is_error: bool = False) -> CallToolResult:
    from mcp.types import CallToolResult, TextContent

    return CallToolResult(content=[TextContent(type="text", text=text.strip())],
                          structured_content=record, is_error=is_error)


@click.command(name="mcp")
@click.option("--allow-training", is_flag=True,
              help="Also offer study_run, which trains models in the background.")
def command(allow_training: bool) -> None:
    """Serve commands as tools of the Model Context Protocol, over standard input and output.

    Coding agents start it, to compute costs, count and solve under a budget, and plan and read
    studies. All tools only read, unless --allow-training is set.

    \b
    Example: scalesearch mcp --allow-training
    """
    require_packages("mcp")
    import anyio
    from mcp.server.stdio import stdio_server

    async def serve(server: Server[Any]) -> None:
        async with stdio_server() as (requests, responses):
            await server.run(requests, responses, server.create_initialization_options())

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(serve, make_server(allow_training, Path(folder)))
