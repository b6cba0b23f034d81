"""Feed-forward kinds by name. A new kind is one file here that registers its block; no other file changes.

A kind is a block whose first fields are ``d`` and ``over``; what else it asks for are its ``option`` fields.
"""

import importlib
import pkgutil

from scalesearch.blocks.ffn.registry import FFNS

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["FFNS"]
