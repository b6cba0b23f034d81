"""Files for transformers 5: of one of its classes if the architecture is exactly one.

Other architectures have a class of their own, whose code is in the folder.
"""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from scalesearch.blocks.core import PAD
from scalesearch.blocks.seq2seq import DecoderOnly
from scalesearch.cost import load_protocol
from scalesearch.data import BOS, EOS, UNK
from scalesearch.errors import UserError
from scalesearch.export.base import ArtifactDecoder, ExportFormat, RankedHypotheses
from scalesearch.export.export import collect_provenance
from scalesearch.export.huggingface.bundle import bundle_source, wrapper_class
from scalesearch.export.huggingface.native import ClassSearch, NativeModel, find_native_class
from scalesearch.export.huggingface.tokenizer import (
    TokenTemplate,
    check_tokenizer,
    tokenizer_json,
)
from scalesearch.files import read_json, write_json, write_text
from scalesearch.tasks import TASKS, format_score
from scalesearch.training.checkpoint import WEIGHTS_FILE, Checkpoint
from scalesearch.training.scoring.evaluate import DecodingOptions, resolve_decoding

MODELING_MODULE = "modeling_scalesearch"
CONFIG_FILE = "config.json"
# Beam search of transformers keeps the scores of every step in memory.
MAX_BATCH_SENTENCES = 32
DTYPES = {"none": "float32", "bf16": "bfloat16"}
# Tasks that have a tag on the Hugging Face Hub.
HUB_TASK_TAGS = {"translation": "translation", "summarization": "summarization",
                 "language-model": "text-generation"}
TASK_LABELS = {"correction": "grammatical error correction", "language-model": "language modeling"}
COST_LABELS = {"params.total": "parameters",
               "params.non_embedding": "parameters without embeddings",
               "macs.total": "multiply-adds", "memory.weights": "bytes of weights in float32"}


class HuggingFaceFormat(ExportFormat):
    """Code, weights, tokenizer, generation settings and model card."""

    name = "huggingface"
    quantizations = tuple(DTYPES)
    packages = ("jinja2", "transformers")
    runtime = "transformers"
    install_extra = "huggingface"
    holds_two_vocabularies = False

    def notes(self, trained: Checkpoint) -> list[str]:
        search = _find_class(trained)
        if search.model is not None:
            native_class = search.model.native_class
            return [f"class: {native_class.name} of transformers, without own code; the tokenizer "
                    f"is loaded by {native_class.tokenizer_class}"]
        needs = f". {search.nearest} needs {'; '.join(search.reasons)}" if search.nearest else ""
        return [f"class: {wrapper_class(trained.architecture.block)}, whose code is in the folder "
                f"(trust_remote_code=True){needs}"]

    def write(self, trained: Checkpoint, folder: Path, quantization: str) -> None:
        dtype = DTYPES[quantization]
        native = _find_class(trained).model
        state = trained.model.state_dict()
        weights = native.convert(state) if native else {
            f"model.{name}": weight for name, weight in state.items()}
        stored = {name: weight.to(getattr(torch, dtype)).contiguous()
                  for name, weight in weights.items()}
        (folder / WEIGHTS_FILE).write_bytes(save(stored, metadata={"format": "pt"}))
        architecture = trained.architecture
        if native is None:
            write_text(folder / f"{MODELING_MODULE}.py",
                       bundle_source(architecture.block, f"Architecture {architecture.id}."))
        config = model_config(trained, dtype) if native is None else native_config(
            trained, native, dtype)
        write_json(folder / CONFIG_FILE, config)
        write_json(folder / "generation_config.json", generation_config(trained))
        names = {f"{name}_token": piece for name, (piece, _) in
                 zip(("pad", "unk", "bos", "eos"), trained.tokenizer.pieces()) if name != "unk"}
        is_causal = _is_causal(trained)
        write_json(folder / "tokenizer_config.json",
                   {"tokenizer_class": "TokenizersBackend", **names, "split_special_tokens": True,
                    "padding_side": "left" if is_causal else "right",
                    "clean_up_tokenization_spaces": False,
                    "model_max_length": longest_input(trained) if is_causal
                    else trained.max_source_length + 1})
        template = token_template(trained)
        tokens = tokenizer_json(trained.tokenizer, trained.is_lowercase, template)
        write_text(folder / "tokenizer.json",
                   json.dumps(tokens, ensure_ascii=False, separators=(",", ":")))
        write_text(folder / "README.md", model_card(trained, native))
        tokenizer_class = native.native_class.tokenizer_class if native else "AutoTokenizer"
        loaded = getattr(_import_quietly(), tokenizer_class).from_pretrained(
            folder, trust_remote_code=native is None)
        check_tokenizer(loaded, trained.tokenizer, trained.is_lowercase, template)

    def open_decoder(self, folder: Path, threads: int) -> ArtifactDecoder:
        torch.set_num_threads(threads)
        transformers = _import_quietly()
        config = read_json(folder / CONFIG_FILE, dict[str, Any])
        class_name, *_ = config["architectures"]
        if "auto_map" not in config:
            return NativeDecoder(getattr(transformers, class_name).from_pretrained(folder))
        is_causal = class_name.endswith("ForCausalLM")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # decoders have a note of the version
            model = getattr(transformers, _auto_class(is_causal)).from_pretrained(
                folder, trust_remote_code=True)
        return NativeDecoder(model) if is_causal else HuggingFaceDecoder(model)


class HuggingFaceDecoder(ArtifactDecoder):
    """Decoder that calls ``generate`` of transformers."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def greedy(self, source_ids: list[list[int]], max_lengths: list[int],
               allow_unk: bool = False) -> list[list[int]]:
        output = self._generate(source_ids, max_lengths, allow_unk, num_beams=1)
        return [_strip_special_ids(ids) for ids in output.sequences.tolist()]

    def beam_search(self, source_ids: list[list[int]], max_lengths: list[int],
                    search: DecodingOptions) -> list[RankedHypotheses]:
        hypotheses: list[RankedHypotheses] = []
        for start in range(0, len(source_ids), MAX_BATCH_SENTENCES):
            batch = slice(start, start + MAX_BATCH_SENTENCES)
            output = self._generate(
                source_ids[batch], max_lengths[batch], search.allow_unk, num_beams=search.beam,
                num_return_sequences=search.n_best, length_penalty=search.length_penalty,
                early_stopping="never", output_scores=True)
            pairs = zip(output.sequences.tolist(), output.sequences_scores.tolist())
            ranked = [(_strip_special_ids(ids), score) for ids, score in pairs]
            hypotheses += [ranked[first : first + search.n_best]
                           for first in range(0, len(ranked), search.n_best)]
        return hypotheses

    def decode_fixed_length(self, source_ids: list[list[int]], length: int, beam: int) -> None:
        self._generate(source_ids, [length] * len(source_ids), num_beams=beam,
                       min_new_tokens=length, max_new_tokens=length)

    def _generate(self, source_ids: list[list[int]], max_lengths: list[int],
                  allow_unk: bool = False, **settings: Any) -> Any:
        source = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(ids) for ids in source_ids], batch_first=True)
        return self.model.generate(source, attention_mask=source != PAD,
                                   token_limits=torch.tensor(max_lengths), do_sample=False,
                                   suppress_tokens=[PAD, BOS] if allow_unk else [PAD, UNK, BOS],
                                   return_dict_in_generate=True, **settings)


class NativeDecoder(HuggingFaceDecoder):
    """Decoder of a class of transformers, or of a causal language model with own code."""

    def language_model(self) -> Any:
        return CausalModel(self.model)

    def _generate(self, source_ids: list[list[int]], max_lengths: list[int],
                  allow_unk: bool = False, **settings: Any) -> Any:
        from scalesearch.export.huggingface.modeling import LengthLimitProcessor

        is_causal = not self.model.config.is_encoder_decoder
        rows = [torch.tensor([*ids, BOS] if is_causal else ids) for ids in source_ids]
        source = torch.nn.utils.rnn.pad_sequence(
            rows, batch_first=True, padding_side="left" if is_causal else "right")
        n_before = source.shape[1] if is_causal else 1  # tokens before the first generated one
        limits = torch.tensor(max_lengths)
        if not is_causal:  # tables of positions
            max_positions = self.model.config.max_position_embeddings
            if source.shape[1] > max_positions:
                raise UserError(f"a sentence has {source.shape[1]} tokens, but the exported model "
                                f"has {max_positions} positions: translate shorter sentences",
                                code="sentence-too-long")
            limits = limits.clamp(max=max_positions - 1)
        output = self.model.generate(
            source, attention_mask=(source != PAD).long(), do_sample=False,
            logits_processor=[LengthLimitProcessor(limits + n_before - 1)],
            suppress_tokens=[PAD, BOS] if allow_unk else [PAD, UNK, BOS],
            return_dict_in_generate=True,
            **{"max_new_tokens": int(limits.max()) + 1} | settings)
        output.sequences = output.sequences[:, n_before - 1 :]  # from BOS
        return output


@dataclass
class CausalCache:
    """Cache of transformers, and the number of positions of the target that it holds."""

    states: Any = None
    length: int = 0


class CausalModel:
    """A causal language model with the interface that :mod:`scalesearch.nn.decode` expects.

    Its decoder states are the logits.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def encode(self, source: torch.Tensor) -> torch.Tensor:
        return source

    def new_cache(self) -> CausalCache:
        return CausalCache()

    def decode(self, target: torch.Tensor, source: torch.Tensor,
               cache: CausalCache) -> torch.Tensor:
        """Compute logits (batch, T, V) after the new tokens ``target`` (batch, T)."""
        from scalesearch.export.huggingface.modeling import CACHE_NAME

        tokens = target if cache.length else torch.cat([source, target], 1)
        output = self.model(tokens, use_cache=True, **{CACHE_NAME: cache.states})
        cache.states = output[CACHE_NAME]
        cache.length += target.shape[1]
        logits: torch.Tensor = output.logits[:, -target.shape[1] :]
        return logits

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        return states

    def __call__(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Compute logits (batch, T, V) after each token of ``target`` (batch, T)."""
        return self.decode(target, source, self.new_cache())


def _find_class(trained: Checkpoint) -> ClassSearch:
    return find_native_class(trained.architecture, trained.max_source_length + 1)  # with EOS


def _is_causal(trained: Checkpoint) -> bool:
    return isinstance(trained.architecture.block, DecoderOnly)


def _auto_class(is_causal: bool) -> str:
    return "AutoModelForCausalLM" if is_causal else "AutoModelForSeq2SeqLM"


def _is_language_model(trained: Checkpoint) -> bool:
    return TASKS[trained.task].model_types == ("decoder-only",)


def longest_input(trained: Checkpoint) -> int:
    """Return the largest number of tokens that a decoder-only model has read in training.

    It is at most the number of learned positions.
    """
    if trained.spec.window:
        length = trained.spec.window + 1  # with EOS before the first token
    else:
        length = 2 * (trained.max_source_length + 1)
    return min(length, trained.model.max_length or length)


def token_template(trained: Checkpoint) -> TokenTemplate:
    """Return the special tokens around a text: those of the training."""
    if not _is_causal(trained):
        return TokenTemplate()
    if _is_language_model(trained):  # texts follow the end of another
        return TokenTemplate((EOS, BOS), ())
    return TokenTemplate((), (EOS, BOS))


def native_config(trained: Checkpoint, native: NativeModel, dtype: str) -> dict[str, Any]:
    """Build the content of ``config.json`` for a class of transformers."""
    recipe = trained.recipe
    config = {"architectures": [native.native_class.name], **native.config,
              "vocab_size": trained.tokenizer.vocab_size, "dtype": dtype,
              "pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS,
              "attention_dropout": recipe.attention_dropout}
    if _is_causal(trained):
        return {**config, "max_position_embeddings": longest_input(trained)}
    return {**config, "dropout": recipe.dropout, "activation_dropout": recipe.activation_dropout,
            "decoder_start_token_id": BOS, "forced_eos_token_id": None}


def model_config(trained: Checkpoint, dtype: str) -> dict[str, Any]:
    """Build the content of ``config.json`` for the class of the package."""
    recipe = trained.recipe
    block = trained.architecture.block
    is_causal = _is_causal(trained)
    own_class = wrapper_class(block)
    classes = {"AutoConfig": "ScalesearchConfig", _auto_class(is_causal): own_class}
    config = {
        "architectures": [own_class],
        "auto_map": {auto: f"{MODELING_MODULE}.{name}" for auto, name in classes.items()},
        "model_type": "scalesearch",
        "vocab_size": trained.tokenizer.vocab_size,
        "hidden_size": block.decoder.layer.mixer.d,
        "dropout": recipe.dropout,
        "attention_dropout": recipe.attention_dropout,
        "activation_dropout": recipe.activation_dropout,
        "init": recipe.init,
        "verified_transformers": version("transformers"),
        "is_encoder_decoder": not is_causal,
        "dtype": dtype,
    }
    if is_causal:  # transformers limits outputs without a given length by this key
        return {**config, "max_position_embeddings": longest_input(trained)}
    decoding = resolve_decoding(recipe, trained.max_length_a)
    return {**config, "max_length_a": decoding.max_length_a, "max_length_b": decoding.max_length_b}


def generation_config(trained: Checkpoint) -> dict[str, Any]:
    """Build ``generation_config.json``: the search that the model was scored with.

    A language model was scored without a search, and generates greedily.
    """
    recipe = trained.recipe
    special = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS,
               "suppress_tokens": [PAD, UNK, BOS]}
    has_beam = recipe.beam > 1 and not _is_language_model(trained)
    beam = {"num_beams": recipe.beam, "length_penalty": recipe.length_penalty,
            "early_stopping": "never"} if has_beam else {}
    if _is_causal(trained):
        return {**special, "max_length": longest_input(trained), **beam}
    decoding = resolve_decoding(recipe, trained.max_length_a)
    max_length = int(decoding.max_lengths(torch.ones(1, trained.max_source_length + 1)))
    return {**special, "decoder_start_token_id": BOS,
            "max_length": max_length + 2, **beam}  # with BOS and EOS


def _strip_special_ids(ids: list[int]) -> list[int]:
    """Remove BOS, EOS and everything after EOS."""
    return ids[1 : ids.index(EOS)] if EOS in ids else ids[1:]


def _import_quietly() -> Any:
    """Import transformers without progress bars and warnings."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def model_card(trained: Checkpoint, native: NativeModel | None) -> str:
    """Return the model card: task, usage, costs, scores and provenance."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    facts = collect_provenance(trained)
    architecture = trained.architecture
    data = facts.get("data", {})
    metrics = facts.get("metrics", {})
    sides = (str(data.get("spec", {}).get(side)) for side in ("source", "target"))
    languages = [code for code in sides if re.fullmatch("[a-z]{2,3}", code)]
    name = f"scalesearch {architecture.id}"
    task_tag = HUB_TASK_TAGS.get(trained.task)
    scores = [(key, metric.label, metrics[key],
               str(metrics.get(f"{key}_signature", "")).replace("|", r"\|"))
              for key, metric in TASKS[trained.task].metrics.items()
              if metrics.get(key) is not None]
    # the scores as the Hub expects them
    model_index = {"name": name, "results": [{
        "task": {"type": task_tag},
        "dataset": {"name": data.get("name"), "type": data.get("name"),
                    "split": metrics.get("split")},
        "metrics": [{"type": label.lower(), "name": label, "value": value}
                    for _, label, value, _ in scores]}]}
    head = {"library_name": "transformers", "license": "unknown",
            "tags": ["scalesearch", "neural-architecture-search"], "language": languages,
            "pipeline_tag": task_tag,
            "model-index": [model_index] if task_tag and scores else None}
    templates = Environment(loader=PackageLoader("scalesearch.export.huggingface", ""),
                            trim_blocks=True, undefined=StrictUndefined, keep_trailing_newline=True)
    return templates.get_template("card.md").render(
        {"trained_with": {}, "seed": None} | facts,
        head={key: value for key, value in head.items() if value}, name=name, languages=languages,
        model_class=native.native_class.name if native else None, is_causal=_is_causal(trained),
        tokenizer_class=native.native_class.tokenizer_class if native else "AutoTokenizer",
        task_label=TASK_LABELS.get(trained.task, trained.task),
        auto_class=_auto_class(_is_causal(trained)), is_text=_is_language_model(trained),
        max_length=longest_input(trained), lowercase=trained.is_lowercase, data=data,
        scores=[(label, format_score(value, key), signature)
                for key, label, value, signature in scores],
        metrics={"weights": "", "decoding": ""} | metrics,
        costs=[(label, facts["costs"][key]) for key, label in COST_LABELS.items()],
        protocol=load_protocol(architecture.protocol).with_vocab(architecture.vocab),
        search=resolve_decoding(trained.recipe, trained.max_length_a).description)
