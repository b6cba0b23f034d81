"""Stacks of layers: plain, with global attention scores, or with a bottleneck.

An ODE solver applies the change F(x) = layer(x) - x of a layer: Euler's method, or a method of
higher order (ODE Transformer, Li et al. 2022). All evaluations use the same weights: they add
multiply-adds but no parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import Block, LoopNest, Repeat, Size, Use, block
from scalesearch.blocks.elementwise import add_promoted
from scalesearch.blocks.embedding import sinusoidal_positions
from scalesearch.blocks.leaves import Linear
from scalesearch.blocks.mixers.scores import GlobalScores, RelativeBuckets
from scalesearch.blocks.norms import NORM_CLASSES

if TYPE_CHECKING:
    from torch import Tensor

Context = tuple[Any, ...]  # the arguments of a layer after its input


@dataclass(frozen=True)
class OdeSolver:
    """An ODE solver.

    Attributes:
        evaluations: calls of the layer per step.
        advance: returns the next state; its arguments are the module of the stack, the module of
            the layer, the state x (batch, positions, d) and other arguments of the layer.
        gated: whether the stack has a ``gate``.
    """

    evaluations: int
    advance: Callable[[Any, Any, Any, Context], Any]
    gated: bool = False


def rk2_step(m: Any, layer: Callable[..., Tensor], x: Tensor, context: Context) -> Tensor:
    """Return x + (F₁ + F₂) / 2, with F₂ = F(x + F₁)."""
    first = _change(layer, x, context)
    return x + (first + _change(layer, x + first, context)) / 2


def learned_rk2_step(m: Any, layer: Callable[..., Tensor], x: Tensor, context: Context) -> Tensor:
    """Return x + g F₁ + (1 - g) F₂, with g = σ(W [F₁; F₂]) and one W per stack."""
    import torch

    first = _change(layer, x, context)
    second = _change(layer, x + first, context)
    g = m.gate(torch.cat([first, second], -1)).sigmoid()
    return x + g * first + (1 - g) * second


def rk4_step(m: Any, layer: Callable[..., Tensor], x: Tensor, context: Context) -> Tensor:
    """Return x + (F₁ + 2 F₂ + 2 F₃ + F₄) / 6 (the classical Runge-Kutta method)."""
    first = _change(layer, x, context)
    second = _change(layer, x + first / 2, context)
    third = _change(layer, x + second / 2, context)
    return x + (first + 2 * second + 2 * third + _change(layer, x + third, context)) / 6


def _change(layer: Callable[..., Tensor], x: Tensor, context: Context) -> Tensor:
    return layer(x, *context) - x


def euler_step(m: Any, layer: Callable[..., Tensor], x: Tensor, context: Context) -> Tensor:
    """Return x + F(x), the usual residual."""
    return layer(x, *context)


SOLVERS = {"euler": OdeSolver(1, euler_step), "rk2": OdeSolver(2, rk2_step),
           "rk2-learned": OdeSolver(2, learned_rk2_step, gated=True), "rk4": OdeSolver(4, rk4_step)}


class LayerStack(Block):
    """Base class of stacks of layers: (batch, positions, d) to (batch, positions, d)."""

    final_norm: bool
    post_final_norm: bool

    @property
    def layer(self) -> Any:
        """The (first) layer; its properties are those of the stack."""
        raise NotImplementedError

    @property
    def has_final_norm(self) -> bool:
        """Whether the stack ends with a norm."""
        return self.post_final_norm if self.layer.norm == "post" else self.final_norm


@block
class Stack(LayerStack):
    """A stack of equally wide layers: (batch, positions, d) to (batch, positions, d).

    Attributes:
        layers: the layers.
        global_scores: scores A^G that are added in every self-attention (PartialFormer).
        step_signals: whether a sinusoid of the layer's index is added before each layer (Universal
            Transformer).
        solver: a key of ``SOLVERS``; ``euler`` is the usual residual.
        final_norm: whether a stack ends with a norm, unless it is post-norm.
        post_final_norm: whether a post-norm stack ends with a norm.
        position_bias: learned bias of the scores of every self-attention (T5).
    """

    layers: Repeat
    global_scores: GlobalScores | None = None
    step_signals: bool = False
    solver: str = "euler"
    final_norm: bool = True
    post_final_norm: bool = field(default=False, metadata={"plain": False})
    position_bias: RelativeBuckets | None = field(default=None, metadata={"plain": None})

    @property
    def layer(self) -> Any:
        return self.layers.layer

    def parts(self) -> Mapping[str, Block | Use]:
        mixer = self.layer.mixer
        solver = SOLVERS[self.solver]
        parts: dict[str, Block | Use] = {"layers": Use(self.layers, solver.evaluations)}
        if self.global_scores is not None:
            parts["scores"] = self.global_scores
        if self.position_bias is not None:
            parts["position_bias"] = self.position_bias
        if solver.gated:
            parts["gate"] = Use(Linear(2 * mixer.d, 1, (mixer.queries,)), self.layers.depth)
        if self.has_final_norm:
            parts["norm"] = NORM_CLASSES[self.layer.norm_kind](mixer.d, (mixer.queries,))
        return parts

    def loop_nests(self) -> Sequence[LoopNest]:
        # A learned solver stores both changes twice, and 1 - g.
        mixer = self.layer.mixer
        saved = LoopNest((mixer.queries, self.layers.depth, 4 * mixer.d + 1), "activation")
        return [saved] if SOLVERS[self.solver].gated else []

    def forward(self, module: Any, x: Tensor, present: Tensor | None, bias: Tensor | None,
                *context: Any) -> Tensor:
        """Run the layers.

        Args:
            x: (batch, positions, d).
            present: token mask (batch, positions), as for mixers.
            bias: bias of attention scores, as for mixers.
            context: memory, its bias and the cache, in a decoder.
        """
        if self.global_scores is not None:
            scores = module.scores(x, *context[2:])
            bias = scores if bias is None else add_promoted(bias, scores)
        if self.position_bias is not None:
            cache = context[2] if context else None
            past = 0 if cache is None else cache.length
            keys = x.shape[1] + past if bias is None else bias.shape[-1]
            by_distance = module.position_bias(x.shape[1], keys)
            bias = by_distance if bias is None else add_promoted(bias, by_distance)
        x = run_layers(module, module.layers, x, (present, bias, {}, *context), self.step_signals,
                       self.solver)
        return module.norm(x) if self.has_final_norm else x


def run_layers(m: Any, layers: Iterable[Callable[..., Tensor]], x: Tensor, context: Context,
               steps: bool, solver: str = "euler", first: int = 0) -> Tensor:
    """Apply ``layers`` to ``x``.

    Args:
        layers: modules of the layers.
        x: (batch, positions, d).
        context: other arguments of the layers.
        steps: whether to add step signals.
        solver: a key of ``SOLVERS``.
        first: index of the first layer in its stack.
    """
    advance = SOLVERS[solver].advance
    for index, layer in enumerate(layers, first):
        if steps:
            x = x + step_signal(index, x)
        x = advance(m, layer, x, context)
    return x


def step_signal(index: int, x: Tensor) -> Tensor:
    """Return the sinusoid (d,) of the layer ``index`` (Dehghani et al. 2019, eq. 6)."""
    import torch

    # torch.full does not copy from the host, unlike torch.tensor, for which the host waits.
    position = torch.full((), index, device=x.device)
    return sinusoidal_positions(position, x.shape[-1], x.dtype)


@block
class BottleneckStack(LayerStack):
    """A stack whose middle layers have another width (Subformer, Reid et al. 2021).

    A linear map and a norm come before the middle layers and after them.

    Attributes:
        first: the first layer.
        middle: the middle layers.
        last: the last layer.
        step_signals: as for :class:`Stack`.
        final_norm, post_final_norm: as for :class:`Stack`.
    """

    first: Repeat
    middle: Repeat
    last: Repeat
    step_signals: bool = False
    final_norm: bool = True
    post_final_norm: bool = field(default=False, metadata={"plain": False})

    @property
    def layer(self) -> Any:
        return self.first.layer

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

    def forward(self, module: Any, x: Tensor, present: Tensor | None, bias: Tensor | None,
                *context: Any) -> Tensor:
        """Run the layers; see :meth:`Stack.forward`.

        Residual attention does not carry scores between layers of different widths.
        """
        x = run_layers(module, module.first, x, (present, bias, {}, *context), self.step_signals)
        x = module.enter_norm(module.enter(x))
        x = run_layers(module, module.middle, x, (present, bias, {}, *context), self.step_signals,
                       first=1)
        x = module.leave_norm(module.leave(x))
        x = run_layers(module, module.last, x, (present, bias, {}, *context), self.step_signals,
                       first=1 + self.middle.depth)
        return module.norm(x) if self.has_final_norm else x
