"""scalesearch: search efficient Transformer architectures under a budget.

    import scalesearch as ss

    space = ss.space("small.yaml")
    space.architecture(width=128).cost()

Every name is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scalesearch import samplers
    from scalesearch.api.model import load, train
    from scalesearch.api.space import from_huggingface, space
    from scalesearch.api.study import compress, study
    from scalesearch.errors import UserError
    from scalesearch.spaces.python_api import Computed, OneOf, Range, Variants, When
    from scalesearch.studies.trials.trial import Callback

__version__ = "0.3.0"
__all__ = ["Callback", "Computed", "OneOf", "Range", "UserError", "Variants", "When", "__version__",
           "compress", "from_huggingface", "load", "samplers", "space", "study", "train"]

_MODULE_OF = {"Callback": "studies.trials.trial", "UserError": "errors", "load": "api.model",
              "compress": "api.study", "from_huggingface": "api.space",
              "space": "api.space", "study": "api.study", "train": "api.model",
              **dict.fromkeys(("Computed", "OneOf", "Range", "Variants", "When"),
                              "spaces.python_api")}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
