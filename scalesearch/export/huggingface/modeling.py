"""Model, configuration and generation of an exported architecture, as transformers 5 wants them.

Read by :mod:`scalesearch.export.huggingface.bundle`, which puts the blocks in front of it and the
architecture in its place; nothing here imports it, since it needs transformers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.nn.functional import cross_entropy, pad
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.utils.generic import can_return_tuple

from scalesearch.blocks.core import PAD
from scalesearch.blocks.seq2seq import mask_bias
from scalesearch.nn.build import build_model
from scalesearch.nn.decode import BOS, EOS, length_limits
from scalesearch.nn.model import DecodingCache, EncoderMemory
from scalesearch.nn.module import DropoutRates

ARCHITECTURE: Any = None  # put here by the bundle


class ScalesearchConfig(transformers.PreTrainedConfig):
    """What may differ between models of one architecture: the vocabulary's size and rates of dropout."""

    model_type = "scalesearch"

    vocab_size: int = 0
    hidden_size: int = 0
    dropout: float = 0.0  # of sub-layers' outputs and embeddings
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    init: str = "xavier"  # the scheme that draws weights which are not loaded
    seed: int = 1
    is_encoder_decoder: bool = True
    pad_token_id: int = PAD
    bos_token_id: int = BOS
    eos_token_id: int = EOS
    decoder_start_token_id: int = BOS
    use_cache: bool = True
    tie_word_embeddings: bool = False  # what is tied is so by the architecture, and stored once


@dataclass
class EncoderOutput(BaseModelOutput):
    """States of the source, and the bias that hides its padding from attention."""

    bias: Tensor | None = None


class EncoderWrapper:
    """The encoder alone, as ``generate`` calls it; no module, so that weights have one name."""

    main_input_name = "input_ids"

    def __init__(self, model: Any) -> None:
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None,
                **_: Any) -> EncoderOutput:
        """Ids (batch, S), padded at the end, to states (batch, S, d)."""
        ids = input_ids if attention_mask is None else input_ids.masked_fill(
            attention_mask == 0, PAD)
        memory = self.model.encode(ids)
        return EncoderOutput(last_hidden_state=memory.states, bias=memory.bias)

    def __call__(self, *args: Any, **kwargs: Any) -> EncoderOutput:
        return self.forward(*args, **kwargs)


class TransformersCache(DecodingCache, transformers.Cache):
    """Keys, values and whatever else of earlier positions the architecture needs."""

    def __init__(self) -> None:
        transformers.Cache.__init__(self, layers=[])
        DecodingCache.__init__(self)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """The number of target positions seen."""
        return self.length

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Go on with rows ``beam_idx``, each of which has the source of the row that it takes the place of."""
        self.select(beam_idx, same_sources=True)


class LengthLimitProcessor(transformers.LogitsProcessor):
    """Forces the end of a translation that has as many tokens as its source allows."""

    def __init__(self, limits: Tensor) -> None:
        self.max_lengths = limits  # of each sentence

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (rows, V), as many rows a sentence as there are beams."""
        limits = self.max_lengths.repeat_interleave(
            len(scores) // len(self.max_lengths)).to(scores.device)
        others = torch.arange(scores.shape[1], device=scores.device) != EOS
        return scores.masked_fill((input_ids.shape[1] - 1 >= limits)[:, None] & others, -torch.inf)


class ScalesearchForSeq2SeqLM(transformers.PreTrainedModel, transformers.GenerationMixin):
    """An encoder-decoder. The source ends in EOS; the target begins with BOS."""

    config_class = ScalesearchConfig
    main_input_name = "input_ids"
    base_model_prefix = ""
    _is_stateful = True  # a convolution's rows cannot be cut back, as assisted generation does
    # a tied weight is registered where it is owned, and nowhere else
    _tied_weights_keys: dict[str, str] = {}

    def __init__(self, config: ScalesearchConfig) -> None:
        super().__init__(config)
        rates = DropoutRates(config.dropout, config.attention_dropout, config.activation_dropout)
        self.model = build_model(ARCHITECTURE, vocab=config.vocab_size, init=config.init,
                                 seed=config.seed, dropout=rates, device=torch.get_default_device(),
                                 dtype=torch.get_default_dtype())
        self.post_init()

    def _init_weights(self, module: Any) -> None:
        """Nothing: ``build`` has drawn every weight."""

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # forward makes a cache of its own

    def get_encoder(self, modality: str | None = None) -> EncoderWrapper:
        """The encoder."""
        return EncoderWrapper(self.model)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: TransformersCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        **_: Any,
    ) -> Seq2SeqLMOutput:
        """Logits (batch, T, V) after ``decoder_input_ids``, or before ``labels``, which then give a loss.

        Args:
            input_ids: (batch, S), padded at the end; ``encoder_outputs`` may stand in its place.
            attention_mask: (batch, S), 0 at padding; where there is none, padding is known by its
                id.
            decoder_input_ids: (batch, T), from BOS on; with ``past_key_values`` those that it has
                not seen.
            labels: (batch, T), ending in EOS; -100 and padding do not count.
        """
        if encoder_outputs is None:
            encoder_outputs = self.get_encoder()(input_ids, attention_mask)
        if decoder_input_ids is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if past_key_values is None and (self.config.use_cache and labels is None
                                        if use_cache is None else use_cache):
            past_key_values = TransformersCache()
        memory = EncoderMemory(encoder_outputs[0], self._bias(encoder_outputs, attention_mask))
        logits = self.model.logits(self.model.decode(decoder_input_ids, memory, past_key_values))
        loss = None
        if labels is not None:
            scored = labels.masked_fill(labels == PAD, -100)
            loss = cross_entropy(logits.flatten(0, 1).float(), scored.flatten())
        return Seq2SeqLMOutput(loss=loss, logits=logits, past_key_values=past_key_values,
                               encoder_last_hidden_state=memory.states)

    def _bias(self, encoder_outputs: Any, attention_mask: Tensor | None) -> Tensor:
        """The bias that came with the states, or one made of the mask."""
        bias = getattr(encoder_outputs, "bias", None)
        if bias is None:
            states = encoder_outputs[0]
            present = states.new_ones(
                states.shape[:2]) if attention_mask is None else attention_mask
            bias = mask_bias(present[:, None, None, :] == 0, states.dtype)
        return bias

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """BOS and then the labels but the last."""
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
        """As transformers' own, with the limits of length that the model was scored with.

        Args:
            token_limits: (batch,) the most tokens of each translation, EOS not counted; 1.5 ·
                source + 10 unless
                ``max_length``, ``max_new_tokens`` or a ``generation_config`` is given, which then
                says.
        """
        source = kwargs.get("input_ids") if inputs is None else inputs
        asked = generation_config is not None or not {
            "max_length", "max_new_tokens"}.isdisjoint(kwargs)
        if token_limits is None and source is not None and not asked:
            mask = kwargs.get("attention_mask")
            token_limits = length_limits(
                self.model, source if mask is None else source.masked_fill(mask == 0, PAD))
        if token_limits is not None:
            logits_processor = [LengthLimitProcessor(token_limits), *(logits_processor or [])]
            kwargs["max_length"] = int(token_limits.max()) + 2  # with BOS and EOS
        with self.model.cached_weights():
            processors = transformers.LogitsProcessorList(logits_processor or [])
            return super().generate(inputs, generation_config, processors, **kwargs)
