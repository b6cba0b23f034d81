"""Sweeps: tables of costs over sizes, types and lengths."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scalesearch.cost import Protocol, load_protocol
from scalesearch.errors import UserError, option
from scalesearch.feasible.costed_candidates import CostedCandidate, evaluate_costs
from scalesearch.spaces import ParamValues, Space, UnbuildableError
from scalesearch.spaces.assembly.architecture import build_blocks
from scalesearch.spaces.schema.bound_tree import build_index
from scalesearch.spaces.schema.cost_names import PROTOCOL_KEYS_OF_COST, find_missing_key
from scalesearch.spaces.syntax.domains import whole_numbers
from scalesearch.spaces.syntax.expressions import ABSENT, KeyRef, evaluate
from scalesearch.spaces.syntax.lexer import ValueSyntaxError, split_parameter_name
from scalesearch.spaces.syntax.parser import parse_value
from scalesearch.whatif.crossings import (
    LENGTH_SYMBOLS,
    CostCrossings,
    attention_product_macs,
    find_crossings,
)
from scalesearch.whatif.free_sizes import parameter_name, without_types

if TYPE_CHECKING:
    import pandas as pd

EXAMPLE_SWEEP = "width='128..1024 step 64'"
MAX_SWEEP_ROWS = 20_000
DEFAULT_COLUMNS = ("params.total", "params.non_embedding", "macs.encoder", "macs.decoder",
                   "macs.output", "macs.total", "macs.once")
ATTENTION_PRODUCTS_COLUMN = "macs.attention_products"  # the part quadratic in the lengths


@dataclass(frozen=True)
class Sweep:
    """A table of costs.

    Attributes:
        keys: swept keys and lengths.
        columns: names of costs.
        rows: values and costs; if a network cannot be built, costs are None and ``error`` is the
            reason.
        protocol: cost protocol, without the swept lengths.
        crossings: crossings of the costs of a single architecture over a length.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    protocol: Protocol
    crossings: CostCrossings = field(default_factory=CostCrossings)

    def frame(self) -> pd.DataFrame:
        """Data frame with a column per key and per cost."""
        import pandas as pd

        # Integers may be missing; predicted times are floats.
        costs = {name: "Float64" if name == "latency.predicted" else "Int64"
                 for name in self.columns}
        return pd.DataFrame(list(self.rows),
                            columns=[*self.keys, *self.columns, "error"]).astype(costs)


def sweep_costs(space: Space, values_by_key: Mapping[str, str],
                protocol: Protocol | None = None) -> Sweep:
    """Evaluate the costs of all combinations of values.

    Args:
        values_by_key: key to values in the space language, such as ``128..1024 step 64``,
            ``4 | 8`` or ``relu | geglu``. A key may also be one of the lengths ``source``,
            ``target``, ``length`` (both) and ``vocab``.
        protocol: cost protocol, by default that of the space.

    Raises:
        ConfigError: an unknown key or an illegal value.
        UserError: there are too many rows, or the space leaves other parameters open.

    Example:
        >>> sweep_costs(space, {"width": "128..512 step 64"}).frame()
    """
    protocol = protocol or load_protocol(space.protocol)
    # If the vocabulary is a parameter of the space, it is swept like other keys.
    length_keys = LENGTH_SYMBOLS.keys() - space.parameter_space.nodes_by_key.keys()
    lengths = {key: parse_lengths(key, text)
               for key, text in values_by_key.items() if key in length_keys}
    if len(lengths) == len(LENGTH_SYMBOLS) or (
            "length" in lengths and {"source", "target"} & set(lengths)):
        raise UserError("length is both source and target: sweep either length, or source and "
                        "target", code="options-conflict")
    if {"source", "target"} & set(lengths):  # they replace `length`
        protocol = protocol.with_lengths(protocol.source, protocol.target, protocol.vocab)
    keys = {key: text for key, text in values_by_key.items() if key not in length_keys}
    combinations = list(itertools.product(*lengths.values()))
    space = space.with_overrides(keys, "sweep") if keys else space
    configs = _configurations(space, keys, MAX_SWEEP_ROWS // max(1, len(combinations)))
    settings = {**protocol.settings, **dict.fromkeys(lengths, 1)}
    optional = [name for name in PROTOCOL_KEYS_OF_COST if find_missing_key(name, settings) is None]
    if "length" in settings:
        optional.append("memory.cache")
    columns = (*DEFAULT_COLUMNS, *optional, *[ATTENTION_PRODUCTS_COLUMN] * bool(lengths))
    rows: list[dict[str, Any]] = []
    index = build_index(space.schema)
    names = {name: parameter_name(space, without_types(space, [key])[0]) + inner_name
             for name in values_by_key for key, inner_name in [split_parameter_name(name)]}
    references = {names[key]: index.reference(key) for key in keys}
    for values in combinations:
        length_by_key = dict(zip(lengths, values))
        swept = protocol
        if lengths:
            swept = protocol.with_lengths(
                length_by_key.get("source", protocol.source),
                length_by_key.get("target", protocol.target),
                length_by_key.get("vocab", protocol.vocab),
                length_by_key.get("length", protocol.length))
        rows += _rows(configs, references, swept, length_by_key, columns)
    ranks = {name: _value_ranks([row[name] for row in rows]) for name in names.values()}
    rows.sort(key=lambda row: [ranks[name][str(row[name])] for name in ranks])
    crossings = CostCrossings()
    if lengths and len(configs) == 1 and rows[0]["error"] is None:
        crossings = find_crossings(build_blocks(configs[0])[1],
                                   protocol.with_vocab(configs[0].get("vocab")), tuple(lengths))
    return Sweep(tuple(names.values()), columns, tuple(rows), protocol, crossings)


def _configurations(space: Space, keys: Mapping[str, str], max_rows: int) -> list[ParamValues]:
    """All configurations that differ only in the keys."""
    is_too_large = False
    open_parameters = space.parameter_space.open_parameters()
    swept_keys = without_types(space, [split_parameter_name(key)[0] for key in keys])
    for node in space.parameter_space.nodes:
        is_swept = any(node.key == key or node.key.startswith(f"{key}.") for key in swept_keys)
        for name, parameter in space.parameter_space.domains[node.path].parameters():
            if name in open_parameters and not is_swept:
                raise UserError(f"{name} is open ({parameter})",
                                help=f"set it with {option('set', f'{name}=…')}, or sweep it "
                                "as well",
                                code="open-parameters")
            is_too_large |= (parameter.count() or 0) > max_rows
    configs = [] if is_too_large else list(itertools.islice(space.enumerate(), max_rows + 1))
    if is_too_large or len(configs) > max_rows:
        raise UserError(f"more than {MAX_SWEEP_ROWS:,} rows", help="use a larger step, for example "
                        f"{option('sweep', EXAMPLE_SWEEP)}", code="too-many-sweep-rows")
    return configs


def _rows(configs: Sequence[ParamValues], references: Mapping[str, KeyRef | None],
          protocol: Protocol, lengths: Mapping[str, int],
          columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    names = [name for name in columns if name != ATTENTION_PRODUCTS_COLUMN]
    candidates = [CostedCandidate.from_param_values(config) for config in configs]
    for uncosted, candidate in zip(candidates, evaluate_costs(candidates, protocol, names)):
        values = {key: evaluate(reference, candidate.config.__getitem__) if reference else ABSENT
                  for key, reference in references.items()}
        values = {key: None if value is ABSENT else value for key, value in values.items()}
        values |= dict(lengths)
        costs = dict.fromkeys(columns) | dict(candidate.costs or {})
        if ATTENTION_PRODUCTS_COLUMN in columns and candidate.costs is not None:
            costs[ATTENTION_PRODUCTS_COLUMN] = attention_product_macs(
                build_blocks(candidate.config)[1], protocol)
        yield {**values, **costs,
               "error": None if candidate.costs else uncosted.error or _build_error(candidate)}


def _build_error(candidate: CostedCandidate) -> str | None:
    """Reason why the network of a candidate with valid values cannot be built."""
    try:
        build_blocks(candidate.config)
    except UnbuildableError as error:
        return str(error)
    return candidate.error


def parse_lengths(key: str, text: str) -> list[int]:
    """Parse the values of a length. Raises UserError."""
    try:
        values = list(whole_numbers(parse_value(text)))
    except (ValueSyntaxError, TypeError) as error:
        reason = error.message if isinstance(error, ValueSyntaxError) else "expected integers"
        raise UserError(f"{option('sweep', f'{key}={text}')}: {reason}", help="write for example "
                        "10..200, 10..200 step 10 or 10 | 20 | 50", code="bad-sweep") from None
    if min(values) < 1:
        raise UserError(f"{option('sweep', f'{key}={text}')}: {key} is {min(values)}; it must be "
                        "at least 1", code="below-one")
    if len(values) > MAX_SWEEP_ROWS:
        raise UserError(f"more than {MAX_SWEEP_ROWS:,} rows", help=f"use a larger step of {key}",
                        code="too-many-sweep-rows")
    return values


def _value_ranks(values: Sequence[Any]) -> dict[str, int]:
    """Rank of each text of a value: numbers by size, other values in their order."""
    # Values may be lists with one value per layer, so their texts are compared.
    distinct = list({str(value): value for value in values}.values())
    if all(isinstance(value, int | float) for value in distinct):
        distinct.sort()
    return {str(value): rank for rank, value in enumerate(distinct)}
