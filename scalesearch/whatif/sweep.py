"""What if a size, a kind or a length were another: costs as a table, over one sweep or a grid of several."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scalesearch.cost import Protocol, load_protocol
from scalesearch.errors import UserError
from scalesearch.feasible.costed_candidates import CostedCandidate, evaluate_costs
from scalesearch.space import ParamValues, Space
from scalesearch.space.assembly.architecture import build_blocks
from scalesearch.space.schema.cost_names import PROTOCOL_KEY_OF_COST
from scalesearch.space.syntax.composite_domains import whole_numbers
from scalesearch.space.syntax.lexer import ValueSyntaxError
from scalesearch.space.syntax.value_parser import parse_value
from scalesearch.whatif.crossings import LENGTH_SYMBOLS, CostCrossings, attention_product_macs, find_crossings
from scalesearch.whatif.free_sizes import without_types

if TYPE_CHECKING:
    import pandas as pd

MAX_SWEEP_ROWS = 20_000  # rows of a table
DEFAULT_COLUMNS = ("params.total", "params.non_embedding", "macs.encoder", "macs.decoder",
                   "macs.output", "macs.total", "macs.once")
ATTENTION_PRODUCTS_COLUMN = "macs.attention_products"  # the quadratic term


@dataclass(frozen=True)
class Sweep:
    """A table of costs.

    Attributes:
        keys: what varies, in the order given.
        columns: the costs.
        rows: values and costs; costs are None where nothing can be built, and ``fault`` says why.
        protocol: of the costs; a length that varies has its own column.
        crossings: of a single architecture over a length.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    protocol: Protocol
    crossings: CostCrossings = field(default_factory=CostCrossings)

    def frame(self) -> pd.DataFrame:
        """The table."""
        import pandas as pd

        # Whole numbers, some of which may be missing; times are none.
        costs = {name: "Float64" if name == "latency.predicted" else "Int64"
                 for name in self.columns}
        return pd.DataFrame(list(self.rows),
                            columns=[*self.keys, *self.columns, "fault"]).astype(costs)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {"protocol": self.protocol.to_json(), "sweep": list(self.keys), "rows": [dict(row) for row in self.rows],
                "crossings": [crossing.to_json() for crossing in self.crossings]}  # fmt: skip


def sweep_costs(space: Space, values_by_key: Mapping[str, str],
                protocol: Protocol | None = None) -> Sweep:
    """Costs for every combination of the values in ``values_by_key``.

    Args:
        values_by_key: key to values in the space language (``128..1024 step 64``, ``4 | 8``, ``relu
            | geglu``), or one of the
            lengths ``source``, ``target``, ``length`` (both) and ``vocab``.

    Raises:
        SpaceErrors: an unknown key or an illegal value. UserError: too many rows, or the space
            leaves more open.
    """
    base = protocol or load_protocol(space.protocol)
    values_by_key = dict(zip(without_types(space, values_by_key), values_by_key.values()))
    # a vocabulary of the space's own is a key as others are
    free = LENGTH_SYMBOLS.keys() - space.parameter_space.nodes_by_key.keys()
    lengths = {key: _lengths(key, text) for key, text in values_by_key.items() if key in free}
    if len(lengths) == len(LENGTH_SYMBOLS) or (
            "length" in lengths and {"source", "target"} & set(lengths)):
        raise UserError("length is source and target at once: sweep it, or them",
                        code="options-conflict")
    keys = {key: text for key, text in values_by_key.items() if key not in free}
    combinations = list(itertools.product(*lengths.values()))
    sheets = _configurations(space, keys, MAX_SWEEP_ROWS // max(1, len(combinations)))
    export_settings = {"artifact": base.artifact, "latency": base.latency_model_path}
    named = tuple(name for name, key in PROTOCOL_KEY_OF_COST.items() if export_settings[key])
    columns = (*DEFAULT_COLUMNS, *named, *[ATTENTION_PRODUCTS_COLUMN] * bool(lengths))
    rows: list[dict[str, Any]] = []
    for values in combinations:
        chosen = dict(zip(lengths, values))
        rows += _rows(sheets, keys, _with_lengths(base, chosen), chosen, columns)
    rows.sort(key=_order(rows, tuple(values_by_key)))
    crossed = _crossings(sheets, base, tuple(lengths)) if lengths else CostCrossings()
    return Sweep(tuple(values_by_key), columns, tuple(rows), base, crossed)


def _configurations(space: Space, keys: Mapping[str, str], most: int) -> list[ParamValues]:
    """Every answer sheet in which only the keys differ."""
    changed = space.with_overrides(keys, "--sweep") if keys else space
    many = False
    for leaf in changed.parameter_space.nodes:
        mine = any(leaf.key == key or leaf.key.startswith(f"{key}.") for key in keys)
        for name, parameter in changed.parameter_space.domains[leaf.path].parameters():
            if not mine:
                text = (f"{name} is left open ({parameter}); answer it with --set {name}=…, or "
                        "sweep it as well")
                raise UserError(text, code="open-parameters")
            many |= (parameter.count() or 0) > most
    sheets = [] if many else list(itertools.islice(changed.enumerate(), most + 1))
    if many or len(sheets) > most:
        raise UserError(f"more than {MAX_SWEEP_ROWS:,} rows: give a range a larger step, as in "
                        "--sweep width=128..1024 step 64", code="too-many-sweep-rows")
    return sheets


def _rows(configs: Sequence[ParamValues], keys: Mapping[str, str], protocol: Protocol, chosen: Mapping[str, int],
          columns: Sequence[str]) -> Iterator[dict[str, Any]]:  # fmt: skip
    wanted = [name for name in columns if name != ATTENTION_PRODUCTS_COLUMN]
    for candidate in evaluate_costs([CostedCandidate.from_param_values(sheet) for sheet in configs],
                                    protocol, wanted):
        values = {key: candidate.config.get(key) for key in keys} | dict(chosen)
        costs = dict.fromkeys(columns) | dict(candidate.costs or {})
        if ATTENTION_PRODUCTS_COLUMN in columns and candidate.costs is not None:
            costs[ATTENTION_PRODUCTS_COLUMN] = attention_product_macs(
                build_blocks(candidate.config)[1], protocol)
        yield {**values, **costs, "fault": candidate.error}


def _lengths(key: str, text: str) -> list[int]:
    """The values of a length. Raises UserError."""
    try:
        values = list(whole_numbers(parse_value(text)))
    except (ValueSyntaxError, TypeError) as error:
        message = error.message if isinstance(error, ValueSyntaxError) else "whole numbers are due"
        raise UserError(f"--sweep {key}={text}: {message}; write 10..200, 10..200 step 10 or 10 | "
                        "20 | 50", code="bad-sweep") from None
    if min(values) < 1:
        raise UserError(f"--sweep {key}={text}: {key} is {min(values)}; it must be at least 1",
                        code="below-one")
    if len(values) > MAX_SWEEP_ROWS:
        raise UserError(f"more than {MAX_SWEEP_ROWS:,} rows: give {key} a larger step",
                        code="too-many-sweep-rows")
    return values


def _with_lengths(protocol: Protocol, chosen: Mapping[str, int]) -> Protocol:
    """The protocol with other lengths."""
    if not chosen:
        return protocol
    both = chosen.get("length")
    source, target = (both or chosen.get(key, getattr(protocol, key))
                      for key in ("source", "target"))
    return protocol.with_lengths(source, target, chosen.get("vocab", protocol.vocab))


def _order(rows: Sequence[Mapping[str, Any]], keys: tuple[str, ...]) -> Any:
    """Sorts rows by the keys in turn: numbers by size, words as they come."""
    # lists, by layer, too
    seen = {key: list({str(row[key]): row[key] for row in rows}.values()) for key in keys}
    rank = {}
    for key, values in seen.items():
        numbers = all(isinstance(value, int | float) for value in values)
        rank[key] = {str(value): at
                     for at, value in enumerate(sorted(values) if numbers else values)}
    return lambda row: tuple(rank[key][str(row[key])] for key in keys)


def _crossings(configs: Sequence[ParamValues], protocol: Protocol,
               lengths: tuple[str, ...]) -> CostCrossings:
    if len(configs) != 1 or configs[0].infeasible_values:
        return CostCrossings()
    return find_crossings(build_blocks(configs[0])[1], protocol.with_vocab(configs[0].get("vocab")),
                          lengths)
