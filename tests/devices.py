"""Dispatch modes that check device placement and host synchronization without a device."""

import copy
from collections import Counter

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from scalesearch.nn.graphs import GraphRunner

# Operations that synchronize: the shape or value of their result depends on data of the device.
SYNCHRONIZING = {"_local_scalar_dense", "is_nonzero", "item", "nonzero", "nonzero_numpy", "equal",
                 "masked_select", "_unique2", "unique_dim", "unique_consecutive", "bincount"}
HOST_READS = {torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.cpu}


COPIES = {"_to_copy", "copy_"}
# the only device name besides cpu that PyTorch accepts without such a device
DEVICE = torch.device("meta")


class DeviceTensor(torch.Tensor):
    """A tensor whose device is :data:`DEVICE`; its values are in ``cpu_tensor``."""

    @staticmethod
    def __new__(cls, cpu_tensor):
        return torch.Tensor._make_wrapper_subclass(
            cls, cpu_tensor.shape, strides=cpu_tensor.stride(), dtype=cpu_tensor.dtype,
            storage_offset=cpu_tensor.storage_offset(), device=DEVICE)

    def __init__(self, cpu_tensor):
        self.cpu_tensor = cpu_tensor

    def tolist(self):
        """The values; PyTorch does not read those of subclasses."""
        return self.cpu_tensor.tolist()

    def __deepcopy__(self, memo):
        return DeviceTensor(self.cpu_tensor.clone())

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        """Fail: operations need the mode :class:`OnDevice`."""
        raise AssertionError(f"{func}: outside of OnDevice")


class OnDevice(TorchDispatchMode):
    """Emulate a device: its operations run on the CPU, with the placement rules of CUDA.

    Raises AssertionError at the first operation that mixes tensors of both devices; scalars may be
    on either, as with CUDA.
    """

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run an operation on the CPU tensors of its arguments."""
        kwargs = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        wrappers = {id(tensor.cpu_tensor): tensor
                    for tensor in tensors
                    if isinstance(tensor, DeviceTensor)}
        if wrappers and func.overloadpacket.__name__ not in COPIES:
            for tensor in tensors:
                if tensor.dim() and not isinstance(tensor, DeviceTensor):
                    raise AssertionError(f"{func}: a tensor {tuple(tensor.shape)} on "
                                         f"{tensor.device}, not on the device")
        is_on_device = bool(wrappers)
        if kwargs.get("device") is not None:
            is_on_device = kwargs["device"] == DEVICE
            kwargs["device"] = torch.device("cpu")
        args, kwargs = tree_map_only(DeviceTensor, lambda tensor: tensor.cpu_tensor, (args, kwargs))
        result = func(*args, **kwargs)
        if not is_on_device:
            return result

        def wrapped(tensor):
            existing = wrappers.get(id(tensor))
            return DeviceTensor(tensor) if existing is None else existing

        return tree_map_only(torch.Tensor, wrapped, result)


def to_device(model):
    """Copy ``model`` to :data:`DEVICE`; tied weights stay tied."""
    moved = copy.deepcopy(model)
    tied = {}
    for part in moved.modules():
        for name, weight in part._parameters.items():
            if weight is not None:
                part._parameters[name] = tied.setdefault(
                    id(weight),
                    torch.nn.Parameter(DeviceTensor(weight.detach()), weight.requires_grad))
        for name, value in part._buffers.items():
            part._buffers[name] = None if value is None else DeviceTensor(value)
    return moved


class CountSynchronizations(TorchDispatchMode):
    """Count, by name, the operations at which the host would wait for a device."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._reads = _CountHostReads(self.counts)

    def __enter__(self):
        self._reads.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self._reads.__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run an operation; count it if it synchronizes."""
        name = func.overloadpacket.__name__
        by_mask = name.startswith("index") and any(
            isinstance(leaf, torch.Tensor) and leaf.dtype == torch.bool
            for leaf in tree_leaves(args[1:2]))
        if name in SYNCHRONIZING or by_mask or (name == "repeat_interleave"
                                                and func._overloadname == "Tensor"):
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))

    @property
    def count(self) -> int:
        """The total number of synchronizations."""
        return sum(self.counts.values())


class _CountHostReads(TorchFunctionMode):
    """Count copies to the host, which a dispatch mode does not get for tensors on the CPU."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Run a function; count it if it reads on the host."""
        if func in HOST_READS:
            self.counts[func.__name__] += 1
        return func(*args, **(kwargs or {}))


class RecordingMode(TorchDispatchMode):
    """Record operations with their tensors, as the capture of a CUDA graph does."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):
        """Run an operation and record it."""
        output = operation(*arguments, **(keywords or {}))
        self.calls.append((operation, arguments, keywords or {}, output))
        return output


class RecordedGraph:
    """Runs recorded operations again, on the same tensors.

    Numbers that were computed in Python stay what they were when the operations were recorded.
    """

    def __init__(self, calls):
        self.calls = calls
        self.has_run = True  # recording ran the operations, unlike a capture

    def replay(self):
        """Run the operations; the first call does nothing."""
        if self.has_run:
            self.has_run = False
            return
        with torch.no_grad():
            for operation, arguments, keywords, output in self.calls:
                repeated = operation(*arguments, **keywords)
                for static, value in zip(tree_leaves(output), tree_leaves(repeated), strict=True):
                    if isinstance(static, torch.Tensor) and static is not value:
                        static.copy_(value)


class RecordingRunner(GraphRunner):
    """Runner whose graphs are recordings of operations on the CPU.

    Raises AssertionError if a recorded operation waits for the device, or reads the host.
    """

    def __init__(self, name, notes):
        super().__init__(torch.device("cpu"), name, notes)
        self.is_active = True

    def _run_on_stream(self, function, *arguments):
        function(*arguments)

    def _record(self, function, *arguments):
        with RecordingMode() as recording, CountSynchronizations() as synchronizations:
            function(*arguments)
        assert not synchronizations.counts
        return RecordedGraph(recording.calls)
