"""Formulas of an architecture: params and MACs as polynomials in its sizes.

Notation: S and T are the source and target length in tokens, V is the size of the vocabulary. The
formulas result from the same code as the costs: sizes and extents of the protocol are polynomials
instead of numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from scalesearch.cost import evaluate_cost
from scalesearch.cost.breakdown import module_costs
from scalesearch.cost.protocol import Protocol
from scalesearch.spaces import Space
from scalesearch.spaces.assembly.architecture import build_blocks
from scalesearch.spaces.schema.bound_tree import build_index
from scalesearch.spaces.schema.cost_names import COST_PARTS
from scalesearch.spaces.syntax.domains import ComputedDomain, ConditionalDomain
from scalesearch.spaces.syntax.expressions import KeyRef, evaluate
from scalesearch.whatif.formulas import (
    Formula,
    SymbolicProtocol,
    SymbolTable,
    depends_on_vocab,
    length_values,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Citation:
    """Formulas of one architecture's costs.

    Attributes:
        sections: cost name, such as ``params.total``, to formula; FLOPs are 2 · MACs.
        modules: path to the formulas of params and MACs, in the order of the model.
        values: values of the names in the architecture.
        where: names that are computed from others in the file, such as ``encoder.head_dim`` =
            ``width // encoder.heads``.
        held_sizes: values of keys that are not names: types, schedules and others.
        numbers: number of different numbers that replace sizes that are not polynomials.
        vocab_bound: shapes depend on the vocabulary (adaptive embedding, tensor chain); formulas
            of params then have a number in place of V.
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
        """Names in the formulas: lengths first, then keys in the order of the file."""
        used = set().union(*(formula.names for formula in self.sections.values()))
        return [name for name in self.values if name in used]

    def evaluate(self, name: str, **values: int) -> int:
        """Evaluate the cost ``name`` with other values of some names.

        Example:
            >>> citation.evaluate("params.total", encoder__depth=12)
        """
        changed = {key.replace("__", "."): value for key, value in values.items()}
        return self.sections[name].evaluate({**self.values, **changed})

    def frame(self) -> pd.DataFrame:
        """Data frame with the name, formula and value of each cost."""
        import pandas as pd

        return pd.DataFrame([{"cost": name, **record} for name, record in self.costs.items()])

    @property
    def costs(self) -> dict[str, dict[str, Any]]:
        """Text of the formula and value of each cost."""
        return {name: {"formula": formula.to_factored_text(),
                       "value": formula.evaluate(self.values)}
                for name, formula in self.sections.items()}


def cite(space: Space, config: Mapping[str, Any], protocol: Protocol,
         max_level: int = 2) -> Citation:
    """Derive the formulas of the costs of ``config``, a configuration of ``space``.

    They are valid for other sizes that can be built, if types and schedules do not change.

    Args:
        max_level: number of module levels.
    """
    # Domain of each size; of conditions, the branch that applies.
    domains = {}
    options = set()  # sizes of the chosen types, such as the experts of a mixture
    for node in space.parameter_space.nodes:
        is_active = all(config.get(group) == variant for group, variant in node.guards)
        # A size of 0 is the absence of a part, so it has no name in the formulas.
        if (is_active and node.field.type == "size" and isinstance(config.get(node.key), int)
                and config[node.key] != 0):
            domain = node.domain
            while isinstance(domain, ConditionalDomain):
                is_true = evaluate(domain.condition, config.__getitem__) is True
                domain = domain.if_true if is_true else domain.if_false
            domains[node.key] = domain
            if node.guards:
                options.add(node.key)
    domains = {key: domains[key] for key in config if key in domains}
    copies = {}  # sizes that copy another one, as in `= width`
    for key, domain in domains.items():
        match domain:
            case ComputedDomain(KeyRef(_, source)) if config.get(source) == config[key]:
                copies[key] = source
    names = build_index(space.schema).parameter_names(config)
    named_sizes = {names[key]: config[key] for key in domains if key not in copies}
    symbols = SymbolTable(length_values(protocol) | named_sizes)
    sizes = {}
    for key in domains:
        source = key
        while source in copies:
            source = copies[source]
        sizes[key] = symbols.sizes[names[source]]
    breakdown = evaluate_cost(build_blocks({**config, **sizes})[1],
                              SymbolicProtocol.from_protocol(protocol, symbols))
    cost_names = [*(f"{quantity}.{section}" for quantity in ("params", "macs")
                    for section in COST_PARTS), "macs.once"]
    sections = {name: symbols.to_formula(breakdown[name]) for name in cost_names}
    modules = {module.path: (symbols.to_formula(module.params), symbols.to_formula(module.macs))
               for module in module_costs(breakdown, max_level)}
    used = set().union(*(formula.names for formula in sections.values()))
    where = {names[key]: str(domain).removeprefix("= ") for key, domain in domains.items()
             if names[key] in used and isinstance(domain, ComputedDomain)}
    held_sizes = {names[key]: value for key, value in config.items()
                  if key not in domains or (key in options and names[key] not in used)}
    is_vocab_bound = depends_on_vocab(build_blocks(config)[1], protocol)
    return Citation(protocol, sections, modules, symbols.values, where, held_sizes,
                    len(symbols.numbers), is_vocab_bound)
