"""Masked tokens of batches, and their loss and accuracy, compared with PyTorch."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.data import BOS, EOS, PAD, BatchStream, eval_batches, make_batch, remask
from scalesearch.data.batching import Buckets, training_batches
from scalesearch.data.split import Masking
from scalesearch.export.base import check_exportable, get_format
from scalesearch.nn import build_model
from scalesearch.spaces.assembly.architecture import assemble
from scalesearch.tasks import TASKS
from scalesearch.training import Recipe, train
from scalesearch.training.hardware import Hardware
from scalesearch.training.scoring.evaluate import DecodingOptions, open_search, score_split
from scalesearch.training.updates.engine import Engine
from tests.architectures import transformer_config
from tests.errors import refuses
from tests.tasks.small import corpus_of, model_for

TASK = TASKS["masked-language-model"]
RECIPE = Recipe(steps=1, threads=1, device="cpu", precision="fp32")


def test_masks_have_the_shares_of_bert() -> None:
    tokens = np.random.default_rng(1).integers(4, 500, (400, 100))
    source, labels = Masking(500, 0.15, seed=3).apply(tokens, np.arange(400))
    is_label = labels != PAD
    assert (is_label.sum(1) == 15).all() and (labels[is_label] == tokens[is_label]).all()
    assert (source[~is_label] == tokens[~is_label]).all()
    kinds = Counter(np.where(source == BOS, "mask", np.where(source == tokens, "same", "other"))
                    [is_label].tolist())
    shares = {kind: count / is_label.sum() for kind, count in kinds.items()}
    assert shares == pytest.approx({"mask": 0.8, "other": 0.1, "same": 0.1}, abs=0.02)


def test_selection_depends_on_the_window_and_the_epoch_only(tmp_path) -> None:
    corpus = corpus_of(TASK, tmp_path)
    together = make_batch(corpus.train, np.array([4, 2, 7]))
    for row, index in enumerate(together.indices):
        alone = make_batch(corpus.train, np.array([index]))
        width = alone.source.shape[1]
        assert (alone.source[0] == together.source[row, :width]).all()
        assert (alone.target_out[0] == together.target_out[row, :width]).all()
    epochs = [remask(corpus, 0.3, 1, epoch) for epoch in (0, 1, 0)]
    first, second, again = (make_batch(split, np.arange(5)).target_out for split in epochs)
    assert (first == again).all() and (first != second).any()
    stream = BatchStream(corpus.train, 200, 1, lambda epoch: epochs[epoch])
    assert any(stream.take(1)[0].tokens == batch.tokens
               for batch in training_batches(epochs[0], 200, 1))


def test_counts_of_planned_batches_are_those_of_their_labels(tmp_path) -> None:
    corpus = corpus_of(TASK, tmp_path, window=30, stride=30)
    buckets = Buckets.for_split(corpus.train, 200)
    for batch in training_batches(corpus.train, 200, buckets=buckets):
        assert batch.tokens == np.count_nonzero(batch.target_out)
        assert batch.source.shape == batch.target_out.shape
    lengths = corpus.train.target_ids.lengths
    assert corpus.mean_lengths == (round(float(lengths.mean())), round(0.15 * lengths.mean()))


def test_loss_and_accuracy_equal_pytorch(tmp_path) -> None:
    corpus = corpus_of(TASK, tmp_path, window=12, stride=12)
    model = build_model(model_for(TASK, embedding__output_transform=True).block,
                        vocab=corpus.tokenizer.vocab_size, dtype=torch.float64).eval()
    losses = []
    correct = 0
    for batch in eval_batches(corpus.validation, 50):
        source, labels = map(torch.from_numpy, (batch.source, batch.target_out))
        logits = model(source, source)
        losses.append(cross_entropy(logits[labels != PAD], labels[labels != PAD],
                                    reduction="none"))
        correct += int((logits.argmax(-1) == labels)[labels != PAD].sum())
    expected = torch.cat(losses)
    engine = Engine(model, RECIPE, Hardware.from_recipe(RECIPE))
    metrics = score_split(engine, corpus, "validation", DecodingOptions(1))
    assert metrics["loss"] == pytest.approx(float(expected.mean()), rel=1e-9)
    assert metrics["masked_accuracy"] == pytest.approx(100 * correct / len(expected))
    assert f"masked tokens:{len(expected)}" in metrics["perplexity_signature"]


def test_positions_attend_to_both_sides_and_not_to_padding() -> None:
    model = build_model(model_for(TASK).block, vocab=20, dtype=torch.float64).eval()
    source = torch.tensor([[5, 6, 7, 8]])
    changed = torch.tensor([[5, 6, 7, 9]])
    assert not torch.allclose(model(source, source)[0, 0], model(changed, changed)[0, 0])
    padded = torch.tensor([[5, 6, 7, 8, PAD, PAD]])
    assert torch.allclose(model(padded, padded)[:, :4], model(source, source))


@pytest.mark.full
def test_training_learns_words_from_their_context(tmp_path) -> None:
    """Lines repeat a word: the unmasked copies determine the masked ones."""
    for split, count in (("train", 400), ("validation", 40)):
        words = np.random.default_rng(len(split)).choice(["red", "blue", "old", "big"], count)
        (tmp_path / f"{split}.txt").write_text("".join(f"{word} {word} {word}\n" for word in words))
    from scalesearch.data import DataSpec, load_corpus

    spec = DataSpec.from_mapping({"task": TASK.name, "vocab": 24, "window": 16,
                                  "train": "train.txt", "validation": "validation.txt"})
    corpus = load_corpus(spec, tmp_path / "cache", tmp_path)
    recipe = Recipe(steps=400, max_tokens=512, lr=1e-2, threads=1, device="cpu", dropout=0,
                    mask_ratio=0.3, validate_every=50.0)
    result = train(model_for(TASK), corpus, recipe, tmp_path / "run")
    assert result.state == "complete", result.reason
    assert result.metrics["masked_accuracy"] > 60  # 25 % without context


def test_costs_do_not_depend_on_the_decoder() -> None:
    first, second = (assemble(transformer_config(model="encoder-only", decoder__depth=depth))
                     for depth in (1, 5))
    assert first.id == second.id and not any(key.startswith("decoder") for key in first.config)
    protocol = find_protocol("forward", 12, 3, 100)
    costs = evaluate_cost(first.block, protocol)
    assert costs["params.decoder"] == costs["macs.decoder"] == costs["memory.cache"] == 0
    context = evaluate_cost(first.block, find_protocol(length=12, vocab=100)).by_quantity["macs"]
    assert "prefill" in context and "decode_step" not in context
    every = evaluate_cost(first.block, replace(find_protocol("forward", 12, 12, 100)))
    d = first.config["width"]
    assert every["macs.total"] - costs["macs.total"] == 9 * d * 100


def test_what_needs_a_decoder_is_refused(tmp_path) -> None:
    block = model_for(TASK).block
    for name in ("onnx", "huggingface", "ctranslate2"):
        with refuses("not-exportable", "torch"):
            check_exportable(get_format(name), block, "none")
    assert evaluate_cost(block, find_protocol())["refusals.ctranslate2"] == 1
    model = build_model(block, vocab=9)
    with refuses("no-decoder"), open_search(model, Hardware.from_recipe(RECIPE),
                                            DecodingOptions(1), []):
        pass
    with refuses("other-model", "encoder-only", key="space"):
        train(model_for(TASK), corpus_of(TASKS["language-model"], tmp_path), RECIPE, tmp_path / "a")
    assert EOS in corpus_of(TASK, tmp_path).train.target_ids.flat
