"""scalesearch: search efficient Transformer architectures under a budget.

    import scalesearch as ss

    space = ss.space("small.yaml")
    space.architecture(width=128).cost()

Every name is imported on first use. ``space``, ``study`` and ``train`` are packages as well as
functions: ``ss.space("slim")`` calls :func:`scalesearch.api.space.space`, and ``scalesearch.space``
has the class ``Space``.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scalesearch import samplers
    from scalesearch.api.model import load, train
    from scalesearch.api.space import space
    from scalesearch.api.study import study
    from scalesearch.errors import UserError
    from scalesearch.space.python_api import Computed, OneOf, Range, Variants, When
    from scalesearch.study.trials.callback import Callback

__version__ = "0.2.0"
__all__ = ["Callback", "Computed", "OneOf", "Range", "UserError", "Variants", "When", "__version__",
           "load", "samplers", "space", "study", "train"]

_CALLABLE_PACKAGES = {"space": "api.space", "study": "api.study", "train": "api.model"}
_LAZY_IMPORTS = {"Callback": "study.trials.callback", "UserError": "errors", "load": "api.model",
          **dict.fromkeys(("Computed", "OneOf", "Range", "Variants", "When"), "space.python_api")}


class _CallableModule(ModuleType):
    """A package that can also be called as a function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    @property
    def __wrapped__(self) -> Any:
        name = self.__name__.rpartition(".")[2]
        return getattr(import_module(f"{__name__}.{_CALLABLE_PACKAGES[name]}"), name)


class _Package(ModuleType):
    """This package, whose subpackages in ``_CALLABLE_PACKAGES`` can be called."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _CALLABLE_PACKAGES and isinstance(value, ModuleType):
            value.__class__ = _CallableModule
        super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    if name in _LAZY_IMPORTS:
        return getattr(import_module(f"{__name__}.{_LAZY_IMPORTS[name]}"), name)
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


sys.modules[__name__].__class__ = _Package
