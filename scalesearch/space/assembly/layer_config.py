"""Sizes that differ by layer: an answer that is a list holds the size of each layer of its stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from scalesearch.blocks.core import Block, Repeat
from scalesearch.blocks.sizes import decide, require_single_value
from scalesearch.space.syntax.diagnostics import UnbuildableError

LayerFactory = Callable[[Mapping[str, Any]], Block]


class LayerConfig(Mapping[str, Any]):
    """Answers as one layer of a stack reads them, key by key.

    Attributes:
        varied: the lists that were read, by their keys.
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
            return value  # for all layers, as the order of their sub-layers is
        self.per_layer_values[key] = value
        if (depth := require_single_value(self.config[f"{self.prefix}depth"])) != len(value):
            raise UnbuildableError(key,
                                   f"lists {len(value)} layers, and {self.prefix}depth is {depth}")
        return value[self.layer_index]

    def __contains__(self, key: object) -> bool:
        return key in self.config

    def __iter__(self) -> Iterator[str]:
        return iter(self.config)

    def __len__(self) -> int:
        return len(self.config)


def build_layers(a: Mapping[str, Any], stack: str, make: LayerFactory) -> Repeat:
    """The layers of a stack, unshared: one for all, or each where the answers that ``make`` reads differ by layer.

    Raises:
        Unbuildable: as ``make`` does; a list that is not as long as the stack is deep.
    """
    first = LayerConfig(a, stack, 0)
    layer = make(first)
    depth = a[f"{stack}.depth"]
    alike: Any = True
    for value in first.per_layer_values.values():
        for one in value[1:]:
            alike = alike & (one == value[0])
    if decide(alike):
        return Repeat(layer, depth)
    others = (make(LayerConfig(a, stack, number))
              for number in range(1, require_single_value(depth)))
    return Repeat(layer, require_single_value(depth), distinct_layers=(layer, *others))
