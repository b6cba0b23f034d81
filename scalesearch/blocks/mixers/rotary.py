"""Rotary position embedding: scores depend on relative positions (Su et al. 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

ROTARY_BASE = 10_000.0  # base of the wavelengths


def apply_rotary(x: Tensor, first: int) -> Tensor:
    """Rotate queries or keys by their positions (Su et al. 2021).

    The pair of the features i and i + n / 2 is rotated by the angle position / base^(2 i / n).

    Args:
        x: (batch, heads, positions, n), with even n.
        first: first position.
    """
    import torch

    half = x.shape[-1] // 2
    # float64: angles of far positions are exact
    positions = torch.arange(first, first + x.shape[2], device=x.device, dtype=torch.float64)
    pairs = torch.arange(half, device=x.device, dtype=torch.float64)
    angles = positions[:, None] * ROTARY_BASE ** (-pairs / half)
    cos = angles.cos().to(x.dtype)
    sin = angles.sin().to(x.dtype)
    left, right = x.split(half, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


def cached_length(m: Any, cache: Any) -> int:
    """Return the number of positions in the cache of the module ``m``."""
    return cache[m][0].shape[2] if cache is not None and m in cache else 0
