"""Lines of code per block type: its description, from which costs follow, and its operation.

Counted are lines without blank lines, comments and docstrings: the class, its base classes below
``Mixer`` or ``FFN``, and functions of the same file that they call. The operation is what has
tensors or a module as argument or result; everything else is the description.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

from scalesearch.blocks.core import Block
from scalesearch.blocks.ffn import FFN, FFNS
from scalesearch.blocks.mixers import MIXERS
from scalesearch.blocks.mixers.base import Mixer
from scalesearch.blocks.sublayers import SUBLAYERS

KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("mixer", MIXERS), ("FFN", FFNS), ("sub-layer", SUBLAYERS))
Function = ast.FunctionDef


def table_rows() -> Iterator[list[str]]:
    """Yield kind and name, and lines of description and operation, of each registered block."""
    for kind, registry in KINDS:
        for name, block in registry.items():
            description, operation = count_lines(block)
            yield [f"{kind} `{name}`", str(description), str(operation)]


def count_lines(block: type) -> tuple[int, int]:
    """Count the lines of description and operation of a block class."""
    all_lines = set[tuple[str, int]]()
    operation = set[tuple[str, int]]()
    for base in block.__mro__:
        if base not in (Mixer, FFN, Block, object):
            module = sys.modules[base.__module__]
            node = next(part for part in parsed(module).body
                        if isinstance(part, ast.ClassDef) and part.name == base.__name__)
            methods = [part for part in node.body if isinstance(part, Function)]
            all_lines |= lines_of(module, [node, *methods])
            operation |= lines_of(module, list(filter(runs_on_tensors, methods)))
    return len(all_lines - operation), len(operation)


@cache
def parsed(module: ModuleType) -> ast.Module:
    """Parse the file of a module."""
    return ast.parse(inspect.getsource(module))


def runs_on_tensors(function: Function) -> bool:
    """Return whether a function has tensors or a module as argument or result."""
    names = {argument.arg for argument in function.args.args}
    annotations = [argument.annotation for argument in function.args.args] + [function.returns]
    return bool(names & {"m", "module"}) or any(
        "Tensor" in ast.unparse(annotation) for annotation in annotations if annotation)


def lines_of(module: ModuleType, nodes: list[Any]) -> set[tuple[str, int]]:
    """Return file and number of the lines of classes or functions, and of functions they call."""
    functions = {node.name: node for node in parsed(module).body if isinstance(node, Function)}
    pending = list(nodes)
    for node in pending:
        if isinstance(node, Function):
            names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            pending += [functions[name] for name in sorted(names & functions.keys())
                        if functions[name] not in pending]
    text = inspect.getsource(module).splitlines()
    numbers = set[int]()
    for node in pending:
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        numbers |= set(range(first, node.end_lineno + 1))
        for part in ast.walk(node):
            if isinstance(part, Function | ast.ClassDef) and ast.get_docstring(part) is not None:
                docstring = part.body[0]
                numbers -= set(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return {(module.__name__, number) for number in numbers
            if text[number - 1].strip() and not text[number - 1].lstrip().startswith("#")}
