"""Stacks of layers, with A^G, step signals, solvers or a waist of their own.

Solvers apply a layer's change F(x) = layer(x) - x: Euler's step, or the ODE Transformer's of higher
order (Li et al. 2022). Evaluations share the layer's weights: they cost multiply-adds and no
parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import Block, LoopNest, Repeat, Size, Use, block
from scalesearch.blocks.elementwise import add_promoted
from scalesearch.blocks.embedding import sinusoidal_positions
from scalesearch.blocks.leaves import Linear
from scalesearch.blocks.mixers.scores import GlobalScores
from scalesearch.blocks.norms import NORM_CLASSES

if TYPE_CHECKING:
    from torch import Tensor

LayerCall = Callable[[Any], Any]


@dataclass(frozen=True)
class OdeSolver:
    """``advance(m, layer, x)`` is the next state; the layer is called ``evaluations`` times."""

    evaluations: int
    advance: Callable[[Any, LayerCall, Any], Any]
    gated: bool = False


def rk2_step(m: Any, layer: LayerCall, x: Tensor) -> Tensor:
    """x + (F₁ + F₂) / 2 with F₂ = F(x + F₁)."""
    first = _change(layer, x)
    return x + (first + _change(layer, x + first)) / 2


def learned_rk2_step(m: Any, layer: LayerCall, x: Tensor) -> Tensor:
    """x + g F₁ + (1 - g) F₂, g = σ(W [F₁; F₂]), one W for the stack."""
    import torch

    first = _change(layer, x)
    second = _change(layer, x + first)
    g = m.gate(torch.cat([first, second], -1)).sigmoid()
    return x + g * first + (1 - g) * second


def rk4_step(m: Any, layer: LayerCall, x: Tensor) -> Tensor:
    """x + (F₁ + 2 F₂ + 2 F₃ + F₄) / 6."""
    first = _change(layer, x)
    second = _change(layer, x + first / 2)
    third = _change(layer, x + second / 2)
    return x + (first + 2 * second + 2 * third + _change(layer, x + third)) / 6


def _change(layer: LayerCall, x: Tensor) -> Any:
    return layer(x) - x


SOLVERS = {"euler": OdeSolver(1, lambda m, layer, x: layer(x)), "rk2": OdeSolver(2, rk2_step),
           "rk2-learned": OdeSolver(2, learned_rk2_step, gated=True), "rk4": OdeSolver(4, rk4_step)}


@block
class Stack(Block):
    """Layers in turn, and a last norm where the layers are pre-norm and ``final_norm``.

    ``global_scores``: A^G, added to the scores of every self-attention (PartialFormer).
    ``step_signals``: a sinusoid of the layer's number is added before each layer (Universal
    Transformer). ``solver``: how a layer's change is applied (ODE Transformer): ``euler`` as ever.
    """

    layers: Repeat
    global_scores: GlobalScores | None = None
    step_signals: bool = False
    solver: str = "euler"
    final_norm: bool = True

    @property
    def layer(self) -> Any:
        """The repeated layer."""
        return self.layers.layer

    @property
    def has_final_norm(self) -> bool:
        """True if a norm comes last."""
        return bool(self.layer.norm == "pre" and self.final_norm)

    def parts(self) -> Mapping[str, Block | Use]:
        main = self.layer.mixer
        solver = SOLVERS[self.solver]
        parts: dict[str, Block | Use] = {"layers": Use(self.layers, solver.evaluations)}
        if self.global_scores is not None:
            parts["scores"] = self.global_scores
        if solver.gated:
            parts["gate"] = Use(Linear(2 * main.d, 1, (main.queries,)), self.layers.depth)
        return parts | ({"norm": NORM_CLASSES[self.layer.norm_kind](main.d, (main.queries,))}
                        if self.has_final_norm else {})

    def loop_nests(self) -> Sequence[LoopNest]:
        # a learned solver keeps both changes, twice, and what is left of the gate
        main = self.layer.mixer
        kept = LoopNest((main.queries, self.layers.depth, 4 * main.d + 1), "activation")
        return [kept] if SOLVERS[self.solver].gated else []

    def forward(self, module: Any, x: Tensor, present: Tensor | None, bias: Tensor | None, *context: Any) -> Tensor:
        """``present`` and ``bias`` as a mixer takes them.

        ``context``: of a decoder (memory, its bias, cache).
        """
        if self.global_scores is not None:
            scores = module.scores(x, *context[2:])
            bias = scores if bias is None else add_promoted(bias, scores)
        x = run_layers(module, module.layers, x, (present, bias, {}, *context), self.step_signals,
                       self.solver)
        return module.norm(x) if self.has_final_norm else x


def run_layers(m: Any, layers: Any, x: Tensor, context: tuple[Any, ...], steps: bool, solver: str,
               first: int = 0) -> Tensor:
    """``x`` through ``layers``, of which the first is number ``first`` of its stack."""
    advance: Callable[..., Any] = SOLVERS[solver].advance
    for index, layer in enumerate(layers, first):
        x = x + step_signal(index, x) if steps else x
        x = advance(m, lambda y, layer=layer: layer(y, *context), x)
    return x


def step_signal(index: int, x: Tensor) -> Tensor:
    """The sinusoid of layer ``index`` (Dehghani et al. 2019, eq. 6), (d,)."""
    import torch

    # filled there: torch.tensor copies from the host, which waits
    place = torch.full((), index, device=x.device)
    return sinusoidal_positions(place, x.shape[-1], x.dtype)


@block
class BottleneckStack(Block):
    """A stack whose layers between first and last have another width (Subformer, Reid et al. 2021).

    An affine map and a norm lead into the middle, and out of it. ``middle`` is a repeated layer of
    the middle's width.
    """

    first: Repeat
    middle: Repeat
    last: Repeat
    step_signals: bool = False
    final_norm: bool = True

    @property
    def layer(self) -> Any:
        """The first layer, which says what the stack is."""
        return self.first.layer

    @property
    def has_final_norm(self) -> bool:
        """True if a norm comes last."""
        return bool(self.layer.norm == "pre" and self.final_norm)

    def parts(self) -> Mapping[str, Block | Use]:
        outer = self.layer.mixer.d
        over = (self.layer.mixer.queries,)
        norm = NORM_CLASSES[self.layer.norm_kind]
        inner: Size = self.middle.layer.mixer.d  # type: ignore[attr-defined]
        parts = {"first": self.first, "enter": Linear(outer, inner, over),
                 "enter_norm": norm(inner, over), "middle": self.middle,
                 "leave": Linear(inner, outer, over), "leave_norm": norm(outer, over),
                 "last": self.last}
        return parts | ({"norm": norm(outer, over)} if self.has_final_norm else {})

    def forward(self, module: Any, x: Tensor, present: Tensor | None, bias: Tensor | None, *context: Any) -> Tensor:
        """As :meth:`Stack.forward`; scores are carried within first, middle and last alone."""
        x = run_layers(module, module.first, x, (present, bias, {}, *context), self.step_signals,
                       "euler")
        x = module.enter_norm(module.enter(x))
        x = run_layers(module, module.middle, x, (present, bias, {}, *context), self.step_signals,
                       "euler", 1)
        x = module.leave_norm(module.leave(x))
        x = run_layers(module, module.last, x, (present, bias, {}, *context), self.step_signals,
                       "euler", 1 + self.middle.depth)
        return module.norm(x) if self.has_final_norm else x
