"""Files for ``AutoModelForSeq2SeqLM`` and ``AutoTokenizer`` of transformers 5."""

from __future__ import annotations

import json
import re
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from scalesearch.blocks.core import PAD, Block
from scalesearch.cost import load_protocol
from scalesearch.data import BOS, EOS, UNK
from scalesearch.export.base import ArtifactDecoder, ExportFormat, RankedHypotheses
from scalesearch.export.export import collect_provenance
from scalesearch.export.huggingface.bundle import bundle_source
from scalesearch.export.huggingface.tokenizer import check_tokenizer, tokenizer_json
from scalesearch.files import write_json, write_text
from scalesearch.tasks import TASKS
from scalesearch.training.checkpoint import WEIGHTS_FILE, Checkpoint
from scalesearch.training.scoring.evaluate import DecodingOptions, resolve_decoding

MODELING_MODULE = "modeling_scalesearch"
# Beam search of transformers keeps the scores of every step in memory.
MAX_BATCH_SENTENCES = 32
DTYPES = {"none": "float32", "bf16": "bfloat16"}
# Tasks that have a tag on the Hugging Face Hub.
HUB_TASK_TAGS = {"translation": "translation", "summarization": "summarization"}
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

    def unsupported_reasons(self, block: Block) -> list[str]:
        return []

    def write(self, trained: Checkpoint, folder: Path, quantization: str) -> None:
        dtype = DTYPES[quantization]
        weights = {f"model.{name}": weight.to(getattr(torch, dtype)).contiguous()
                   for name, weight in trained.model.state_dict().items()}
        (folder / WEIGHTS_FILE).write_bytes(save(weights, metadata={"format": "pt"}))
        architecture = trained.architecture
        write_text(folder / f"{MODELING_MODULE}.py",
                   bundle_source(architecture.block, f"Architecture {architecture.id}."))
        write_json(folder / "config.json", model_config(trained, dtype))
        write_json(folder / "generation_config.json", generation_config(trained))
        names = {f"{name}_token": piece for name, (piece, _) in
                 zip(("pad", "unk", "bos", "eos"), trained.tokenizer.pieces()) if name != "unk"}
        write_json(folder / "tokenizer_config.json",
                   {"tokenizer_class": "TokenizersBackend", **names, "split_special_tokens": True,
                    "padding_side": "right", "clean_up_tokenization_spaces": False,
                    "model_max_length": trained.max_source_length + 1})
        tokens = tokenizer_json(trained.tokenizer, trained.is_lowercase)
        write_text(folder / "tokenizer.json",
                   json.dumps(tokens, ensure_ascii=False, separators=(",", ":")))
        write_text(folder / "README.md", model_card(trained))
        loaded = _import_quietly().AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
        check_tokenizer(loaded, trained.tokenizer, trained.is_lowercase)

    def open_decoder(self, folder: Path, threads: int) -> ArtifactDecoder:
        torch.set_num_threads(threads)
        transformers = _import_quietly()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # decoders have a note of the version
            return HuggingFaceDecoder(transformers.AutoModelForSeq2SeqLM.from_pretrained(
                folder, trust_remote_code=True))


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


def model_config(trained: Checkpoint, dtype: str) -> dict[str, Any]:
    """Build the content of ``config.json``."""
    recipe = trained.recipe
    decoding = resolve_decoding(recipe, trained.max_length_a)
    block = trained.architecture.block
    classes = {"AutoConfig": "ScalesearchConfig",
               "AutoModelForSeq2SeqLM": "ScalesearchForSeq2SeqLM"}
    return {
        "architectures": ["ScalesearchForSeq2SeqLM"],
        "auto_map": {auto: f"{MODELING_MODULE}.{name}" for auto, name in classes.items()},
        "model_type": "scalesearch",
        "vocab_size": trained.tokenizer.vocab_size,
        "hidden_size": block.decoder.layer.mixer.d,
        "dropout": recipe.dropout,
        "attention_dropout": recipe.attention_dropout,
        "activation_dropout": recipe.activation_dropout,
        "init": recipe.init,
        "verified_transformers": version("transformers"),
        "max_length_a": decoding.max_length_a,
        "max_length_b": decoding.max_length_b,
        "is_encoder_decoder": True,
        "dtype": dtype,
    }


def generation_config(trained: Checkpoint) -> dict[str, Any]:
    """Build ``generation_config.json``: the search that the model was scored with."""
    recipe = trained.recipe
    decoding = resolve_decoding(recipe, trained.max_length_a)
    max_length = int(decoding.max_lengths(torch.ones(1, trained.max_source_length + 1)))
    beam = {"num_beams": recipe.beam, "length_penalty": recipe.length_penalty,
            "early_stopping": "never"}
    return {
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "suppress_tokens": [PAD, UNK, BOS],
        "max_length": max_length + 2,  # with BOS and EOS
        **(beam if recipe.beam > 1 else {}),
    }


def _strip_special_ids(ids: list[int]) -> list[int]:
    """Remove BOS, EOS and everything after EOS."""
    return ids[1 : ids.index(EOS)] if EOS in ids else ids[1:]


def _import_quietly() -> Any:
    """Import transformers without progress bars and warnings."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def model_card(trained: Checkpoint) -> str:
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
    scores = [(metric.label, metrics[key],
               str(metrics.get(f"{key}_signature", "")).replace("|", r"\|"))
              for key, metric in TASKS[trained.task].metrics.items() if key in metrics]
    # the scores as the Hub expects them
    model_index = {"name": name, "results": [{
        "task": {"type": task_tag},
        "dataset": {"name": data.get("name"), "type": data.get("name"),
                    "split": metrics.get("split")},
        "metrics": [{"type": label.lower(), "name": label, "value": value}
                    for label, value, _ in scores]}]}
    head = {"library_name": "transformers", "license": "unknown",
            "tags": ["scalesearch", "neural-architecture-search"], "language": languages,
            "pipeline_tag": task_tag,
            "model-index": [model_index] if task_tag and scores else None}
    templates = Environment(loader=PackageLoader("scalesearch.export.huggingface", ""),
                            trim_blocks=True, undefined=StrictUndefined, keep_trailing_newline=True)
    return templates.get_template("card.md").render(
        {"trained_with": {}, "seed": None} | facts,
        head={key: value for key, value in head.items() if value}, name=name, languages=languages,
        lowercase=trained.is_lowercase, data=data, metrics={"weights": ""} | metrics, scores=scores,
        costs=[(label, facts["costs"][key]) for key, label in COST_LABELS.items()],
        protocol=load_protocol(architecture.protocol).with_vocab(architecture.vocab),
        search=resolve_decoding(trained.recipe, trained.max_length_a).description)
