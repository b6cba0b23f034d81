"""Modes that hold code to a device without having one: where tensors are, and when the host waits for them."""

from collections import Counter

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Operations whose results the host has to know: their shape or their value depends on data of the device.
WAITS = {"_local_scalar_dense", "is_nonzero", "item", "nonzero", "nonzero_numpy", "equal", "masked_select", "_unique2",
         "unique_dim", "unique_consecutive", "bincount"}
READS = {torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.cpu}


class On(TorchDispatchMode):
    """Raises AssertionError at the first operation that has, or makes, a tensor elsewhere than on ``device``.

    Scalars may be anywhere, as CUDA has it. The meta device alone does not notice an index or a mask of the CPU's.
    """

    def __init__(self, device: str = "meta") -> None:
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Runs one operation between two looks at its tensors."""
        result = func(*args, **(kwargs or {}))
        for one in tree_leaves((args, kwargs, result)):
            if isinstance(one, torch.Tensor) and one.dim() and one.device.type != self.device:
                raise AssertionError(f"{func}: a tensor {tuple(one.shape)} on {one.device}, not on {self.device}")
        return result


class Waits(TorchDispatchMode):
    """Counts, by name, the operations for which the host would wait for a device; works on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self._reads = _Reads(self.found)

    def __enter__(self):
        """Counts from here on."""
        self._reads.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        """Counts no more."""
        super().__exit__(*error)
        self._reads.__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Runs one operation, and counts it where it waits."""
        name = func.overloadpacket.__name__
        by_mask = name.startswith("index") and any(isinstance(one, torch.Tensor) and one.dtype == torch.bool
                                                   for one in tree_leaves(args[1:2]))
        if name in WAITS or by_mask or (name == "repeat_interleave" and func._overloadname == "Tensor"):
            self.found[name] += 1
        return func(*args, **(kwargs or {}))

    @property
    def count(self) -> int:
        """All waits."""
        return sum(self.found.values())


class _Reads(TorchFunctionMode):
    """Counts copies to the host that no dispatcher sees where the tensor is there already."""

    def __init__(self, found: Counter[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Runs one function, and counts it where it reads."""
        if func in READS:
            self.found[func.__name__] += 1
        return func(*args, **(kwargs or {}))
