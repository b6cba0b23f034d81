"""Parametrization: scale of initial values and learning rate of each weight.

A rule gives two factors per weight: on its initial values and on its learning rate. Multipliers in
the forward pass are not needed: with Adam, a multiplier of a weight is equivalent to two factors on
the weight (Yang & Hu 2021, abc-symmetry). A trained model is therefore an ordinary model.

Roles of weights:

- ``table``: rows that are looked up by token. The embedding multiplies them by √d, so the
  effective learning rate is √d times larger.
- ``matrix``: maps fan_in inputs to each output. Gates, adapters and matrices per head are matrices.
- ``core``: core of a tensor chain of n cores. A step changes the matrix as much as a step of the
  dense matrix.
- ``readout``: maps states to scores of tokens.
- ``vector``: norms, biases, learned positions and prompts.

A weight with several roles (a tied table) has the lowest of their learning rates. A weight that
layers share has the learning rate of one use: the step of Adam does not grow with the number of
summed gradients.

Notation: width_ratio is fan_in divided by the reference width of the recipe.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from scalesearch.blocks.core import has_matrices
from scalesearch.blocks.embedding import TransformedOutput
from scalesearch.blocks.layers import Layer
from scalesearch.blocks.maps.linear_factories import LowRankLinear as LowRank
from scalesearch.nn.init import chain_std, fan_in
from scalesearch.nn.model import Seq2SeqModel
from scalesearch.nn.module import Module
from scalesearch.training.recipe import LearningRate, Recipe


@dataclass(frozen=True)
class WeightUse:
    """One use of a weight in a model.

    Attributes:
        role: see the module docstring.
        fan_in: the size that the learning rate may depend on: inputs, or the features of a table.
        core_lr_factor: for a core, the factor that makes its step equivalent to that of the dense
            matrix.
        n_matrices: number of matrices in the weight: one per head, or 1. 0 if it has no matrix to
            orthogonalize.
        fan_out: rows of each matrix.
    """

    role: str
    fan_in: int = 1
    core_lr_factor: float = 1.0
    n_matrices: int = 0
    fan_out: int = 1


@dataclass(frozen=True)
class WeightScale:
    """Factors of a weight on its initial values and on its learning rate."""

    role: str
    init_factor: float = 1.0
    lr_factor: float = 1.0
    n_matrices: int = 0

    def multiply(self, init_factor: float, lr_factor: float) -> "WeightScale":
        """Multiply both factors."""
        return replace(self, init_factor=self.init_factor * init_factor,
                       lr_factor=self.lr_factor * lr_factor)


Factors = tuple[float, float]  # on the initial values, on the learning rate


def weight_scales(model: Seq2SeqModel, recipe: Recipe) -> dict[str, WeightScale]:
    """Return the factors of every weight of ``model``, by parameter name."""
    lr = recipe.lr
    scale_of: dict[int, WeightScale] = {}  # by id of the weight
    position_factors = _position_factors(model, recipe)
    for path, node in model.named_modules():
        if isinstance(node, Module):
            for name, weight in node.weights():
                use = _classify_weight(node, path, name)
                width_ratio = _width_ratio(use.fan_in, lr)
                init_factor, lr_factor = _scaling_factors(lr.rule, use, width_ratio)
                n_matrices = use.n_matrices if recipe.optimizer != "adamw" else 0
                if n_matrices and recipe.optimizer == "muon" and lr.rule in ("layerwise", "mup"):
                    # The step of Muon has the spectral norm √max(fan_in, fan_out) if its entries
                    # have unit RMS. √(fan_out / fan_in) transfers between widths (Yang et al.
                    # 2023).
                    lr_factor = math.sqrt(use.fan_out / max(use.fan_in, use.fan_out) / width_ratio)
                factors = position_factors.get(f"{path}.{name}", (1.0, 1.0))
                scale = WeightScale(use.role, init_factor, lr_factor, n_matrices).multiply(*factors)
                first = scale_of.setdefault(id(weight), scale)
                owner_scale = scale if name in node._parameters else first
                lowest = min(first.lr_factor, scale.lr_factor)
                scale_of[id(weight)] = replace(owner_scale, lr_factor=lowest)
    scales = {name: scale_of[id(weight)] for name, weight in model.named_parameters()}
    is_tied = not any(f"output.{'map.' * level}weight" in scales for level in range(3))
    if lr.rule == "mup" and is_tied:
        name = "decoder" if hasattr(model, "decoder") else "encoder"
        gain = f"{name}.norm.weight"  # of the norm before the readout
        stack: Any = getattr(model.block, name)
        if isinstance(model.output.block, TransformedOutput):
            gain = "output.norm.weight"
        elif not stack.has_final_norm:
            last_path, last_layer = list(_stack_layers(model, name))[-1]
            gain = f"{last_path}.{last_layer.block.last_norm}.weight"  # type: ignore[attr-defined]
        if gain in scales:
            factor = _width_ratio(stack.layer.mixer.d, lr) ** -0.5
            scales[gain] = scales[gain].multiply(factor, factor)
    return scales


def summarize_scales(model: Seq2SeqModel, recipe: Recipe) -> list[dict[str, Any]]:
    """Describe groups of weights with equal role and scale, the largest first.

    Returns:
        A mapping per group: role, number of parameters, optimizer, peak learning rate, factor on
            the initial values,
        and the name of the first weight.
    """
    groups: dict[WeightScale, list[str]] = {}
    for name, scale in weight_scales(model, recipe).items():
        groups.setdefault(scale, []).append(name)
    rows = []
    for scale, names in groups.items():
        lr = recipe.lr.base * scale.lr_factor * (
            recipe.resolved_matrix_lr_factor if scale.n_matrices else 1)
        rows.append({"role": scale.role,
                     "params": sum(model.get_parameter(name).numel() for name in names),
                     "optimizer": recipe.optimizer if scale.n_matrices else "adamw", "lr": lr,
                     "init": scale.init_factor, "first": names[0]})
    return sorted(rows, key=lambda row: -row["params"])


def _scaling_factors(rule: str, weight: WeightUse, width_ratio: float) -> Factors:
    """Factors of a weight under a rule of the recipe.

    - ``embedding``: the learning rate of tables grows with the width. With Adam, this is the most
      important part of muP.
    - ``layerwise``: learning rates per layer, for standard parametrization and full alignment
      (Everett et al. 2024, section 4).
    - ``mup``: as layerwise, with a smaller initial readout (Yang et al. 2022, table 8). If the
      readout is a tied table, the gain of the norm before it is scaled instead.
    """
    if rule == "embedding":
        return 1.0, width_ratio if weight.role == "table" else 1.0
    if rule == "none" or weight.role == "vector":
        return 1.0, 1.0
    if weight.role == "table":
        return 1.0, width_ratio**-0.5
    is_small_readout = rule == "mup" and weight.role == "readout"
    return (width_ratio**-0.5 if is_small_readout else 1.0), weight.core_lr_factor / width_ratio


def _width_ratio(width: int, lr: LearningRate) -> float:
    return 1.0 if lr.reference_sizes.width is None else width / lr.reference_sizes.width


def _classify_weight(node: Module, path: str, name: str) -> WeightUse:
    block: Any = node.block
    initialization = block.initialization(name)
    shape = block.weights()[name]
    if initialization in ("cores", "table cores"):
        core_std, matrix_std = chain_std(block, initialization, path)
        n_inputs = math.prod(block.cores.input_factors)
        size = math.prod(
            block.cores.output_factors) if initialization == "table cores" else n_inputs
        return WeightUse("core", size, core_std / (matrix_std * len(block.cores.input_factors)))
    if initialization == "tokens":
        return WeightUse("table", int(shape[1]))
    if initialization in ("one", "zero", "table") or name == "bias":
        return WeightUse("vector")
    if not has_matrices(block, path, name):
        return WeightUse("readout", fan_in(block, name))
    n_matrices, fan_out = (
        int(shape[0]), int(shape[1])) if initialization == "heads" else (1, int(shape[0]))
    return WeightUse("matrix", fan_in(block, name), n_matrices=n_matrices, fan_out=fan_out)


def _position_factors(model: Seq2SeqModel, recipe: Recipe) -> dict[str, Factors]:
    """Return factors of weights in residual branches, by the roles of their blocks."""
    factors_of: dict[str, Factors] = {}
    lr = recipe.lr
    for stack in ("encoder", "decoder"):
        layers = dict(_stack_layers(model, stack))
        for path, node in layers.items():
            output_scale = inner_scale = 1.0
            is_post_norm = node.block.norm == "post"  # type: ignore[attr-defined]
            if recipe.residual_scaling == "scaled" or (
                    recipe.residual_scaling == "deepnet" and is_post_norm):
                output_scale, inner_scale = _residual_factors(model, stack, len(layers), node.block)
            initial_output = 0.0 if recipe.zero_init else 1.0
            factors_by_role = {
                "residual_in": (inner_scale, 1.0),
                "residual_out": (initial_output * output_scale * inner_scale, output_scale),
                "residual_norm": (initial_output * output_scale, output_scale)}
            branch_norms: list[str] = node.block.branch_norms  # type: ignore[attr-defined]
            if branch_norms:  # they cancel the scale of the last maps
                factors_by_role["residual_out"] = factors_by_role["residual_in"]
            for name in branch_norms:
                norm_path = f"{path}.{name}"
                norm: Module = model.get_submodule(norm_path)  # type: ignore[assignment]
                factors_of |= _distribute_factors(norm, norm_path,
                                                  *factors_by_role["residual_norm"])
            for name, part in node.block.parts().items():
                for inner_path, role in part.block.residual_roles().items():  # type: ignore[union-attr]
                    map_path = f"{path}.{name}.{inner_path}"
                    factors = factors_by_role.get(role, (1.0, 1.0))
                    if role == "query" and lr.rule == "mup" and lr.reference_sizes.head_dim:
                        # Scores are scaled by 1/head_dim, not 1/√head_dim.
                        mixer: Any = model.get_submodule(map_path.rpartition(".")[0]).block
                        factor = math.sqrt(lr.reference_sizes.head_dim / mixer.head_dim)
                        factors = (factor, factor)
                    map_module: Any = model.get_submodule(map_path)
                    factors_of |= _distribute_factors(map_module, map_path, *factors)
    return factors_of


def _distribute_factors(
        node: Module, path: str, init_factor: float, lr_factor: float) -> dict[str, Factors]:
    """Distribute the factors of a map to its weights.

    Of two matrices, the last is scaled; cores are scaled equally. Zero is only applied to one core:
    with two zero cores, no core would have a gradient.
    """
    if isinstance(node.block, LowRank):
        return _distribute_factors(node.up, f"{path}.up", init_factor, lr_factor)
    names = list(node.block.weights())
    cores = [name for name in names if name.startswith("core")]
    if not cores:
        return {f"{path}.{name}": (init_factor, lr_factor) for name in names}
    exponent = 1 / len(cores)
    core_factors = dict.fromkeys(cores, (init_factor**exponent, lr_factor**exponent))
    if not init_factor:
        core_factors = {name: (float(name != cores[-1]), factor)
                        for name, (_, factor) in core_factors.items()}
    return {f"{path}.{name}": core_factors.get(name, (init_factor, lr_factor)) for name in names}


def _residual_factors(model: Seq2SeqModel, stack: str, depth: int, layer: Any) -> Factors:
    """Return the factors of the maps of a residual branch.

    The first applies to initial values and learning rate of the last maps. The second applies to
    the initial values of value and feed-forward maps.

    Post-norm: α and β of DeepNet (Wang et al. 2022, figure 2); norm(αx + f) is norm(x + f / α),
    except for epsilon. Pre-norm: 1/√n for the n branches of a stack (Radford et al. 2019, section
    2.3), so that their sum has the initial scale of one branch.
    """
    branches = sum(len(step) for step in layer.steps)
    if layer.norm != "post":
        return (depth * branches) ** -0.5, 1.0
    encoder_depth = len(list(_stack_layers(model, "encoder")))
    if not encoder_depth:
        return (2 * depth) ** -0.25, (8 * depth) ** -0.25
    if stack == "decoder":
        return (3 * depth) ** -0.25, (12 * depth) ** -0.25
    product = depth**4 * len(list(_stack_layers(model, "decoder")))
    return product ** (-1 / 16) / 0.81, 0.87 * product ** (-1 / 16)


def _stack_layers(model: Seq2SeqModel, stack: str) -> Iterator[tuple[str, Module]]:
    """Yield the layers of a stack with their paths."""
    for path, node in model.named_modules():
        if path.startswith(f"{stack}.") and isinstance(getattr(node, "block", None), Layer):
            yield path, node
