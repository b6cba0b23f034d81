"""Types of values of study files: params, lists, durations, resources."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainValidator

from scalesearch.blocks.sizes import is_number
from scalesearch.config.model import (
    Constant,
    SettingError,
    SettingProblem,
    parse_constant,
    plain_value,
)
from scalesearch.errors import UserError
from scalesearch.spaces.syntax.diagnostics import suggest_match
from scalesearch.spaces.syntax.nodes import MappingNode, Node, ScalarNode, SequenceNode
from scalesearch.spaces.syntax.parameters import format_constant
from scalesearch.studies.config.storage_url import parse_storage_url

MIN_RAY_AMOUNT = 1e-4  # Ray counts resources in such steps
PARAMS_FORM = "a mapping of keys to values of the space language, such as `{encoder.depth: 6}`"
MAX_SECONDS = 10**9  # about thirty years
SECONDS_OF_UNIT = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
DURATION_PATTERN = re.compile("".join(rf"(?:(\d+(?:\.\d+)?)\s*{unit}\s*)?"
                                      for unit in SECONDS_OF_UNIT))
LOGGER_NAMES = ("tensorboard", "mlflow")
LOGGERS_FORM = "`tensorboard`, `mlflow`, or a list of both"
RAY_RESOURCE_NAMES = ("CPU", "GPU", "memory", "object_store_memory")


@dataclass(frozen=True)
class ComputeAmount:
    """Amount of compute: ``full_runs``, or wall-clock ``seconds``."""

    full_runs: int = 0
    seconds: float = 0.0


def node_text(node: Node) -> str:
    """The text of a value, on one line."""
    if isinstance(node, MappingNode):
        return "{" + ", ".join(f"{key.text}: {node_text(value)}" for key, value in node) + "}"
    if isinstance(node, SequenceNode):
        return "[" + ", ".join(map(node_text, node.items)) + "]"
    return node.text if isinstance(node, ScalarNode) else ""


def _value_text(value: object) -> str:
    """A value of the space language as a text."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_value_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value_text, value)) + "]"
    return value if isinstance(value, str) else format_constant(value)


def _parse_params(value: object) -> dict[str, str]:
    if isinstance(value, Mapping):
        return {key: _value_text(item) for key, item in value.items()}
    if isinstance(value, str) and not value:
        return {}
    raise _value_error(f"expected {PARAMS_FORM}")


def _parse_folders(value: object) -> tuple[str, ...]:
    items = _as_list(value)
    texts = tuple(str(item) for item in items if isinstance(item, str) and item)
    if not texts or len(texts) < len(items):
        raise _value_error("expected a folder, or a list of folders", "such as `runs/edge`")
    return texts


def _parse_logger(value: object) -> str:
    if value not in LOGGER_NAMES:
        raise _value_error(f"expected {LOGGERS_FORM}",
                           suggest_match(_value_text(value), LOGGER_NAMES))
    return str(value)


def _as_list(value: object) -> Any:
    return value if isinstance(value, list | tuple) else (value,)


def _parse_shares(value: object) -> tuple[float, ...]:
    numbers = plain_value(value)
    if not numbers or not isinstance(numbers, list) or not all(map(is_number, numbers)):
        raise _value_error("expected a list of numbers below 1", "such as `[0.1, 0.4]`")
    return tuple(map(float, numbers))


def _parse_gain(value: object) -> float:
    text = str(value).strip() if isinstance(value, str) else ""
    share = plain_value(value)
    if text.endswith("%"):
        share = parse_constant(text.removesuffix("%").strip())
        share = share / 100 if is_number(share) else share
    if is_number(share) and 1 <= share <= 100 and not text.endswith("%"):
        raise _value_error(f"{share:g} is a growth of {100 * share:g} %", f"write `{share:g}%`")
    if not is_number(share) or not 0 < share < math.inf:
        raise _value_error("expected a share above 0", "such as `1%` or 0.01")
    return float(share)


def _parse_duration(value: object) -> float:
    if is_number(number := plain_value(value)):
        raise _value_error("this duration has no unit", f"write `{number:g}h` or `{number:g}m`")
    return read_seconds(value, "expected a duration with a unit, of at most thirty years",
                        "such as `20h`, `0.5h`, `90m`, `1h30m` or `2d`")


def read_seconds(value: object, expected: str, example: str) -> float:
    """Return the seconds of a duration such as ``1h30m``, of at most thirty years."""
    match = DURATION_PATTERN.fullmatch(value.strip()) if isinstance(value, str) else None
    seconds = sum(unit * float(count or 0) for unit, count in
                  zip(SECONDS_OF_UNIT.values(), match.groups() if match else ()))
    if not 0 < seconds <= MAX_SECONDS:
        raise _value_error(expected, example)
    return seconds


def _parse_amount(value: object) -> ComputeAmount:
    if isinstance(value, ComputeAmount):
        return value
    text = _value_text(value).strip()
    if text.isdigit() and 0 < int(text) <= MAX_SECONDS:
        return ComputeAmount(full_runs=int(text))
    return ComputeAmount(seconds=read_seconds(
        text, "expected a number of training runs, or a duration",
        "such as `10`, `2h`, `0.5h`, `90m`, `1h30m` or `2d`"))


def _parse_storage(value: object) -> str | None:
    try:
        return parse_storage_url(_value_text(value))
    except UserError as error:
        raise _value_error(f"storage: {error}") from None


def _parse_custom(value: object) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise _value_error("custom resources are a mapping of their names to numbers",
                           'such as `{"accelerator_type:H100": 0.001}`')
    amounts = {name: plain_value(amount) for name, amount in value.items()}
    problems = [SettingProblem(name, f"`{name}` is not a custom resource",
                               "use `cpus_per_trial` and `gpus_per_trial`", at_key=True)
                for name in amounts if name in RAY_RESOURCE_NAMES]
    problems += [SettingProblem(name, f"{name}: expected a number of at least {MIN_RAY_AMOUNT:g}")
                 for name, amount in amounts.items() if name not in RAY_RESOURCE_NAMES
                 and not (is_number(amount) and amount >= MIN_RAY_AMOUNT)]
    if problems:
        raise SettingError(*problems)
    return {name: float(amount) for name, amount in amounts.items()}


def _value_error(message: str, help: str | None = None) -> SettingError:
    return SettingError(SettingProblem("", message, help))


Params = Annotated[dict[str, str], BeforeValidator(_parse_params,
                                                  json_schema_input_type=dict[str, Any])]
Folders = Annotated[tuple[str, ...], BeforeValidator(_parse_folders,
                                                     json_schema_input_type=str | list[str])]
Loggers = Annotated[tuple[Annotated[str, PlainValidator(_parse_logger)], ...],
                    BeforeValidator(_as_list, json_schema_input_type=str | list[str])]
Shares = Annotated[tuple[float, ...], BeforeValidator(_parse_shares)]
Gain = Annotated[float, BeforeValidator(_parse_gain, json_schema_input_type=str | float)]
Duration = Annotated[float, BeforeValidator(_parse_duration, json_schema_input_type=str)]
Amount = Annotated[ComputeAmount, PlainValidator(_parse_amount, json_schema_input_type=int | str)]
StorageUrl = Annotated[Any, PlainValidator(_parse_storage, json_schema_input_type=str)]
FolderPath = Annotated[Path, Constant("text"), AfterValidator(lambda text: Path(text))]
CustomResources = Annotated[dict[str, float], BeforeValidator(_parse_custom)]
