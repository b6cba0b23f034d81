"""Polynomials with names and exact fractions: what a closed form is made of, evaluated and written for people."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

Monomial = tuple[str, ...]  # names, sorted, each as often as its power


@dataclass(frozen=True)
class Formula:
    """A sum of monomials, each with a factor; no factor is 0."""

    terms: Mapping[Monomial, Fraction]

    @classmethod
    def of(cls, terms: Iterable[tuple[Iterable[str], Any]]) -> Formula:
        """The sum of (names, factor) pairs; those of the same names are added."""
        found: dict[Monomial, Fraction] = {}
        for names, factor in terms:
            key = tuple(sorted(names))
            found[key] = found.get(key, Fraction(0)) + Fraction(factor)
        return cls({key: factor for key, factor in found.items() if factor})

    @classmethod
    def name(cls, name: str) -> Formula:
        """A name on its own."""
        return cls({(name,): Fraction(1)})

    def __add__(self, other: Formula | int) -> Formula:
        return Formula.of([*self.terms.items(), *_as(other).terms.items()])

    def __sub__(self, other: Formula | int) -> Formula:
        return self + _as(other) * -1

    def __mul__(self, other: Formula | int | Fraction) -> Formula:
        right = _as(other).terms.items()
        return Formula.of([(one + two, a * b) for one, a in self.terms.items() for two, b in right])

    __radd__, __rmul__ = __add__, __mul__

    @property
    def names(self) -> list[str]:
        """Every name in it, sorted."""
        return sorted({name for key in self.terms for name in key})

    def at(self, values: Mapping[str, int]) -> int:
        """Its value, an exact whole number. Raises ValueError where it is none."""
        terms = (factor * math.prod(values[name] for name in key) for key, factor in self.terms.items())
        total = sum(terms, Fraction(0))
        if total.denominator != 1:
            raise ValueError(f"{total} is no whole number")
        return int(total)

    def bind(self, values: Mapping[str, int]) -> Formula:
        """This with numbers in place of some names."""
        return Formula.of(
            (tuple(name for name in key if name not in values),
             factor * math.prod(values[name] for name in key if name in values))
            for key, factor in self.terms.items()
        )

    def collected(self, outer: Callable[[str], bool]) -> str:
        """The text, with terms of the same power of the names that ``outer`` picks put in brackets behind them."""
        groups: dict[Monomial, list[tuple[Monomial, Fraction]]] = {}
        for key, factor in self.terms.items():
            head = tuple(name for name in key if outer(name))
            groups.setdefault(head, []).append((tuple(name for name in key if not outer(name)), factor))
        parts = [_bracket(head, Formula(dict(groups[head]))) for head in sorted(groups, key=_order)]
        return " + ".join(parts).replace("+ -", "- ") or "0"

    def __str__(self) -> str:
        ordered = sorted(self.terms.items(), key=lambda item: _order(item[0]))
        return " + ".join(_term(key, factor) for key, factor in ordered).replace("+ -", "- ") or "0"


def _as(x: Formula | int | Fraction) -> Formula:
    return x if isinstance(x, Formula) else Formula({(): Fraction(x)} if x else {})


def _order(key: Monomial) -> tuple[int, Monomial]:
    return -len(key), key


def _bracket(head: Monomial, rest: Formula) -> str:
    """``head * (rest)``, with what divides every term of the rest in front."""
    if not head:
        return str(rest)
    common = _common(rest)
    inner = Formula({_without(key, common): factor for key, factor in rest.terms.items()})
    share = _divisor(inner)
    outside = (*_powers(head), *_powers(common))
    if len(inner.terms) == 1:
        return _term((), next(iter(inner.terms.values())), outside)
    return f"{_term((), share, outside)} * ({inner * (1 / share)})"


def _common(formula: Formula) -> Monomial:
    """The names that every term has."""
    keys = list(formula.terms)
    return tuple(
        name for name in dict.fromkeys(keys[0]) for _ in range(min(key.count(name) for key in keys))
    ) if keys else ()


def _without(key: Monomial, names: Monomial) -> Monomial:
    left = list(key)
    for name in names:
        left.remove(name)
    return tuple(left)


def _divisor(formula: Formula) -> Fraction:
    """The largest number that leaves whole factors with nothing in common."""
    factors = list(formula.terms.values())
    top = reduce(math.gcd, (factor.numerator for factor in factors))
    return Fraction(top, reduce(math.lcm, (factor.denominator for factor in factors)))


def _powers(key: Monomial) -> list[str]:
    names = dict.fromkeys(key)
    return [name if key.count(name) == 1 else f"{name}^{key.count(name)}" for name in names]


def _term(key: Monomial, factor: Fraction, ahead: Iterable[str] = ()) -> str:
    """``4 * width^2``; fractions as ``1/2 * T^2``."""
    factors = [*ahead, *_powers(key)]
    if factor == -1 and factors:
        return "-" + " * ".join(factors)
    shown = f"{factor.numerator:,}" + (f"/{factor.denominator}" if factor.denominator != 1 else "")
    return " * ".join(([] if factor == 1 and factors else [shown]) + factors)
