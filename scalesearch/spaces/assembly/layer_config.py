"""Per-layer sizes: a value that is a list holds one size per layer of its stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from scalesearch.blocks.core import Block, Repeat
from scalesearch.blocks.sizes import decide, require_single_value
from scalesearch.spaces.syntax.diagnostics import UnbuildableError

LayerFactory = Callable[[Mapping[str, Any]], Block]


class LayerConfig(Mapping[str, Any]):
    """The configuration of one layer of a stack.

    Lists of sizes are replaced by the size of this layer.

    Attributes:
        per_layer_values: the lists that were read, by key.
    """

    def __init__(self, config: Mapping[str, Any], stack: str, layer_index: int) -> None:
        self.config = config
        self.prefix = f"{stack}."
        self.layer_index = layer_index
        self.per_layer_values: dict[str, list[Any]] = {}

    def __getitem__(self, key: str) -> Any:
        value = self.config[key]
        if not (isinstance(value, list) and key.startswith(self.prefix)) or isinstance(
                value[0], str | list):
            return value  # the same for all layers, such as the order of sub-layers
        self.per_layer_values[key] = value
        depth = require_single_value(self.config[f"{self.prefix}depth"])
        if depth != len(value):
            raise UnbuildableError(key,
                                   f"lists {len(value)} layers, and {self.prefix}depth is {depth}")
        return value[self.layer_index]

    def __contains__(self, key: object) -> bool:
        return key in self.config

    def __iter__(self) -> Iterator[str]:
        return iter(self.config)

    def __len__(self) -> int:
        return len(self.config)


def build_layers(a: Mapping[str, Any], stack: str, build_layer: LayerFactory) -> Repeat:
    """The layers of a stack without ties.

    There is one block for all layers, or one per layer if sizes differ.

    Raises:
        UnbuildableError: ``build_layer`` raises it, or the length of a list is not the depth.
    """
    first = LayerConfig(a, stack, 0)
    layer = build_layer(first)
    depth = a[f"{stack}.depth"]
    are_equal: Any = True  # or an array, one value per candidate
    for sizes in first.per_layer_values.values():
        for size in sizes[1:]:
            are_equal = are_equal & (size == sizes[0])
    if decide(are_equal):
        return Repeat(layer, depth)
    others = (build_layer(LayerConfig(a, stack, number))
              for number in range(1, require_single_value(depth)))
    return Repeat(layer, require_single_value(depth), distinct_layers=(layer, *others))
