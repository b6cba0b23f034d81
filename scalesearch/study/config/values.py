"""Readers of values that are no plain constants: answers, lists, URLs, resources."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scalesearch.blocks.sizes import is_number
from scalesearch.errors import UserError
from scalesearch.space.binding.config_reader import plain_value
from scalesearch.space.schema.types import ReportNodeError
from scalesearch.space.syntax.diagnostics import suggest_match
from scalesearch.space.syntax.nodes import MappingNode, Node, ScalarNode, SequenceNode
from scalesearch.study.config.storage_url import parse_storage_url

MIN_RAY_AMOUNT = 1e-4  # Ray counts resources in such steps
PARAMS_FORM = "a mapping of keys to values of the space language, such as `{encoder.depth: 6}`"
MAX_SECONDS = 10**9  # seconds, some thirty years
DURATION_PATTERN = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
LOGGER_NAMES = ("tensorboard", "mlflow")
LOGGERS_FORM = "`tensorboard`, `mlflow`, or a list of both"
RAY_RESOURCE_NAMES = ("CPU", "GPU", "memory", "object_store_memory")


@dataclass(frozen=True)
class ComputeAmount:
    """Amount of compute: full ``full_runs``, or if there are none of them wall-clock ``seconds``."""

    full_runs: int = 0
    seconds: float = 0.0


def read_params(node: Node, complain: ReportNodeError) -> Mapping[str, str]:
    """Key to value in the space language."""
    if isinstance(node, MappingNode):
        return {key.text: node_text(value) for key, value in node}
    if not isinstance(node, ScalarNode) or node.text:
        complain(node, f"expected {PARAMS_FORM}", None)
    return {}


def node_text(node: Node) -> str:
    """The text of a value, on one line."""
    if isinstance(node, MappingNode):
        return "{" + ", ".join(f"{key.text}: {node_text(value)}" for key, value in node) + "}"
    if isinstance(node, SequenceNode):
        return "[" + ", ".join(map(node_text, node.items)) + "]"
    return node.text if isinstance(node, ScalarNode) else ""


def read_texts(node: Node, complain: ReportNodeError) -> tuple[str, ...]:
    """A text, or a list of texts."""
    items = node.items if isinstance(node, SequenceNode) else (node,)
    texts = tuple(item.text for item in items if isinstance(item, ScalarNode) and item.text)
    if not texts or len(texts) < len(items):
        complain(node, "expected a folder, or a list of folders", "such as `runs/edge`")
    return texts


def read_loggers(node: Node, complain: ReportNodeError) -> tuple[str, ...]:
    """Names of loggers."""
    items = node.items if isinstance(node, SequenceNode) else (node,)
    for item in items:
        if not isinstance(item, ScalarNode) or item.text not in LOGGER_NAMES:
            complain(item, f"expected {LOGGERS_FORM}", suggest_match(node_text(item), LOGGER_NAMES))
    return tuple(node_text(item) for item in items)


def read_shares(node: Node, complain: ReportNodeError) -> tuple[float, ...]:
    """A list of numbers."""
    values = [plain_value(item) for item in node.items] if isinstance(node, SequenceNode) else []
    if not values or not all(isinstance(value, int | float) for value in values):
        complain(node, "expected a list of numbers below 1", "such as `[0.1, 0.4]`")
        return ()
    return tuple(map(float, values))


def read_gain(node: Node, complain: ReportNodeError) -> float:
    """A share, such as ``1%`` or 0.01."""
    text = node_text(node).strip()
    value = plain_value(ScalarNode(node.position, text.removesuffix("%").strip())) if isinstance(
        node, ScalarNode) else None
    if not is_number(value) or not 0 < value < math.inf:
        complain(node, "expected a share above 0", "such as `1%` or 0.01")
        return 0.0
    return value / 100 if text.endswith("%") else float(value)


def read_duration(node: Node, complain: ReportNodeError) -> float | None:
    """A length of time, in seconds."""
    text = node_text(node).strip() if isinstance(node, ScalarNode) else ""
    found = DURATION_PATTERN.fullmatch(text)
    if found is None or not 0 < (seconds := _seconds(found)) <= MAX_SECONDS:
        complain(node, "expected a length of time of at most thirty years",
                 "such as `20h`, `90m` or `1h30m`")
        return None
    return seconds


def _seconds(found: re.Match[str]) -> float:
    return sum(size * int(number or 0) for size, number in zip((3600.0, 60.0, 1.0), found.groups()))


def read_amount(node: Node, complain: ReportNodeError) -> ComputeAmount:
    """Full trainings, or a length of time."""
    text = node_text(node).strip() if isinstance(node, ScalarNode) else ""
    if text.isdigit() and 0 < int(text) <= MAX_SECONDS:
        return ComputeAmount(full_runs=int(text))
    found = DURATION_PATTERN.fullmatch(text)
    if found is None or not 0 < _seconds(found) <= MAX_SECONDS:
        complain(node, "expected a number of trainings, or a length of time",
                 "such as `10`, `2h`, `90m` or `1h30m`")
        return ComputeAmount(1)
    return ComputeAmount(seconds=_seconds(found))


def read_storage(node: Node, complain: ReportNodeError) -> str | None:
    """The URL of a storage, or None for the embedded one."""
    try:
        return parse_storage_url(node_text(node))
    except UserError as error:
        complain(node, f"storage: {error}", None)
        return None


def read_custom(node: Node, complain: ReportNodeError) -> dict[str, float]:
    """Resources by the names that a cluster's nodes state."""
    if not isinstance(node, MappingNode):
        complain(node, "custom resources are a mapping of their names to numbers",
                 'such as `{"accelerator_type:H100": 0.001}`')
        return {}
    amounts: dict[str, float] = {}
    for key, value in node:
        amount: Any = plain_value(value)
        if key.text in RAY_RESOURCE_NAMES:
            complain(key, f"`{key.text}` is none of a cluster's own",
                     "such are `cpus_per_trial` and `gpus_per_trial`")
        elif not is_number(amount) or amount < MIN_RAY_AMOUNT:
            complain(value, f"{key.text}: expected a number of at least {MIN_RAY_AMOUNT:g}", None)
        else:
            amounts[key.text] = float(amount)
    return amounts
