"""Failures of a training that are no faults of the program: no memory, no number."""

import torch

_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


class TrainingFailed(Exception):
    """This candidate cannot be trained; the message is the reason that its result gives."""


class Diverged(TrainingFailed):
    """The loss is no number any more."""


def out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that memory ran out, on a GPU or on the host."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _NO_MEMORY)
