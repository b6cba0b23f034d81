"""Solvers that apply a layer's change F(x) = layer(x) - x: Euler's step, or higher orders.

The higher orders are the ODE Transformer's (Li et al. 2022). Evaluations share the layer's weights: they cost
multiply-adds and no parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Layer = Callable[[Any], Any]


@dataclass(frozen=True)
class Solver:
    """``advance(m, layer, x)`` is the next state; the layer is called ``evaluations`` times."""

    evaluations: int
    advance: Callable[[Any, Layer, Any], Any]
    gated: bool = False


def euler(m: Any, layer: Layer, x: Any) -> Any:
    """x + F(x)."""
    return layer(x)


def rk2(m: Any, layer: Layer, x: Any) -> Any:
    """x + (F₁ + F₂) / 2 with F₂ = F(x + F₁)."""
    first, second = _two(layer, x)
    return x + (first + second) / 2


def rk2_learned(m: Any, layer: Layer, x: Any) -> Any:
    """x + g F₁ + (1 - g) F₂, g = σ(W [F₁; F₂]), one W for the stack."""
    import torch

    first, second = _two(layer, x)
    g = m.gate(torch.cat([first, second], -1)).sigmoid()
    return x + g * first + (1 - g) * second


def rk4(m: Any, layer: Layer, x: Any) -> Any:
    """x + (F₁ + 2 F₂ + 2 F₃ + F₄) / 6."""
    first = layer(x) - x
    second = _change(layer, x + first / 2)
    third = _change(layer, x + second / 2)
    fourth = _change(layer, x + third)
    return x + (first + 2 * second + 2 * third + fourth) / 6


def _change(layer: Layer, x: Any) -> Any:
    return layer(x) - x


def _two(layer: Layer, x: Any) -> tuple[Any, Any]:
    first = _change(layer, x)
    return first, _change(layer, x + first)


SOLVERS = {
    "euler": Solver(1, euler),
    "rk2": Solver(2, rk2),
    "rk2-learned": Solver(2, rk2_learned, gated=True),
    "rk4": Solver(4, rk4),
}
