"""Memory of training on a GPU, predicted by updates without numbers.

An update runs on tensors that have shapes but no values (PyTorch's device ``meta``). Every tensor
that it allocates and frees is recorded, and a model of PyTorch's allocator turns the record into
the bytes that the allocator reserves. So the prediction follows from the code that trains: forward
pass, loss, backward pass, and optimizer.

Buffers inside of kernels, such as those of the eigendecompositions of SOAP, are not part of it.
Products in bf16 count as fp32. So ``SAFETY_FACTOR`` multiplies the prediction: it exceeds every
recorded ratio of measured to predicted bytes. ``PROCESS_BYTES`` holds what does not depend on the
model: the CUDA context, and a workspace of cuBLAS for each stream (32 MiB on Hopper, PyTorch's
notes on CUDA semantics).

Measured in ``benchmarks/gpu_designs.json`` (H100, TF32, 2,048 tokens, eight architectures): the
bytes that the forward pass keeps differ from the prediction by at most 1.1 %. The peak of an update
is 1 to 4 % higher than predicted for seven architectures and 26 % for ``small/anthe``.
"""

import functools
import math
import weakref
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from scalesearch.blocks.core import EOS, Block
from scalesearch.data import Batch, Corpus, DataSpec, load_corpus
from scalesearch.data.soft_targets import SoftTargetBatch
from scalesearch.library import ARCHITECTURE_FILE
from scalesearch.nn import DropoutRates, build_model
from scalesearch.spaces import read_space
from scalesearch.training.hardware import Hardware
from scalesearch.training.recipe import Recipe
from scalesearch.training.updates.averaging import ExponentialMovingAverage
from scalesearch.training.updates.captured import CapturedEngine, choose_buckets
from scalesearch.training.updates.optimizers import MatrixOptimizer
from scalesearch.training.updates.resident_data import resident_bytes

MIB = 2**20
# CUDA context, workspaces of cuBLAS, and the caches of decoding. 16 processes of a small model took
# 1.3 GiB each on an H100.
PROCESS_BYTES = 1024 * MIB
# Recorded on an H200 (``benchmarks/gpu_h200.json``): reserved bytes were 0.91 to 1.32 times the
# prediction with 65 MiB of workspaces.
SAFETY_FACTOR = 1.35
BLOCK_BYTES = 512  # sizes are rounded up to a multiple of it
MAX_SMALL_BYTES = MIB  # larger blocks are in other segments
SMALL_SEGMENT_BYTES = 2 * MIB
LARGE_SEGMENT_BYTES = 20 * MIB  # of blocks below MIN_LARGE_BYTES
MIN_LARGE_BYTES = 10 * MIB  # larger blocks have their own segment, a multiple of 2 MiB
META = torch.device("meta")


class CachingAllocator:
    """Model of PyTorch's allocator of GPU memory, for one stream.

    Source: ``c10/cuda/CUDACachingAllocator.cpp``, PyTorch 2.11, with default settings. The smallest
    free block that is large enough is used, and split. Adjacent free blocks are merged. Segments
    are not returned to the device.

    Attributes:
        reserved: bytes of all segments.
        allocated: bytes of the blocks in use.
        max_allocated: largest value of ``allocated`` so far.
    """

    def __init__(self) -> None:
        self.reserved = 0
        self.allocated = 0
        self.max_allocated = 0
        self._address = 0  # of the next segment
        self._used: dict[int, tuple[int, bool]] = {}  # size and pool of a block by address
        # Free blocks of small and large segments: sizes and addresses, ascending
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._size_at: dict[int, int] = {}  # of free blocks by their address
        self._address_before: dict[int, int] = {}  # of free blocks by their end

    def allocate(self, size: int) -> int:
        """Allocate ``size`` bytes; return the address."""
        size = max(1, -(-size // BLOCK_BYTES)) * BLOCK_BYTES
        is_small = size <= MAX_SMALL_BYTES
        free = self._free[is_small]
        position = bisect_left(free, (size, 0))
        if position < len(free):
            block_size, address = free[position]
            self._remove_free(address, is_small)
        else:
            block_size = (SMALL_SEGMENT_BYTES if is_small else LARGE_SEGMENT_BYTES
                          if size < MIN_LARGE_BYTES
                          else -(-size // SMALL_SEGMENT_BYTES) * SMALL_SEGMENT_BYTES)
            address = self._address
            self._address += block_size + 1  # segments are never merged
            self.reserved += block_size
        remaining = block_size - size
        if remaining >= BLOCK_BYTES if is_small else remaining > MAX_SMALL_BYTES:
            self._add_free(address + size, remaining, is_small)
            block_size = size
        self._used[address] = block_size, is_small
        self.allocated += block_size
        self.max_allocated = max(self.max_allocated, self.allocated)
        return address

    def free(self, address: int) -> None:
        """Free the block at ``address``."""
        size, is_small = self._used.pop(address)
        self.allocated -= size
        if address + size in self._size_at:
            size += self._remove_free(address + size, is_small)
        if address in self._address_before:
            end = address + size
            address = self._address_before[address]
            self._remove_free(address, is_small)
            size = end - address
        self._add_free(address, size, is_small)

    def _add_free(self, address: int, size: int, is_small: bool) -> None:
        insort(self._free[is_small], (size, address))
        self._size_at[address] = size
        self._address_before[address + size] = address

    def _remove_free(self, address: int, is_small: bool) -> int:
        size = self._size_at.pop(address)
        del self._address_before[address + size]
        self._free[is_small].remove((size, address))
        return size


class AllocationRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context that reports the memory of the tensors of a device.

    Args:
        allocate: called with the bytes of a new storage; its result identifies the storage.
        free: called with that result when the storage is freed.
        device: device of the tensors.
    """

    def __init__(self, allocate: Callable[[int], Any], free: Callable[[Any], None],
                 device: torch.device = META) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = device
        self._allocate = allocate
        self._free = free
        self._storages: dict[int, Any] = {}  # references by identity

    def __torch_dispatch__(self, operation: Any, types: object, arguments: Any = (),
                           keywords: Any = None) -> Any:
        """Run an operation and record its results."""
        results = operation(*arguments, **(keywords or {}))
        self.record(results)
        return results

    def record(self, tensors: object) -> None:
        """Record the storages of ``tensors`` that are new."""
        for tensor in tree_leaves(tensors):
            if isinstance(tensor, Tensor) and tensor.device == self.device:
                storage = tensor.untyped_storage()
                identity = storage._cdata
                if identity not in self._storages:
                    block = self._allocate(storage.nbytes())
                    forget = functools.partial(self._forget, identity, block)
                    self._storages[identity] = weakref.ref(storage, forget)

    def _forget(self, identity: int, block: Any, reference: object) -> None:
        del self._storages[identity]
        self._free(block)


class GpuOperations(TorchFunctionMode):
    """Context in which operations on ``meta`` keep the tensors that they keep on a GPU."""

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (),
                           keywords: Any = None) -> Any:
        """Run a function, or the operation of its GPU implementation."""
        keywords = keywords or {}
        if function is Tensor.__bool__:
            return True  # optimizers check that values are finite or positive
        if function is Tensor.nonzero:  # at most all positions
            condition = arguments[0]
            return torch.empty((condition.numel(), condition.dim()), dtype=torch.int64, device=META)
        if function is functional.dropout:
            rates = {"p": keywords["p"], "train": keywords["training"]}
            return torch.ops.aten.native_dropout(*arguments, **rates)[0]
        if function is functional.scaled_dot_product_attention:
            query, key, value = arguments
            bias = keywords["attn_mask"]
            # The fused kernel reads rows in units of 16 bytes; PyTorch uses products for others.
            if not (query.shape[-1] % 4 or value.shape[-1] % 4):
                if bias is not None:
                    bias = bias.expand(*query.shape[:3], key.shape[2])
                return torch.ops.aten._scaled_dot_product_efficient_attention(
                    query, key, value, bias, True, keywords["dropout_p"])[0]
        return function(*arguments, **keywords)


class _MetaHardware(Hardware):
    """Hardware of tensors without values."""

    def autocast(self) -> AbstractContextManager[Any]:
        return nullcontext()


class _MetaEngine(CapturedEngine):
    """Engine whose updates allocate what they allocate on a GPU."""

    def _apply_gradients(self, lr: Any) -> None:
        for optimizer in self.optimizers:
            if isinstance(optimizer, MatrixOptimizer):
                optimizer.step()
                optimizer.update_bases()
                continue
            for weight in (weight for group in optimizer.param_groups
                           for weight in group["params"] if not optimizer.state[weight]):
                # as the fused kernel, which PyTorch does not run on ``meta``
                optimizer.state[weight] = {
                    "step": torch.zeros((), device=META), "exp_avg": torch.zeros_like(weight),
                    "exp_avg_sq": torch.zeros_like(weight)}


def predict_job_bytes(folder: Path, job: Mapping[str, Any]) -> int:
    """Return the bytes on a GPU that are set aside for the training run in ``folder``.

    They are the predicted bytes times ``SAFETY_FACTOR``, and ``PROCESS_BYTES``.

    Args:
        job: the content of its ``job.json``.

    Raises:
        UserError: the architecture, the data or the recipe is invalid.
    """
    architecture = read_space(folder / ARCHITECTURE_FILE).single_architecture()
    data = DataSpec.from_mapping(job["data"]).with_vocab(*architecture.vocab_sizes)
    corpus = _load_corpus(data, Path(job["cache"]))
    recipe = Recipe.from_mapping(job["recipe"])
    predicted = predict_training_bytes(architecture.block, corpus, recipe)
    return PROCESS_BYTES + math.ceil(SAFETY_FACTOR * predicted)


_load_corpus = functools.lru_cache(maxsize=8)(load_corpus)


def predict_training_bytes(block: Block, corpus: Corpus, recipe: Recipe) -> int:
    """Predict the bytes that PyTorch reserves for the updates of a training run.

    The first update of a shape is eager, while the graphs of other shapes keep their memory.
    """
    split = corpus.train
    buckets = choose_buckets(corpus, recipe)
    shapes = buckets.shapes(split)
    width = shapes[-1][1]
    n_rows = -(-max(math.prod(shape) for shape in shapes) // width)
    n_soft_targets = 0 if split.soft_targets is None else split.soft_targets.records["ids"].shape[1]
    memory = simulate_updates(block, corpus.tokenizer.vocab_size, recipe,
                              make_full_batch(n_rows, width, n_soft_targets,
                                              buckets.source_width))
    text = resident_bytes(split)
    if len(shapes) > 1:
        return text + memory.eager.reserved + memory.captured.reserved
    return text + max(memory.eager.reserved, memory.persistent + memory.captured.reserved)


def make_full_batch(n_rows: int, width: int, n_soft_targets: int = 0,
                    source_width: int | None = None) -> Batch:
    """Return a batch without padding, with ``n_soft_targets`` probabilities per token if not 0."""
    ids = np.full((n_rows, width), EOS)
    soft_targets = None
    if n_soft_targets:
        shape = (n_rows, width, n_soft_targets)
        soft_targets = SoftTargetBatch(np.zeros(shape, np.int64), np.zeros(shape, np.float32))
    return Batch(ids[:, :source_width], ids, ids, np.arange(n_rows), soft_targets)


@dataclass(frozen=True)
class UpdateMemory:
    """Memory of updates.

    Attributes:
        eager: of eager updates.
        captured: of the graph of an update.
        persistent: bytes that are kept between eager updates, gradients included.
    """

    eager: CachingAllocator
    captured: CachingAllocator
    persistent: int


def simulate_updates(block: Block, vocab: int, recipe: Recipe, batch: Batch) -> UpdateMemory:
    """Run two updates on tensors without values."""
    eager = CachingAllocator()
    captured = CachingAllocator()
    pools = [eager]

    def allocate(size: int) -> list[tuple[CachingAllocator, int]]:
        return [(pool, pool.allocate(size)) for pool in pools]

    def free(blocks: Iterable[tuple[CachingAllocator, int]]) -> None:
        for pool, address in blocks:
            pool.free(address)

    rates = DropoutRates(recipe.dropout, recipe.attention_dropout, recipe.activation_dropout)
    model = build_model(block, vocab=vocab, device=META, dropout=rates).train()
    hardware = _MetaHardware(META, uses_bf16=False, is_compiled=False, has_fixed_shapes=True)
    with AllocationRecorder(allocate, free) as recorder, GpuOperations():
        recorder.record([*model.parameters(), *model.buffers()])
        engine = _MetaEngine(model, recipe, hardware)
        average = ExponentialMovingAverage(model, 1) if recipe.average == "ema" else None
        batches = [batch] * recipe.accumulate
        engine.update(batches, 0.0)
        persistent = eager.allocated
        pools.append(captured)
        engine.update(batches, 0.0)
        del average
    return UpdateMemory(eager, captured, persistent)
