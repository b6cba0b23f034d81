"""The catalogue: every block by name; what is in it is checked without a test of its own."""

from __future__ import annotations

from functools import partial

from scalesearch.blocks.ffn import FFNS
from scalesearch.testing import attention, layers, leaves  # noqa: F401  (each registers its specimens)
from scalesearch.testing.attention import feed_forward
from scalesearch.testing.specimen import SPECIMENS, Draw

CATALOGUE: dict[str, Draw] = {
    **SPECIMENS,
    **{f"ffn.{kind}": partial(feed_forward, kind=kind) for kind in FFNS if kind != "none"},
}
