"""Other sub-layers, which a layer contains if its key ``sublayers:`` lists them.

They are mixers, which may also process each position separately. This package may import mixers.
"""

import importlib
import pkgutil
from functools import partial

from scalesearch.blocks.mixers.base import Mixer
from scalesearch.blocks.options import register

SUBLAYERS: dict[str, type[Mixer]] = {}
# decorator @register_sublayer("name") of a mixer class
register_sublayer = partial(register, SUBLAYERS)

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["SUBLAYERS", "register_sublayer"]
