"""CUDA graphs and compilation of functions that are called again and again."""

from collections.abc import Callable, Hashable
from functools import cache
from typing import Any

import torch

# variants of a function that are compiled: each has a shape of batches and a different layer
MAX_COMPILED_VARIANTS = 256


@cache
def compile_function(function: Callable[..., Any], dynamic: bool) -> Callable[..., Any]:
    """Return the compiled form of ``function``, one per process.

    PyTorch stores compiled code on disk, so another process does not generate it again.

    Args:
        dynamic: whether one variant serves all shapes.
    """
    import torch._dynamo

    # PyTorch runs later variants eagerly, after a warning; its default is 8.
    torch._dynamo.config.recompile_limit = MAX_COMPILED_VARIANTS
    torch._dynamo.config.accumulated_recompile_limit = 4 * MAX_COMPILED_VARIANTS
    return torch.compile(function, dynamic=dynamic)


def reset_compiled_functions() -> None:
    """Forget all compiled functions, so that the next shape is compiled as in a new process.

    PyTorch keeps the code on disk.
    """
    if compile_function.cache_info().currsize:
        compile_function.cache_clear()
        torch.compiler.reset()


@cache
def capture_stream(device: torch.device) -> Any:
    """Return the stream of all captures of this process.

    Each stream has its own workspace of cuBLAS, which is kept.
    """
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class GraphRunner:
    """Runs functions; on a GPU, as CUDA graphs from their second call on.

    A captured function must read and write tensors with fixed addresses and shapes, and may not
    wait for the device. Without a GPU all calls are eager.

    Attributes:
        is_active: whether functions are captured; False after a capture has failed.
        notes: list to which the reason of a failed capture is appended.
    """

    def __init__(self, device: torch.device, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes
        self.graphs: dict[Hashable, Any] = {}
        self.seen: set[Hashable] = set()
        self.memory_pool: Any = None
        self.stream = capture_stream(device) if device.type == "cuda" else None
        self.is_active = self.stream is not None

    def run(self, key: Hashable, function: Callable[..., None], *arguments: Any) -> None:
        """Call ``function``, which ``key`` identifies together with its tensors."""
        if not self.is_active:
            function(*arguments)
        elif key in self.graphs:
            self.graphs[key].replay()
        elif key in self.seen and (graph := self._capture(function, *arguments)) is not None:
            self.graphs[key] = graph
            graph.replay()
        else:
            self.seen.add(key)
            self._run_on_stream(function, *arguments)

    def clear(self) -> None:
        """Discard all graphs, for example because their tensors are replaced."""
        self.graphs.clear()
        self.seen.clear()
        self.memory_pool = None

    def _run_on_stream(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call ``function`` on the stream of the captures, which prepares the libraries."""
        current = torch.cuda.current_stream()
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            function(*arguments)
        current.wait_stream(self.stream)

    def _capture(self, function: Callable[..., None], *arguments: Any) -> Any:
        """Capture a call without running it; None if that is not possible."""
        try:
            return self._record(function, *arguments)
        except RuntimeError as error:  # also if memory runs out, or if an operation synchronizes
            reason = " ".join(str(error).split())[:200]
            self.notes.append(f"{self.name} are eager: a CUDA graph cannot be captured: {reason}")
            self.is_active = False
            return None

    def _record(self, function: Callable[..., None], *arguments: Any) -> Any:
        """Record a call as a CUDA graph."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # what the eager call used
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=self.memory_pool, capture_error_mode="thread_local")
            try:
                function(*arguments)
            finally:
                graph.capture_end()
        self.memory_pool = self.memory_pool or graph.pool()
        return graph
