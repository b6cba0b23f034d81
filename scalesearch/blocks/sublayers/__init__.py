"""Other sub-layers, which a layer contains if its key ``sublayers:`` lists them.

This package may import mixers.
"""

import importlib
import pkgutil

from scalesearch.blocks.sublayers.base import SUBLAYERS, register_sublayer

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["SUBLAYERS", "register_sublayer"]
