"""Weights of replacements, from the parent's weights and activations.

Notation: X (n, f) are the inputs of the last map of a block (hidden units, or the outputs of all
heads) at n calibration tokens, with a column of ones for the bias; W (f, d) is that map, and
Y = X W the output of the block. Units are groups of columns: a hidden unit, or the features of a
head.

Units are removed one after the other. Each time, the unit B is removed whose removal raises the
squared error of the outputs least if all other weights of the last map are refitted (block version
of the optimal brain surgeon, Hassibi & Stork 1993). With P = (XᵀX)⁻¹ this rise is
tr(W_Bᵀ P_BB⁻¹ W_B), and the refitted map is W - P_:B P_BB⁻¹ W_B. One pass gives all sizes.

Maps of other structures approximate the parent's maps y = V x + b, whose inputs have the mean m
and the covariance C:

- low rank: y = m_y + U Uᵀ (V (x - m)), with the eigenvectors U of the r largest eigenvalues of
  V C Vᵀ; of all maps of rank r it has the least squared error (Chen et al. 2021, DRONE);
- heads of keys and values that serve several heads: the mean of their maps;
- sums of Kronecker products: the nearest such sum (Pitsianis 1997);
- groups: each hidden unit joins the group in which it keeps most of its map.

If the last map is a matrix, or has groups, it is then refitted by least squares. Afterwards, all
weights of the block are trained to the outputs of the parent's block.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from scalesearch.blocks.leaves import Linear
from scalesearch.blocks.maps.linear_factories import LowRankLinear
from scalesearch.blocks.maps.structured_matrices import GroupLinear, KroneckerLinear

RIDGE = 1e-4  # relative to the mean square of a feature


@dataclass(frozen=True)
class BlockCall:
    """Activations of one call of a block of the parent.

    Attributes:
        arguments: arguments of the call, the input (batch, positions, d) first.
        output: (batch, positions, d).
        features: (batch, positions, f) input of its last map.
        is_token: (batch, positions) False for padding.
    """

    arguments: tuple[Any, ...]
    output: Tensor
    features: Tensor
    is_token: Tensor


@contextmanager
def recorded_calls(modules: dict[str, Any],
                   last_maps: dict[str, str]) -> Iterator[dict[str, list[Any]]]:
    """Context in which the calls of modules are recorded.

    Args:
        modules: modules by name.
        last_maps: name of the last map of each.

    Yields:
        For each name, the list of (arguments, output, features), which grows with every call.
    """
    calls: dict[str, list[Any]] = {name: [] for name in modules}
    last_modules = {name: modules[name].get_submodule(last) for name, last in last_maps.items()}
    with _recorded_inputs(last_modules) as features, ExitStack() as stack:
        def keep(name: str, _: Any, arguments: Any, output: Tensor) -> None:
            calls[name].append((arguments, output, features[name]))

        for name, module in modules.items():
            handle = module.register_forward_hook(partial(keep, name))
            stack.callback(handle.remove)
        yield calls


@contextmanager
def _recorded_inputs(modules: Mapping[str, Any]) -> Iterator[dict[str, Tensor]]:
    """Context in which the last inputs of modules are recorded, by name."""
    inputs: dict[str, Tensor] = {}

    def keep(name: str, _: Any, arguments: Any) -> None:
        inputs[name] = arguments[0]

    with ExitStack() as stack:
        for name, module in modules.items():
            handle = module.register_forward_pre_hook(partial(keep, name))
            stack.callback(handle.remove)
        yield inputs


@dataclass(frozen=True)
class RemovalOrder:
    """Result of removing all units one after the other.

    Attributes:
        removed: units in the order of their removal.
        maps: for each wanted number of units, the refitted map (f, d), with zeros for the rows of
            removed units; the last row is the bias.
    """

    removed: tuple[int, ...]
    maps: dict[int, Tensor]

    def kept(self, size: int, n_units: int) -> list[int]:
        """Return the ``size`` units that are kept, sorted."""
        return sorted(set(range(n_units)) - set(self.removed[: n_units - size]))


def remove_units(gram: Tensor, last_map: Tensor, n_units: int,
                 sizes: Sequence[int]) -> RemovalOrder:
    """Remove units one after the other, with the least rise of the squared error.

    Args:
        gram: (f, f) XᵀX, with the column of ones last.
        last_map: (f, d) W, with the bias last.
        n_units: number of units; each has (f - 1) / n_units consecutive columns.
        sizes: numbers of units whose maps are kept.
    """
    width = (len(gram) - 1) // n_units
    gram = gram.double()
    scale = gram.diagonal()[:-1].mean()
    inverse = torch.linalg.inv(gram + RIDGE * scale * torch.eye(len(gram), dtype=gram.dtype))
    weights = last_map.double().clone()
    left = list(range(n_units))
    removed: list[int] = []
    maps: dict[int, Tensor] = {}
    while left:
        if len(left) in sizes:
            maps[len(left)] = weights.to(last_map.dtype, copy=True)
        rows = _unit_columns(torch.tensor(left), width)
        unit_weights = weights[rows]  # (units, width, d)
        blocks = inverse[rows[:, :, None], rows[:, None, :]]  # (units, width, width)
        solved = torch.linalg.solve(blocks, unit_weights)
        rises = (unit_weights * solved).sum((1, 2))
        position = int(rises.argmin())
        unit_columns = rows[position]
        gain = inverse[:, unit_columns]  # (f, width)
        weights -= gain @ solved[position]
        inverse -= gain @ torch.linalg.solve(blocks[position], gain.T)
        weights[unit_columns] = 0
        inverse[unit_columns] = 0
        inverse[:, unit_columns] = 0
        removed.append(left.pop(position))
    return RemovalOrder(tuple(removed), maps)


def _unit_columns(units: Tensor, width: int) -> Tensor:
    """Return the columns (units, width) of units of ``width`` features."""
    return units[:, None] * width + torch.arange(width)


def gram_matrix(calls: Sequence[BlockCall]) -> Tensor:
    """Compute XᵀX (f, f) of the features of all tokens, with a column of ones last."""
    total: Tensor | None = None
    for call in calls:
        rows = call.features[call.is_token].float()
        rows = torch.cat([rows, rows.new_ones(len(rows), 1)], 1)
        product = (rows.T @ rows).double()
        total = product if total is None else total + product
    assert total is not None, "there are calibration batches"
    return total


def keep_units(module: Any, parent_module: Any, order: RemovalOrder, last: str, size: int,
               n_units: int) -> None:
    """Copy the weights of the kept units of a block.

    The maps before the last one lose the rows of the other units; the last map is the refitted one.
    Maps are the linear maps of FFNs and of attention.
    """
    kept = torch.tensor(order.kept(size, n_units))
    with torch.no_grad():
        for name, part in module.named_children():
            if not hasattr(part, "weight") or name == last:
                continue
            source = getattr(parent_module, name)
            rows = _unit_columns(kept, len(source.weight) // n_units).flatten()
            part.weight.copy_(source.weight[rows])
            if part.block.bias:
                part.bias.copy_(source.bias[rows])
        refitted = order.maps[size]
        rows = _unit_columns(kept, (len(refitted) - 1) // n_units).flatten()
        last_map = getattr(module, last)
        last_map.weight.copy_(refitted[rows].T)
        last_map.bias.copy_(refitted[-1])


def approximate_maps(module: Any, parent_module: Any, last: str,
                     calls: Sequence[BlockCall]) -> None:
    """Initialize the maps of a block whose structure is not that of the parent's block.

    Args:
        module: the block.
        parent_module: the parent's block, with dense matrices.
        last: name of the last map.
        calls: calls of the parent's block.
    """
    names = [name for name, part in parent_module.named_children() if hasattr(part, "weight")]
    moments = input_moments(parent_module, names, calls)
    with torch.no_grad():
        if isinstance(module.get_submodule(last).block, GroupLinear):
            _group_units(module, parent_module, names, last, moments)
        for name in names:
            part = module.get_submodule(name)
            source = parent_module.get_submodule(name)
            weight = source.weight.double()
            if isinstance(part.block, LowRankLinear):
                mean, covariance = moments[name]
                _, vectors = torch.linalg.eigh(weight @ covariance @ weight.T)
                basis = vectors[:, -part.block.rank:]  # (d_out, rank)
                image = weight @ mean
                part.down.weight.copy_(basis.T @ weight)
                part.up.weight.copy_(basis)
                part.up.bias.copy_(source.bias + image - basis @ (basis.T @ image))
            elif isinstance(part.block, KroneckerLinear):
                (_, rows_a, columns_a, n_products), (_, rows_b, columns_b, _) = (
                    part.core0.shape, part.core1.shape)
                blocks = weight.T.reshape(rows_a, rows_b, columns_a, columns_b)
                rearranged = blocks.permute(0, 2, 1, 3).reshape(rows_a * columns_a, -1)
                left, values, right = torch.linalg.svd(rearranged, full_matrices=False)
                scale = values[:n_products].sqrt()
                part.core0.copy_((left[:, :n_products] * scale).reshape(part.core0.shape))
                part.core1.copy_((scale[:, None] * right[:n_products]).reshape(part.core1.shape))
                part.bias.copy_(source.bias)
            elif isinstance(part.block, Linear) and part.weight.shape != source.weight.shape:
                # heads of keys or values that serve several heads of queries
                n_heads = module.block.kv_heads
                times = len(source.weight) // len(part.weight)
                for value, parent_value in ((part.weight, source.weight), (part.bias, source.bias)):
                    by_head = parent_value.unflatten(0, (n_heads, times, -1))
                    value.copy_(by_head.mean(1).flatten(0, 1))
    if isinstance(module.get_submodule(last).block, Linear | GroupLinear):
        refit_last_map(module, last, calls)


def _group_units(module: Any, parent_module: Any, names: Sequence[str], last: str,
                 moments: Mapping[str, tuple[Tensor, Tensor]]) -> None:
    """Assign the hidden units of a feed-forward network to equal groups, and copy their weights."""
    last_weight = parent_module.get_submodule(last).weight  # (d, hidden)
    groups = module.get_submodule(last).block.groups
    by_group = last_weight.unflatten(0, (groups, -1)).square().sum(1).T  # (hidden, groups)
    first_maps = [name for name in names if name != last]
    for name in first_maps:
        weight = parent_module.get_submodule(name).weight  # (hidden, d)
        variance = moments[name][1].diagonal().clamp_min(0)
        energy = (weight.square() * variance).unflatten(1, (groups, -1)).sum(2)
        by_group = by_group * energy
    n_units = len(by_group)
    members: list[list[int]] = [[] for _ in range(groups)]
    assigned: set[int] = set()
    for index in by_group.flatten().argsort(descending=True).tolist():
        unit, group = divmod(index, groups)
        if unit not in assigned and len(members[group]) < n_units // groups:
            members[group].append(unit)
            assigned.add(unit)
    for group, units in enumerate(members):
        for name in first_maps:
            part = module.get_submodule(name)
            source = parent_module.get_submodule(name)
            inputs = source.weight.unflatten(1, (groups, -1))[:, group]
            part.weight[group].copy_(inputs[units])
            part.bias.unflatten(0, (groups, -1))[group].copy_(source.bias[units])
        # The last map is refitted to the outputs afterwards.
        part = module.get_submodule(last)
        part.weight[group].copy_(last_weight.unflatten(0, (groups, -1))[group][:, units])
    module.get_submodule(last).bias.copy_(parent_module.get_submodule(last).bias)


def input_moments(module: Any, names: Sequence[str],
                  calls: Sequence[BlockCall]) -> dict[str, tuple[Tensor, Tensor]]:
    """Compute the mean and the covariance of the inputs of maps of a block.

    Args:
        module: the parent's block.
        names: names of the maps.
        calls: its calls. Padding of another sequence is not left out.
    """
    counts = dict.fromkeys(names, 0)
    sums: dict[str, Any] = dict.fromkeys(names, 0)
    squares: dict[str, Any] = dict.fromkeys(names, 0)
    maps = {name: module.get_submodule(name) for name in names}
    with torch.no_grad(), _recorded_inputs(maps) as inputs:
        for call in calls:
            module(*call.arguments)
            for name in names:
                is_memory = getattr(module.block, "cross", False) and name in ("key", "value")
                rows = (inputs[name].flatten(0, 1) if is_memory
                        else inputs[name][call.is_token]).double()
                counts[name] += len(rows)
                sums[name] = sums[name] + rows.sum(0)
                squares[name] = squares[name] + rows.T @ rows
    moments = {}
    for name in names:
        mean = sums[name] / counts[name]
        moments[name] = mean, squares[name] / counts[name] - torch.outer(mean, mean)
    return moments


def refit_last_map(module: Any, last: str, calls: Sequence[BlockCall]) -> None:
    """Refit the last map of a block to the outputs of the parent's block, by least squares.

    Args:
        module: the block.
        last: name of its last map, a matrix or groups.
        calls: calls of the parent's block.
    """
    last_map = module.get_submodule(last)
    groups = getattr(last_map.block, "groups", 1)
    weight = last_map.weight.view(groups, -1, last_map.weight.shape[-1])  # (groups, d, f)
    bias = last_map.bias.view(groups, -1)
    size = weight.shape[-1] + 1
    gram = torch.zeros(groups, size, size, dtype=torch.float64)
    product = torch.zeros(groups, size, weight.shape[1], dtype=torch.float64)
    with torch.no_grad(), _recorded_inputs({last: last_map}) as inputs:
        for call in calls:
            module(*call.arguments)
            features = inputs[last][call.is_token].double()
            features = features.reshape(len(features), groups, -1)
            features = torch.cat([features, features.new_ones(*features.shape[:2], 1)], 2)
            targets = call.output[call.is_token].double().reshape(len(features), groups, -1)
            gram += torch.einsum("ngi,ngj->gij", features, features)
            product += torch.einsum("ngi,ngj->gij", features, targets)
        scale = gram.diagonal(dim1=1, dim2=2)[:, :-1].mean()
        solved = torch.linalg.solve(gram + RIDGE * scale * torch.eye(size, dtype=gram.dtype),
                                    product)
        weight.copy_(solved[:, :-1].transpose(1, 2))
        bias.copy_(solved[:, -1])


def output_error(module: Any, calls: Sequence[BlockCall]) -> float:
    """Squared error of the outputs of a block, relative to their mean square."""
    error = 0.0
    total = 0.0
    with torch.no_grad():
        for call in calls:
            error += float(_squared_error(module, call))
            total += float(call.output[call.is_token].square().sum())
    return error / total


def fit_outputs(modules: Sequence[Any], calls: Sequence[Sequence[BlockCall]], steps: int, lr: float,
                check: Callable[[], None] = lambda: None) -> None:
    """Train the weights of a block to the outputs of the blocks that it replaces.

    Args:
        modules: the block in each of the layers that share its weights.
        calls: calls of the parent's block in each layer.
        steps: updates of AdamW without weight decay; the learning rate falls linearly to zero.
        lr: peak learning rate.
        check: called before every update; raises to interrupt.
    """
    if not steps:
        return
    parameters = list(dict.fromkeys(parameter for module in modules
                                    for parameter in module.parameters()))
    optimizer = torch.optim.AdamW(parameters, lr, betas=(0.9, 0.95), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    powers = [sum(float(call.output[call.is_token].square().sum()) for call in layer_calls)
              / sum(int(call.is_token.sum()) for call in layer_calls) for layer_calls in calls]
    order = itertools.cycle(range(len(calls[0])))
    for _ in range(steps):
        check()
        batch = next(order)
        loss = torch.zeros(())
        for module, layer_calls, power in zip(modules, calls, powers):
            call = layer_calls[batch]
            loss = loss + _squared_error(module, call) / (power * call.is_token.sum())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()


def _squared_error(module: Any, call: BlockCall) -> Tensor:
    difference: Tensor = module(*call.arguments) - call.output
    return difference.square().sum(-1)[call.is_token].sum()
