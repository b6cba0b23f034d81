"""Feed-forward networks (docs/develop/blocks.md).

This package may import the other blocks, except mixers and layers.
"""

import importlib
import pkgutil

from scalesearch.blocks.ffn.networks import FFN, FFNS, register_ffn

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["FFN", "FFNS", "register_ffn"]
