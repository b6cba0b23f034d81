"""Exported models in transformers 5: loading, decoding, saving and training."""

import copy
import io
import json
import os
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sentencepiece
import torch

from scalesearch.blocks.core import PAD
from scalesearch.cli import export as verb
from scalesearch.cli import translate as translate_verb
from scalesearch.data import EOS, Tokenizer
from scalesearch.export.export import export_model, open_artifact
from scalesearch.export.huggingface.format import HuggingFaceDecoder, HuggingFaceFormat
from scalesearch.export.huggingface.tokenizer import check_tokenizer, tokenizer_json
from scalesearch.nn import build_model
from scalesearch.nn.beam_search import beam_search
from scalesearch.nn.decode import greedy_search, length_limits
from scalesearch.spaces.assembly.architecture import assemble
from scalesearch.testing import random_architecture
from scalesearch.training import read_checkpoint
from scalesearch.training.checkpoint import Checkpoint
from scalesearch.training.scoring.evaluate import DecodingOptions
from tests.architectures import transformer_config
from tests.cli.test_train import run
from tests.errors import refuses
from tests.nn.covering import covering

# where it copies code to, decided when it is imported
os.environ["HF_MODULES_CACHE"] = tempfile.mkdtemp()
transformers = pytest.importorskip("transformers", "5")

LINES = "the red dog sees the house\n\none old cat runs\n"


@pytest.fixture(scope="module")
def trained(trained_folder: Path) -> Checkpoint:
    return read_checkpoint(trained_folder)


@pytest.fixture(scope="module")
def folder(trained: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the exported model."""
    return written(trained, tmp_path_factory.mktemp("artifact"))


def written(trained: Checkpoint, folder: Path, quantize: str = "none") -> Path:
    HuggingFaceFormat().write(trained, folder, quantize)
    return folder


def sources(vocab: int, rng: Random, batch: int = 6) -> list[list[int]]:
    return [[*(rng.randrange(4, vocab) for _ in range(rng.randint(1, 7))), EOS]
            for _ in range(batch)]


def padded(rows: list[list[int]]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


def load(folder: Path, **settings: Any) -> Any:
    return transformers.AutoModelForSeq2SeqLM.from_pretrained(
        folder, trust_remote_code=True, **settings)


@pytest.mark.full
def test_all_families_decode_equally_with_and_without_cache(trained, tmp_path):
    rng = Random(6)
    networks = [*covering(rng, 8), random_architecture(rng, model="decoder-only")]
    for number, architecture in enumerate(networks):
        vocab = trained.tokenizer.vocab_size
        model = build_model(architecture.block, vocab=vocab, seed=number).eval()
        candidate = replace(trained, model=model, architecture=architecture, folder=None)
        place = tmp_path / f"network{number}"
        place.mkdir()
        decoder = HuggingFaceFormat().open_decoder(written(candidate, place), 1)
        assert isinstance(decoder, HuggingFaceDecoder)
        assert decoder.model.num_parameters() == sum(
            weight.numel() for weight in model.parameters()
        )
        rows = sources(vocab, rng)
        most = length_limits(model, padded(rows)).tolist()
        assert decoder.greedy(rows, most) == greedy_search(
            model, padded(rows)).best_ids(), architecture.config
        plain, uncached = (decoder.model.generate(padded(rows), num_beams=3, use_cache=cache)
                           for cache in (True, False))
        assert torch.equal(plain, uncached), architecture.config


@pytest.mark.full
def test_greedy_search_is_equal_and_beam_search_no_worse(trained, tmp_path):
    architecture = assemble(transformer_config(**{"embedding.tie": "none", "width": 32,
                                       "decoder.head_dim": 16}))
    model = build_model(architecture.block, vocab=trained.tokenizer.vocab_size, seed=3).eval()
    with torch.no_grad():
        for weight in model.parameters():
            # so that tokens depend on more than the previous token
            weight *= 2 if weight.dim() > 1 else 1
    candidate = replace(trained, model=model, architecture=architecture, folder=None)
    rows = sources(trained.tokenizer.vocab_size, Random(2), 40)
    decoder = HuggingFaceFormat().open_decoder(written(candidate, tmp_path), 1)
    source = padded(rows)
    translations = greedy_search(model, source)
    most = length_limits(model, source)
    assert decoder.greedy(rows, most.tolist()) == translations.best_ids()
    assert 5 < int((translations.lengths[:, 0] <= most).sum()) < 35  # only some are truncated
    few = torch.full((len(rows),), 3)
    assert decoder.greedy(rows, few.tolist()) == greedy_search(model, source, few).best_ids()
    # transformers continues all beams when the package ends some, so its scores may be better.
    # Hypotheses that both return have equal scores.
    hypotheses = beam_search(model, source, 4, 1.0, nbest=2).ranked()
    options = DecodingOptions(4, 1.0, n_best=2)
    decoded = decoder.beam_search(rows, most.tolist(), options)
    pairs = [(ranked[0], other[0]) for ranked, other in zip(hypotheses, decoded)]
    assert all(second[1] > first[1] - 1e-4 for first, second in pairs)
    same = [(first[1], second[1]) for first, second in pairs if first[0] == second[0]]
    assert len(same) >= 30 and torch.allclose(*torch.tensor(same).T, atol=1e-4)


@pytest.mark.full
def test_unknown_token_is_generated_only_if_allowed(trained, tmp_path):
    architecture = assemble(transformer_config(**{"embedding.tie": "none"}))
    vocab = trained.tokenizer.vocab_size
    model = build_model(architecture.block, vocab=vocab, seed=3).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight *= 3 if weight.dim() > 1 else 1
            if weight.shape[0] == vocab:
                weight[1] = 3 * weight[EOS]
    candidate = replace(trained, model=model, architecture=architecture, folder=None)
    decoder = HuggingFaceFormat().open_decoder(written(candidate, tmp_path), 1)
    rows = sources(vocab, Random(2), 40)
    limits = length_limits(model, padded(rows)).tolist()
    for allow_unk in (False, True):
        ids = decoder.greedy(rows, limits, allow_unk)
        assert ids == greedy_search(model, padded(rows), allow_unk=allow_unk).best_ids()
        assert any(1 in row for row in ids) == allow_unk
    assert 1 not in decoder.model.generate(padded(rows))


@pytest.mark.full
def test_model_can_be_saved_copied_and_trained(trained, folder, tmp_path):
    model = load(folder)
    assert model.config.dropout == 0.1 and not model.training
    source = padded(sources(trained.tokenizer.vocab_size, Random(3)))
    expected = model.generate(source)
    model.save_pretrained(tmp_path / "again")
    assert torch.equal(load(tmp_path / "again").generate(source), expected)
    assert torch.equal(copy.deepcopy(model).generate(source), expected)
    labels = source.masked_fill(source == PAD, -100)
    model.train()
    before = model(input_ids=source, labels=labels).loss
    before.backward()
    assert all(weight.grad is not None for weight in model.parameters())
    with torch.no_grad():
        for weight in model.parameters():
            weight -= 0.05 * weight.grad
    assert model.eval()(input_ids=source, labels=labels).loss < before
    again = torch.nn.functional.cross_entropy(
        model(source, labels=labels).logits.flatten(0, 1), labels.flatten())
    assert torch.allclose(again, model(source, labels=labels).loss)


def test_accumulated_batches_give_the_loss_and_gradient_of_the_whole_batch(trained, folder):
    model = load(folder).eval()
    source = padded(sources(trained.tokenizer.vocab_size, Random(7), 8))
    labels = source.masked_fill(source == PAD, -100)
    n_labels = (labels != -100).sum()

    def loss_and_gradient(batch_size: int) -> tuple[float, torch.Tensor]:
        model.zero_grad()
        losses = [model(input_ids=rows, labels=targets, num_items_in_batch=n_labels).loss
                  for rows, targets in zip(source.split(batch_size), labels.split(batch_size))]
        torch.stack(losses).sum().backward()
        return float(torch.stack(losses).detach().sum()), torch.cat([weight.grad.flatten()
                                              for weight in model.parameters()])

    loss, gradient = loss_and_gradient(8)
    whole = model(input_ids=source, labels=labels).loss.item()
    assert loss == pytest.approx(whole, rel=1e-5)
    for batch_size in (4, 1):
        accumulated_loss, accumulated_gradient = loss_and_gradient(batch_size)
        assert accumulated_loss == pytest.approx(loss, rel=1e-5)
        assert torch.allclose(accumulated_gradient, gradient, atol=1e-5)
    assert model.accepts_loss_kwargs
    with pytest.raises(ValueError, match="padded with 0"):
        model(input_ids=source, labels=source, num_items_in_batch=n_labels)


def test_unknown_arguments_with_state_are_refused(trained, folder):
    """A cache under a new name would otherwise be ignored, and translations silently wrong."""
    model = load(folder)
    source = padded(sources(trained.tokenizer.vocab_size, Random(8)))
    output = model(source, decoder_input_ids=source)
    caches = [value for value in output.values() if isinstance(value, transformers.Cache)]
    assert len(caches) == 1 and caches[0].get_seq_length() == source.shape[1]
    for state in (caches[0], torch.ones(1), [torch.ones(1)]):
        with pytest.raises(TypeError, match="renamed_cache"):
            model(source, decoder_input_ids=source[:, :1], renamed_cache=state)
    model(source, decoder_input_ids=source, output_attentions=False, renamed_option=None)


@pytest.mark.full
def test_other_version_of_transformers_is_warned_of(trained, tmp_path):
    written(trained, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        load(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["verified_transformers"] == transformers.__version__
    (tmp_path / "config.json").write_text(json.dumps(config | {"verified_transformers": "5.0.99"}))
    with pytest.warns(UserWarning, match=r"5\.0\.99"):
        load(tmp_path)


@pytest.mark.full
def test_damaged_files_are_refused_and_the_model_card_may_be_edited(trained_folder, tmp_path):
    artifact = export_model(read_checkpoint(trained_folder), tmp_path / "out", HuggingFaceFormat(),
                            "none", None)
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert set(artifact.checksums) == names - {"artifact.json", "README.md"}
    (tmp_path / "out" / "README.md").write_text("license: mit\n")
    open_artifact(tmp_path / "out")
    for name in artifact.checksums:
        content = (tmp_path / "out" / name).read_bytes()
        (tmp_path / "out" / name).write_bytes(b"x" * len(content))
        with refuses("file-damaged", place=str(tmp_path / "out" / name)):
            open_artifact(tmp_path / "out")
        (tmp_path / "out" / name).write_bytes(content)


def test_generation_arguments_are_used(trained, folder):
    model = load(folder)
    rows = sources(trained.tokenizer.vocab_size, Random(4))
    source = padded(rows)
    mask = (source != PAD).long()
    expected = model.generate(source)
    assert torch.equal(model.generate(source, attention_mask=mask), expected)
    states = model.get_encoder()(source, mask)
    plain = transformers.modeling_outputs.BaseModelOutput(states.last_hidden_state)
    assert torch.equal(model(encoder_outputs=plain, attention_mask=mask,
                             decoder_input_ids=expected).logits,
                       model(source, decoder_input_ids=expected).logits)
    assert model.generate(source, max_new_tokens=2).shape[1] <= 3
    assert isinstance(model(source, decoder_input_ids=expected, return_dict=False), tuple)
    with pytest.raises(ValueError, match="stateful"):
        model.generate(source[:1], assistant_model=model)


@pytest.mark.full
def test_weights_in_bf16_and_new_initialization(trained, folder, tmp_path):
    half = load(written(trained, tmp_path, "bf16"))
    assert {weight.dtype for weight in half.parameters()} == {torch.bfloat16}
    assert load(tmp_path, dtype=torch.float32).dtype == torch.float32
    half.generate(padded(sources(trained.tokenizer.vocab_size, Random(5))))
    fresh = transformers.AutoModelForSeq2SeqLM.from_config(
        load(folder).config, trust_remote_code=True)
    expected = build_model(trained.architecture.block, vocab=trained.tokenizer.vocab_size,
                         init=trained.recipe.init)
    assert all(torch.equal(*pair)
               for pair in zip(fresh.parameters(), expected.parameters(), strict=True))


def test_tokenizer_gives_equal_ids_and_texts(trained, folder, corpus):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    lines = [*corpus.train.texts.source, *corpus.train.texts.target]
    ids = trained.tokenizer.encode(lines)
    assert tokenizer(lines)["input_ids"] == [[*row, EOS] for row in ids]
    assert tokenizer.batch_decode(ids, skip_special_tokens=True) == trained.tokenizer.decode(ids)
    batch = tokenizer(lines[:3], text_target=lines[:3], return_tensors="pt", padding=True)
    assert load(folder)(**batch).loss > 0


@pytest.mark.parametrize("model", ["bpe", "unigram"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_tokenizers_are_equal_on_unseen_text(model, lowercase, corpus, tmp_path):
    lines = [
        *corpus.train.texts.source,
        *corpus.train.texts.target,
        "Überall  steht's — “so”.",
        "<s> </s> <pad> <unk>",
    ]
    fitted = Tokenizer.fit([line.lower() if lowercase else line for line in lines[:-1]], 60, model)
    (tmp_path / "tokenizer.json").write_text(
        json.dumps(tokenizer_json(fitted, lowercase), ensure_ascii=False)
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer.json"), eos_token="</s>", split_special_tokens=True
    )
    check_tokenizer(tokenizer, fitted, lowercase)
    for line in lines:
        assert tokenizer(line)["input_ids"] == [
            *fitted.encode([line.lower() if lowercase else line])[0],
            EOS,
        ]
    with refuses("other-tokenizer"):
        check_tokenizer(tokenizer, Tokenizer.fit(lines[:9], 30, model), lowercase)


@pytest.mark.parametrize("settings", [{"normalization_rule_name": "nmt_nfkc"},
                                      {"byte_fallback": True}, {"user_defined_symbols": ["<x>"]}])
def test_tokenizers_that_cannot_be_converted_are_refused(settings, corpus, tmp_path) -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus.train.texts.source), model_writer=model, vocab_size=320,
        hard_vocab_limit=False, model_type="bpe", pad_id=PAD, unk_id=1, bos_id=2, eos_id=EOS,
        minloglevel=2, **{"normalization_rule_name": "identity"} | settings)
    tokenizer = Tokenizer(model.getvalue())
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_json(tokenizer, False)))
    loaded = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer.json"), eos_token="</s>",
        split_special_tokens=True)
    with refuses("other-tokenizer"):
        check_tokenizer(loaded, tokenizer, False)


def test_export_command_and_translate(trained_folder, tmp_path):
    done = run(verb, trained_folder, "--to", "huggingface", "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["verification"]["float"]["different"] == 0
    assert report["versions"]["transformers"] == transformers.__version__
    places = tmp_path / "out", trained_folder
    translation, expected_translation = (
        run(translate_verb, place, "--beam", 1, text=LINES).stdout for place in places
    )
    assert translation == expected_translation and translation.count("\n") == 3
