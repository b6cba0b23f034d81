"""Failures of a training, and how running out of memory is recognised."""

import torch

_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


class TrainingFailed(Exception):
    """Error: this candidate cannot be trained; the message is the reason in its result."""


class Diverged(TrainingFailed):
    """Error: the loss is not finite."""


def out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` means that memory ran out, on a GPU or on the host."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _NO_MEMORY)
