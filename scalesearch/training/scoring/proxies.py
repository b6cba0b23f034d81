"""Zero-cost proxies: scores of a model at its initial weights.

Proxies are recorded, but do not affect a study; its report shows whether a proxy ranks the
candidates. All are computed on a copy of the model without dropout, so training is the same to the
last bit.
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

from scalesearch.blocks.core import FIRST_WORD
from scalesearch.data import PAD, Batch, Corpus
from scalesearch.data.batching import make_batch
from scalesearch.nn.model import Seq2SeqModel
from scalesearch.training.hardware import is_out_of_memory

MAX_SENTENCES = 16  # pairs of the small batch
MAX_TOKENS = 512  # tokens of its longer side, with padding
SYNFLOW_LENGTH = 8
PROXY_NAMES = ("synflow", "snip", "grad_norm")


def compute_proxies(model: Seq2SeqModel, corpus: Corpus,
                    device: torch.device | None = None) -> dict[str, float]:
    """Compute the proxies of ``PROXY_NAMES`` that are finite.

    - ``synflow``: log10 of SynFlow (Tanaka et al. 2020; as a proxy, Abdelfattah et al. 2021). It
      needs no data.
    - ``snip``: sum of abs(weight · gradient) (Lee et al. 2019), for a small batch of
      ``corpus.train``.
    - ``grad_norm``: sum over weight tensors of the gradient norm (Abdelfattah et al. 2021), for
      the same batch.

    Model, gradients and random number generators do not change.
    """
    target_device = device or torch.device("cpu")
    scores: dict[str, float] = {}
    functions: tuple[Callable[[], dict[str, float]], ...] = (
        lambda: {"synflow": synflow(_copy(model, target_device))},
        lambda: gradient_proxies(_copy(model, target_device), small_batch(corpus)),
    )
    for function in functions:
        try:
            scores |= function()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
    return {name: value for name, value in scores.items() if math.isfinite(value)}


def synflow(model: Seq2SeqModel) -> float:
    """Compute SynFlow: log10 of the sum of abs(weight · gradient of summed outputs).

    Changes ``model``: its weights become positive. Parts of a Transformer that are not linear are
    linearized: the denominators of layer normalization and the attention weights are constants, and
    position encodings are positive. Tanaka et al. remove batch normalization. Without layer
    normalization, gated layers would square their input layer after layer and overflow. Weights
    that only affect attention weights do not count. Source and target repeat one token, so no data
    are used.
    """
    linearized = model.double()
    with torch.no_grad():
        for weight in linearized.parameters():
            weight.abs_()
    tokens = torch.full((1, SYNFLOW_LENGTH), FIRST_WORD,
                        device=next(linearized.parameters()).device)
    with _LinearizedFunctions():
        linearized(tokens, tokens).sum().backward()
    total = sum(float((weight * grad).abs().sum()) for weight, grad in _with_gradients(linearized))
    return math.log10(total) if 0 < total < math.inf else math.nan


class _LinearizedFunctions(TorchFunctionMode):
    """Context that replaces functions that are not linear; see :func:`synflow`."""

    def __torch_function__(self, func: Any, types: object, args: Any = (),
                           kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.layer_norm:
            return _apply_norm_gain(*args, **kwargs)
        if func is F.rms_norm:
            return _apply_norm_gain(*args[:3])
        if func is F.scaled_dot_product_attention:
            return func(args[0].detach(), args[1].detach(), *args[2:], **kwargs)
        if func in (torch.softmax, Tensor.softmax, F.softmax):
            return func(*args, **kwargs).detach()
        if func in (torch.log_softmax, Tensor.log_softmax, F.log_softmax):
            return args[0]
        if func in (torch.sin, torch.cos, Tensor.sin, Tensor.cos):
            return func(*args, **kwargs).abs()
        return func(*args, **kwargs)


def _apply_norm_gain(x: Tensor, shape: Any, weight: Tensor | None = None,
                     bias: Tensor | None = None, eps: float = 0.0) -> Tensor:
    """Divide (…, d) by its detached root mean square; apply gain and bias."""
    scaled = x / (x.detach().square().mean(-1, keepdim=True) + eps).sqrt()
    scaled = scaled if weight is None else scaled * weight
    return scaled if bias is None else scaled + bias


def gradient_proxies(model: Seq2SeqModel, batch: Batch) -> dict[str, float]:
    """Compute SNIP and gradient norm on ``batch``; sets gradients of ``model``."""
    device = next(model.parameters()).device
    source, target, labels = (torch.from_numpy(np.asarray(ids)).to(device)
                              for ids in (batch.source, batch.target_in, batch.target_out))
    loss: Any = F.cross_entropy(model(source, target).flatten(0, 1),
                                labels.flatten() - model.first_label,
                                ignore_index=PAD - model.first_label)
    loss.backward()
    pairs = list(_with_gradients(model))
    return {"snip": sum(float((weight * grad).abs().sum()) for weight, grad in pairs),
            "grad_norm": sum(float(grad.norm()) for _, grad in pairs)}


def small_batch(corpus: Corpus) -> Batch:
    """Make a batch of pairs from all parts of the training text."""
    split = corpus.train
    batch = make_batch(split,
                       np.unique(np.linspace(0, len(split) - 1, MAX_SENTENCES).astype(np.int64)))
    longest = max(batch.source.shape[1], batch.target_in.shape[1])
    return make_batch(split, batch.indices[: max(1, MAX_TOKENS // longest)])


def _copy(model: Seq2SeqModel, device: torch.device) -> Any:
    """Copy a model, in eval mode and without gradients.

    Matrices of zeros (``zero_init``) have random weights in the copy: without them, the proxies
    would not depend on the branches that end with them.
    """
    duplicate = copy.deepcopy(model).cpu().eval()
    generator = torch.Generator().manual_seed(0)
    for weight in duplicate.parameters():
        if weight.ndim > 1 and not weight.any():
            torch.nn.init.xavier_uniform_(weight, generator=generator)
    duplicate.zero_grad(set_to_none=True)
    return duplicate.to(device)


def _with_gradients(model: Seq2SeqModel) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield weights and their gradients."""
    for weight in model.parameters():
        if weight.grad is not None:
            yield weight.detach(), weight.grad
