"""Modes that hold code to a device without having one: where tensors are, and when the host waits for them."""

import copy
from collections import Counter

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

# Operations whose results the host has to know: their shape or their value depends on data of the
# device.
WAITS = {"_local_scalar_dense", "is_nonzero", "item", "nonzero", "nonzero_numpy", "equal",
         "masked_select", "_unique2", "unique_dim", "unique_consecutive", "bincount"}
READS = {torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.cpu}


COPIES = {"_to_copy", "copy_"}
# the one name of a device, but cpu, that PyTorch takes without such a device
DEVICE = torch.device("meta")


class Held(torch.Tensor):
    """A tensor that says it is on :data:`DEVICE`; its values are in ``held``, on the CPU."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), dtype=held.dtype,
            storage_offset=held.storage_offset(), device=DEVICE)

    def __init__(self, held):
        self.held = held

    def tolist(self):
        """Values, which PyTorch reads of no subclass."""
        return self.held.tolist()

    def __deepcopy__(self, memo):
        """A copy of the values."""
        return Held(self.held.clone())

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        """Raises: without the mode, nothing may touch it."""
        raise AssertionError(f"{func}: outside of OnDevice")


class OnDevice(TorchDispatchMode):
    """A device besides the CPU, by its rules alone: what is on it is computed on the CPU, with all values.

    Raises AssertionError at the first operation whose tensors are on both; scalars may be anywhere,
    as CUDA has it.
    """

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Runs one operation on what its tensors hold."""
        kwargs = dict(kwargs or {})
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        away = {id(one.held): one for one in given if isinstance(one, Held)}
        if away and func.overloadpacket.__name__ not in COPIES:
            for one in given:
                if one.dim() and not isinstance(one, Held):
                    raise AssertionError(f"{func}: a tensor {tuple(one.shape)} on {one.device}, "
                                         "not on the device")
        stays = bool(away)
        if kwargs.get("device") is not None:
            stays, kwargs["device"] = kwargs["device"] == DEVICE, torch.device("cpu")
        args, kwargs = tree_map_only(Held, lambda one: one.held, (args, kwargs))
        result = func(*args, **kwargs)
        if not stays:
            return result
        return tree_map_only(torch.Tensor,
                             lambda one: away[id(one)] if id(one) in away else Held(one), result)


def to_device(model):
    """A copy of ``model`` on :data:`DEVICE`."""
    moved = copy.deepcopy(model)
    tied = {}
    for part in moved.modules():
        for name, weight in part._parameters.items():
            if weight is not None:
                part._parameters[name] = tied.setdefault(
                    id(weight), torch.nn.Parameter(Held(weight.detach()), weight.requires_grad))
        for name, value in part._buffers.items():
            part._buffers[name] = None if value is None else Held(value)
    return moved


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
        by_mask = name.startswith("index") and any(
            isinstance(one, torch.Tensor) and one.dtype == torch.bool
            for one in tree_leaves(args[1:2]))
        if name in WAITS or by_mask or (name == "repeat_interleave"
                                        and func._overloadname == "Tensor"):
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
