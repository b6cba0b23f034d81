"""Citations: params and MACs of every module as closed forms in the architecture's own keys, S, T and V.

The ledger itself computes them: sizes, and the extents of the protocol, are polynomials instead of
numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from scalesearch.cost import evaluate_cost
from scalesearch.cost.modules import module_costs
from scalesearch.cost.protocol import Protocol
from scalesearch.space import Space
from scalesearch.space.assembly.architecture import build_blocks
from scalesearch.space.schema.cost_names import COST_PARTS
from scalesearch.space.syntax.composite_domains import ComputedDomain, ConditionalDomain
from scalesearch.space.syntax.domains import Domain
from scalesearch.space.syntax.evaluator import evaluate
from scalesearch.space.syntax.expressions import KeyRef
from scalesearch.whatif.formulas import Formula, SymbolicProtocol, SymbolTable, depends_on_vocab, length_values

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Citation:
    """Closed forms of one architecture's costs.

    Attributes:
        sections: ``params.total`` and the like to formula, as the ledger names them (without flops:
            2 · macs).
        modules: path to the formulas of params and MACs, in the order of the model.
        values: what the architecture has for each name.
        where: how names follow from others, by the file: ``encoder.head_dim`` to ``width //
            encoder.heads``.
        held_sizes: what is not a name: kinds, schedules and the like, as answered.
        numbers: how many different numbers stand for sizes that are no polynomial in others.
        vocab_bound: shapes follow from the vocabulary (an adaptive table, a chain), so V is a
            number in params.
    """

    protocol: Protocol
    sections: Mapping[str, Formula]
    modules: Mapping[str, tuple[Formula, Formula]]
    values: Mapping[str, int]
    where: Mapping[str, str]
    held_sizes: Mapping[str, Any]
    numbers: int
    vocab_bound: bool

    @cached_property
    def names(self) -> list[str]:
        """The names that occur, lengths first, then in the order of the file."""
        used = set().union(*(formula.names for formula in self.sections.values()))
        return [name for name in self.values if name in used]

    def evaluate(self, name: str, **values: int) -> int:
        """The cost ``name`` with other values for some names; dots of a key are written as ``__``."""
        return self.sections[name].evaluate(
            {**self.values, **{key.replace("__", "."): v for key, v in values.items()}})

    def frame(self) -> pd.DataFrame:
        """One row for each cost: its name, formula and value."""
        import pandas as pd

        return pd.DataFrame([{"cost": name, **record} for name, record in self._records().items()])

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        modules = {p: {"params": a.to_factored_text(), "macs": b.to_factored_text()}
                   for p, (a, b) in self.modules.items()}
        return {"protocol": self.protocol.to_json(), "costs": self._records(), "modules": modules,
                "values": {name: self.values[name] for name in self.names},
                **{name: getattr(self, name)
                   for name in ("where", "held_sizes", "numbers", "vocab_bound")}}

    def _records(self) -> dict[str, dict[str, Any]]:
        return {n: {"formula": f.to_factored_text(), "value": f.evaluate(self.values)}
                for n, f in self.sections.items()}


def cite(space: Space, config: Mapping[str, Any], protocol: Protocol,
         max_level: int = 2) -> Citation:
    """The closed forms of what ``config``, a sheet of ``space``, cost under ``protocol``.

    They hold as long as kinds and schedules stay; a name stands for any size that can be built.
    """
    specs = _size_specs(space, config)
    copies = {key: spec.expression.key
              for key, spec in specs.items() if _is_copy(spec, config[key], config)}
    own = {key: config[key] for key in specs if key not in copies}
    symbols = SymbolTable(length_values(protocol) | own)
    sizes = {key: symbols.sizes[_origin(key, copies)] for key in specs}
    bill = evaluate_cost(build_blocks({**config, **sizes})[1],
                         SymbolicProtocol.from_protocol(protocol, symbols))
    named = [*(f"{quantity}.{section}" for quantity in ("params", "macs")
               for section in COST_PARTS), "macs.once"]
    sections = {name: symbols.to_formula(bill[name]) for name in named}
    modules = {row.path: (symbols.to_formula(row.params), symbols.to_formula(row.macs))
               for row in module_costs(bill, max_level)}
    used = set().union(*(formula.names for formula in sections.values()))
    where = {key: str(specs[key]).removeprefix("= ")
             for key in own if key in used and isinstance(specs[key], ComputedDomain)}
    held = {key: value for key, value in config.items() if key not in specs}
    bound = depends_on_vocab(build_blocks(config)[1], protocol)
    return Citation(protocol, sections, modules, symbols.values, where, held, len(symbols.numbers),
                    bound)


def _size_specs(space: Space, config: Mapping[str, Any]) -> dict[str, Domain]:
    """How each size of the sheet is written, on the side of its conditions that applies."""
    specs = {}
    for leaf in space.parameter_space.nodes:
        there = all(config.get(group) == variant for group, variant in leaf.guards)
        if there and leaf.field.type == "size" and isinstance(config.get(leaf.key), int):
            spec = leaf.domain
            while isinstance(spec, ConditionalDomain):
                spec = spec.if_true if evaluate(
                    spec.condition, config.__getitem__) is True else spec.if_false
            specs[leaf.key] = spec
    return {key: specs[key] for key in config if key in specs}


def _is_copy(spec: Domain, value: Any, config: Mapping[str, Any]) -> bool:
    match spec:
        case ComputedDomain(KeyRef(_, other)):
            return other in config and config[other] == value
    return False


def _origin(key: str, copies: Mapping[str, str]) -> str:
    while key in copies:
        key = copies[key]
    return key
