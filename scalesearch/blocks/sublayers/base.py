"""Registry of other sub-layers: mixers, which may also process each position separately."""

from __future__ import annotations

from functools import partial

from scalesearch.blocks.mixers.base import Mixer
from scalesearch.blocks.options import register

SUBLAYERS: dict[str, type[Mixer]] = {}
# decorator @register_sublayer("name") of a mixer class
register_sublayer = partial(register, SUBLAYERS)
