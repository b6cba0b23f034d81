"""Mixers, ways for positions to meet, one file a kind: see docs/develop/blocks.md.

May import the blocks beside it.
"""

import importlib
import pkgutil

from scalesearch.blocks.mixers.base import MIXERS, AttentionScoreShape, Mixer, register_mixer

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["MIXERS", "Mixer", "AttentionScoreShape", "register_mixer"]
