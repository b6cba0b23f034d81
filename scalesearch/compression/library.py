"""Library of replacements: their weights on disk, with scores.

::

    blocks/encoder.1/                          replacements of blocks of encoder layer 1
    blocks/encoder.1/encoder.ffn.1-1.128.safetensors      weights of one
    blocks/encoder.1/encoder.ffn.1-1.128.json             its score
    blocks/encoder.1/result.json               all scores of the layer, when it is complete

The score of a replacement is the rise of the validation loss, in nats per character, with this
block replaced in the parent and nothing else changed. Its standard error is that of paired
differences between sentences.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from scalesearch.blocks.core import PAD
from scalesearch.compression.alternatives import CHAINS, Alternative, MeasuredCombination, Parent
from scalesearch.compression.initialize import (
    BlockCall,
    approximate_maps,
    fit_outputs,
    gram_matrix,
    keep_units,
    output_error,
    recorded_calls,
    remove_units,
)
from scalesearch.data import Corpus
from scalesearch.data.batching import Batch, eval_batches, make_batch
from scalesearch.files import read_regular, try_read_json, write_atomic, write_json, write_text
from scalesearch.library import ARCHITECTURE_FILE
from scalesearch.nn import build_model
from scalesearch.nn.model import EncoderMemory, Seq2SeqModel
from scalesearch.training.checkpoint import (
    DATA_FILE,
    RECIPE_FILE,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
)
from scalesearch.training.scoring.evaluate import tokens_per_character
from scalesearch.training.updates.averaging import read_weights, write_weights

BATCH_TOKENS = 4096
CALIBRATION_SEED = 0


@dataclass(frozen=True)
class FitSettings:
    """How replacements are initialized.

    Attributes:
        pairs: training pairs whose activations are recorded.
        steps: updates of each replacement; 0 for least squares only.
        lr: peak learning rate of these updates.
        checks: combinations whose loss is measured.
        interactions: pairs in neighboring layers whose loss is measured.
    """

    pairs: int = 1000
    steps: int = 200
    lr: float = 2e-3
    checks: int = 30
    interactions: int = 0


@dataclass(frozen=True)
class BlockScore:
    """A replacement in the library.

    Attributes:
        alternative: what it replaces.
        rise: rise of the validation loss, in nats per character.
        standard_error: of the rise.
        output_error: squared error of its outputs relative to their mean square, on the calibration
            pairs; 1 if the block is removed.
        cpu_seconds: CPU time of initialization and score.
    """

    alternative: Alternative
    rise: float
    standard_error: float
    output_error: float
    cpu_seconds: float


@dataclass(frozen=True)
class LayerResult:
    """Result of a job of one layer."""

    scores: tuple[BlockScore, ...]
    parent_loss: float
    state: str = "complete"
    cpu_seconds: float = 0.0


def layer_folder(library: Path, stack: str, layer: int) -> Path:
    """Folder of the replacements whose first layer is ``layer``, from 0."""
    return library / f"{stack}.{layer + 1}"


def weights_file(library: Path, alternative: Alternative) -> Path:
    """File of the weights of a replacement."""
    structure = f"{alternative.structure}." if alternative.structure else ""
    name = (f"{alternative.chain}.{alternative.first + 1}-{alternative.last + 1}."
            f"{structure}{alternative.size}.safetensors")
    return layer_folder(library, alternative.chain.partition(".")[0], alternative.first) / name


# -- weights of combinations


def combine_weights(parent: Parent, parent_weights: Mapping[str, Tensor],
                    combination: Sequence[Alternative], library: Path,
                    vocab: int) -> Seq2SeqModel:
    """Build the model of a combination, with the weights of the parent and of the library.

    Raises:
        UserError: a file of the library was changed or is missing. If its folder is deleted, the
            resumed study makes it again.
    """
    replaced: dict[str, Tensor] = {}
    for alternative in combination:
        if alternative.size:
            replaced |= read_weights(weights_file(library, alternative))
    return load_combination(parent, parent_weights, combination, replaced, vocab)


def load_combination(parent: Parent, parent_weights: Mapping[str, Tensor],
                     combination: Sequence[Alternative], replaced: Mapping[str, Tensor],
                     vocab: int) -> Seq2SeqModel:
    """Build the model of a combination; weights that are not replaced are the parent's.

    Weights in ``replaced`` and those of the parent have the parent's numbers of layers. Weights
    that neither of them has in the right shape keep their initial values.
    """
    _, kept = parent.configuration(combination)
    model = build_model(parent.assemble(combination).block, vocab=vocab)
    weights = model.state_dict()
    for name in weights:
        stack, _, path_in_layers = name.partition(".layers.")
        source = name
        if path_in_layers:
            layer, _, path = path_in_layers.partition(".")
            source = f"{stack}.layers.{kept[stack][int(layer)]}.{path}"
        value = replaced.get(source, parent_weights.get(source))
        if value is not None and value.shape == weights[name].shape:
            weights[name] = value
    model.load_state_dict(weights)
    return model.eval()


# -- checks of additivity


@dataclass(frozen=True)
class MeasuredResult:
    """Result of a job that measures combinations."""

    combinations: tuple[MeasuredCombination, ...]
    state: str = "complete"
    cpu_seconds: float = 0.0


def measure_combinations(parent: Parent, model: Seq2SeqModel, corpus: Corpus,
                         combinations: Sequence[Sequence[Alternative]], library: Path,
                         report: Callable[[int, int], None]) -> MeasuredResult:
    """Measure the losses of combinations with the weights of the library."""
    start = time.process_time()
    batches = list(eval_batches(corpus.validation, BATCH_TOKENS))
    parent_losses = sentence_losses(model, batches)
    characters = count_characters(corpus, batches)
    measured = []
    for number, combination in enumerate(combinations):
        report(number, len(combinations))
        combined = combine_weights(parent, model.state_dict(), combination, library,
                                   corpus.tokenizer.vocab_size)
        rise = rise_of_loss(sentence_losses(combined, batches), parent_losses, characters)
        measured.append(MeasuredCombination(tuple(combination), *rise))
    return MeasuredResult(tuple(measured), cpu_seconds=time.process_time() - start)


# -- losses


def sentence_losses(model: Seq2SeqModel, batches: Iterable[Batch],
                    memories: Sequence[EncoderMemory] | None = None) -> NDArray[np.float64]:
    """Compute the negative log-likelihood of each target in nats, in the order of the batches.

    Args:
        model: the model.
        batches: the sentences.
        memories: outputs of the encoder for each batch, if they are known.
    """
    losses = []
    with torch.inference_mode(), model.cached_weights():
        for index, batch in enumerate(batches):
            memory = memories[index] if memories else model.encode(torch.from_numpy(batch.source))
            states = model.decode(torch.from_numpy(batch.target_in), memory)
            target = torch.from_numpy(batch.target_out)
            is_token = target != PAD
            values = torch.zeros(target.shape)
            values[is_token] = cross_entropy(model.logits(states[is_token]), target[is_token],
                                             reduction="none")
            losses.append(values.double().sum(1).numpy())
    return np.concatenate(losses)


def count_characters(corpus: Corpus, batches: Iterable[Batch]) -> float:
    """Number of characters of the validation targets, as in ``loss_per_char``."""
    return sum(batch.tokens for batch in batches) / tokens_per_character(corpus, "validation")


def rise_of_loss(losses: NDArray[np.float64], parent_losses: NDArray[np.float64],
                 characters: float) -> tuple[float, float]:
    """Return the rise of the loss per character, and its standard error."""
    differences = losses - parent_losses
    error = differences.std(ddof=1) * math.sqrt(len(differences))
    return float(differences.sum()) / characters, float(error) / characters


# -- jobs


def build_layer(parent: Parent, model: Seq2SeqModel, corpus: Corpus, stack: str, layer: int,
                alternatives: Sequence[Alternative], library: Path, settings: FitSettings,
                report: Callable[[int, int], None]) -> LayerResult:
    """Make and score the replacements whose first layer is ``layer``; finished ones are kept.

    Args:
        parent, model: the parent.
        corpus: its data.
        stack, layer: which layer, from 0.
        alternatives: all alternatives.
        library: folder of the library.
        settings: how replacements are initialized.
        report: called with the numbers of finished and of all replacements.
    """
    start = time.process_time()
    own = [alternative for alternative in alternatives
           if alternative.chain.startswith(f"{stack}.") and alternative.first == layer]
    parent_weights = model.state_dict()
    vocab = corpus.tokenizer.vocab_size
    batches = list(eval_batches(corpus.validation, BATCH_TOKENS))
    memories = None
    if stack == "decoder":
        with torch.inference_mode():
            memories = [model.encode(torch.from_numpy(batch.source)) for batch in batches]
    parent_losses = sentence_losses(model, batches, memories)
    characters = count_characters(corpus, batches)
    last = max((alternative.last for alternative in own), default=layer)
    calls = record_blocks(model, corpus, stack, range(layer, last + 1), settings.pairs)
    orders: dict[str, Any] = {}
    scores = []
    report(0, len(own))
    for number, alternative in enumerate(own):
        file = weights_file(library, alternative)
        score = try_read_json(file.with_suffix(".json"), BlockScore)
        if score is None:
            began = time.process_time()
            replaced: dict[str, Tensor] = {}
            error = 1.0
            if alternative.size:
                changes_size = (alternative.first == alternative.last and not alternative.structure)
                if changes_size and alternative.chain not in orders:
                    orders[alternative.chain] = _removal_order(parent, model, alternative, own,
                                                               calls)
                fitted = load_combination(parent, parent_weights, [alternative], {}, vocab)
                replaced, error = _fit(parent, model, fitted, alternative, calls, settings,
                                       orders.get(alternative.chain),
                                       partial(report, number, len(own)))
                file.parent.mkdir(parents=True, exist_ok=True)
                write_weights(file, replaced)
            candidate = load_combination(parent, parent_weights, [alternative], replaced, vocab)
            losses = sentence_losses(candidate, batches, memories)
            rise, standard_error = rise_of_loss(losses, parent_losses, characters)
            score = BlockScore(alternative, rise, standard_error, error,
                               time.process_time() - began)
            write_json(file.with_suffix(".json"), asdict(score))
        scores.append(score)
        report(number + 1, len(own))
    return LayerResult(tuple(scores), float(parent_losses.sum()) / characters,
                       cpu_seconds=time.process_time() - start)


def record_blocks(model: Seq2SeqModel, corpus: Corpus, stack: str, layers: Iterable[int],
                  pairs: int) -> dict[str, list[BlockCall]]:
    """Record the calls of all blocks in some layers of the parent, on training pairs.

    Returns:
        Calls by path, such as ``encoder.layers.0.ffn``, one per batch.
    """
    split = corpus.train
    generator = np.random.default_rng(CALIBRATION_SEED)
    chosen = generator.permutation(len(split))[:pairs]
    lengths = split.source_ids.lengths[chosen] + split.target_ids.lengths[chosen]
    chosen = chosen[np.argsort(lengths)]
    n_batches = max(1, int(lengths.sum()) // BATCH_TOKENS)
    batches = [make_batch(split, indices) for indices in np.array_split(chosen, n_batches)]
    modules = {}
    last_maps = {}
    for layer in layers:
        for chain, (_, part, last) in CHAINS.items():
            path = f"{stack}.layers.{layer}.{part}"
            if chain.startswith(f"{stack}.") and hasattr(
                    model.get_submodule(f"{stack}.layers.{layer}"), part):
                modules[path] = model.get_submodule(path)
                last_maps[path] = last
    with torch.no_grad(), recorded_calls(modules, last_maps) as recorded:
        for index in generator.permutation(len(batches)):
            batch = batches[index]
            source = torch.from_numpy(batch.source)
            target = torch.from_numpy(batch.target_in)
            is_token = (source if stack == "encoder" else target) != PAD
            model.decode(target, model.encode(source))
            for calls in recorded.values():
                arguments, output, features = calls[-1]
                calls[-1] = BlockCall(arguments, output, features, is_token)
    return recorded


def _removal_order(parent: Parent, model: Seq2SeqModel, alternative: Alternative,
                   alternatives: Sequence[Alternative],
                   calls: Mapping[str, Sequence[BlockCall]]) -> Any:
    _, part, last = CHAINS[alternative.chain]
    stack = alternative.chain.partition(".")[0]
    path = f"{stack}.layers.{alternative.first}.{part}"
    last_map: Any = model.get_submodule(f"{path}.{last}")
    augmented = torch.cat([last_map.weight.detach().T, last_map.bias.detach()[None]])
    sizes = [other.size for other in alternatives
             if other.chain == alternative.chain and other.first == other.last
             and not other.structure]
    return remove_units(gram_matrix(calls[path]), augmented,
                        parent.sizes[alternative.chain][alternative.first], sizes)


def _fit(parent: Parent, model: Seq2SeqModel, fitted: Seq2SeqModel, alternative: Alternative,
         calls: Mapping[str, Sequence[BlockCall]], settings: FitSettings, order: Any,
         check: Callable[[], None]) -> tuple[dict[str, Tensor], float]:
    """Initialize and train a replacement; return its weights and its output error."""
    _, part, last = CHAINS[alternative.chain]
    stack = alternative.chain.partition(".")[0]
    paths = [f"{stack}.layers.{layer}.{part}" for layer in alternative.layers]
    modules = [fitted.get_submodule(path) for path in paths]
    layer_calls = [calls[path] for path in paths]
    if alternative.structure:
        approximate_maps(modules[0], model.get_submodule(paths[0]), last, layer_calls[0])
    elif alternative.first == alternative.last:
        keep_units(modules[0], model.get_submodule(paths[0]), order, last, alternative.size,
                   parent.sizes[alternative.chain][alternative.first])
    fit_outputs(modules, layer_calls, settings.steps, settings.lr, check)
    errors = [output_error(module, of_layer) for module, of_layer in zip(modules, layer_calls)]
    prefix = f"{paths[0]}."
    weights = {name: value.detach().clone() for name, value in fitted.state_dict().items()
               if name.startswith(prefix)}
    return weights, sum(errors) / len(errors)


def write_combination(parent: Parent, parent_folder: Path, parent_weights: Mapping[str, Tensor],
                      combination: Sequence[Alternative], library: Path, folder: Path,
                      vocab: int) -> None:
    """Write the model of a combination as the folder of a training run; an existing one is kept."""
    if (folder / WEIGHTS_FILE).exists():
        return
    model = combine_weights(parent, parent_weights, combination, library, vocab)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (TOKENIZER_FILE, RECIPE_FILE, DATA_FILE):
        content = read_regular(parent_folder / name)
        write_atomic(folder / name, methodcaller("write", content))
    write_text(folder / ARCHITECTURE_FILE, parent.assemble(combination).to_yaml())
    write_weights(folder / WEIGHTS_FILE, model.state_dict())
