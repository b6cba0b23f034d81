"""Feed-forward networks, one file a kind: see docs/develop/blocks.md.

May import the blocks beside this folder.
"""

import importlib
import pkgutil

from scalesearch.blocks.ffn.base import FFN, FFNS, register_ffn

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["FFN", "FFNS", "register_ffn"]
