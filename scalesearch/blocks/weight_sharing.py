"""Schedules of weight sharing within a stack; layers and groups count from 0.

A schedule is a value. ``groups(depth)`` gives each layer its group; ``unique(depth)`` is their
number. The first layer of a group owns its weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from scalesearch.blocks.core import Size
from scalesearch.blocks.sizes import map_values


class SharingSchedule:
    """An assignment of layers to groups that share weights; a subclass defines ``groups``."""

    # how many ints the language takes: at least, at most
    argument_counts: tuple[int, int | None] = (0, 0)

    def groups(self, depth: int) -> list[int]:
        """The group of each layer, as the schedule numbers them."""
        raise NotImplementedError

    def num_groups(self, depth: Size) -> Size:
        """The number of groups of ``depth`` layers."""
        count: Size = map_values(depth, lambda layers: len(set(self.groups(layers))))
        return count

    def validate(self, depth: int) -> str | None:
        """The reason why the schedule does not fit ``depth`` layers, or None."""
        return None

    def owners(self, depth: int) -> list[int]:
        """The first layer of the group of each layer."""
        groups = self.groups(depth)
        return [groups.index(group) for group in groups]

    def canonical_groups(self, depth: int) -> list[int]:
        """A value that is equal for schedules that share alike at this depth."""
        return self.owners(depth)


@dataclass(frozen=True)
class NoSharing(SharingSchedule):
    """No sharing: a group for each layer."""

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
    """A schedule of a fixed number of groups, at most one a layer."""

    group_count: int
    argument_counts = (1, 1)

    def validate(self, depth: int) -> str | None:
        return None if self.group_count >= 1 else "needs at least one group"


@dataclass(frozen=True)
class CycleSharing(GroupCountSchedule):
    """Layer i uses group i mod g: 0 1 2 0 1 2 (Takase & Kiyono 2021; EdgeFormer's encoder)."""

    def groups(self, depth: int) -> list[int]:
        return [i % self.group_count for i in range(depth)]


@dataclass(frozen=True)
class SequenceSharing(GroupCountSchedule):
    """Consecutive layers share: 0 0 1 1 2 2 (Takase & Kiyono 2021).

    Earlier groups take the remainder.
    """

    def groups(self, depth: int) -> list[int]:
        count = min(self.group_count, depth)
        each, left = divmod(depth, count)
        return [group for group in range(count) for _ in range(each + (group < left))]


@dataclass(frozen=True)
class ReverseCycleSharing(GroupCountSchedule):
    """A cycle whose last round runs backwards: 0 1 2 0 1 2 2 1 0 (Takase & Kiyono 2021, "cycle (rev)")."""

    def groups(self, depth: int) -> list[int]:
        count = min(self.group_count, depth)
        if depth < 2 * count:
            return [i if i < count else 2 * count - 1 - i for i in range(depth)]
        forward = depth - count
        return [i % count if i < forward else depth - 1 - i for i in range(depth)]


@dataclass(frozen=True)
class SandwichSharing(SharingSchedule):
    """First and last layer their own, all between them one (Subformer, Reid et al. 2021)."""

    def groups(self, depth: int) -> list[int]:
        return [0] + [1] * (depth - 2) + [2] if depth > 2 else list(range(depth))


@dataclass(frozen=True)
class ExplicitSharing(SharingSchedule):
    """A list that names the group of each layer: ``[0, 0, 1, 0]``."""

    group_of_layer: tuple[int, ...]

    def groups(self, depth: int) -> list[int]:
        return list(self.group_of_layer)

    def validate(self, depth: int) -> str | None:
        return (None if len(self.group_of_layer) == depth
                else f"lists {len(self.group_of_layer)} layers, but there are {depth}")


@dataclass(frozen=True)
class GroupSizeSchedule(SharingSchedule):
    """A schedule that says how many layers each group serves."""

    group_sizes: tuple[int, ...]
    argument_counts = (1, None)

    def num_groups(self, depth: Size) -> Size:
        return len(self.group_sizes)

    def validate(self, depth: int) -> str | None:
        if min(self.group_sizes, default=0) < 1:
            return "gives a group no layer"
        total = sum(self.group_sizes)
        return None if total == depth else f"serves {total} layers, but there are {depth}"


@dataclass(frozen=True)
class RunSharing(GroupSizeSchedule):
    """Runs of consecutive layers: ``runs(1, 11)`` is the first layer alone, then eleven that share."""

    def groups(self, depth: int) -> list[int]:
        return [group for group, load in enumerate(self.group_sizes) for _ in range(load)]


@dataclass(frozen=True)
class LoadSharing(GroupSizeSchedule):
    """Groups of given loads, dealt in turn: ``load(6, 6)`` is 0 1 0 1 … (EdgeFormer, Table 3; ``6-6`` for short)."""

    def groups(self, depth: int) -> list[int]:
        left = list(self.group_sizes)
        dealt = []
        while any(left):
            for group, load in enumerate(left):
                if load:
                    dealt.append(group)
                    left[group] -= 1
        return dealt


@dataclass(frozen=True)
class CrossStackTie:
    """Sharing with another stack: layer i uses the ``part`` of its layer ``layers[i]``, an owner."""

    path: str  # of the Repeat that owns the weights, e.g. "encoder.layers"
    part: str
    layers: tuple[int, ...]

    def num_groups(self, depth: Size) -> Size:
        """Borrowed weights are billed where they are owned."""
        return 0

    def canonical_groups(self, depth: int) -> list[str]:
        """The owner of each layer, by name."""
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
    """The schedule that the language calls ``name(arguments)``."""
    kind = SCHEDULES[name]
    if issubclass(kind, GroupSizeSchedule):
        return kind(arguments)
    return kind(*arguments)
