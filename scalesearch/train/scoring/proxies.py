"""Zero-cost proxies: scores of a model at its initial weights.

They are recorded, not acted on: whether any of them ranks the candidates of a study is what its
report tells. All are taken from a copy of the model without dropout, so that training is what it
would have been, to the bit.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from scalesearch.data import PAD, Batch, Corpus
from scalesearch.data.batching import make_batch
from scalesearch.train.hardware import is_out_of_memory

MAX_SENTENCES = 16
MAX_TOKENS = 512  # of the small real batch: pairs, and tokens of its wider side with padding
SYNFLOW_LENGTH = 8
# of the sentences that SynFlow runs on: the first id that is not special, so many times
SYNFLOW_TOKEN = 4
PROXY_NAMES = ("synflow", "snip", "grad_norm")


def compute_proxies(
        model: Any, corpus: Corpus, device: torch.device | None = None) -> dict[str, float]:
    """Scores of ``model`` by name: those of ``NAMES`` that are finite.

    ``synflow``: log10 of SynFlow (Tanaka et al. 2020, as a proxy Abdelfattah et al. 2021), which
    needs no data. ``snip``: the sum of abs(weight · gradient) (Lee et al. 2019). ``grad_norm``: the
    sum of the gradients' norms, a weight tensor at a time (Abdelfattah et al. 2021). The last two
    from one small batch of ``corpus.train``.

    Model, gradients and random number generators are left as they were.
    """
    where = device or torch.device("cpu")
    scores: dict[str, float] = {}
    makers: tuple[Callable[[], dict[str, float]], ...] = (
        lambda: {"synflow": synflow(_copy(model, where))},
        lambda: gradient_proxies(_copy(model, where), small_batch(corpus)),
    )
    for make in makers:
        try:
            scores |= make()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
    return {name: value for name, value in scores.items() if math.isfinite(value)}


def synflow(model: Any) -> float:
    """SynFlow: log10 of the sum of abs(weight · gradient of summed outputs), weights made positive.

    Changes ``model``. The network is made linear where a Transformer is not: what layer
    normalization divides by and attention's weights are constants, and positions are positive. Left
    out altogether, as Tanaka et al. leave out batch normalization, the former would let gated
    layers square their input layer after layer, beyond any number. What only decides where
    attention looks does not count. The source and the target are one token again and again, so no
    data come in.
    """
    subject = model.double()
    with torch.no_grad():
        for weight in subject.parameters():
            weight.abs_()
    tokens = torch.full((1, SYNFLOW_LENGTH), SYNFLOW_TOKEN,
                        device=next(subject.parameters()).device)
    with _LinearizedFunctions():
        subject(tokens, tokens).sum().backward()
    total = sum(float((weight * grad).abs().sum()) for weight, grad in _with_gradients(subject))
    return math.log10(total) if 0 < total < math.inf else math.nan


class _LinearizedFunctions(TorchFunctionMode):
    """Context that replaces functions that are not linear; see :func:`synflow`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func is F.layer_norm:
            return _apply_norm_gain(*args, **given)
        if func is F.rms_norm:
            return _apply_norm_gain(*args[:3])
        if func is F.scaled_dot_product_attention:
            return func(args[0].detach(), args[1].detach(), *args[2:], **given)
        if func in (torch.softmax, Tensor.softmax, F.softmax):
            return func(*args, **given).detach()
        if func in (torch.log_softmax, Tensor.log_softmax, F.log_softmax):
            return args[0]
        if func in (torch.sin, torch.cos, Tensor.sin, Tensor.cos):
            return func(*args, **given).abs()
        return func(*args, **given)


def _apply_norm_gain(x: Tensor, shape: Any, weight: Tensor | None = None,
                     bias: Tensor | None = None, eps: float = 0.0) -> Tensor:
    scaled = x / (x.detach().square().mean(-1, keepdim=True) + eps).sqrt()
    scaled = scaled if weight is None else scaled * weight
    return scaled if bias is None else scaled + bias


def gradient_proxies(model: Any, batch: Batch) -> dict[str, float]:
    """SNIP and gradient norm of the cross-entropy of ``batch``; leaves gradients in ``model``."""
    device = next(model.parameters()).device
    source, target, labels = (torch.from_numpy(np.asarray(part)).to(device)
                             for part in (batch.source, batch.target_in, batch.target_out))
    F.cross_entropy(model(source, target).flatten(0, 1), labels.flatten(),
                    ignore_index=PAD).backward()
    pairs = list(_with_gradients(model))
    return {"snip": sum(float((weight * grad).abs().sum()) for weight, grad in pairs),
            "grad_norm": sum(float(grad.norm()) for _, grad in pairs)}


def small_batch(corpus: Corpus) -> Batch:
    """Batch of a few pairs spread over the training text, the same for every candidate."""
    split = corpus.train
    batch = make_batch(split,
                       np.unique(np.linspace(0, len(split) - 1, MAX_SENTENCES).astype(np.int64)))
    longest = max(batch.source.shape[1], batch.target_in.shape[1])
    return make_batch(split, batch.indices[: max(1, MAX_TOKENS // longest)])


def _copy(model: Any, device: torch.device) -> Any:
    """Copies a model, in eval mode and without gradients."""
    subject = copy.deepcopy(model).to(device).eval()
    subject.zero_grad(set_to_none=True)
    return subject


def _with_gradients(model: Any) -> Iterator[tuple[Tensor, Tensor]]:
    for weight in model.parameters():
        if weight.grad is not None:
            yield weight.detach(), weight.grad
