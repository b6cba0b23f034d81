"""Labels of metrics, costs and protocols, with units and directions."""

import math
import re
from collections.abc import Mapping
from typing import Any

from scalesearch.cost import Protocol as Convention
from scalesearch.cost import load_protocol
from scalesearch.report.records import LOSS_UNITS
from scalesearch.spaces.schema.cost_names import OWN_VOCABULARY
from scalesearch.spaces.syntax.parameters import format_constant
from scalesearch.tasks import EFFICIENCY_METRICS, METRICS

ProtocolDict = Mapping[str, Any]
COST_LABELS = {"params": "parameters", "macs": "multiply-accumulates per example",
               "flops": "FLOPs per example", "memory.weights": "Weights (bytes, float32)",
               "memory.cache": "Key-value cache (bytes, float32)",
               "memory.activations": "Training activations (bytes, float32)",
               "params.active": "Parameters that a token uses",
               "params.tables": "Parameters of embedding tables",
               "macs.once": "Multiply-accumulates that depend on weights only",
               "macs.prefill": "Multiply-accumulates to read the context",
               "macs.decode_step": "Multiply-accumulates of one decoding step",
               "macs.update": "Multiply-accumulates per update, forward and backward",
               "macs.run": "Multiply-accumulates of training, forward and backward",
               "memory.optimizer": "Optimizer state (bytes, float32)",
               "memory.training": "Memory of training (bytes, float32)",
               "load.mean": "Mean load (uses of a weight per pass)",
               "load.balance": "Balance of loads (Jain's index, 0 to 1)",
               "load.min": "Minimum load (uses of a weight per pass)",
               "load.max": "Maximum load (uses of a weight per pass)",
               "artifact.bytes": "Exported files (bytes)",
               "latency.predicted": "Predicted latency (ms per sentence)",
               "refusals.ctranslate2": "Parts that CTranslate2 does not support"}
SECTION_LABELS = {"total": "", "non_embedding": "non-embedding ", "embedding": "embedding ",
                  "encoder": "encoder ", "decoder": "decoder ", "output": "output "}
DEFAULT_COSTS = ("params.total", "macs.total")  # compared if the user names no costs
SIZE_COST_GROUPS = ("params", "macs", "flops", "memory")  # groups of costs that measure a size
SHORT_LABELS = {"params": "params", "macs": "MACs", "flops": "FLOPs"}
COLUMN_UNITS = {"tokens": "target tokens", "seeds": "training runs",
                "seconds": "seconds"}
RUNG_LOSS = re.compile(r"rung_loss|proxy\.(first_loss|rung_loss_\d+)")  # columns of losses at rungs
MISSING_CELL = "–"  # text of a missing value in a table
EXTRA_COUNTS = ("norm", "bias")  # counted by some protocols in addition to matrix products


def axis_label(name: str, protocol: ProtocolDict | None = None) -> str:
    """Axis label of a metric or cost with its unit.

    Work has its protocol in a second line.
    """
    label = plain_label(name, protocol)
    group = name.partition(".")[0]
    fit = protocol.get("fit") if protocol else None
    if name == "latency.predicted" and fit:
        setup = str(fit).partition(";")[0].split(", ")  # shortened: the notes have the text
        return f"{label}\n({setup[0]} on {setup[-1]})"
    if not protocol or name in COST_LABELS or group not in SHORT_LABELS:
        return label
    if group == "params":
        return f"{label} ({format_vocabulary(protocol)})"
    tokens = "lengths of the corpus" if protocol.get("lengths") else \
        f"{protocol['source']} source, {protocol['target']} target tokens"
    if protocol.get("length"):
        tokens = f"{protocol['length']:,} tokens"
    return f"{label}\n({protocol['name']}: {tokens}, {format_vocabulary(protocol)})"


def plain_label(name: str, protocol: ProtocolDict | None = None) -> str:
    """Label of a metric or cost with its unit, without the lengths of the protocol.

    The protocol determines the type of cached numbers and the format of the files.
    """
    group, _, section = name.partition(".")
    metric = name.removeprefix("test.")
    if metric in METRICS:
        if metric in EFFICIENCY_METRICS:
            return METRICS[metric].label
        split = "validation" if metric == name else "test"
        label = METRICS[metric].label
        return (f"{label[:-1]}, {split})" if label.endswith(")")  # Loss (nats per token, test)
                else f"{label} ({split})")
    if name not in COST_LABELS and group not in COST_LABELS:  # a score, such as length_ratio
        return metric.replace("_", " ").capitalize() + (" (test)" if metric != name else "")
    settings = protocol or {}
    if name == "artifact.bytes" and settings.get("artifact"):
        return f"Files of {settings['artifact']} (bytes)"
    label = COST_LABELS.get(name, "")
    if not label:
        label = (SECTION_LABELS[section] + COST_LABELS[group]).strip()
        label = label[0].upper() + label[1:]
    if name == "memory.cache":
        label = label.replace("float32", settings.get("cache", "float32"))
    return label


def one_line_label(name: str, protocol: ProtocolDict) -> str:
    """Axis label on one line."""
    return axis_label(name, protocol).replace("\n", " ")


def column_unit(name: str, protocol: ProtocolDict | None = None,
                rung_loss: str = "validation_loss") -> str:
    """Unit of a column of a study's table whose costs follow ``protocol``.

    The losses at rungs are those of the name ``rung_loss``. The result is empty for names, states
    and hyperparameters.
    """
    if RUNG_LOSS.fullmatch(name):
        return LOSS_UNITS[rung_loss]
    plain = name.removeprefix("test.").removesuffix(".sd").removesuffix(".half_width")
    group = plain.partition(".")[0] if "." in plain else ""
    label = METRICS[plain].label if plain in METRICS else ""
    if plain in COST_LABELS or group in COST_LABELS:
        label = plain_label(plain if plain in COST_LABELS else group, protocol)
        if group != "flops":
            label = label[0].lower() + label[1:]
    unit = label.partition("(")[2].rpartition(")")[0]  # Loss (nats per token)
    return unit or label or COLUMN_UNITS.get(plain.rpartition("_")[2], "")


def column_heading(name: str, protocol: ProtocolDict | None = None) -> str:
    """Heading of a column of a table whose caption describes the protocol.

    Examples: ``BLEU (validation)``, ``MACs``, ``params, non-embedding``.
    """
    group, _, section = name.partition(".")
    if group not in SHORT_LABELS:
        return plain_label(name, protocol)
    return SHORT_LABELS[group] + ("" if section == "total" else f", {section.replace('_', '-')}")


def paper_heading(name: str, unit: str = "", protocol: ProtocolDict | None = None) -> str:
    """Heading of a column of a table in a paper, whose numbers are in thousands, millions, ….

    Args:
        name: metric or cost.
        unit: letter of the unit, such as ``M``; empty for one.
        protocol: protocol of the costs.

    Examples: ``BLEU (validation)``, ``Params (M)``, ``Weights (MB, float32)``.
    """
    heading = column_heading(name, protocol)
    heading = heading[0].upper() + heading[1:]
    if "(bytes" in heading:
        return heading.replace("(bytes", f"({unit}B")
    return f"{heading} ({unit})" if unit else heading


def format_protocol(protocol: ProtocolDict) -> str:
    """Describe a protocol: ``protocol forward, 15 source and 15 target tokens, …``."""
    counts = protocol.get("counts") or {}
    extra = "".join(f", plus {count} per {operation} element"
                    for operation, count in counts.items() if operation in EXTRA_COUNTS)
    artifact = f"; files of {protocol['artifact']}" if protocol.get("artifact") else ""
    latency = f"; latency of {protocol['fit']}" if protocol.get("fit") else ""
    tokens = f"{protocol['source']} source and {protocol['target']} target tokens"
    if protocol.get("length"):
        tokens = f"{protocol['length']:,} tokens"
    if protocol.get("cache"):
        tokens += f", cache in {protocol['cache']}"
    if protocol.get("lengths"):
        pairs = (f"{int(vocab):,}: {source} and {target}"
                 for vocab, (source, target) in protocol["lengths"].items())
        tokens = f"mean source and target tokens of the corpus per vocabulary ({', '.join(pairs)})"
    return (f"protocol {protocol['name']}, {tokens}, "
            f"{format_vocabulary(protocol)}{extra}{artifact}{latency}")


def format_vocabulary(protocol: ProtocolDict) -> str:
    """Format the vocabulary: ``vocabulary 8,000`` or ``own vocabularies``."""
    vocab = protocol["vocab"]
    return "own vocabularies" if vocab == OWN_VOCABULARY else f"vocabulary {vocab:,}"


def protocol_conventions(protocol: ProtocolDict) -> str:
    """Conventions of a protocol: FLOPs per MAC, and operations that are not counted."""
    return _load_convention(protocol).conventions


def describe_costs(protocol: ProtocolDict) -> str:
    """Describe the protocol of costs and its conventions in a sentence."""
    return f"Costs: {format_protocol(protocol)}; {protocol_conventions(protocol)}."


def weight_only_lines(protocol: ProtocolDict, *work: int) -> list[str]:
    """Line on the ``macs.once`` values ``work`` of architectures; empty if all are 0."""
    return _load_convention(protocol).weight_work_lines(*work)


def _load_convention(protocol: ProtocolDict) -> Convention:
    return load_protocol({key: protocol[key] for key in ("name", "source", "target", "vocab")})


def better_direction(name: str) -> str:
    """Direction of a metric or cost: ``max`` if larger is better, else ``min``."""
    metric = METRICS.get(name.removeprefix("test."))
    return metric.direction if metric else "min"


def format_scientific(value: float) -> str:
    """Format a number to six digits, large ones as ``2.23618 · 10¹⁴``."""
    digits, _, exponent = f"{value:,.6g}".partition("e")
    if not exponent:
        return digits
    superscript = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{digits} · 10{superscript}"


def format_value(value: Any) -> str:
    """Format a hyperparameter: numbers to six digits, a missing value as a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)) or value == "":
        return MISSING_CELL
    return f"{value:.6g}" if isinstance(value, float) else format_constant(value)
