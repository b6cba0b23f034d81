"""First scales and learning rates of weights, by what each of them does in its model.

A rule is two factors for each weight: on the values that the initialization scheme draws, and on
the learning rate. Multipliers in the forward pass are never needed: under Adam a multiplier before
a weight is two factors on the weight (Yang & Hu 2021, the abc-symmetry), so that a trained model is
one like any other.

What a weight does is its *role*:

- ``table``: rows looked up by token. The embedding multiplies them by √d, and so its effective rate is √d larger.
- ``matrix``: fan_in inputs to each output; a gate, an adapter, a matrix for each head are matrices.
- ``core``: of a tensor chain of n. A step of its rate changes the matrix as much as one on the dense matrix would.
- ``readout``: what makes states scores of tokens.
- ``vector``: norms, biases, learned positions and prompts.

A weight in several roles (a tied table) gets the lowest of their rates. A weight that several
layers share gets the rate of one use: Adam's step does not grow with the number of gradients that
add up in it.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from scalesearch.blocks.ffn.base import FFN
from scalesearch.blocks.layers import Layer
from scalesearch.blocks.maps.linear_factories import LowRankLinear as LowRank
from scalesearch.blocks.mixers.base import Mixer
from scalesearch.blocks.multi_path import MultiPath
from scalesearch.nn.init import chain_std, fan_in
from scalesearch.nn.module import Module
from scalesearch.train.recipe import LearningRate, Recipe


@dataclass(frozen=True)
class WeightUse:
    """One use of a weight: its role, and n, the size that its rate may depend on (inputs, or a table's features).

    Attributes:
        core_lr_factor: of a core, the factor by which it changes its matrix as a dense one would be
            changed.
        n_matrices: that it is made of, of ``fan_out`` rows each: one for each head, or one. 0: no
            matrix that could be
            orthogonalized.
    """

    role: str
    fan_in: int = 1
    core_lr_factor: float = 1.0
    n_matrices: int = 0
    fan_out: int = 1


@dataclass(frozen=True)
class WeightScale:
    """Factors of a weight on its first values and on its learning rate."""

    role: str
    init_factor: float = 1.0
    lr_factor: float = 1.0
    n_matrices: int = 0

    def multiply(self, init_factor: float, lr_factor: float) -> "WeightScale":
        """This scale with both factors changed."""
        return replace(self, init_factor=self.init_factor * init_factor,
                       lr_factor=self.lr_factor * lr_factor)


Factors = tuple[float, float]  # on first values, on the rate
ScalingRule = Callable[[WeightUse, float], Factors]


def unscaled_factors(weight: WeightUse, width_ratio: float) -> Factors:
    """The same for all sizes."""
    return 1.0, 1.0


def embedding_factors(weight: WeightUse, width_ratio: float) -> Factors:
    """A rate that grows with the width for tables alone; theirs is what muP changes most under Adam."""
    return 1.0, width_ratio if weight.role == "table" else 1.0


def layerwise_factors(weight: WeightUse, width_ratio: float) -> Factors:
    """Per-layer rates for standard parametrization, of full alignment (Everett et al.

    2024, section 4).
    """
    match weight.role:
        case "table":
            return 1.0, width_ratio**-0.5
        case "matrix" | "readout":
            return 1.0, 1 / width_ratio
        case "core":
            return 1.0, weight.core_lr_factor / width_ratio
    return 1.0, 1.0


def mup_factors(weight: WeightUse, width_ratio: float) -> Factors:
    """Maximal update parametrization (Yang et al.

    2022, table 8): as layerwise, and a readout that starts smaller.

    A readout that is a tied table starts smaller by the gain of the norm before it; see
    :func:`weight_scales`.
    """
    init, rate = layerwise_factors(weight, width_ratio)
    return (width_ratio**-0.5, rate) if weight.role == "readout" else (init, rate)


SCALING_RULES: dict[str, ScalingRule] = {"none": unscaled_factors, "embedding": embedding_factors,
                                         "layerwise": layerwise_factors, "mup": mup_factors}


def weight_scales(model: Any, recipe: Recipe) -> dict[str, WeightScale]:
    """Factors of every weight of ``model``, by its name among the model's parameters."""
    found: dict[int, WeightScale] = {}
    placed = _position_factors(model, recipe)
    for path, node in model.named_modules():
        if isinstance(node, Module):
            for name, weight in node.weights():
                scale = _scale_of_use(node, path, name,
                                      recipe).multiply(*placed.get(f"{path}.{name}", (1.0, 1.0)))
                first = found.setdefault(id(weight), scale)
                owned = scale if name in node._parameters else first
                found[id(weight)] = replace(owned, lr_factor=min(first.lr_factor, scale.lr_factor))
    named = {name: found[id(weight)] for name, weight in model.named_parameters()}
    if recipe.lr.rule == "mup" and "output.weight" not in named and (
            gain := _readout_norm_gain(model)) in named:
        small = _width_ratio(model.block.decoder.layer.main.d, recipe.lr) ** -0.5
        named[gain] = named[gain].multiply(small, small)
    return named


def summarize_scales(model: Any, recipe: Recipe) -> list[dict[str, Any]]:
    """Groups of weights of one role and one scale: their number, optimizer, peak rate, factor on first values."""
    groups: dict[WeightScale, list[str]] = {}
    for name, scale in weight_scales(model, recipe).items():
        groups.setdefault(scale, []).append(name)
    rows = [{"role": scale.role, "params": sum(model.get_parameter(name).numel() for name in names),
             "optimizer": recipe.optimizer if scale.n_matrices else "adamw",
             "lr": recipe.lr.base * scale.lr_factor
             * (recipe.resolved_matrix_lr_factor if scale.n_matrices else 1),
             "init": scale.init_factor, "first": names[0]} for scale, names in groups.items()]
    return sorted(rows, key=lambda row: -row["params"])


def _width_ratio(n: int, lr: LearningRate) -> float:
    return 1.0 if lr.reference_sizes.width is None else n / lr.reference_sizes.width


def _scale_of_use(node: Module, path: str, name: str, recipe: Recipe) -> WeightScale:
    """The scale of one use of a weight by the rule."""
    weight = _classify_weight(node, path, name)
    lr = recipe.lr
    init, rate = SCALING_RULES[lr.rule](weight, _width_ratio(weight.fan_in, lr))
    matrices = weight.n_matrices if recipe.optimizer != "adamw" else 0
    if matrices and recipe.optimizer == "muon" and lr.rule in ("layerwise", "mup"):
        # Muon's step has the spectral norm √max(n, out) at equal entries; √(out / n) transfers
        # (Yang et al. 2023).
        rate = math.sqrt(weight.fan_out / max(weight.fan_in, weight.fan_out)
                         / _width_ratio(weight.fan_in, lr))
    return WeightScale(weight.role, init, rate, matrices)


def _classify_weight(node: Module, path: str, name: str) -> WeightUse:
    block = node.block
    start = node.block.initialization(name)
    shape = block.weights()[name]
    if start in ("cores", "table cores"):
        core, whole = chain_std(block, start, path)
        rows = math.prod(block.cores.input_factors)  # type: ignore[attr-defined]
        size = math.prod(block.cores.output_factors) if start == "table cores" else rows  # type: ignore[attr-defined]
        return WeightUse("core", size, core / (whole * len(block.cores.input_factors)))  # type: ignore[attr-defined]
    if start == "tokens":
        return WeightUse("table", int(shape[1]))
    if start in ("one", "zero", "table") or name == "bias":
        return WeightUse("vector")
    if path.partition(".")[0] == "output":
        return WeightUse("readout", fan_in(block))
    matrices, out = (int(shape[0]), int(shape[1])) if start == "heads" else (1, int(shape[0]))
    return WeightUse("matrix", fan_in(block), n_matrices=matrices, fan_out=out)


def _position_factors(model: Any, recipe: Recipe) -> dict[str, Factors]:
    """Factors of weights that follow from where they are: in residual branches, in queries."""
    found: dict[str, Factors] = {}
    for stack in ("encoder", "decoder"):
        layers = dict(_stack_layers(model, stack))
        for path, node in layers.items():
            scaled = recipe.residual_scaling == "scaled" or (
                recipe.residual_scaling == "deepnet" and node.block.norm == "post")
            residual = _residual_factors(
                model, stack, len(layers), node.block) if scaled else (1.0, 1.0)
            for name, part in node.block.parts().items():
                if isinstance(part.block, Mixer | FFN) or (
                        isinstance(part.block, MultiPath)
                        and isinstance(part.block.path, Mixer | FFN)):
                    for inner, factors in _branch_factors(part.block, residual, recipe):
                        at = f"{path}.{name}.{inner}"
                        found |= _distribute_factors(model.get_submodule(at), at, *factors)
    return found


def _branch_factors(block: Any, residual: Factors, recipe: Recipe) -> Iterator[tuple[str, Factors]]:
    """The maps of one residual branch, with their factors; see :func:`_residual_factors`."""
    # whatever comes before a norm
    if isinstance(block, MultiPath) and block.merge is not None and block.merge.path_norms:
        last = residual[0]
        yield from ((f"merge.{name}", (0.0 if recipe.zero_init else last, last))
                    for name in block.merge.path_norms)
        residual = (1.0, residual[1])
        recipe = replace(recipe, zero_init=False)
    if isinstance(block, Mixer | MultiPath) and block.branches:
        for name, part in block.branches.items():
            yield from ((f"{name}.{inner}", factors)
                        for inner, factors in _branch_factors(part, residual, recipe))
        return
    (last, inner), parts = residual, block.parts()
    for name in dict.fromkeys((*(parts if isinstance(block, FFN) else ("value",)),
                               *block.output_projections)):
        if name.partition(".")[0] in parts:
            ends = (0.0 if recipe.zero_init else last * inner, last)
            yield name, ends if name in block.output_projections else (inner, 1.0)
    if recipe.lr.rule == "mup" and recipe.lr.reference_sizes.head_dim and "query" in parts:
        # 1/head_dim in place of 1/√head_dim
        scores = math.sqrt(recipe.lr.reference_sizes.head_dim / block.head_dim)
        yield "query", (scores, scores)


def _distribute_factors(node: Module, path: str, init: float, rate: float) -> dict[str, Factors]:
    """Factors of the weights of a map that is to be multiplied: of two matrices the last, of cores all alike.

    Zero goes to one core alone: with two of them zero no core would ever have a gradient.
    """
    if isinstance(node.block, LowRank):
        return _distribute_factors(node.up, f"{path}.up", init, rate)
    names = list(node.block.weights())
    cores = [name for name in names if name.startswith("core")]
    if not cores:
        return {f"{path}.{name}": (init, rate) for name in names}
    each = 1 / len(cores)
    spread = dict.fromkeys(cores, (init**each, rate**each))
    if not init:
        spread = {name: (float(name != cores[-1]), factor) for name, (_, factor) in spread.items()}
    return {f"{path}.{name}": spread.get(name, (init, rate)) for name in names}


def _residual_factors(model: Any, stack: str, depth: int, layer: Any) -> Factors:
    """Factors of a branch's last maps, on value and rate, and of its values and feed-forward maps, on value alone.

    Post-norm: DeepNet's α and β (Wang et al. 2022, figure 2); norm(αx + f) is norm(x + f / α), but
    for the epsilon. Pre-norm: 1/√n for the n branches of a stack (Radford et al. 2019, section
    2.3), whose sum then starts as large as one.
    """
    branches = sum(len(step) for step in layer.steps)
    if layer.norm == "pre":
        return (depth * branches) ** -0.5, 1.0
    sources = len(list(_stack_layers(model, "encoder")))
    if not sources:
        return (2 * depth) ** -0.25, (8 * depth) ** -0.25
    if stack == "decoder":
        return (3 * depth) ** -0.25, (12 * depth) ** -0.25
    both = depth**4 * len(list(_stack_layers(model, "decoder")))
    return both ** (-1 / 16) / 0.81, 0.87 * both ** (-1 / 16)


def _stack_layers(model: Any, stack: str) -> Iterator[tuple[str, Module]]:
    """The layers of a stack, with their paths."""
    for path, node in model.named_modules():
        if path.startswith(f"{stack}.") and isinstance(getattr(node, "block", None), Layer):
            yield path, node


def _readout_norm_gain(model: Any) -> str:
    """The name of the gain of the norm whose output the readout reads."""
    if model.block.decoder.has_final_norm:
        return "decoder.norm.weight"
    path, node = list(_stack_layers(model, "decoder"))[-1]
    return f"{path}.{node.block.last_norm}.weight"  # type: ignore[attr-defined]
