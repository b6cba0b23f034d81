"""Mixers: blocks that exchange information between positions.

See docs/develop/blocks.md. This package may import the other blocks.
"""

import importlib
import pkgutil

from scalesearch.blocks.mixers.base import MIXERS, AttentionScoreShape, Mixer, register_mixer

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["MIXERS", "Mixer", "AttentionScoreShape", "register_mixer"]
