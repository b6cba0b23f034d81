"""Mixture of experts (Shazeer et al. 2017; Jiang et al. 2024; Dai et al. 2024).

Notation: N tokens, E experts, k active experts per token, d features.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import (
    Block,
    CostLine,
    LoopNest,
    Size,
    Use,
    block,
    iterate_cost_lines,
)
from scalesearch.blocks.ffn import FFN, GEGLU, GELU, ReLU, SwiGLU, Swish, register_ffn
from scalesearch.blocks.leaves import Linear
from scalesearch.blocks.options import option_field
from scalesearch.blocks.sizes import decide, is_set, require_single_value

if TYPE_CHECKING:
    from torch import Tensor

EXPERT_CLASSES: dict[str, type[FFN]] = {"swiglu": SwiGLU, "geglu": GEGLU, "relu": ReLU,
                                        "gelu": GELU, "swish": Swish}


@register_ffn("mixture")
@block
class Mixture(FFN):
    """Mixture of experts: a router sends each token to the k best of E networks.

    The weights of the active experts are the softmax of their router scores. No token is dropped.
    Shared experts are one further network that all tokens use.
    """

    experts: Size = option_field("8", minimum=2, doc="networks that the router chooses from")
    active: Size = option_field("2", doc="networks that a token uses")
    shared: Size = option_field("0", minimum=0, doc="networks that all tokens use, in addition")
    expert_hidden: Size = option_field("= width", doc="hidden units of each network")
    expert: str = option_field("swiglu", type="word", choices=tuple(EXPERT_CLASSES),
                               doc="type of the networks")

    supports_norm = True
    supports_bias = True

    def validate(self) -> tuple[str, str] | None:
        if decide(self.active > self.experts):
            return "active", f"a token cannot use {self.active} of {self.experts} experts"
        return None

    def _network(self, hidden: Size) -> FFN:
        network: FFN = EXPERT_CLASSES[self.expert](  # type: ignore[call-arg]
            self.d, self.over, self.linear_factory, norm_type=self.norm_type, bias=self.bias,
            hidden=hidden)
        return network

    @cached_property
    def expert_names(self) -> list[str]:
        """Names of the parts of the experts."""
        return [f"expert_{index}" for index in range(require_single_value(self.experts))]

    def parts(self) -> Mapping[str, Block | Use]:
        """Return the parts; on average, as many calls as a token has active experts.

        The first k experts have one call per token, the others none, so that costs are exact sums.
        """
        active = require_single_value(self.active)
        network = self._network(self.expert_hidden)
        experts = {name: Use(network, int(index < active))
                   for index, name in enumerate(self.expert_names)}
        shared = {"shared": self._network(self.shared * self.expert_hidden)} if decide(
            is_set(self.shared)) else {}
        return {"router": Linear(self.d, require_single_value(self.experts), self.over, False),
                **experts, **shared}

    def residual_roles(self) -> Mapping[str, str]:
        networks = {**dict.fromkeys(self.expert_names, self._network(self.expert_hidden))}
        if "shared" in self.parts():
            networks["shared"] = self._network(self.shared * self.expert_hidden)
        return {f"{name}.{path}": role for name, network in networks.items()
                for path, role in network.residual_roles().items()}

    def loop_nests(self) -> Sequence[LoopNest]:
        active = require_single_value(self.active)
        inactive = len(self.expert_names) - active
        # weights that are computed from others, such as those of tensor chains, for all experts
        once = [LoopNest((*nest.loops, inactive * line.calls), nest.operation)
                for line in iterate_cost_lines(self._network(self.expert_hidden))
                for nest in line.loop_nests
                if nest.operation in ("once", "activation_once")]
        # Inputs of the active experts, their weights, and the sum: the outputs of the experts are
        # stored in addition to it. Shared experts count as the sum.
        weighted_sum = 0 if decide(is_set(self.shared)) else self.d
        return [*once, LoopNest((*self.over, active * (self.d + 1) + weighted_sum), "activation")]

    def forward(self, module: Any, x: Tensor) -> Tensor:
        import torch

        active = require_single_value(self.active)
        tokens = x.reshape(-1, self.d)  # (N, d)
        scores = module.router(tokens)  # (N, E)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        best_scores, chosen = scores.topk(active, -1)  # (N, k)
        weights = best_scores.softmax(-1).to(x.dtype)
        if module.training:
            module.balance_loss = balance_loss(scores, chosen)
        if _has_dynamic_shapes(x):
            slots = chosen.flatten().argsort(stable=True)  # (N k), by expert
            counts = chosen.flatten().bincount(minlength=len(self.expert_names)).tolist()
            results = [getattr(module, name)(tokens[rows // active]) for name, rows
                       in zip(self.expert_names, slots.split(counts))]
            outputs = torch.cat(results).index_select(0, slots.argsort())  # (N k, d)
            mixed = (weights[..., None] * outputs.view(-1, active, self.d)).sum(1)
        else:  # static shapes, for graphs: all experts compute all tokens
            all_weights = torch.zeros_like(scores, dtype=x.dtype).scatter(1, chosen, weights)
            mixed = sum(getattr(module, name)(tokens) * all_weights[:, index, None]
                        for index, name in enumerate(self.expert_names))
        if "shared" in self.parts():
            mixed = mixed + module.shared(tokens)
        return mixed.view_as(x)


def calls_with_static_shapes(lines: Iterable[CostLine]) -> Iterator[tuple[CostLine, Size]]:
    """Yield each line with its calls in a graph of static shapes, such as one of ONNX.

    All experts compute all tokens there, see :meth:`Mixture.forward`.
    """
    calls: dict[str, Size] = {}
    for line in lines:
        calls[line.path] = line.calls
        first_expert = re.sub(r"\bexpert_\d+\b", "expert_0", line.path)  # is always active
        yield line, calls.get(first_expert, line.calls)


def balance_loss(scores: Tensor, chosen: Tensor) -> Tensor:
    """Return the loss that balances the load of experts (Fedus et al. 2022, eq. 4 to 6).

    E Σ_e f_e P_e with the share f_e of the choices and the mean probability P_e of expert e. It is
    1 if the load is uniform.

    Args:
        scores: router scores (N, E).
        chosen: indices of the active experts (N, k).
    """
    import torch

    num_experts = scores.shape[1]
    # one matrix: `bincount` has no static form
    is_chosen = torch.zeros_like(scores).scatter(1, chosen, 1.0)
    shares = is_chosen.mean(0) / chosen.shape[1]
    return num_experts * (shares * scores.softmax(-1).mean(0)).sum()


def _has_dynamic_shapes(x: Tensor) -> bool:
    """Return whether the number of tokens per expert may depend on the values of ``x``."""
    import torch

    return (type(x) in (torch.Tensor, torch.nn.Parameter) and x.device.type == "cpu"
            and not torch.compiler.is_compiling())
