"""The registry of further sub-layers: they keep a mixer's contract, and may be position by position."""

from __future__ import annotations

from functools import partial

from scalesearch.blocks.mixers.base import Mixer
from scalesearch.blocks.options import register

SUBLAYERS: dict[str, type[Mixer]] = {}
# @further("name") makes a mixer's class the sub-layer of that word
register_sublayer = partial(register, SUBLAYERS)
