"""Schedules of weight sharing within a stack; layers and groups count from 0.

A schedule is a value. ``groups(depth)`` gives each layer its group; ``unique(depth)`` is their number. The first layer
of a group owns its weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from scalesearch.blocks.core import Size
from scalesearch.blocks.sizes import by_value


class Schedule:
    """An assignment of layers to groups that share weights; a subclass defines ``groups``."""

    arguments: tuple[int, int | None] = (0, 0)  # how many ints the language takes: at least, at most

    def groups(self, depth: int) -> list[int]:
        """The group of each layer, as the schedule numbers them."""
        raise NotImplementedError

    def unique(self, depth: Size) -> Size:
        """The number of groups of ``depth`` layers."""
        count: Size = by_value(depth, lambda layers: len(set(self.groups(layers))))
        return count

    def misfit(self, depth: int) -> str | None:
        """The reason why the schedule does not fit ``depth`` layers, or None."""
        return None

    def owners(self, depth: int) -> list[int]:
        """The first layer of the group of each layer."""
        groups = self.groups(depth)
        return [groups.index(group) for group in groups]

    def canonical(self, depth: int) -> list[int]:
        """A value that is equal for schedules that share alike at this depth."""
        return self.owners(depth)


@dataclass(frozen=True)
class Own(Schedule):
    """No sharing: a group for each layer."""

    def groups(self, depth: int) -> list[int]:
        return list(range(depth))

    def unique(self, depth: Size) -> Size:
        return depth


@dataclass(frozen=True)
class One(Schedule):
    """One set of weights for all layers (Universal Transformer, ALBERT)."""

    def groups(self, depth: int) -> list[int]:
        return [0] * depth


@dataclass(frozen=True)
class InGroups(Schedule):
    """A schedule of a fixed number of groups, at most one a layer."""

    group_count: int
    arguments = (1, 1)

    def misfit(self, depth: int) -> str | None:
        return None if self.group_count >= 1 else "needs at least one group"


@dataclass(frozen=True)
class Cycle(InGroups):
    """Layer i uses group i mod g: 0 1 2 0 1 2 (Takase & Kiyono 2021; EdgeFormer's encoder)."""

    def groups(self, depth: int) -> list[int]:
        return [i % self.group_count for i in range(depth)]


@dataclass(frozen=True)
class Sequence(InGroups):
    """Consecutive layers share: 0 0 1 1 2 2 (Takase & Kiyono 2021). Earlier groups take the remainder."""

    def groups(self, depth: int) -> list[int]:
        count = min(self.group_count, depth)
        each, left = divmod(depth, count)
        return [group for group in range(count) for _ in range(each + (group < left))]


@dataclass(frozen=True)
class ReverseCycle(InGroups):
    """A cycle whose last round runs backwards: 0 1 2 0 1 2 2 1 0 (Takase & Kiyono 2021, "cycle (rev)")."""

    def groups(self, depth: int) -> list[int]:
        count = min(self.group_count, depth)
        if depth < 2 * count:
            return [i if i < count else 2 * count - 1 - i for i in range(depth)]
        forward = depth - count
        return [i % count if i < forward else depth - 1 - i for i in range(depth)]


@dataclass(frozen=True)
class Sandwich(Schedule):
    """First and last layer their own, all between them one (Subformer, Reid et al. 2021)."""

    def groups(self, depth: int) -> list[int]:
        return [0] + [1] * (depth - 2) + [2] if depth > 2 else list(range(depth))


@dataclass(frozen=True)
class Explicit(Schedule):
    """A list that names the group of each layer: ``[0, 0, 1, 0]``."""

    given: tuple[int, ...]

    def groups(self, depth: int) -> list[int]:
        return list(self.given)

    def misfit(self, depth: int) -> str | None:
        return None if len(self.given) == depth else f"lists {len(self.given)} layers, but there are {depth}"


@dataclass(frozen=True)
class Counted(Schedule):
    """A schedule that says how many layers each group serves."""

    loads: tuple[int, ...]
    arguments = (1, None)

    def unique(self, depth: Size) -> Size:
        return len(self.loads)

    def misfit(self, depth: int) -> str | None:
        if min(self.loads, default=0) < 1:
            return "gives a group no layer"
        total = sum(self.loads)
        return None if total == depth else f"serves {total} layers, but there are {depth}"


@dataclass(frozen=True)
class Runs(Counted):
    """Runs of consecutive layers: ``runs(1, 11)`` is the first layer alone, then eleven that share."""

    def groups(self, depth: int) -> list[int]:
        return [group for group, load in enumerate(self.loads) for _ in range(load)]


@dataclass(frozen=True)
class Load(Counted):
    """Groups of given loads, dealt in turn: ``load(6, 6)`` is 0 1 0 1 … (EdgeFormer, Table 3; ``6-6`` for short)."""

    def groups(self, depth: int) -> list[int]:
        left, dealt = list(self.loads), []
        while any(left):
            for group, load in enumerate(left):
                if load:
                    dealt.append(group)
                    left[group] -= 1
        return dealt


@dataclass(frozen=True)
class Borrow:
    """Sharing with another stack: layer i uses the ``part`` of its layer ``layers[i]``, an owner."""

    path: str  # of the Repeat that owns the weights, e.g. "encoder.layers"
    part: str
    layers: tuple[int, ...]

    def unique(self, depth: Size) -> Size:
        """Borrowed weights are billed where they are owned."""
        return 0

    def canonical(self, depth: int) -> list[str]:
        """The owner of each layer, by name."""
        return [f"{self.path}.{layer}.{self.part}" for layer in self.layers]


SCHEDULES: dict[str, type[Schedule]] = {
    "own": Own,
    "one": One,
    "cycle": Cycle,
    "sequence": Sequence,
    "reverse_cycle": ReverseCycle,
    "sandwich": Sandwich,
    "runs": Runs,
    "load": Load,
}


def schedule(name: str, arguments: tuple[int, ...] = ()) -> Schedule:
    """The schedule that the language calls ``name(arguments)``."""
    kind = SCHEDULES[name]
    if issubclass(kind, Counted):
        return kind(arguments)
    return kind(*arguments)
