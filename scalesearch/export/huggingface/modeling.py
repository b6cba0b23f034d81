"""Template of the wrapper of an exported architecture for transformers 5.

:mod:`scalesearch.export.huggingface.bundle` reads this file as text, inserts the architecture and
prepends the blocks. It is never imported here, because it requires transformers.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.nn.functional import cross_entropy, pad
from transformers.modeling_outputs import (
    BaseModelOutput,
    CausalLMOutputWithPast,
    Seq2SeqLMOutput,
)
from transformers.utils.generic import can_return_tuple

from scalesearch.blocks.core import BOS, EOS, PAD
from scalesearch.blocks.seq2seq import mask_bias
from scalesearch.lowering import EXTRA_LENGTH, LENGTH_FACTOR
from scalesearch.nn.build import build_model
from scalesearch.nn.decode import default_max_lengths, length_limits
from scalesearch.nn.model import DecodingCache, EncoderMemory
from scalesearch.nn.module import DropoutRates

ARCHITECTURE: Any = None  # replaced by the bundle
# Argument and output that hold the cache; transformers 5.24 renamed ``past_key_values``.
CACHE_NAME = "cache" if "cache" in Seq2SeqLMOutput.__annotations__ else "past_key_values"
# Arguments that change nothing: positions follow from the cache and, in a decoder-only model, from
# the mask; padding of the target of an encoder-decoder model is at its end.
UNUSED_ARGUMENTS = frozenset({"cache_position", "decoder_attention_mask", "decoder_position_ids"})


class ScalesearchConfig(transformers.PreTrainedConfig):
    """Vocabulary size, dropout rates, initialization and length limit of a model."""

    model_type = "scalesearch"

    vocab_size: int = 0
    hidden_size: int = 0
    dropout: float = 0.0  # on outputs of sub-layers and on embeddings
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    init: str = "xavier"  # initialization of weights that are not loaded
    verified_transformers: str = ""  # version of transformers with which outputs were compared
    max_length_a: float = LENGTH_FACTOR  # length limit of translations, per source token
    max_length_b: int = EXTRA_LENGTH
    seed: int = 1
    is_encoder_decoder: bool = True
    pad_token_id: int = PAD
    bos_token_id: int = BOS
    eos_token_id: int = EOS
    decoder_start_token_id: int = BOS
    use_cache: bool = True
    tie_word_embeddings: bool = False  # the architecture defines tying


@dataclass
class EncoderOutput(BaseModelOutput):
    """States (batch, S, d), and the attention bias of padding (batch, 1, 1, S)."""

    bias: Tensor | None = None


class EncoderWrapper:
    """The encoder as ``generate`` calls it.

    It is not a module, so that each weight has one name.
    """

    main_input_name = "input_ids"

    def __init__(self, model: Any) -> None:
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None,
                **_: Any) -> EncoderOutput:
        """Encode ``input_ids`` (batch, S), padded at the end, to states (batch, S, d)."""
        ids = input_ids if attention_mask is None else input_ids.masked_fill(
            attention_mask == 0, PAD)
        memory = self.model.encode(ids)
        return EncoderOutput(last_hidden_state=memory.states, bias=memory.bias)

    def __call__(self, *args: Any, **kwargs: Any) -> EncoderOutput:
        return self.forward(*args, **kwargs)


class TransformersCache(DecodingCache, transformers.Cache):
    """Keys, values and other state of earlier positions."""

    def __init__(self) -> None:
        transformers.Cache.__init__(self, layers=[])
        DecodingCache.__init__(self)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of cached target positions."""
        return self.length

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Select the rows ``beam_idx``; each replaces a row with the same source."""
        self.select(beam_idx, same_sources=True)


class LengthLimitProcessor(transformers.LogitsProcessor):
    """Forces EOS when a translation reaches the limit for its source."""

    def __init__(self, limits: Tensor) -> None:
        self.max_lengths = limits  # (batch,)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Mask ``scores`` (batch * beams, V); the beams of a sentence are adjacent."""
        limits = self.max_lengths.repeat_interleave(
            len(scores) // len(self.max_lengths)).to(scores.device)
        others = torch.arange(scores.shape[1], device=scores.device) != EOS
        return scores.masked_fill((input_ids.shape[1] - 1 >= limits)[:, None] & others, -torch.inf)


class ScalesearchModel(transformers.PreTrainedModel, transformers.GenerationMixin):
    """Base class of both types of models."""

    config_class = ScalesearchConfig
    main_input_name = "input_ids"
    base_model_prefix = ""
    accepts_loss_kwargs = True  # ``Trainer`` passes num_items_in_batch
    _is_stateful = True  # no assisted generation: the state of a convolution cannot be cropped
    # A tied weight is registered once, by its owner.
    _tied_weights_keys: dict[str, str] = {}

    def __init__(self, config: ScalesearchConfig) -> None:
        super().__init__(config)
        if config.verified_transformers not in ("", transformers.__version__):
            warnings.warn(f"the model was verified with transformers "
                          f"{config.verified_transformers}, but {transformers.__version__} is "
                          "installed, with which outputs may "
                          "differ", stacklevel=2)
        rates = DropoutRates(config.dropout, config.attention_dropout, config.activation_dropout)
        self.model = build_model(ARCHITECTURE, vocab=config.vocab_size, init=config.init,
                                 seed=config.seed, dropout=rates, device=torch.get_default_device(),
                                 dtype=torch.get_default_dtype())
        self.post_init()

    def _init_weights(self, module: Any) -> None:
        """Do nothing: ``build_model`` has initialized every weight."""

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # forward creates its own cache

    def _select_cache(self, arguments: dict[str, Any], use_cache: bool | None,
                      is_training: bool) -> Any:
        """Return the given cache, a new one, or None; check the other arguments.

        The cache is the argument ``past_key_values`` before transformers 5.24, ``cache`` after.

        Raises:
            TypeError: an unknown argument holds tensors or other state.
        """
        cache = arguments.pop(CACHE_NAME, None)
        for name, value in arguments.items():
            has_no_state = value is None or isinstance(value, (bool, int, str))
            if not has_no_state and name not in UNUSED_ARGUMENTS:
                raise TypeError(f"{type(self).__name__} does not know the argument {name!r}; it "
                                f"was not written for transformers {transformers.__version__}. "
                                "Export the model again, or install the version in artifact.json")
        if cache is None and (self.config.use_cache and not is_training
                              if use_cache is None else use_cache):
            cache = TransformersCache()
        return cache

    def _loss(self, logits: Tensor, labels: Tensor,
              num_items_in_batch: Tensor | int | None) -> Tensor:
        """Compute the loss of ``labels`` (batch, T), or their sum by ``num_items_in_batch``.

        Raises:
            ValueError: labels are padded with 0 although ``num_items_in_batch`` counts them.
        """
        padding = labels == PAD
        scored = labels.masked_fill(padding, -100).flatten()
        if num_items_in_batch is None:
            return cross_entropy(logits.flatten(0, 1).float(), scored)
        if padding.any():
            raise ValueError("labels are padded with 0, which Trainer counts as labels: pad "
                             "with -100, as the data collators of transformers do")
        return cross_entropy(logits.flatten(0, 1).float(), scored,
                             reduction="sum") / num_items_in_batch


class ScalesearchForCausalLM(ScalesearchModel):
    """A decoder-only model. A text starts with EOS and BOS, or has them between its two parts."""

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        num_items_in_batch: Tensor | int | None = None,
        **arguments: Any,
    ) -> CausalLMOutputWithPast:
        """Compute logits (batch, T, V), and the loss if ``labels`` are given.

        Args:
            input_ids: (batch, T); with a cache, only the new ones.
            attention_mask: (batch, cached positions + T), 0 at padding, on either side; default:
                no padding.
            labels: (batch, T), ``input_ids`` or a copy of them; those before -100 and padding are
                ignored in the loss, which predicts label i + 1 after token i.
            logits_to_keep: number of last positions with logits; 0 for all.
            num_items_in_batch: as in ScalesearchForSeq2SeqLM.

        Raises:
            ValueError: ``attention_mask`` has another shape.
        """
        cache = self._select_cache(arguments, use_cache, labels is not None)
        n_positions = input_ids.shape[1] + (0 if cache is None else cache.length)
        if attention_mask is None:
            attention_mask = input_ids.new_ones(len(input_ids), n_positions)
        if attention_mask.shape != (len(input_ids), n_positions):
            raise ValueError(f"attention_mask: expected the shape "
                             f"{(len(input_ids), n_positions)}, with a column per cached and new "
                             f"position, found {tuple(attention_mask.shape)}")
        memory = EncoderMemory(input_ids[:, :0], attention_mask == 0)
        states = self.model.decode(input_ids, memory, cache)
        logits = self.model.logits(states[:, -logits_to_keep:])
        loss = None
        if labels is not None:
            loss = self._loss(logits[:, :-1], labels[:, 1:], num_items_in_batch)
        return CausalLMOutputWithPast(loss=loss, logits=logits, **{CACHE_NAME: cache})

    @torch.no_grad()
    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Generate as every causal language model of transformers does."""
        with self.model.cached_weights():
            return super().generate(*args, **kwargs)


class ScalesearchForSeq2SeqLM(ScalesearchModel):
    """An encoder-decoder model. The source ends with EOS; the target starts with BOS."""

    def get_encoder(self, modality: str | None = None) -> EncoderWrapper:
        """Return the encoder."""
        return EncoderWrapper(self.model)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        encoder_outputs: Any = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **arguments: Any,
    ) -> Seq2SeqLMOutput:
        """Compute logits (batch, T, V), and the loss if ``labels`` are given.

        Args:
            input_ids: (batch, S), padded at the end; not needed with ``encoder_outputs``.
            attention_mask: (batch, S), 0 at padding; default: padding is recognized by its id.
            decoder_input_ids: (batch, T), starting with BOS; with a cache, only the new ones.
                Default: the shifted ``labels``.
            labels: (batch, T), with EOS at the end; -100 and padding are ignored in the loss.
            num_items_in_batch: number of labels in all accumulated batches, by which the sum of
                losses is divided. Default: the loss is the mean over the labels.
        """
        cache = self._select_cache(arguments, use_cache, labels is not None)
        if encoder_outputs is None:
            encoder_outputs = self.get_encoder()(input_ids, attention_mask)
        if decoder_input_ids is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        memory = EncoderMemory(encoder_outputs[0], self._bias(encoder_outputs, attention_mask))
        logits = self.model.logits(self.model.decode(decoder_input_ids, memory, cache))
        loss = None if labels is None else self._loss(logits, labels, num_items_in_batch)
        return Seq2SeqLMOutput(loss=loss, logits=logits, encoder_last_hidden_state=memory.states,
                               **{CACHE_NAME: cache})

    def _bias(self, encoder_outputs: Any, attention_mask: Tensor | None) -> Tensor:
        """Return the bias of the encoder outputs, or compute it from the mask."""
        bias = getattr(encoder_outputs, "bias", None)
        if bias is None:
            states = encoder_outputs[0]
            present = states.new_ones(
                states.shape[:2]) if attention_mask is None else attention_mask
            bias = mask_bias(present[:, None, None, :] == 0, states.dtype)
        return bias

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Shift the labels to the right, starting with BOS."""
        return pad(labels.masked_fill(labels == -100, PAD), (1, -1), value=BOS)

    @torch.no_grad()
    def generate(
        self,
        inputs: Tensor | None = None,
        generation_config: Any = None,
        logits_processor: Any = None,
        token_limits: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Generate with the length limits that the model was scored with.

        Args:
            token_limits: (batch,), largest number of tokens per translation without EOS. Default:
                ``max_length_a`` · source + ``max_length_b`` of the configuration, unless
                ``max_length``, ``max_new_tokens`` or ``generation_config`` is given.
        """
        source = kwargs.get("input_ids") if inputs is None else inputs
        has_own_limit = generation_config is not None or not {
            "max_length", "max_new_tokens"}.isdisjoint(kwargs)
        if token_limits is None and source is not None and not has_own_limit:
            mask = kwargs.get("attention_mask")
            source = source if mask is None else source.masked_fill(mask == 0, PAD)
            token_limits = length_limits(self.model, source, default_max_lengths(
                source, self.config.max_length_a, self.config.max_length_b))
        if token_limits is not None:
            logits_processor = [LengthLimitProcessor(token_limits), *(logits_processor or [])]
            kwargs["max_length"] = int(token_limits.max()) + 2  # with BOS and EOS
        with self.model.cached_weights():
            processors = transformers.LogitsProcessorList(logits_processor or [])
            return super().generate(inputs, generation_config, processors, **kwargs)
