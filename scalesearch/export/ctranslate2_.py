"""Export format ``ctranslate2``: files of the CTranslate2 runtime.

:mod:`scalesearch.lowering.ctranslate2` plans the variables of the model; this module computes their
values from the weights, and saves them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from scalesearch.blocks.core import BOS, PAD, UNK, Block
from scalesearch.blocks.embedding import SINUSOID_DIVISORS, sinusoidal_positions
from scalesearch.data import Tokenizer
from scalesearch.errors import UserError
from scalesearch.export.base import ArtifactDecoder, ExportFormat, RankedHypotheses
from scalesearch.files import read_json
from scalesearch.lowering.ctranslate2 import VariablePlan, plan_variables
from scalesearch.lowering.tensor_expressions import (
    BlockDiagonal,
    Concatenation,
    ConstantTensor,
    ContractedChain,
    HeadPadding,
    MatrixProduct,
    TensorExpression,
    TensorSum,
    TransposedMatrix,
    WeightRef,
)
from scalesearch.lowering.unsupported import find_unsupported_parts
from scalesearch.training.hardware import read_cpuinfo
from scalesearch.training.scoring.evaluate import resolve_decoding

if TYPE_CHECKING:
    from scalesearch.training.checkpoint import Checkpoint
    from scalesearch.training.scoring.evaluate import DecodingOptions

COMPUTE_TYPES = {"int8": "int8_float32", "int16": "int16", "bf16": "bfloat16", "none": "float32"}
VOCABULARY_FILE = "{}_vocabulary.json"  # shared, or source and target
# Processors with these instructions add int8 products without saturation.
EXACT_INT8_INSTRUCTION_SETS = {"avx512_vnni", "avx_vnni", "amx_int8"}
INEXACT_INT8_NOTE = ("int8 products are less exact on this processor, which has no VNNI "
                     "instructions; scores may be lower than on other processors")
LAYER_NORM_EPSILON = 1e-5
SCALAR_TYPES = {"num_heads": "int16", "activation": "int8", "pre_norm": "int8",
                "scale_embeddings": "int8",
                "head_dim": "int32", "num_heads_kv": "int32", "queries_scale": "float32",
                "rotary_dim": "int32", "rotary_interleave": "int8", "rotary_base": "float32"}


class CTranslate2Format(ExportFormat):
    """``model.bin``, ``config.json`` and the vocabulary."""

    name = "ctranslate2"
    quantizations = ("int8", "int16", "bf16", "none")
    packages = ("ctranslate2",)
    runtime = "ctranslate2"

    def unsupported_reasons(self, block: Block) -> list[str]:
        return super().unsupported_reasons(block) or find_unsupported_parts(block)

    def write(self, trained: Checkpoint, folder: Path, quantization: str) -> None:
        from ctranslate2.specs.model_spec import index_spec

        decoding = resolve_decoding(trained.recipe, trained.max_length_a)
        longest = torch.ones(1, trained.max_source_length + 1)
        plan = plan_variables(trained.architecture.block, trained.tokenizer.vocab_size,
                              trained.max_source_length, int(decoding.max_lengths(longest)))
        spec = _build_spec(plan, trained.model.state_dict(), trained.tokenizer)
        spec.validate()
        with np.errstate(all="ignore"):
            spec.optimize(COMPUTE_TYPES[quantization])
        # The int16 scale of an all-zero matrix is infinite: 1, with values of 0, is the same.
        for name, scale in spec.variables().items():
            if name.endswith("_scale") and not isinstance(scale, str) and not np.isfinite(
                    scale.numpy()).all():
                path, _, last = name.rpartition("/")
                node = index_spec(spec, path)
                getattr(node, last).array = np.float32(1)
                getattr(node, last.removesuffix("_scale")).array[:] = 0
        spec.save(str(folder))

    def open_decoder(self, folder: Path, threads: int) -> ArtifactDecoder:
        return CTranslate2Decoder(folder, threads)


class CTranslate2Decoder(ArtifactDecoder):
    """Decoder that runs the translator of CTranslate2.

    Its beam search differs from :mod:`scalesearch.nn.beam_search`: when a hypothesis is finished,
    another one takes its place in the beam.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        from ctranslate2 import Translator

        is_shared = (folder / VOCABULARY_FILE.format("shared")).is_file()
        self.tokens, target_tokens = (
            read_json(folder / VOCABULARY_FILE.format("shared" if is_shared else side), list[str])
            for side in ("source", "target"))
        self.id_by_token = {token: id for id, token in enumerate(target_tokens)}
        self.translator = Translator(str(folder), intra_threads=threads)
        self.compute_type = self.translator.compute_type
        if self.compute_type.startswith("int8") and "flags" in (facts := read_cpuinfo()):
            self.accuracy_note = "" if EXACT_INT8_INSTRUCTION_SETS.intersection(
                facts["flags"].split()) else INEXACT_INT8_NOTE

    def greedy(self, source_ids: list[list[int]], max_lengths: list[int],
               allow_unk: bool = False) -> list[list[int]]:
        # A greedy translation with a lower limit is a prefix of the longer one.
        hypotheses = self._run(source_ids, max(max_lengths), 1, 1.0, 1, allow_unk)
        return [ids[:limit] for [(ids, _)], limit in zip(hypotheses, max_lengths)]

    def beam_search(self, source_ids: list[list[int]], max_lengths: list[int],
                    search: DecodingOptions) -> list[RankedHypotheses]:
        hypotheses: dict[int, RankedHypotheses] = {}
        for limit in sorted(set(max_lengths)):  # the runtime takes one limit per batch
            indices = [index for index, length in enumerate(max_lengths) if length == limit]
            batch = self._run([source_ids[index] for index in indices], limit, search.beam,
                              search.length_penalty, search.n_best, search.allow_unk)
            hypotheses |= dict(zip(indices, batch))
        return [hypotheses[index] for index in range(len(source_ids))]

    def decode_fixed_length(self, source_ids: list[list[int]], length: int, beam: int) -> None:
        self._run(source_ids, length, beam, 1.0, 1, min_length=length)

    def _run(self, source_ids: list[list[int]], max_length: int, beam: int, penalty: float,
             n_best: int, allow_unk: bool = False, min_length: int = 0) -> list[RankedHypotheses]:
        try:
            results = self.translator.translate_batch(
                # The runtime adds EOS.
                [[self.tokens[id] for id in ids[:-1]] for ids in source_ids],
                beam_size=beam, length_penalty=penalty, num_hypotheses=n_best,
                max_decoding_length=max_length, min_decoding_length=min_length, max_input_length=0,
                return_scores=True, disable_unk=not allow_unk,
                suppress_sequences=[[self.tokens[PAD]], [self.tokens[BOS]]])
        except RuntimeError as error:  # e.g. more tokens than the table of positions has rows
            raise UserError(f"CTranslate2: {error}; request fewer tokens",
                            code="too-long") from None
        return [[([self.id_by_token[token] for token in tokens], score)
                 for tokens, score in zip(result.hypotheses, result.scores)] for result in results]


def _build_spec(plan: VariablePlan, weights: Mapping[str, Any], tokenizer: Tokenizer) -> Any:
    """Build the CTranslate2 specification of a model from the names of a plan, with its values."""
    from ctranslate2.specs.model_spec import OPTIONAL, LayerSpec
    from ctranslate2.specs.transformer_spec import TransformerSpec

    root = LayerSpec()

    def place(name: str) -> tuple[dict[str, Any], str]:
        *path, last = name.split("/")
        node = root
        for part in path:
            node = vars(node).setdefault(part, LayerSpec())
        return vars(node), last

    for name, number in plan.scalars.items():
        node, last = place(name)
        node[last] = np.dtype(SCALAR_TYPES[last]).type(number)
    for variable in plan.variables:
        node, last = place(variable.name)
        # A copy, because quantization changes the array in place.
        value = evaluate_source(variable.expression, weights)
        node[last] = value.contiguous().numpy().copy()
        assert node[last].shape == variable.shape, variable.name
        if variable.is_quantized:
            node[f"{last}_scale"] = OPTIONAL
    spec = TransformerSpec.from_config((1, 1), 1)
    spec.encoder = vars(root)["encoder"]
    spec.decoder = vars(root)["decoder"]
    # The checks of the runtime count the rows of this list.
    vars(spec.encoder)["embeddings"] = [vars(spec.encoder).pop("embeddings_0")]
    for stack in (spec.encoder, spec.decoder):
        vars(stack).setdefault("scale_embeddings", True)
    spec.config.layer_norm_epsilon = LAYER_NORM_EPSILON
    spec.config.add_source_eos = True
    tokens = [piece for piece, _ in tokenizer.pieces()]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary([piece for piece, _ in tokenizer.target.pieces()])
    names = dict(zip(("unk_token", "bos_token", "eos_token"), tokens[UNK:]))
    for name, token in (names | {"decoder_start_token": names["bos_token"]}).items():
        setattr(spec.config, name, token)
    return spec


# -- values of the tensor expressions of a plan


CONSTANT_TENSORS: Mapping[str, Callable[[ConstantTensor], Tensor]] = {
    "zeros": lambda source: torch.zeros(source.shape),
    "ones": lambda source: torch.ones(source.shape),
    "identity": lambda source: torch.eye(*source.shape),
    **dict.fromkeys(SINUSOID_DIVISORS, lambda source: sinusoidal_positions(
        torch.arange(source.shape[0]), source.shape[1], torch.float32, source.type)),
    "step": lambda source: sinusoidal_positions(torch.tensor(source.index), source.shape[0],
                                                torch.float32)}


def evaluate_source(source: TensorExpression, weights: Mapping[str, Any]) -> Tensor:
    """Compute the float32 tensor of an expression from a state dict."""
    match source:
        case WeightRef(name):
            weight: Tensor = weights[name]
            return weight.float()
        case ConstantTensor(name):
            return CONSTANT_TENSORS[name](source)
        case TransposedMatrix(of):
            return evaluate_source(of, weights).t()
        # In float64: a product of three factors must be as accurate as the model's.
        case MatrixProduct(left, right):
            return (evaluate_source(left, weights).double()
                    @ evaluate_source(right, weights).double()).float()
        case TensorSum(parts):
            first, *others = (evaluate_source(part, weights) for part in parts)
            return sum(others, first)
        case Concatenation(parts):
            return torch.cat([evaluate_source(part, weights) for part in parts])
        case HeadPadding(of, heads, size):
            rows = evaluate_source(of, weights).unflatten(0, (heads, -1))
            filled = rows.new_zeros(heads, size, *rows.shape[2:])
            filled[:, : rows.shape[1]] = rows
            return filled.flatten(0, 1)
        case BlockDiagonal(of):
            return torch.block_diag(*evaluate_source(of, weights))
        case ContractedChain(cores, parts, rows):
            return cores.matrix(
                [evaluate_source(part, weights).double() for part in parts])[0, :rows, :, 0].float()
