"""Rotary positions: queries and keys turned by their places, so that a score knows their distance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

ROTARY_BASE = 10_000.0  # of the longest wavelength, in radians


def apply_rotary(x: Tensor, first: int) -> Tensor:
    """(batch, heads, positions, n) turned by the places from ``first`` on (Su et al.

    2021); ``n`` is even.

    Feature i and feature i + n / 2 are a pair, turned by place / BASE^(2 i / n).
    """
    import torch

    half = x.shape[-1] // 2
    # distances stay exact far out
    at, pair = (torch.arange(low, high, device=x.device, dtype=torch.float64)
                for low, high in ((first, first + x.shape[2]), (0, half)))
    angles = at[:, None] * ROTARY_BASE ** (-pair / half)
    cos = angles.cos().to(x.dtype)
    sin = angles.sin().to(x.dtype)
    one, other = x.split(half, -1)
    return torch.cat([one * cos - other * sin, other * cos + one * sin], -1)


def cached_length(m: Any, cache: Any) -> int:
    """The number of positions whose keys the cache of ``m`` has."""
    return cache[m][0].shape[2] if cache is not None and m in cache else 0
