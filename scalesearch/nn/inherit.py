"""A model begins with the weights of a similar one that was trained: what both have is copied, the rest starts afresh.

Layers are matched by their place, matrices by their role, features head by head and unit by unit
(:mod:`scalesearch.nn.links`). What the child has beyond the parent starts so that it changes nothing where that can be:

- more hidden units, more heads, wider heads, higher ranks: fresh weights compute them, zero weights read them;
- more layers of a pre-norm stack: their last matrices are zero, so that each passes on what it is given;
- a part that was shared and is not any more: every copy is the parent's.

There the child computes the parent's function, which the report claims (``kept``) only where it is so to rounding. A
wider or narrower model never does, since layer norms run over more or fewer features; nor does one whose parts are of
another kind (activation, gate, tensor chain, placement of norms), which start afresh, nor one that is smaller. Fewer
hidden units are those of the largest norm, of everything else the first are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from scalesearch.blocks.chains import ChainEmbedding, ChainLinear
from scalesearch.blocks.core import Block
from scalesearch.blocks.leaves import Linear, Transposed
from scalesearch.blocks.scores import HeadMixer
from scalesearch.blocks.sites import HeadLinear
from scalesearch.errors import UserError
from scalesearch.nn.build import build
from scalesearch.nn.likeness import unlike
from scalesearch.nn.links import links, root_link
from scalesearch.nn.module import Module
from scalesearch.nn.places import Link, Places, fill, first
from scalesearch.nn.silence import silence

Weights = Mapping[str, Tensor]
REASONS = 8


@dataclass(frozen=True)
class Inherited:
    """What a child has of its parent.

    Attributes:
        numbers: of the child's weights that are the parent's. of: all of them.
        fresh: paths of the parts of which nothing is the parent's.
        why: why the child's function is not the parent's; empty where it is, to rounding.
    """

    numbers: int
    of: int
    fresh: tuple[str, ...]
    why: tuple[str, ...]

    @property
    def share(self) -> float:
        """Of the child's weights."""
        return self.numbers / self.of

    @property
    def kept(self) -> bool:
        """Whether the child computes what the parent does."""
        return not self.why

    def to_json(self) -> dict[str, Any]:
        """As JSON values; of many reasons the first."""
        return {"share": round(self.share, 4), "of": self.of, "fresh": list(self.fresh), "kept": self.kept,
                "why": list(self.why[:REASONS])}


def inherit(parent: Any, weights: Weights, child: nn.Module, vocab: int) -> Inherited:
    """Give ``child`` what it can have of the ``weights`` of ``parent``.

    Args:
        parent: an architecture. weights: name to tensor, as ``build(parent.block, …).state_dict()`` names them; they
            are copied, and stay as they are.
        child: a model as built and initialised; its first weights remain where nothing is inherited.
        vocab: tokens of both; they share a vocabulary.

    Raises:
        UserError: the weights are not those of ``parent`` with such a vocabulary.
    """
    source = Source(parent.block, weights, vocab)
    assert isinstance(child, Module)
    heir = Heir(child, source)
    heir.meet(child, source.model, root_link(child.block, source.model.block, vocab), "")
    return heir.report(unlike(child.block, source.model.block))


class Source:
    """The parent: its modules, without memory of their own, and its weights."""

    def __init__(self, block: Block, weights: Weights, vocab: int) -> None:
        self.model, self.weights = build(block, vocab=vocab, device="meta"), weights
        self.paths = {id(node): path for path, node in self.model.named_modules()}
        shapes = {name: tuple(weight.shape) for name, weight in self.model.state_dict().items()}
        given = {name: tuple(weight.shape) for name, weight in weights.items()}
        differ = sorted(name for name in shapes.keys() | given.keys() if shapes.get(name) != given.get(name))
        if differ:
            name = differ[0]
            raise UserError(f"weights to inherit: {name} is {given.get(name, 'missing')}, and the architecture with "
                            f"{vocab} tokens has {shapes.get(name, 'none of that name')}")

    def name(self, node: Module, name: str) -> str:
        """The name under which a weight is kept, wherever it is used."""
        path = self.paths[id(node.tied.get(name, node))]
        return f"{path}.{name}" if path else name

    def get(self, node: Module, path: str) -> Tensor:
        """The weight at ``path`` beneath ``node``."""
        inner, _, name = path.rpartition(".")
        return self.weights[self.name(node.get_submodule(inner), name)]  # type: ignore[arg-type]


class Heir:
    """The child while it takes over what it can."""

    def __init__(self, model: Module, source: Source) -> None:
        self.model, self.source = model, source
        self.names = {id(node): path for path, node in model.named_modules()}
        self.taken: dict[str, int] = {}  # numbers of each weight that are the parent's
        self.origin: dict[str, str] = {}  # weight to the parent's
        self.uses: list[tuple[str, str]] = []  # wherever a weight is used: the child's, and the parent's in that place
        self.added: list[tuple[str, Module]] = []  # layers of pre-norm stacks that the parent has not
        self.why: list[str] = []

    def meet(self, mine: nn.Module, its: nn.Module, link: Link, path: str) -> None:
        """Take over all that lies beneath ``mine`` from its counterpart."""
        if isinstance(mine, nn.ModuleList):
            self._layers(mine, its, link, path)
            return
        assert isinstance(mine, Module) and isinstance(its, Module)
        if type(mine.block) is not type(its.block):
            self._unlike(mine, path)
            return
        if mine.block.weights():
            self._leaf(mine, its, link, path)
            return
        inner = links(mine.block, its.block, link, lambda at: self.source.get(its, at))
        if inner is None and mine.block == its.block and link.same:
            self._as_it_is(mine, its)
            return
        for name, part in mine.named_children():
            if inner and name in inner and hasattr(its, name):
                self.meet(part, getattr(its, name), inner[name], f"{path}.{name}".lstrip("."))
            else:
                self._unlike(part, f"{path}.{name}".lstrip("."))

    def _leaf(self, mine: Module, its: Module, link: Link, path: str) -> None:
        known = _copied(mine.block, its.block, link)
        if known is None or known.keys() != mine.block.weights().keys():
            self._unlike(mine, path)
        for name, (axes, reads) in (known or {}).items():
            self._take(mine, its, name, axes, reads, link.scale)

    def _as_it_is(self, mine: Module, its: Module) -> None:
        """All weights beneath, of two blocks that are one."""
        for path, node in mine.named_modules():
            other: Any = its.get_submodule(path)
            for name, weight in node.weights() if isinstance(node, Module) else ():
                self._take(node, other, name, [first(n, n) for n in weight.shape], (), 1.0)

    def _layers(self, mine: nn.ModuleList, its: Any, link: Link, path: str) -> None:
        """Layers by their place. What is beyond the parent's depth is silenced later, once it is known who uses it."""
        for index, layer in enumerate(mine):
            if index < len(its):
                self.meet(layer, its[index], link, f"{path}.{index}")
            else:
                self.added.append((f"{path}.{index}", layer))  # type: ignore[arg-type]

    def _take(self, mine: Module, its: Module, name: str, axes: list[Places], reads: tuple[int, ...],
              scale: float) -> None:
        own, origin = self.name(mine, name), self.source.name(its, name)
        self.uses.append((own, origin))
        if name in mine.tied:
            return
        weight = self.source.weights[origin]
        if not all(axis.whole for axis in axes):
            self.why.append(f"{own} is a slice")
        self.taken[own] = fill(mine._parameters[name], weight, axes, reads, scale)  # type: ignore[arg-type]
        self.origin[own] = origin

    def name(self, node: Module, name: str) -> str:
        """The name under which a weight of the child is kept."""
        return f"{self.names[id(node.tied.get(name, node))]}.{name}".lstrip(".")

    def _unlike(self, part: nn.Module, path: str) -> None:
        if any(True for _ in _weights(part)):
            self.why.append(f"{path} has no counterpart")

    def report(self, unlike: list[str]) -> Inherited:
        """Silence the new layers and say what came of it all."""
        elsewhere = {own for own, _ in self.uses}
        loud = [path for path, layer in self.added if not silence(layer, lambda n, w: self.name(n, w) not in elsewhere)]
        moved = sorted({own for own, origin in self.uses if self.origin.get(own) != origin})
        why = [*unlike, *self.why, *(f"{path} is new, and not the identity" for path in loud),
               *(f"{own} is not what the parent has in all its places" for own in moved)]
        numbers = sum(self.taken.values())
        return Inherited(numbers, sum(weight.numel() for weight in self.model.parameters()), self._fresh(), tuple(why))

    def _fresh(self) -> tuple[str, ...]:
        """The topmost modules, or single weights, of which nothing is the parent's."""
        return tuple(_topmost(self.model, "", {name for name, count in self.taken.items() if count}))


def _weights(part: nn.Module) -> Iterator[str]:
    """Names of all weights that are used beneath ``part``, tied ones among them."""
    for node in part.modules():
        if isinstance(node, Module):
            yield from node.block.weights()


def _topmost(node: nn.Module, path: str, inherited: set[str]) -> Iterator[str]:
    own = [name for name, _ in node.named_parameters(prefix=path)]
    if own and inherited.isdisjoint(own):
        yield path or "everything"
        return
    for name, _ in node.named_parameters(prefix=path, recurse=False):
        if name not in inherited:
            yield name
    for name, part in node.named_children():
        yield from _topmost(part, f"{path}.{name}".lstrip("."), inherited)


def _copied(mine: Any, its: Any, link: Link) -> dict[str, tuple[list[Places], tuple[int, ...]]] | None:
    """Of a leaf: weight to its axes, and which of these read; None where the two do not fit each other."""
    reads, writes = link.reads, link.writes
    match mine:
        case Linear() | HeadMixer():
            found = {"weight": ([writes, reads], (1,)), "bias": ([writes], ())}
        case Transposed():
            found = {"weight": ([reads, writes], (0,))}
        case HeadLinear():
            assert link.heads is not None
            found = {"weight": ([link.heads, writes, reads], (2,)), "bias": ([link.heads, writes], ())}
        case ChainLinear() | ChainEmbedding():
            fits = link.same and (mine.cores.a, mine.cores.c) == (its.cores.a, its.cores.c)
            return _cores(mine, its) if fits else None
        case _ if all(len(shape) == 2 for shape in mine.weights().values()):  # tables: rows, and what they hold
            found = {name: ([reads, writes], ()) for name in mine.weights()}
        case _ if all(len(shape) == 1 for shape in mine.weights().values()):  # norms
            found = {name: ([writes], ()) for name in mine.weights()}
        case _:
            return None
    shared = mine.weights().keys() & its.weights().keys()
    return {name: axes for name, axes in found.items() if name in shared}


def _cores(mine: Any, its: Any) -> dict[str, tuple[list[Places], tuple[int, ...]]]:
    """A chain's cores: of a larger bond, what is new is computed by one core and not read by the next."""
    found = {name: ([first(before, after) for before, after in zip(its.weights()[name], shape)], (0,))
             for name, shape in mine.cores.shapes().items()}
    return found | ({"bias": ([first(mine.d_out, mine.d_out)], ())} if "bias" in mine.weights() else {})
