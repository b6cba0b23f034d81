"""Schedules of weight sharing between the layers of a stack.

A schedule assigns each layer to a group; the layers of a group share weights. The first layer of a
group owns them. Layers and groups are numbered from 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from scalesearch.blocks.core import Size
from scalesearch.blocks.sizes import map_values
from scalesearch.terminal import format_count


class SharingSchedule:
    """An assignment of layers to groups that share weights.

    A subclass defines ``groups``.
    """

    # smallest and largest number of arguments in the space language
    argument_counts: tuple[int, int | None] = (0, 0)

    def groups(self, depth: int) -> list[int]:
        """Return the group of each layer."""
        raise NotImplementedError

    def num_groups(self, depth: Size) -> Size:
        """Return the number of groups of ``depth`` layers."""
        count: Size = map_values(depth, lambda layers: len(set(self.groups(layers))))
        return count

    def validate(self, depth: int) -> str | None:
        """Return the reason why the schedule is invalid for ``depth`` layers, or None."""
        return None

    def owners(self, depth: int) -> list[int]:
        """Return the first layer of the group of each layer."""
        groups = self.groups(depth)
        return [groups.index(group) for group in groups]

    def canonical_groups(self, depth: int) -> list[int]:
        """Return a value that is equal for schedules with equal groups at this depth."""
        return self.owners(depth)


@dataclass(frozen=True)
class NoSharing(SharingSchedule):
    """No sharing: one group per layer."""

    def groups(self, depth: int) -> list[int]:
        return list(range(depth))

    def num_groups(self, depth: Size) -> Size:
        return depth


@dataclass(frozen=True)
class FullSharing(SharingSchedule):
    """One set of weights for all layers (Universal Transformer, ALBERT)."""

    def groups(self, depth: int) -> list[int]:
        return [0] * depth


@dataclass(frozen=True)
class GroupCountSchedule(SharingSchedule):
    """Base class of schedules with a fixed number of groups (at most one per layer)."""

    group_count: int
    argument_counts = (1, 1)

    def validate(self, depth: int) -> str | None:
        return None if self.group_count >= 1 else "needs at least one group"


@dataclass(frozen=True)
class CycleSharing(GroupCountSchedule):
    """Layer i uses group i mod g: 0 1 2 0 1 2 (Takase & Kiyono 2021)."""

    def groups(self, depth: int) -> list[int]:
        return [i % self.group_count for i in range(depth)]


@dataclass(frozen=True)
class SequenceSharing(GroupCountSchedule):
    """Consecutive layers share: 0 0 1 1 2 2 (Takase & Kiyono 2021).

    If the groups cannot be equal, the first ones are larger by one layer.
    """

    def groups(self, depth: int) -> list[int]:
        count = min(self.group_count, depth)
        size, remainder = divmod(depth, count)
        return [group for group in range(count) for _ in range(size + (group < remainder))]


@dataclass(frozen=True)
class ReverseCycleSharing(GroupCountSchedule):
    """A cycle with a reversed last round: 0 1 2 0 1 2 2 1 0.

    Takase & Kiyono 2021, "cycle (rev)".
    """

    def groups(self, depth: int) -> list[int]:
        count = min(self.group_count, depth)
        if depth < 2 * count:
            return [i if i < count else 2 * count - 1 - i for i in range(depth)]
        forward = depth - count
        return [i % count if i < forward else depth - 1 - i for i in range(depth)]


@dataclass(frozen=True)
class SandwichSharing(SharingSchedule):
    """All layers except the first and the last share (Subformer, Reid et al. 2021)."""

    def groups(self, depth: int) -> list[int]:
        return [0] + [1] * (depth - 2) + [2] if depth > 2 else list(range(depth))


@dataclass(frozen=True)
class ExplicitSharing(SharingSchedule):
    """A list with the group of each layer: ``[0, 0, 1, 0]``."""

    group_of_layer: tuple[int, ...]

    def groups(self, depth: int) -> list[int]:
        return list(self.group_of_layer)

    def validate(self, depth: int) -> str | None:
        listed = len(self.group_of_layer)
        return None if listed == depth else (
            f"lists {format_count(listed, 'layer')}, but there are {depth}")


@dataclass(frozen=True)
class GroupSizeSchedule(SharingSchedule):
    """Base class of schedules that are defined by the number of layers of each group."""

    group_sizes: tuple[int, ...]
    argument_counts = (1, None)

    def num_groups(self, depth: Size) -> Size:
        return len(self.group_sizes)

    def validate(self, depth: int) -> str | None:
        if min(self.group_sizes, default=0) < 1:
            return "has a group without layers"
        total = sum(self.group_sizes)
        return None if total == depth else (
            f"has {format_count(total, 'layer')}, but there are {depth}")


@dataclass(frozen=True)
class RunSharing(GroupSizeSchedule):
    """Consecutive layers share weights.

    ``runs(1, 11)`` is the first layer, then eleven that share.
    """

    def groups(self, depth: int) -> list[int]:
        return [group for group, size in enumerate(self.group_sizes) for _ in range(size)]


@dataclass(frozen=True)
class LoadSharing(GroupSizeSchedule):
    """Groups in turn until each has its number of layers: ``load(6, 6)`` is 0 1 0 1 ….

    EdgeFormer, Table 3, with the notation ``6-6``.
    """

    def groups(self, depth: int) -> list[int]:
        remaining = list(self.group_sizes)
        groups = []
        while any(remaining):
            for group, size in enumerate(remaining):
                if size:
                    groups.append(group)
                    remaining[group] -= 1
        return groups


@dataclass(frozen=True)
class CrossStackTie:
    """Weight tying with another stack.

    Attributes:
        path: path of the :class:`~scalesearch.blocks.core.Repeat` that owns the weights, for
            example ``encoder.layers``.
        part: name of the part of its layers.
        layers: for each layer of this stack, the layer of the other stack that owns its weights.
    """

    path: str
    part: str
    layers: tuple[int, ...]

    def num_groups(self, depth: Size) -> Size:
        """Return 0: the weights are counted in the stack that owns them."""
        return 0

    def canonical_groups(self, depth: int) -> list[str]:
        """Return the path of the owner of each layer."""
        return [f"{self.path}.{layer}.{self.part}" for layer in self.layers]


SCHEDULES: dict[str, type[SharingSchedule]] = {
    "own": NoSharing,
    "one": FullSharing,
    "cycle": CycleSharing,
    "sequence": SequenceSharing,
    "reverse_cycle": ReverseCycleSharing,
    "sandwich": SandwichSharing,
    "runs": RunSharing,
    "load": LoadSharing,
}


def make_schedule(name: str, arguments: tuple[int, ...] = ()) -> SharingSchedule:
    """Return the schedule ``name(arguments)`` of the space language."""
    cls = SCHEDULES[name]
    return cls(arguments) if issubclass(cls, GroupSizeSchedule) else cls(*arguments)
