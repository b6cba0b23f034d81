"""CTranslate2: what :mod:`scalesearch.lowering.ctranslate2` plans, filled with a model's weights and saved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalesearch.blocks.core import PAD, Block
from scalesearch.data import Tokenizer
from scalesearch.data.split import BOS, UNK
from scalesearch.errors import UserError
from scalesearch.export.base import ArtifactDecoder, ExportFormat, RankedHypotheses
from scalesearch.export.tensor_values import evaluate_source
from scalesearch.files import read_json
from scalesearch.lowering.ctranslate2 import plan_variables
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.lowering.variable_plan import VariablePlan
from scalesearch.train.hardware import read_cpuinfo

if TYPE_CHECKING:
    from scalesearch.train.checkpoint import Checkpoint
    from scalesearch.train.scoring.evaluate import DecodingOptions

COMPUTE_TYPES = {"int8": "int8_float32", "int16": "int16", "bf16": "bfloat16", "none": "float32"}
VOCABULARY_FILE = "shared_vocabulary.json"
# instructions whose sums of int8 products do not saturate
EXACT_INT8_INSTRUCTION_SETS = {"avx512_vnni", "avx_vnni", "amx_int8"}
INEXACT_INT8_NOTE = ("products of int8 are less exact on this processor, which has no VNNI: scores "
                     "may be lower than elsewhere")
EPSILON = 1e-5  # of our layer norms


class CTranslate2Format(ExportFormat):
    """``model.bin``, ``config.json`` and the vocabulary."""

    name = "ctranslate2"
    quantizations = ("int8", "int16", "bf16", "none")
    packages = ("ctranslate2",)

    def unsupported_reasons(self, block: Block) -> list[str]:
        return find_unsupported_parts(block)

    def write(self, trained: Checkpoint, folder: Path, quantization: str) -> None:
        made = plan_variables(trained.architecture.block, trained.tokenizer.vocab_size,
                              trained.max_source_length)
        spec = _build_spec(made, trained.model.state_dict(), trained.tokenizer)
        spec.validate()
        with np.errstate(all="ignore"):
            spec.optimize(COMPUTE_TYPES[quantization])
        _fix_zero_scales(spec)
        spec.save(str(folder))

    def open_decoder(self, folder: Path, threads: int) -> ArtifactDecoder:
        return CTranslate2Decoder(folder, threads)


class CTranslate2Decoder(ArtifactDecoder):
    """The runtime's translator.

    Its beam search is its own: a finished hypothesis leaves its place to another.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        from ctranslate2 import Translator

        self.tokens: list[str] = read_json(folder / VOCABULARY_FILE, list[str])
        self.id_by_token = {token: at for at, token in enumerate(self.tokens)}
        self.translator = Translator(str(folder), intra_threads=threads)
        self.compute_type = self.translator.compute_type
        if self.compute_type.startswith("int8") and "flags" in (facts := read_cpuinfo()):
            self.accuracy_note = "" if EXACT_INT8_INSTRUCTION_SETS.intersection(
                facts["flags"].split()) else INEXACT_INT8_NOTE

    def greedy(self, source_ids: list[list[int]], max_lengths: list[int]) -> list[list[int]]:
        # A greedy translation that is cut is the beginning of the longer one.
        found = self._run(source_ids, max(max_lengths), 1, 1.0, 1)
        return [ids[:limit] for [(ids, _)], limit in zip(found, max_lengths)]

    def beam_search(self, rows: list[list[int]], limits: list[int],
                    search: DecodingOptions) -> list[RankedHypotheses]:
        found: dict[int, RankedHypotheses] = {}
        for limit in sorted(set(limits)):
            places = [at for at, one in enumerate(limits) if one == limit]
            some = self._run([rows[at] for at in places], limit, search.beam, search.length_penalty,
                             search.n_best)
            found |= dict(zip(places, some))
        return [found[at] for at in range(len(rows))]

    def decode_fixed_length(self, rows: list[list[int]], length: int, beam: int) -> None:
        self._run(rows, length, beam, 1.0, 1, length)

    def _run(self, rows: list[list[int]], limit: int, beam: int, penalty: float, nbest: int,
             least: int = 0) -> list[RankedHypotheses]:
        try:
            results = self.translator.translate_batch(
                # the runtime adds EOS
                [[self.tokens[token] for token in row[:-1]] for row in rows],
                beam_size=beam, length_penalty=penalty, num_hypotheses=nbest, max_decoding_length=limit,
                min_decoding_length=least, max_input_length=0, return_scores=True,
                suppress_sequences=[[self.tokens[PAD]], [self.tokens[BOS]]])
        except RuntimeError as error:  # its positions are a table, as long as its training's sentences needed
            raise UserError(f"CTranslate2: {error}; ask for fewer tokens",
                            code="too-long") from None
        return [[([self.id_by_token[token] for token in tokens], score)
                 for tokens, score in zip(result.hypotheses, result.scores)] for result in results]


def _build_spec(plan: VariablePlan, weights: Mapping[str, Any], tokenizer: Tokenizer) -> Any:
    """The runtime's specification of a model, with its values."""
    from ctranslate2.specs.transformer_spec import TransformerSpec

    spec = TransformerSpec.from_config((1, 1), 1)
    spec.encoder, spec.decoder = _build_spec_tree(plan, weights)
    spec.config.layer_norm_epsilon = EPSILON
    spec.config.add_source_eos = True
    tokens = [piece for piece, _ in tokenizer.pieces()]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    names = dict(zip(("unk_token", "bos_token", "eos_token"), tokens[UNK:]))
    for name, token in (names | {"decoder_start_token": names["bos_token"]}).items():
        setattr(spec.config, name, token)
    return spec


def _fix_zero_scales(spec: Any) -> None:
    """Gives matrices of zeros the scale 1: in int16 theirs is infinite, and their numbers are none."""
    from ctranslate2.specs.model_spec import index_spec

    for name, scale in spec.variables().items():
        if name.endswith("_scale") and not isinstance(scale, str) and not np.isfinite(
                scale.numpy()).all():
            node = index_spec(spec, name.rpartition("/")[0])
            last = name.rpartition("/")[2]
            getattr(node, last).array = np.float32(1)
            getattr(node, last.removesuffix("_scale")).array[:] = 0


def _build_spec_tree(plan: VariablePlan, weights: Mapping[str, Any]) -> tuple[Any, Any]:
    """Encoder and decoder: nested specifications whose attributes are the plan's names."""
    from ctranslate2.specs.model_spec import OPTIONAL, LayerSpec

    root = LayerSpec()
    counts = {"num_heads": "int16", "activation": "int8", "pre_norm": "int8", "head_dim": "int32",
              "num_heads_kv": "int32", "queries_scale": "float32", "rotary_dim": "int32",
              "rotary_interleave": "int8", "rotary_base": "float32"}

    def place(name: str) -> tuple[dict[str, Any], str]:
        node, *path = root, *name.split("/")
        for part in path[:-1]:
            node = vars(node).setdefault(part, LayerSpec())
        return vars(node), path[-1]

    for name, number in plan.scalars.items():
        node, last = place(name)
        node[last] = np.dtype(counts[last]).type(number)
    for variable in plan.variables:
        node, last = place(variable.name)
        # a copy: quantizing changes it in place
        node[last] = np.array(evaluate_source(variable.expression, weights).contiguous())
        assert node[last].shape == variable.shape, variable.name
        if variable.is_quantized:
            node[f"{last}_scale"] = OPTIONAL
    encoder = vars(root)["encoder"]
    decoder = vars(root)["decoder"]
    # of which the runtime's checks count the rows
    vars(encoder)["embeddings"] = [vars(encoder).pop("embeddings_0")]
    for stack in (encoder, decoder):
        vars(stack)["scale_embeddings"] = True
    return encoder, decoder
