"""Labels of metrics, costs and protocols, with units, and which of two values is better."""

import math
from collections.abc import Mapping
from typing import Any

from scalesearch.cost import Protocol as Convention
from scalesearch.cost import load_protocol
from scalesearch.space.schema.cost_names import OWN_VOCABULARY
from scalesearch.tasks import EFFICIENCY_METRICS, METRICS

ProtocolDict = Mapping[str, Any]
COST_LABELS = {"params": "parameters", "macs": "multiply-accumulates per sentence pair",
               "flops": "FLOPs per sentence pair", "memory.weights": "Weights (bytes, float32)",
               "memory.cache": "Key-value cache (bytes, float32)",
               "memory.activations": "Training activations (bytes, float32)",
               "load.mean": "Mean load (uses of a weight in a pass)",
               "load.balance": "Balance of loads (Jain's index, 0 to 1)",
               "load.min": "Least load (uses of a weight in a pass)",
               "load.max": "Greatest load (uses of a weight in a pass)",
               "artifact.bytes": "Exported files (bytes)",
               "latency.predicted": "Predicted latency (ms a sentence)",
               "refusals.ctranslate2": "Parts that CTranslate2 cannot hold"}
SECTION_LABELS = {"total": "", "non_embedding": "non-embedding ", "embedding": "embedding ",
                  "encoder": "encoder ", "decoder": "decoder ", "output": "output "}
SHORT_LABELS = {"params": "params", "macs": "MACs", "flops": "FLOPs"}
COLUMN_UNITS = {"tokens": "target tokens", "loss": "nats per token", "seeds": "trainings",
                "seconds": "seconds"}
EXTRA_COUNTS = ("norm", "bias")  # that some protocols count beside matrix products


def axis_label(name: str, protocol: ProtocolDict | None = None) -> str:
    """Axis label of a metric or cost: what it is, its unit, and for work the protocol, in a second line."""
    group, _, section = name.partition(".")
    metric = name.removeprefix("test.")
    if metric in METRICS:
        return _of_split(METRICS[metric].label,
                         "" if metric in EFFICIENCY_METRICS else "validation" if metric == name
                         else "test")
    if name in COST_LABELS:
        return _artifact_label(name, protocol or {}) or COST_LABELS[name]
    label = (SECTION_LABELS[section] + COST_LABELS[group]).strip()
    label = label[0].upper() + label[1:]
    if not protocol:
        return label
    if group == "params":
        return f"{label} ({format_vocabulary(protocol)})"
    tokens = "lengths of the corpus" if protocol.get("lengths") else \
        f"{protocol['source']} source, {protocol['target']} target tokens"
    return f"{label}\n({protocol['name']}: {tokens}, {format_vocabulary(protocol)})"


def _artifact_label(name: str, protocol: ProtocolDict) -> str:
    """Label of a cost of an artifact that the protocol names; empty for others."""
    artifact = protocol.get("artifact")
    fit = protocol.get("fit")
    if name == "artifact.bytes" and artifact:
        return f"Files of {artifact} (bytes)"
    if name == "latency.predicted" and fit:
        setup = str(fit).partition(";")[0].split(", ")  # all of it stands in the notes
        return f"{COST_LABELS[name]}\n({setup[0]} on {setup[-1]})"
    return ""


def _of_split(words: str, split: str) -> str:
    """``BLEU (validation)``, ``Loss (nats per token, validation)``."""
    if not split:
        return words
    return f"{words[:-1]}, {split})" if words.endswith(")") else f"{words} ({split})"


def one_line_label(name: str, protocol: ProtocolDict | None = None) -> str:
    """The label on one line."""
    return axis_label(name, protocol).replace("\n", " ")


def column_unit(name: str) -> str:
    """Unit of a column of a study's table; empty where it has none, as names, states and answers."""
    plain = name.removeprefix("test.").removesuffix(".sd").removesuffix(".half_width")
    group = plain.partition(".")[0] if "." in plain else ""
    words = METRICS[plain].label if plain in METRICS else COST_LABELS.get(plain) or COST_LABELS.get(
        group, "")
    inside = words.partition("(")[2].rpartition(")")[0]  # Loss (nats per token)
    return inside or words or COLUMN_UNITS.get(plain.rpartition("_")[2], "")


def column_heading(name: str) -> str:
    """Heading of a column whose caption names the protocol: ``BLEU (validation)``, ``MACs``,
    ``params, non-embedding``."""
    group, _, section = name.partition(".")
    if group not in SHORT_LABELS:
        return one_line_label(name)
    return SHORT_LABELS[group] + ("" if section == "total" else f", {section.replace('_', '-')}")


def format_protocol(protocol: ProtocolDict) -> str:
    """``protocol forward, 15 source and 15 target tokens, vocabulary 8,000``, and what else it counts."""
    counts = protocol.get("counts") or {}
    extra = "".join(f", plus {count} per {kind} element"
                    for kind, count in counts.items() if kind in EXTRA_COUNTS)
    artifact = f"; files of {protocol['artifact']}" if protocol.get("artifact") else ""
    latency = f"; latency of {protocol['fit']}" if protocol.get("fit") else ""
    return (f"protocol {protocol['name']}, {_tokens(protocol)}, "
            f"{format_vocabulary(protocol)}{extra}{artifact}{latency}")


def _tokens(protocol: ProtocolDict) -> str:
    if not protocol.get("lengths"):
        return f"{protocol['source']} source and {protocol['target']} target tokens"
    pairs = (f"{int(vocab):,}: {source} and {target}"
             for vocab, (source, target) in protocol["lengths"].items())
    return ("source and target tokens as the corpus has them in each vocabulary "
            f"({', '.join(pairs)})")


def format_vocabulary(protocol: ProtocolDict) -> str:
    """``vocabulary 8,000``, or that each architecture has its own."""
    vocab = protocol["vocab"]
    return "own vocabularies" if vocab == OWN_VOCABULARY else f"vocabulary {vocab:,}"


def protocol_conventions(protocol: ProtocolDict) -> str:
    """How MACs become FLOPs under a protocol, and what neither counts."""
    return _read(protocol).conventions


def describe_costs(protocol: ProtocolDict) -> str:
    """What costs of a protocol are of, as a sentence."""
    return f"Costs: {format_protocol(protocol)}; {protocol_conventions(protocol)}."


def weight_only_lines(protocol: ProtocolDict, *work: int) -> list[str]:
    """Line on the ``macs.once`` of some architectures; none where all are 0."""
    return _read(protocol).weight_work_lines(*work)


def _read(protocol: ProtocolDict) -> Convention:
    return load_protocol({key: protocol[key] for key in ("name", "source", "target", "vocab")})


def better_direction(name: str) -> str:
    """``max`` or ``min``: which of a metric, or of a cost, is better."""
    metric = METRICS.get(name.removeprefix("test."))
    return metric.direction if metric else "min"


def format_scientific(value: float) -> str:
    """A number to six digits, as people write it: ``2.23618 · 10¹⁴``."""
    digits, _, exponent = f"{value:,.6g}".partition("e")
    raised = str(int(exponent)).translate(
        str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")) if exponent else ""
    return f"{digits} · 10{raised}" if exponent else digits


def format_value(value: Any) -> str:
    """A hyperparameter's value: numbers to six digits, a gap as a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)) or value == "":
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
