"""Costs as formulas: params and MACs of every module, with the architecture's own keys, S, T and V for numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from scalesearch.blocks.core import Axis, Block, Line, Size, walk
from scalesearch.blocks.poly import Columns, Poly
from scalesearch.blocks.sizes import plain
from scalesearch.cost.ledger import SECTIONS, split
from scalesearch.cost.modules import COLLAPSED
from scalesearch.cost.protocol import Protocol
from scalesearch.space import Space
from scalesearch.space.assembly.architecture import network
from scalesearch.space.questionnaire.evaluator import evaluate
from scalesearch.space.syntax.domains import Computed, Conditional, Spec
from scalesearch.space.syntax.expressions import Ref
from scalesearch.whatif.formula import Formula
from scalesearch.whatif.lengths import S, T, V, extent_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Citation:
    """Closed forms of one architecture's costs.

    Attributes:
        sections: ``params.total`` and the like to formula, as the ledger names them (without flops: 2 · macs).
        modules: path to the formulas of params and MACs, in the order of the model.
        values: what the architecture has for each name.
        where: how names follow from others, by the file: ``encoder.head_dim`` to ``width // encoder.heads``.
        held: what is not a name: kinds, schedules and the like, as answered.
        numbers: how many sizes are no polynomial in others, and stand as the numbers that they are here.
        vocab_bound: shapes follow from the vocabulary (an adaptive table, a chain), so V is a number in params.
    """

    protocol: Protocol
    sections: Mapping[str, Formula]
    modules: Mapping[str, tuple[Formula, Formula]]
    values: Mapping[str, int]
    where: Mapping[str, str]
    held: Mapping[str, Any]
    numbers: int
    vocab_bound: bool

    def at(self, name: str, **values: int) -> int:
        """The cost ``name`` with other values for some names; dots of a key are written as ``__``."""
        return self.sections[name].at({**self.values, **{key.replace("__", "."): v for key, v in values.items()}})

    def frame(self) -> pd.DataFrame:
        """One row for each cost: its name, formula and value."""
        import pandas as pd

        rows = [{"cost": n, "formula": write(f), "value": f.at(self.values)} for n, f in self.sections.items()]
        return pd.DataFrame(rows)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        sections = {n: {"formula": write(f), "value": f.at(self.values)} for n, f in self.sections.items()}
        modules = {p: {"params": write(a), "macs": write(b)} for p, (a, b) in self.modules.items()}
        used = {name for formula in self.sections.values() for name in formula.names}
        return {
            "protocol": self.protocol.to_json(), "costs": sections, "modules": modules,
            "values": {name: value for name, value in self.values.items() if name in used},
            "where": dict(self.where), "held": dict(self.held), "numbers": self.numbers,
            "vocab_bound": self.vocab_bound,
        }  # fmt: skip


def write(formula: Formula) -> str:
    """A formula with depths in front of brackets."""
    return formula.collected(lambda name: name.endswith(".depth"))


def cite(space: Space, answers: Mapping[str, Any], protocol: Protocol, levels: int = 2) -> Citation:
    """The closed forms of what ``answers``, a sheet of ``space``, cost under ``protocol``.

    They hold as long as kinds and schedules stay; a name stands for any size that can be built.
    """
    symbols = _Symbols(space, answers)
    block = symbols.block()
    ledger = _Ledger(block, protocol, symbols)
    used = {name for formula in ledger.sections.values() for name in formula.names}
    values = symbols.values | {S: protocol.source, T: protocol.target, V: protocol.vocab}
    where = {key: text for key, text in symbols.where.items() if key in used}
    held = {key: value for key, value in answers.items() if key not in symbols.values and key not in symbols.copies}
    modules = ledger.modules(levels)
    bound = vocab_bound(answers, protocol)
    return Citation(protocol, ledger.sections, modules, values, where, held, len(symbols.bare), bound)



def vocab_bound(answers: Mapping[str, Any], protocol: Protocol) -> bool:
    """Whether shapes other than a table's length follow from the vocabulary."""
    block = network(answers)[1]
    other = walk(block, vocab=2 * protocol.vocab)
    return [line.leaf for line in walk(block, vocab=protocol.vocab)] != [line.leaf for line in other]


class _Symbols:
    """Sizes as columns of one row, each with its key; copies of a key (``= encoder.heads``) are that key's column."""

    def __init__(self, space: Space, answers: Mapping[str, Any]) -> None:
        self.columns = Columns(1)
        self.values: dict[str, int] = {}
        self.copies: dict[str, str] = {}
        self.where: dict[str, str] = {}
        self.columns_of: dict[int, str] = {}
        self.bare: set[int] = set()  # columns without a key that a cost depends on
        self.answers = dict(answers)
        self.sizes: dict[str, Any] = {}
        present = (leaf for leaf in space.form.leaves if self._there(leaf.guards))
        specs = {leaf.key: leaf.spec for leaf in present if leaf.field.kind == "size"}
        for key, value in answers.items():
            if key in specs and isinstance(value, int) and not isinstance(value, bool):
                self._name(key, value, self._written(specs[key]))
        for key in self.values:
            self.sizes[key] = self._symbol(key)
        for key in self.copies:
            self.sizes[key] = self.sizes[self._origin(key)]

    def block(self) -> Block:
        """The network with symbols in place of sizes."""
        return network({**self.answers, **self.sizes})[1]

    def formula(self, size: Size) -> Formula:
        """A size as a formula; a column without a key is the number that it holds."""
        if not isinstance(size, Poly):
            if isinstance(size, np.ndarray):
                self.bare.add(-1 - id(size))
            return Formula.of([((), int(np.asarray(plain(size)).reshape(-1)[0]))])
        return Formula.of(self._monomial(key, factor) for key, factor in size.terms.items())

    def _monomial(self, key: tuple[int, ...], factor: int) -> tuple[tuple[str, ...], int]:
        for column in key:
            if column not in self.columns_of:
                self.bare.add(column)
                factor *= int(self.columns.arrays[column][0])
        return tuple(self.columns_of[column] for column in key if column in self.columns_of), factor

    def _name(self, key: str, value: int, spec: Spec) -> None:
        match spec:
            case Computed(Ref(_, other)) if other in self.answers and self.answers[other] == value:
                self.copies[key] = other
            case _:
                self.values[key] = value
                if isinstance(spec, Computed):
                    self.where[key] = str(spec).removeprefix("= ")

    def _symbol(self, key: str) -> Poly:
        found = self.columns.symbol(np.array([self.values[key]], np.int64), key)
        self.columns_of[next(iter(found.terms))[0]] = key
        return found

    def _origin(self, key: str) -> str:
        while key in self.copies:
            key = self.copies[key]
        return key

    def _written(self, spec: Spec) -> Spec:
        """What is written, on the side of its conditions that applies."""
        while isinstance(spec, Conditional):
            spec = spec.then if evaluate(spec.condition, self.answers.__getitem__) is True else spec.other
        return spec

    def _there(self, guards: tuple[tuple[str, str], ...]) -> bool:
        return all(self.answers.get(group) == variant for group, variant in guards)


class _Ledger:
    """The ledger's sums with formulas in place of numbers."""

    def __init__(self, block: Block, protocol: Protocol, symbols: _Symbols) -> None:
        self.protocol, self.symbols = protocol, symbols
        lines = list(walk(block, vocab=protocol.vocab))
        self.entries = [(line.path, self._params(line), self._macs(line)) for line in lines]
        self.sections = dict(self._sections())

    def _params(self, line: Line) -> Formula:
        total = Formula({})
        for name, shape in line.leaf.weights().items():
            axes, size = split(shape)
            total = total + self.symbols.formula(line.copies[name] * size) * Formula.of([((V,) * len(axes), 1)])
        return total

    def _macs(self, line: Line) -> Formula:
        total = Formula({})
        for work in line.leaf.work():
            if weight := self.protocol.counts.get(work.kind, 0):
                axes, size = split(work.loops)
                total = total + self.symbols.formula(size * line.calls * weight) * self._extent(axes)
        return total

    def _extent(self, axes: tuple[Axis, ...]) -> Formula:
        return extent_of(self.protocol.name, axes)

    def _sections(self) -> list[tuple[str, Formula]]:
        found = []
        for at, quantity in enumerate(("params", "macs")):
            sums: dict[str, Formula] = {}
            for path, *both in self.entries:
                section = path.split(".", 1)[0]
                sums[section] = sums.get(section, Formula({})) + both[at]
            total = sum(sums.values(), Formula({}))
            named = {"total": total, "non_embedding": total - sums.get("embedding", 0), **sums}
            found += [(f"{quantity}.{section}", named.get(section, Formula({}))) for section in SECTIONS]
        return found

    def modules(self, levels: int) -> dict[str, tuple[Formula, Formula]]:
        """Params and MACs of every module down to ``levels``, as :func:`scalesearch.cost.modules.rows` has them."""
        found: dict[str, tuple[Formula, Formula]] = {}
        for path, params, macs in self.entries:
            names = [name for name in path.split(".") if name != COLLAPSED]
            for level in range(1, min(levels, len(names)) + 1):
                where = ".".join(names[:level])
                one, two = found.get(where, (Formula({}), Formula({})))
                found[where] = one + params, two + macs
        return found
