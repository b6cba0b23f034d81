"""The format ``huggingface``: what ``AutoModelForSeq2SeqLM`` and ``AutoTokenizer`` of transformers 5 load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from scalesearch.blocks.core import PAD, Block
from scalesearch.data import BOS, EOS
from scalesearch.export.base import Decoder, Format, Ranked
from scalesearch.export.huggingface.bundle import bundle
from scalesearch.export.huggingface.card import card
from scalesearch.export.huggingface.tokenizer import check, tokenizer_json
from scalesearch.files import write_json, write_text
from scalesearch.nn.decode import longest
from scalesearch.train.checkpoint import WEIGHTS, Checkpoint
from scalesearch.train.scoring.evaluate import Search

CODE = "modeling_scalesearch"
AT_ONCE = 32  # sentences of a beam search, which keeps every step's scores to give those of its hypotheses
DTYPES = {"none": "float32", "bf16": "bfloat16"}


class HuggingFace(Format):
    """Code, weights, tokenizer, settings of generation and model card."""

    name = "huggingface"
    quantisations = tuple(DTYPES)
    packages = ("jinja2", "transformers")
    extra = "huggingface"

    def refusals(self, block: Block) -> list[str]:
        return []

    def write(self, trained: Checkpoint, folder: Path, quantise: str) -> None:
        dtype = DTYPES[quantise]
        weights = {f"model.{name}": weight.to(getattr(torch, dtype)).contiguous()
                   for name, weight in trained.model.state_dict().items()}
        (folder / WEIGHTS).write_bytes(save(weights, metadata={"format": "pt"}))
        architecture = trained.architecture
        write_text(folder / f"{CODE}.py", bundle(architecture.block, f"Architecture {architecture.id}."))
        write_json(folder / "config.json", config(trained, dtype))
        write_json(folder / "generation_config.json", generation(trained))
        names = {f"{name}_token": piece for name, (piece, _) in
                 zip(("pad", "unk", "bos", "eos"), trained.tokenizer.pieces()) if name != "unk"}
        write_json(folder / "tokenizer_config.json", {
            "tokenizer_class": "TokenizersBackend", **names, "split_special_tokens": True, "padding_side": "right",
            "clean_up_tokenization_spaces": False, "model_max_length": trained.max_length + 1})
        tokens = tokenizer_json(trained.tokenizer, trained.lowercase)
        write_text(folder / "tokenizer.json", json.dumps(tokens, ensure_ascii=False, separators=(",", ":")))
        write_text(folder / "README.md", card(trained))
        theirs = _quiet().AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
        check(theirs, trained.tokenizer, trained.lowercase)

    def open(self, folder: Path, threads: int) -> Decoder:
        torch.set_num_threads(threads)
        return Generating(_quiet().AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True))


class Generating(Decoder):
    """A model that ``generate`` runs."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def greedy(self, rows: list[list[int]], limits: list[int]) -> list[list[int]]:
        return [_until_end(ids) for ids in self._generate(rows, limits, num_beams=1).sequences.tolist()]

    def beam(self, rows: list[list[int]], limits: list[int], search: Search) -> list[Ranked]:
        found: list[Ranked] = []
        for at in range(0, len(rows), AT_ONCE):
            some = slice(at, at + AT_ONCE)
            out = self._generate(rows[some], limits[some], num_beams=search.beam, num_return_sequences=search.nbest,
                                 length_penalty=search.length_penalty, early_stopping="never", output_scores=True)
            pairs = zip(out.sequences.tolist(), out.sequences_scores.tolist())
            ranked = [(_until_end(ids), score) for ids, score in pairs]
            found += [ranked[first : first + search.nbest] for first in range(0, len(ranked), search.nbest)]
        return found

    def forced(self, rows: list[list[int]], length: int, beam: int) -> None:
        self._generate(rows, [length] * len(rows), num_beams=beam, min_new_tokens=length, max_new_tokens=length)

    def _generate(self, rows: list[list[int]], limits: list[int], **settings: Any) -> Any:
        source = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
        return self.model.generate(source, attention_mask=source != PAD, token_limits=torch.tensor(limits),
                                   do_sample=False, return_dict_in_generate=True, **settings)


def config(trained: Checkpoint, dtype: str) -> dict[str, Any]:
    """The content of ``config.json``."""
    recipe, block = trained.recipe, trained.architecture.block
    classes = {"AutoConfig": "ScalesearchConfig", "AutoModelForSeq2SeqLM": "ScalesearchForSeq2SeqLM"}
    return {
        "architectures": ["ScalesearchForSeq2SeqLM"],
        "auto_map": {auto: f"{CODE}.{name}" for auto, name in classes.items()},
        "model_type": "scalesearch",
        "vocab_size": trained.tokenizer.vocab_size,
        "hidden_size": block.decoder.layer.main.d,
        "dropout": recipe.dropout,
        "attention_dropout": recipe.attention_dropout,
        "activation_dropout": recipe.activation_dropout,
        "init": recipe.init,
        "is_encoder_decoder": True,
        "dtype": dtype,
    }


def generation(trained: Checkpoint) -> dict[str, Any]:
    """The content of ``generation_config.json``: how the model was scored."""
    recipe, most = trained.recipe, int(longest(torch.ones(1, trained.max_length + 1)))
    beam = {"num_beams": recipe.beam, "length_penalty": recipe.length_penalty, "early_stopping": "never"}
    return {
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "suppress_tokens": [PAD, BOS],
        "max_length": most + 2,
        **(beam if recipe.beam > 1 else {}),
    }


def _until_end(ids: list[int]) -> list[int]:
    """What is between BOS and EOS."""
    return ids[1 : ids.index(EOS)] if EOS in ids else ids[1:]


def _quiet() -> Any:
    """The library, without its bars and advice."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers
