"""Architectures that are a class of transformers: logits, decoding, files, reasons.

Also decoder-only architectures that are not: they are causal language models with own code.
"""

import json
import os
import tempfile
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch

import scalesearch as ss
from scalesearch.blocks.core import PAD
from scalesearch.cli import export as verb
from scalesearch.cost import evaluate_cost, load_protocol
from scalesearch.data import BOS, EOS, load_corpus
from scalesearch.export.huggingface.format import HuggingFaceFormat, NativeDecoder
from scalesearch.export.huggingface.native import find_native_class
from scalesearch.nn import build_model
from scalesearch.nn.decode import greedy_search, length_limits
from scalesearch.spaces import Space
from scalesearch.spaces.assembly.architecture import ModelSpec, assemble
from scalesearch.tasks import TASKS
from scalesearch.training import read_checkpoint, train
from scalesearch.training.checkpoint import Checkpoint
from scalesearch.training.scoring.evaluate import DecodingOptions
from tests.cli.test_train import run
from tests.errors import refuses
from tests.tasks.small import spec_of
from tests.training.conftest import recipe

os.environ["HF_MODULES_CACHE"] = tempfile.mkdtemp()
transformers = pytest.importorskip("transformers", "5")

LLAMA = """
space: llama
model: decoder-only
width: 32
norm_kind: rms
embedding: { tie: none, positions: none, scaled: no, output_bias: no }
decoder:
  depth: 3
  heads: 4
  head_dim: 16
  rotary: yes
  projection_bias: no
  ffn: { swiglu: { hidden: 40 } }
  ffn_bias: no
"""
# Changes of this file, and the class that the architecture then is.
QKV_BIAS = {"decoder.projection_bias": "yes", "decoder.out_bias": "no"}
LANGUAGE_MODELS: list[tuple[str, dict[str, str]]] = [
    ("LlamaForCausalLM", {}),
    ("LlamaForCausalLM", {"embedding.tie": "all", "decoder.key_value_heads": "2",
                          "decoder.projection_bias": "yes", "decoder.ffn_bias": "yes"}),
    ("MistralForCausalLM", {"decoder.window": "3", "decoder.key_value_heads": "1"}),
    ("Qwen2ForCausalLM", QKV_BIAS),
    ("Qwen2ForCausalLM", {**QKV_BIAS, "decoder.window": "4", "decoder.global_every": "2",
                          "width": "30"}),
    ("Qwen3ForCausalLM", {"decoder.qk_norm": "head", "embedding.tie": "all"}),
    ("Qwen3ForCausalLM", {"decoder.qk_norm": "head", "decoder.window": "[3, 0, 3]",
                          "width": "30"})]
CASES = [pytest.param(name, changes, id=f"{name}-{number}")
         for number, (name, changes) in enumerate(LANGUAGE_MODELS)]


def language_model(changes: dict[str, str]) -> ModelSpec:
    return Space.parse(LLAMA).with_overrides(changes).single_architecture()


def as_trained(trained: Checkpoint, architecture: ModelSpec, seed: int = 3) -> Checkpoint:
    """A checkpoint with random weights, none of which is constant."""
    model = build_model(architecture.block, vocab=trained.tokenizer.vocab_size, seed=seed).eval()
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5).add_(0.3 * torch.randn(weight.shape, generator=rng))
    return replace(trained, model=model, architecture=architecture, folder=None)


# the same for encoder-decoder models
MARIAN = """
space: marian
width: 16
norm: post
embedding: { positions: sinusoidal-marian, output_bias: no, max_length: 300 }
encoder: { depth: 2, heads: 4, ffn: { relu: { hidden: 24 } } }
decoder: { depth: 1, heads: 2, ffn: { relu: { hidden: 32 } } }
"""
BART = {"embedding.positions": "learned", "embedding.norm": "yes"}
GELU = {"encoder.ffn": "{ gelu: { hidden: 24 } }", "decoder.ffn": "{ gelu: { hidden: 20 } }"}
TRANSLATION_MODELS: list[tuple[str, dict[str, str]]] = [
    ("MarianMTModel", {}),
    ("MarianMTModel", {"embedding.tie": "decoder", "embedding.scaled": "no", **GELU}),
    ("MarianMTModel", {"embedding.tie": "none", "width": "20"}),
    ("BartForConditionalGeneration", BART),
    ("BartForConditionalGeneration", {**BART, **GELU, "embedding.scaled": "no"})]
TRANSLATION_CASES = [pytest.param(name, changes, id=f"{name}-{number}")
                     for number, (name, changes) in enumerate(TRANSLATION_MODELS)]


def translation_model(changes: dict[str, str]) -> ModelSpec:
    return Space.parse(MARIAN).with_overrides(changes).single_architecture()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A trained language model whose architecture is exactly Llama."""
    folder = tmp_path_factory.mktemp("model")
    spec = spec_of(TASKS["language-model"], folder).with_absolute_paths(folder)
    corpus = load_corpus(spec, folder / "cache")
    train(language_model({}), corpus, recipe(steps=30), folder / "model")
    return read_checkpoint(folder / "model")


def written(candidate: Checkpoint, folder: Path, quantization: str = "none") -> Path:
    folder.mkdir(exist_ok=True)
    HuggingFaceFormat().write(candidate, folder, quantization)
    return folder


def random_texts(candidate):
    """Three texts of 14 random tokens, as a language model reads them."""
    rng = Random(4)
    vocab = candidate.tokenizer.vocab_size
    return torch.tensor([[EOS, BOS, *(rng.randrange(4, vocab) for _ in range(14))]
                         for _ in range(3)])


def random_rows(vocab: int, rng: Random, batch: int = 12) -> list[list[int]]:
    return [[*(rng.randrange(4, vocab) for _ in range(rng.randint(1, 9))), EOS]
            for _ in range(batch)]


def padded(rows: list[list[int]]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


@pytest.mark.parametrize(("name", "changes"), CASES)
def test_language_model_is_loaded_by_its_class_with_equal_logits_and_tokens(
        name: str, changes: dict[str, str], trained: Checkpoint, tmp_path: Path) -> None:
    candidate = as_trained(trained, language_model(changes))
    folder = written(candidate, tmp_path / "out")
    assert not list(folder.glob("*.py"))
    assert "num_beams" not in (folder / "generation_config.json").read_text()
    loaded, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True)
    assert type(loaded).__name__ == name
    assert not any(report.values()), report
    assert loaded.num_parameters() == sum(weight.numel()
                                          for weight in candidate.model.parameters())
    ids = random_texts(candidate)
    with torch.no_grad():
        expected = candidate.model(ids[:, :1], ids[:, 1:])
        logits = loaded(ids).logits
    assert torch.allclose(logits[:, 1:], expected, atol=1e-4)
    assert expected.std() > 0.3  # other weights would give other logits
    rows = random_rows(candidate.tokenizer.vocab_size, Random(5))
    limits = length_limits(candidate.model, padded(rows))
    decoder = HuggingFaceFormat().open_decoder(folder, 1)
    assert isinstance(decoder, NativeDecoder)
    greedy = greedy_search(candidate.model, padded(rows)).best_ids()
    assert decoder.greedy(rows, limits.tolist()) == greedy
    best = decoder.beam_search(rows, limits.tolist(), DecodingOptions(3, 1.0, n_best=2))
    assert all(len(ranked) == 2 and ranked[0][1] >= ranked[1][1] for ranked in best)


@pytest.mark.parametrize(("name", "changes"), CASES)
def test_import_of_the_exported_configuration_is_the_architecture(
        name: str, changes: dict[str, str], trained: Checkpoint, tmp_path: Path) -> None:
    candidate = as_trained(trained, language_model(changes))
    check_round_trip(candidate, written(candidate, tmp_path / "out"))


def check_round_trip(candidate: Checkpoint, folder: Path) -> None:
    space = ss.from_huggingface(folder)
    assert space.not_expressed == ()
    read = space.definition.single_architecture()
    own = {**candidate.architecture.config, "vocab": candidate.tokenizer.vocab_size}
    assert read.id == assemble(own).id
    protocol = load_protocol({"vocab": candidate.tokenizer.vocab_size})
    assert (evaluate_cost(read.block, protocol).values
            == evaluate_cost(candidate.architecture.block, protocol).values)


@pytest.mark.parametrize(("name", "changes"), TRANSLATION_CASES)
def test_translation_model_is_loaded_by_its_class_with_equal_logits_and_tokens(
        name: str, changes: dict[str, str], trained_folder: Path, tmp_path: Path) -> None:
    candidate = as_trained(read_checkpoint(trained_folder), translation_model(changes))
    folder = written(candidate, tmp_path / "out")
    assert not list(folder.glob("*.py"))
    loaded, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        folder, output_loading_info=True)
    assert type(loaded).__name__ == name
    # the positions of Marian, and biases that are zero, are computed
    assert not any(values for part, values in report.items() if part != "missing_keys"), report
    assert all("embed_positions" in key or key == "final_logits_bias"
               for key in report["missing_keys"])
    rng = Random(4)
    vocab = candidate.tokenizer.vocab_size
    rows = random_rows(vocab, rng)
    source = padded(rows)
    target = torch.tensor([[BOS, *(rng.randrange(4, vocab) for _ in range(20))] for _ in rows])
    with torch.no_grad():
        # in fp64, because the trained weights amplify the rounding of fp32 beyond the tolerance
        expected = deepcopy(candidate.model).double()(source, target)
        logits = deepcopy(loaded).double()(input_ids=source, attention_mask=source != PAD,
                                           decoder_input_ids=target).logits
    assert torch.allclose(logits, expected, atol=1e-4)
    assert expected.std() > 0.3
    limits = length_limits(candidate.model, source)
    decoder = HuggingFaceFormat().open_decoder(folder, 1)
    assert isinstance(decoder, NativeDecoder)
    assert decoder.greedy(rows, limits.tolist()) == greedy_search(
        candidate.model, source).best_ids()
    check_round_trip(candidate, folder)
    loaded.save_pretrained(tmp_path / "again")
    again = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "again")
    assert torch.equal(again(source, decoder_input_ids=target).logits,
                       loaded(source, decoder_input_ids=target).logits)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    lines = ["the red dog runs", "one old cat runs"]
    assert tokenizer(lines)["input_ids"] == [[*ids, EOS]
                                             for ids in candidate.tokenizer.encode(lines)]


def test_learned_positions_must_suffice_for_those_that_bart_does_not_use(
        trained_folder: Path, tmp_path: Path) -> None:
    architecture = translation_model({**BART, "embedding.max_length": "102"})
    assert find_native_class(architecture, 100).model is not None
    search = find_native_class(architecture, 101)
    assert search.reasons == ["embedding.max_length: at least 103, because 2 positions are not "
                              "used"]
    candidate = as_trained(read_checkpoint(trained_folder), architecture)
    decoder = HuggingFaceFormat().open_decoder(written(
        replace(candidate, spec=candidate.spec.replace(max_length=99)), tmp_path / "out"), 1)
    assert len(decoder.greedy([[5] * 99 + [EOS]], [150])[0]) <= 99
    with refuses("sentence-too-long", "101 tokens"):
        decoder.greedy([[5] * 100 + [EOS]], [10])


def test_tokenizer_starts_texts_as_in_training_and_generate_continues_them(
        trained: Checkpoint, tmp_path: Path) -> None:
    folder = written(trained, tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    lines = ["the red dog", "one old cat runs"]
    ids = trained.tokenizer.encode(lines)
    assert tokenizer(lines)["input_ids"] == [[EOS, BOS, *row] for row in ids]
    output = model.generate(**tokenizer(lines, return_tensors="pt", padding=True),
                            max_new_tokens=4, num_beams=1)
    for row, prompt in zip(output.tolist(), ids):
        row = [token for token in row if token != PAD]
        generated = row[2 + len(prompt) :]
        logits = trained.model(torch.tensor([[EOS]]), torch.tensor([row[1:-1]]))[0]
        logits[:, [PAD, 1, BOS]] = -torch.inf
        assert generated == logits[-len(generated) :].argmax(-1).tolist()
    loss = model(**tokenizer(lines[:1], return_tensors="pt"),
                 labels=tokenizer(lines[:1], return_tensors="pt")["input_ids"]).loss
    assert loss > 0
    model.save_pretrained(tmp_path / "again")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "again")
    assert torch.equal(again(output).logits, model(output).logits)


# Decoder-only architectures without a class: experts; a convolution, whose state follows the
# padding; a recurrence in windows; learned positions.
OWN_CODE: list[dict[str, str]] = [
    {"decoder.ffn": "{ mixture: { experts: 4, active: 2, expert_hidden: 8 } }"},
    {"decoder.local": "{ lightweight: { join: sum, kernel: 3, heads: 4 } }", "norm_kind": "layer"},
    {"decoder.window": "3", "decoder.local": "{ ssru: { join: sum } }"},
    {"embedding.positions": "learned", "embedding.max_length": "40", "norm": "post"}]


@pytest.mark.parametrize("changes", OWN_CODE, ids=range(len(OWN_CODE)))
def test_other_language_models_are_causal_language_models_with_own_code(
        changes: dict[str, str], trained: Checkpoint, tmp_path: Path) -> None:
    candidate = as_trained(trained, language_model(changes))
    folder = written(candidate, tmp_path / "out")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    assert type(model).__name__ == "ScalesearchForCausalLM"
    assert not model.config.is_encoder_decoder
    for name in ("config.json", "README.md"):
        assert "Seq2Seq" not in (folder / name).read_text()
    ids = random_texts(candidate)
    with torch.no_grad():
        expected = candidate.model(ids[:, :1], ids[:, 1:])
        output = model(ids, labels=ids)
        assert torch.equal(output.logits[:, 1:], expected)
        # with a cache, sums have another order
        assert torch.allclose(model(ids, logits_to_keep=2).logits, expected[:, -2:], atol=1e-4)
    assert torch.allclose(output.loss, torch.nn.functional.cross_entropy(
        output.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()))
    rows = random_rows(candidate.tokenizer.vocab_size, Random(5))
    limits = length_limits(candidate.model, padded(rows))
    decoder = HuggingFaceFormat().open_decoder(folder, 1)
    assert decoder.greedy(rows, limits.tolist()) == greedy_search(
        candidate.model, padded(rows)).best_ids()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    prompts = ["the", "one old cat runs and", "red"]
    batch = tokenizer(prompts, return_tensors="pt", padding=True)
    search = {"max_length": None, "max_new_tokens": 5, "min_new_tokens": 5}
    for beams in (1, 3):
        generated = model.generate(**batch, num_beams=beams, **search)
        assert torch.equal(generated[:, :-5], batch["input_ids"])  # the prompt is returned
        assert torch.equal(generated, model.generate(**batch, num_beams=beams, use_cache=False,
                                                     **search))
        for row, prompt in zip(generated, prompts):
            single = model.generate(**tokenizer(prompt, return_tensors="pt"), num_beams=beams,
                                    **search)
            assert row[-5:].tolist() == single[0, -5:].tolist()
    with pytest.raises(ValueError, match="attention_mask"):
        model(ids, attention_mask=torch.ones(3, 5))
    model.save_pretrained(tmp_path / "again")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "again",
                                                              trust_remote_code=True)
    assert torch.equal(again(ids, labels=ids).logits, output.logits)


@pytest.mark.parametrize("changes", [OWN_CODE[1], OWN_CODE[3]], ids=["any length", "positions"])
def test_decoder_only_translation_model_is_a_causal_language_model(
        changes: dict[str, str], trained_folder: Path, tmp_path: Path) -> None:
    candidate = as_trained(read_checkpoint(trained_folder), language_model(changes))
    folder = written(candidate, tmp_path / "out")
    rows = random_rows(candidate.tokenizer.vocab_size, Random(4))
    limits = length_limits(candidate.model, padded(rows))
    decoder = HuggingFaceFormat().open_decoder(folder, 1)
    assert decoder.greedy(rows, limits.tolist()) == greedy_search(
        candidate.model, padded(rows)).best_ids()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    assert tokenizer("the red dog")["input_ids"] == [
        *candidate.tokenizer.encode(["the red dog"])[0], EOS, BOS]
    # the longest source and target, or the number of learned positions
    longest = 2 * (candidate.max_source_length + 1)
    limit = json.loads((folder / "generation_config.json").read_text())["max_length"]
    assert limit == (40 if "embedding.max_length" in changes else longest) <= longest
    assert tokenizer.model_max_length == limit
    card = (folder / "README.md").read_text()
    assert "AutoModelForCausalLM" in card and "without the source" in card


def test_weights_in_bf16(trained: Checkpoint, tmp_path: Path) -> None:
    folder = written(trained, tmp_path / "out", "bf16")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}


def test_export_command_verifies_the_native_class(trained: Checkpoint, tmp_path: Path) -> None:
    done = run(verb, trained.folder, "--to", "huggingface", "--out", tmp_path / "out",
               "--sentences", 8, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["verification"]["float"]["different"] == 0
    assert "LlamaForCausalLM" in report["notes"][0]
    assert "AutoModelForCausalLM" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize(("changes", "reasons"), [
    ({"decoder.rotary": "no"}, ["decoder.rotary: yes, not no"]),
    ({"norm_kind": "layer", "embedding.output_bias": "yes"},
     ["norm_kind: rms, not layer", "embedding.output_bias: no, not yes"]),
    ({"embedding.tie": "all", "embedding.output_bias": "yes", "decoder.alibi": "yes"},
     ["decoder.alibi: no, not yes"]),
    ({"share.decoder.ffn": "one"}, ["share.decoder.ffn: own, not one"]),
    ({"decoder.ffn.hidden": "[40, 40, 48]"}, ["decoder.ffn.hidden: 40, not [40, 40, 48]"]),
    ({"decoder.ffn": "{ geglu: { hidden: 40 } }"}, ["decoder.ffn: swiglu, not geglu"]),
    ({"decoder.ffn": "{ mixture: { experts: 4, active: 2 } }"},
     ["decoder.ffn: swiglu, not mixture"]),
    # each of the two keys alone is redundant, and Mistral would attend in a window in all layers
    ({"decoder.window": "[3, 0, 3]", "decoder.global_every": "2"},
     ["decoder.window: 0, not [3, 0, 3]"]),
    ({"width": "30"}, ["width: a multiple of decoder.heads (4), not 30"])])
def test_keys_that_prevent_the_class_are_listed(changes: dict[str, str],
                                                reasons: list[str]) -> None:
    search = find_native_class(language_model(changes))
    assert search.model is None
    assert (search.nearest, search.reasons) == ("LlamaForCausalLM", reasons)


@pytest.mark.parametrize(("changes", "nearest", "reasons"), [
    ({"norm": "pre"}, "MarianMTModel", ["norm: post, not pre"]),
    ({"embedding.positions": "sinusoidal"}, "MarianMTModel",
     ["embedding.positions: sinusoidal-marian, not sinusoidal"]),
    ({**BART, "embedding.tied_bias": "yes"}, "BartForConditionalGeneration",
     ["embedding.tied_bias: no, not yes"]),
    ({"decoder.ffn": "{ gelu: { hidden: 24 } }"}, "MarianMTModel", ["decoder.ffn: relu, not gelu"]),
    ({"encoder.heads": "[4, 0]"}, "MarianMTModel", ["encoder.heads: 4, not [4, 0]"]),
    ({"encoder.head_dim": "8"}, "MarianMTModel", ["encoder.head_dim: 4, not 8"])])
def test_keys_that_prevent_classes_of_encoder_decoder_models_are_listed(
        changes: dict[str, str], nearest: str, reasons: list[str]) -> None:
    search = find_native_class(translation_model(changes))
    assert search.model is None
    assert (search.nearest, search.reasons) == (nearest, reasons)
