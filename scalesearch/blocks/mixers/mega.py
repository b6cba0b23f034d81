"""Gated attention of one head (Ma et al. 2023, Mega): of a moving average, and across sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from scalesearch.blocks.core import Axis, Block, Shape, Size, Use, Work, block
from scalesearch.blocks.elementwise import plus, times
from scalesearch.blocks.leaves import KeyValueCache
from scalesearch.blocks.mixers.average import Average
from scalesearch.blocks.mixers.base import Mixer, mixer
from scalesearch.blocks.mixers.scores import Scores
from scalesearch.blocks.options import option


@block
class Distances(Block):
    """A learned number for each distance from query to key; from ``clip`` - 1 on to either side they are alike."""

    clip: Size

    def weights(self) -> Mapping[str, Shape]:
        return {"weight": (2 * self.clip - 1,)}

    def start(self, name: str) -> str:
        return "zero"

    def forward(self, m: Any, at: Any, keys: int) -> Any:
        """Positions (queries,) among ``keys`` or beside them, to (queries, keys)."""
        import torch

        far = self.clip - 1
        return m.weight[(torch.arange(keys, device=at.device) - at[:, None]).clamp(-far, far) + far]


def gated(x: Any, update: Any, inner: Any) -> Any:
    """u · (SiLU(inner) - x), with u = σ(update): added to x it is the mean of the two with weight u."""
    from torch.nn.functional import silu

    return times(update.sigmoid(), plus(silu(inner), -x))


@mixer("mega")
@block
class Mega(Mixer):
    """Gated attention of one head, queries and keys of a moving average (Ma et al. 2023, section 3.3).

    The gate is the residual: of norms after the layer has (1 - u) x + u h, as published; of norms before, what is taken
    off is u times the normed x. ``distances`` are learned scalars added to scores, ``clip`` - 1 to each side.
    """

    dims: Size = option("16", doc="averages of each channel")
    head_dim: Size = option("= max(1, width // 4)", doc="features of queries and keys")
    value_dim: Size = option("= 2 * width", doc="features of values")
    clip: Size = option("1024", doc="distance from which positions look alike")

    scored: ClassVar[bool] = True

    def parts(self) -> Mapping[str, Block | Use]:
        z, v = self.head_dim, self.value_dim
        average = Average(self.d, self.queries, self.decoder, self.site, dims=self.dims)
        parts: dict[str, Block | Use] = {
            "average": average,
            "inward": self.site(self.d, 2 * self.d + z + v, self.over),
            "value": self.site(self.d, v, self.over),
            "distances": Distances(self.clip),
            "core": Scores(1, z, v, self.queries, average.keys),
            "out": self.site(v, self.d, self.over),
        }
        return parts | ({"store": KeyValueCache(z + v, average.keys)} if self.decoder else {})

    def weights(self) -> Mapping[str, Shape]:
        return {"scale": (2, self.head_dim), "shift": (2, self.head_dim)}

    def start(self, name: str) -> str:
        return "table" if name == "scale" else "zero"

    def work(self) -> Sequence[Work]:
        copied = self.d * self.parts()["average"].copies  # type: ignore[union-attr]  # and values read it in place
        kept = 3 * self.d + 3 * self.head_dim + 3 * self.value_dim + copied
        return [Work((*self.over, kept), "activation")]

    def forward(self, m: Any, x: Any, present: Any, bias: Any, cache: Any = None, carried: Any = None) -> Any:
        import torch
        from torch.nn.functional import silu

        sizes = [self.d, self.d, self.head_dim, self.value_dim]
        update, inner, shared, reset = m.inward(m.average(x, present, bias, cache)).split(sizes, -1)
        shared = silu(shared)
        query, key = (plus(times(shared, scale), shift)[:, None] for scale, shift in zip(m.scale, m.shift))
        value = silu(m.value(x))[:, None]
        if cache is not None:
            key, value = cache.append(m, key, value)
        at = torch.arange(key.shape[2], device=x.device)[key.shape[2] - x.shape[1] :]
        near = m.distances(at, key.shape[2])
        mixed = m.core(query, key, value, near if bias is None else plus(near, bias))[:, 0]
        return gated(x, update, plus(inner, m.out(times(silu(reset), mixed))))


@block
class GatedCross(Mixer):
    """Mega's attention across sequences: one head of ``head_dim`` for scores and ``d`` for values, and the gates."""

    projected: Axis
    keys: Axis
    head_dim: Size
    clip: Size

    def parts(self) -> Mapping[str, Block | Use]:
        d, z = self.d, self.head_dim
        return {
            "inward": self.site(d, 2 * d + z, self.over),
            "key": self.site(d, z, (self.projected,)),
            "value": self.site(d, d, (self.projected,)),
            "distances": Distances(self.clip),
            "core": Scores(1, z, d, self.queries, self.keys),
            "out": self.site(d, d, self.over),
            "store": KeyValueCache(z + d, self.keys),
        }

    def work(self) -> Sequence[Work]:
        return [Work((self.queries, 5 * self.d + self.head_dim), "activation"),
                Work((self.projected, self.d), "activation")]

    def project(self, m: Any, memory: Any) -> tuple[Any, Any]:
        """Keys and values (batch, 1, positions, n) of ``memory`` (batch, positions, d)."""
        from torch.nn.functional import silu

        return m.key(memory)[:, None], silu(m.value(memory))[:, None]

    def forward(self, m: Any, x: Any, present: Any, bias: Any, cache: Any = None, carried: Any = None,
                memory: Any = None) -> Any:
        from torch.nn.functional import silu

        update, reset, query = m.inward(x).split([self.d, self.d, self.head_dim], -1)
        if cache is None:
            key, value = self.project(m, memory)
        else:
            key, value = cache[m] if m in cache else cache.keep(m, *self.project(m, memory))
        near = m.distances(_at(x, cache), key.shape[2])
        mixed = m.core(query[:, None], key, value, near if bias is None else plus(near, bias))[:, 0]
        return gated(x, update, m.out(times(silu(reset), mixed)))


def _at(x: Any, cache: Any) -> Any:
    """Positions of ``x`` (batch, n, d): with rows grouped by source, which stand as positions, all the one of now."""
    import torch

    before, one = (0, False) if cache is None else (cache.length, cache.groups is not None)
    return torch.arange(x.shape[1], device=x.device) * (not one) + before
