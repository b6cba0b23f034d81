"""Embeddings of tokens and positions, and output layers that can be tied to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from scalesearch.blocks.core import (
    SRC,
    TEXT,
    TGT,
    VOCAB,
    Axes,
    Block,
    Extent,
    LoopNest,
    Size,
    Use,
    block,
)
from scalesearch.blocks.elementwise import dropout, soft_cap
from scalesearch.blocks.leaves import (
    Convolution,
    Embedding,
    Linear,
    PositionTable,
    StateCache,
    TransposedLinear,
    UnsavedLinear,
)
from scalesearch.blocks.norms import NORM_CLASSES
from scalesearch.blocks.sizes import maximum

if TYPE_CHECKING:
    from torch import Tensor

# Divisors of exponents of the wavelengths for d features. In tensor2tensor and fairseq, the last
# wavelength is 10000 · 2π. Those of Marian are 10000^(2 i / d) · 2π (Vaswani et al. 2017).
SINUSOID_DIVISORS: dict[str, Callable[[int], float]] = {
    "sinusoidal": lambda d: max((d + 1) // 2 - 1, 1), "sinusoidal-marian": lambda d: d / 2}
POSITION_TYPES = (*SINUSOID_DIVISORS, "learned", "none")
SOFTPOS_KERNEL = 3  # kernel width of the convolutions of H-SoftPOS


@block
class TokenEmbedding(Block):
    """√d · table[token] + position, then a norm if it has one, then dropout.

    See Vaswani et al. 2017, sections 3.4 and 3.5. Token ids and positions, both (batch,
    length), to (batch, length, d).

    Attributes:
        d: features.
        over: axes.
        table: block that looks up tokens.
        positions: one of ``POSITION_TYPES``.
        max_length: number of learned positions.
        tied_table: path of the table whose weights ``table`` uses; None if it has its own.
        scaled: whether to multiply by √d.
        norm_type: type of a norm of the sum; empty for no norm.
    """

    d: Size
    over: Axes
    table: Block
    positions: str = "sinusoidal"
    max_length: Size = 1024
    tied_table: str | None = None
    scaled: bool = field(default=True, metadata={"plain": True})
    norm_type: str = field(default="", metadata={"plain": ""})

    def parts(self) -> Mapping[str, Block | Use]:
        parts: dict[str, Block | Use] = {"table": Use(self.table, tied=self.tied_table)}
        if self.positions == "learned":
            parts["position"] = PositionTable(self.d, self.max_length)
        if self.norm_type:
            parts["norm"] = NORM_CLASSES[self.norm_type](self.d, self.over)
        return parts

    def forward(self, module: Any, tokens: Tensor, positions: Tensor, cache: Any = None,
                present: Tensor | None = None) -> Tensor:
        x = module.table(tokens) * self.d**0.5 if self.scaled else module.table(tokens)
        if self.positions == "learned":
            x = x + module.position(positions)
        elif self.positions in SINUSOID_DIVISORS:
            x = x + sinusoidal_positions(positions, self.d, x.dtype, self.positions)
        x = module.norm(x) if self.norm_type else x
        return dropout(x, module.dropout_rates.residual, module.training)


def sinusoidal_positions(positions: Tensor, d: int, dtype: Any,
                         position_type: str = "sinusoidal") -> Tensor:
    """Return sinusoidal positions, (…) to (…, d) (Vaswani et al. 2017, section 3.5).

    The first half of the features are sines, the second half cosines. ``position_type`` is a key of
    ``SINUSOID_DIVISORS``.
    """
    import torch

    frequencies = torch.exp(
        torch.arange((d + 1) // 2, device=positions.device)
        * (-9.210340371976184 / SINUSOID_DIVISORS[position_type](d)))  # -log(10000)
    angles = positions.unsqueeze(-1) * frequencies
    return torch.cat([angles.sin(), angles.cos()], -1)[..., :d].to(dtype)


@block
class FactorizedEmbedding(Block):
    """A table of ``rank`` features and a matrix to ``d`` features (Lan et al. 2020)."""

    d: Size
    rank: Size
    over: Axes
    table: Block

    def parts(self) -> Mapping[str, Block | Use]:
        return {"table": self.table, "up": Linear(self.rank, self.d, self.over, bias=False)}

    def forward(self, module: Any, tokens: Tensor) -> Tensor:
        return module.up(module.table(tokens))


@block
class FactorizedOutput(Block):
    """Output layer tied to the :class:`FactorizedEmbedding` at ``tied_table``.

    It can have a bias of its own.
    """

    d: Size
    rank: Size
    tied_table: str
    vocab: Extent = field(default=VOCAB, metadata={"plain": VOCAB})
    bias: bool = field(default=False, metadata={"plain": False})

    def parts(self) -> Mapping[str, Block | Use]:
        return {"down": Use(TransposedLinear(self.d, self.rank, (TGT,)),
                            tied=f"{self.tied_table}.up"),
                "table": Use(Linear(self.rank, self.vocab, (TGT,), self.bias),
                             tied=f"{self.tied_table}.table",
                             untied=("bias",) if self.bias else ())}

    def forward(self, module: Any, x: Tensor) -> Tensor:
        return module.table(module.down(x))

    def softmax_terms(self, m: Any, hidden: Tensor, target: Tensor) -> list[tuple[Any, ...]]:
        """Return the softmax terms; see :meth:`Linear.softmax_terms`."""
        return [(m.down(hidden), m.table.weight, m.table.bias if self.bias else None, target)]


@block
class TransformedOutput(Block):
    """Output layer after a linear map, GELU and a norm (BERT): (…, d) to (…, V)."""

    d: Size
    output: Use
    norm_type: str

    def parts(self) -> Mapping[str, Block | Use]:
        return {"transform": Linear(self.d, self.d, (TGT,)),
                "norm": NORM_CLASSES[self.norm_type](self.d, (TGT,)), "map": self.output}

    def part_roles(self) -> Mapping[str, str]:
        return {"map": "readout"}

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((TGT, self.d), "activation")]  # of the GELU

    def forward(self, module: Any, x: Tensor) -> Tensor:
        return module.map(self._transform(module, x))

    def softmax_terms(self, m: Any, hidden: Tensor, target: Tensor) -> list[tuple[Any, ...]]:
        """Return the softmax terms; see :meth:`Linear.softmax_terms`."""
        terms: list[tuple[Any, ...]] = m.map.block.softmax_terms(m.map, self._transform(m, hidden),
                                                                 target)
        return terms

    def _transform(self, m: Any, x: Tensor) -> Tensor:
        from torch.nn.functional import gelu

        return m.norm(gelu(m.transform(x)))


@block
class Classifier(Block):
    """Output layer for classes of texts (BERT): a linear map, tanh, and a linear map.

    It reads the state of the first token, (…, d) to (…, classes). Label i is row i - 1: label 0 is
    padding.
    """

    d: Size
    classes: Size

    def parts(self) -> Mapping[str, Block | Use]:
        return {"transform": Linear(self.d, self.d, (TEXT,)),
                "map": Linear(self.d, self.classes, (TEXT,))}

    def part_roles(self) -> Mapping[str, str]:
        return {"map": "readout"}

    def forward(self, module: Any, x: Tensor) -> Tensor:
        return module.map(self._transform(module, x))

    def softmax_terms(self, m: Any, hidden: Tensor, target: Tensor) -> list[tuple[Any, ...]]:
        """Return the softmax terms; see :meth:`Linear.softmax_terms`."""
        rows = (target - 1).clamp(min=0)  # padding has no weight in the loss
        return [(self._transform(m, hidden), m.map.weight, m.map.bias, rows)]

    def _transform(self, m: Any, x: Tensor) -> Tensor:
        return dropout(m.transform(x).tanh(), m.dropout_rates.residual, m.training)


@block
class SoftCappedOutput(Block):
    """Output layer with logits limited by tanh (Gemma 2): (…, d) to (…, V).

    Attributes:
        output: the output layer, a single softmax over the vocabulary.
        limit: logits x become limit · tanh(x / limit).
        vocab: size of the vocabulary.
    """

    output: Use
    limit: float
    vocab: Extent = field(default=VOCAB, metadata={"plain": VOCAB})

    def parts(self) -> Mapping[str, Block | Use]:
        return {"map": self.output}

    def part_roles(self) -> Mapping[str, str]:
        return {"map": "readout"}

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((TGT, self.vocab), "activation")]  # of the tanh

    def forward(self, module: Any, x: Tensor) -> Tensor:
        return soft_cap(module.map(x), self.limit)

    def softmax_terms(self, m: Any, hidden: Tensor, target: Tensor) -> list[tuple[Any, ...]]:
        """Return the terms before the limit; see :meth:`Linear.softmax_terms`."""
        return m.map.block.softmax_terms(m.map, hidden, target)


@block
class FrequencyBands(Block):
    """Base class of adaptive input and adaptive softmax.

    See Baevski & Auli 2019 and Grave et al. 2017. Token ids are sorted by frequency. Bands of
    less frequent tokens have fewer features: ``d``, ``d`` / ``factor``, ``d`` / ``factor``² ….
    The language models of PartialFormer have bands that end at 20,000 and 60,000, with a factor
    of 4 (Table 20).

    Attributes:
        d: features of the model.
        cutoffs: first token of each band after the first.
        factor: ratio of the features of consecutive bands.
        vocab: size of the vocabulary.
    """

    d: Size
    cutoffs: tuple[int, ...]
    factor: int
    vocab: Extent = VOCAB

    def bind_vocabulary(self, vocab: Size) -> Block:
        return replace(self, vocab=vocab) if isinstance(self.vocab, str) else self

    def bands(self) -> list[tuple[int, int, int]]:
        """Return first token, end (exclusive) and features of every band."""
        assert isinstance(self.vocab, int), "bind the vocabulary first"
        edges = [0, *(cut for cut in self.cutoffs if cut < self.vocab), self.vocab]
        return [(a, b, maximum(1, self.d // self.factor**i))
                for i, (a, b) in enumerate(pairwise(edges))]


@block
class AdaptiveEmbedding(FrequencyBands):
    """Adaptive input: token ids (…) to (…, d).

    Every band looks up every token, so that shapes do not depend on the data.
    """

    over: Axes = ()

    def parts(self) -> Mapping[str, Block | Use]:
        parts: dict[str, Block | Use] = {}
        for i, (first, end, width) in enumerate(self.bands()):
            parts[f"table{i}"] = Embedding(width, self.over, end - first)
            parts[f"up{i}"] = UnsavedLinear(width, self.d, self.over, bias=False)
        return parts

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((*self.over, self.d), "activation")]

    def forward(self, module: Any, tokens: Tensor) -> Tensor:
        import torch

        looked_up: Any = None
        for i, (first, end, _) in enumerate(self.bands()):
            rows = getattr(module, f"up{i}")(
                getattr(module, f"table{i}")((tokens - first).clamp(0, end - first - 1)))
            inside = (tokens >= first)[..., None]
            looked_up = rows if looked_up is None else torch.where(inside, rows, looked_up)
        return looked_up


@block
class AdaptiveOutput(FrequencyBands):
    """Adaptive softmax: (…, d) to log-probabilities (…, V).

    The head predicts a token of the first band or another band; each other band has a softmax over
    its tokens. ``tied_table`` is the path of the :class:`AdaptiveEmbedding` whose matrices it uses;
    None if it has its own.
    """

    tied_table: str | None = None

    def parts(self) -> Mapping[str, Block | Use]:
        parts: dict[str, Block | Use] = {}
        bands = self.bands()
        for i, (first, end, width) in enumerate(bands):
            ties = [None, None] if self.tied_table is None else [
                f"{self.tied_table}.{name}{i}" for name in ("up", "table")]
            parts[f"down{i}"] = Use(TransposedLinear(self.d, width, (TGT,)), tied=ties[0])
            parts[f"table{i}"] = Use(Linear(width, end - first, (TGT,), bias=False), tied=ties[1])
        return parts | ({"clusters": Linear(self.d, len(bands) - 1, (TGT,), bias=False)}
                        if len(bands) > 1 else {})

    def loop_nests(self) -> Sequence[LoopNest]:
        # The log-probabilities of all bands are stored in addition to those of each band.
        return [LoopNest((TGT, self.vocab), "activation")] if len(self.bands()) > 1 else []

    def forward(self, module: Any, x: Tensor) -> Tensor:
        import torch

        bands = self.bands()
        scores = [getattr(module, f"table{i}")(getattr(module, f"down{i}")(x))
                  for i in range(len(bands))]
        if len(bands) == 1:
            return scores[0]
        head = torch.cat([scores[0], module.clusters(x)], -1).log_softmax(-1)
        first = scores[0].shape[-1]
        tails = [head[..., first + i, None] + tail.log_softmax(-1)
                 for i, tail in enumerate(scores[1:])]
        return torch.cat([head[..., :first], *tails], -1)

    def softmax_terms(self, m: Any, hidden: Tensor, target: Tensor) -> list[tuple[Any, ...]]:
        """Return the terms of the head for all tokens, and of each band for its tokens.

        See :meth:`Linear.softmax_terms`.
        """
        import torch

        bands = self.bands()
        size = bands[0][1]
        # The matrices of the first band are multiplied and concatenated with the vectors of the
        # other bands, for one softmax over both.
        weight = m.table0.weight @ m.down0.weight.t()
        head = target
        tails = []
        for i, (first, end, _) in enumerate(bands[1:]):
            inside = (target >= first) & (target < end)
            head = torch.where(inside, size + i, head)
            rows = inside.nonzero()[:, 0]  # the host waits for a GPU here, once per band
            states = getattr(m, f"down{i + 1}")(hidden.index_select(0, rows))
            tails.append((states, getattr(m, f"table{i + 1}").weight, None,
                          target.index_select(0, rows) - first))
        weight = torch.cat([weight, m.clusters.weight]) if len(bands) > 1 else weight
        return [(hidden, weight, None, head), *(term for term in tails if len(term[3]))]


@block
class SoftPOS(Block):
    """H-SoftPOS: embeddings with soft roles at several scales (Anthe, section 2).

    The inputs are those of :class:`TokenEmbedding`. The output is the concatenation
    [X₁, S₁, X₂, S₂, …] for ``levels`` levels, with d features in total:

    - X₁: a table with d - (2 · levels - 1) · width features, plus sinusoidal positions;
    - X_{m+1}: a causal convolution of X_m with ``width`` features (kernel 3, dilation 2^(m-1));
    - S_m = softmax(first ``roles`` features of X_m) W_m.

    Padding is replaced with zeros before the convolutions, so that tokens after it do not depend on
    it. Learned positions are added to the concatenation.
    """

    d: Size
    over: Axes
    table: Block
    levels: int
    width: Size
    roles: Size
    positions: str = "sinusoidal"
    max_length: Size = 1024

    @staticmethod
    def table_width(d: Size, levels: int, width: Size) -> Size:
        """Return the number of features of the table."""
        return d - (2 * levels - 1) * width

    def parts(self) -> Mapping[str, Block | Use]:
        parts: dict[str, Block | Use] = {"table": self.table}
        for level in range(self.levels):
            parts[f"role{level}"] = Linear(self.roles, self.width, self.over, bias=False)
        for level in range(self.levels - 1):
            d_in = self.width if level else self.table_width(self.d, self.levels, self.width)
            convolution = Convolution(d_in, self.width, SOFTPOS_KERNEL, self.over, 2**level)
            parts[f"next{level}"] = convolution
            if SRC not in self.over:  # an encoder has no decoding steps and needs no cache
                parts[f"store{level}"] = StateCache(convolution.receptive_past * convolution.d_in)
        return parts | ({"position": PositionTable(self.d, self.max_length)}
                        if self.positions == "learned" else {})

    def part_roles(self) -> Mapping[str, str]:
        return {f"role{level}": "soft_role" for level in range(self.levels)}

    def loop_nests(self) -> Sequence[LoopNest]:
        return [LoopNest((*self.over, self.levels * self.roles), "activation")]  # of the softmax

    def forward(self, module: Any, tokens: Tensor, positions: Tensor, cache: Any = None,
                present: Tensor | None = None) -> Tensor:
        import torch

        table = module.table(tokens)
        x = table * table.shape[-1] ** 0.5
        if self.positions in SINUSOID_DIVISORS:
            x = x + sinusoidal_positions(positions, x.shape[-1], x.dtype, self.positions)
        features = []
        for level in range(self.levels):
            features += [x, getattr(module, f"role{level}")(x[..., : self.roles].softmax(-1))]
            if level < self.levels - 1:
                tokens_only = x if present is None else x * present[..., None]
                x = getattr(module, f"next{level}")(tokens_only, cache)
        output = torch.cat(features, -1)
        if self.positions == "learned":
            output = output + module.position(positions)
        return dropout(output, module.dropout_rates.residual, module.training)
