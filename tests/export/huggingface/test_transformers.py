"""Artifacts in transformers 5, where it is installed: they load, decode as ours, go round, and train on."""

import copy
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from scalesearch.blocks.core import PAD
from scalesearch.cli import export as verb
from scalesearch.cli import translate as translate_verb
from scalesearch.data import EOS, Tokenizer
from scalesearch.export.huggingface.format import HuggingFaceDecoder, HuggingFaceFormat
from scalesearch.export.huggingface.tokenizer import check_tokenizer, tokenizer_json
from scalesearch.nn import build_model
from scalesearch.nn.beam_search import beam_search
from scalesearch.nn.decode import greedy_search, length_limits
from scalesearch.space.assembly.architecture import assemble
from scalesearch.testing import random_architecture
from scalesearch.train import read_checkpoint
from scalesearch.train.checkpoint import Checkpoint
from scalesearch.train.scoring.evaluate import DecodingOptions
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
    """An artifact."""
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


def test_every_family_decodes_as_ours_with_a_cache_and_without(trained, tmp_path):
    rng = Random(6)
    networks = [*covering(rng, 8), random_architecture(rng, model="decoder-only")]
    for number, architecture in enumerate(networks):
        vocab = trained.tokenizer.vocab_size
        model = build_model(architecture.block, vocab=vocab, seed=number).eval()
        one = replace(trained, model=model, architecture=architecture, folder=None)
        place = tmp_path / f"network{number}"
        place.mkdir()
        theirs = HuggingFaceFormat().open_decoder(written(one, place), 1)
        assert isinstance(theirs, HuggingFaceDecoder)
        assert theirs.model.num_parameters() == sum(weight.numel() for weight in model.parameters())
        rows = sources(vocab, rng)
        most = length_limits(model, padded(rows)).tolist()
        assert theirs.greedy(rows, most) == greedy_search(
            model, padded(rows)).best_ids(), architecture.config
        plain, uncached = (theirs.model.generate(padded(rows), num_beams=3, use_cache=cache)
                           for cache in (True, False))
        assert torch.equal(plain, uncached), architecture.config


def test_sentences_that_end_by_themselves_decode_as_ours_and_beams_find_no_worse(trained, tmp_path):
    architecture = assemble(transformer_config(**{"embedding.tie": "none", "width": 32,
                                       "decoder.head_dim": 16}))
    model = build_model(architecture.block, vocab=trained.tokenizer.vocab_size, seed=3).eval()
    with torch.no_grad():
        for weight in model.parameters():
            # so that words depend on more than the word before
            weight *= 2 if weight.dim() > 1 else 1
    one = replace(trained, model=model, architecture=architecture, folder=None)
    rows = sources(trained.tokenizer.vocab_size, Random(2), 40)
    theirs = HuggingFaceFormat().open_decoder(written(one, tmp_path), 1)
    source = padded(rows)
    found = greedy_search(model, source)
    most = length_limits(model, source)
    assert theirs.greedy(rows, most.tolist()) == found.best_ids()
    assert 5 < int((found.lengths[:, 0] <= most).sum()) < 35  # some are cut, some are not
    few = torch.full((len(rows),), 3)
    assert theirs.greedy(rows, few.tolist()) == greedy_search(model, source, few).best_ids()
    # Theirs goes on with all beams where ours ends some, so it may find better ones, and what both
    # find has one score.
    ours = beam_search(model, source, 4, 1.0, nbest=2).ranked()
    pairs = [(mine[0], hers[0])
             for mine, hers in zip(ours,
                                   theirs.beam_search(rows, most.tolist(),
                                                      DecodingOptions(4, 1.0, n_best=2)))]
    assert all(hers[1] > mine[1] - 1e-4 for mine, hers in pairs)
    same = [(mine[1], hers[1]) for mine, hers in pairs if mine[0] == hers[0]]
    assert len(same) >= 30 and torch.allclose(*torch.tensor(same).T, atol=1e-4)


def test_it_goes_round_copies_and_trains_on(trained, folder, tmp_path):
    model = load(folder)
    assert model.config.dropout == 0.1 and not model.training
    source = padded(sources(trained.tokenizer.vocab_size, Random(3)))
    wanted = model.generate(source)
    model.save_pretrained(tmp_path / "again")
    assert torch.equal(load(tmp_path / "again").generate(source), wanted)
    assert torch.equal(copy.deepcopy(model).generate(source), wanted)
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


def test_what_it_is_given_is_what_it_heeds(trained, folder):
    model = load(folder)
    rows = sources(trained.tokenizer.vocab_size, Random(4))
    source = padded(rows)
    mask = (source != PAD).long()
    wanted = model.generate(source)
    assert torch.equal(model.generate(source, attention_mask=mask), wanted)
    states = model.get_encoder()(source, mask)
    plain = transformers.modeling_outputs.BaseModelOutput(states.last_hidden_state)
    assert torch.equal(model(encoder_outputs=plain, attention_mask=mask,
                             decoder_input_ids=wanted).logits,
                       model(source, decoder_input_ids=wanted).logits)
    assert model.generate(source, max_new_tokens=2).shape[1] <= 3
    assert isinstance(model(source, decoder_input_ids=wanted, return_dict=False), tuple)
    with pytest.raises(ValueError, match="stateful"):
        model.generate(source[:1], assistant_model=model)


def test_weights_may_be_in_bf16_or_drawn_anew(trained, folder, tmp_path):
    half = load(written(trained, tmp_path, "bf16"))
    assert {weight.dtype for weight in half.parameters()} == {torch.bfloat16}
    assert load(tmp_path, dtype=torch.float32).dtype == torch.float32
    half.generate(padded(sources(trained.tokenizer.vocab_size, Random(5))))
    fresh = transformers.AutoModelForSeq2SeqLM.from_config(
        load(folder).config, trust_remote_code=True)
    wanted = build_model(trained.architecture.block, vocab=trained.tokenizer.vocab_size,
                         init=trained.recipe.init)
    assert all(torch.equal(*pair)
               for pair in zip(fresh.parameters(), wanted.parameters(), strict=True))


def test_its_tokenizer_gives_our_ids_and_texts(trained, folder, corpus):
    theirs = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    lines = [*corpus.train.texts.source, *corpus.train.texts.target]
    ids = trained.tokenizer.encode(lines)
    assert theirs(lines)["input_ids"] == [[*row, EOS] for row in ids]
    assert theirs.batch_decode(ids, skip_special_tokens=True) == trained.tokenizer.decode(ids)
    batch = theirs(lines[:3], text_target=lines[:3], return_tensors="pt", padding=True)
    assert load(folder)(**batch).loss > 0


@pytest.mark.parametrize("model", ["bpe", "unigram"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_tokenizers_of_both_kinds_are_the_same_on_text_that_was_never_seen(
        model, lowercase, corpus, tmp_path):
    lines = [*corpus.train.texts.source, *corpus.train.texts.target, "Überall  steht's — “so”.",
             "<s> </s> <pad> <unk>"]
    ours = Tokenizer.fit([line.lower() if lowercase else line for line in lines[:-1]], 60, model)
    (tmp_path
     / "tokenizer.json").write_text(json.dumps(tokenizer_json(ours, lowercase), ensure_ascii=False))
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"),
                                                  eos_token="</s>", split_special_tokens=True)
    check_tokenizer(theirs, ours, lowercase)
    for line in lines:
        assert theirs(line)["input_ids"] == [*ours.encode([line.lower() if lowercase else line])[0],
                                             EOS]
    with refuses("other-tokenizer"):
        check_tokenizer(theirs, Tokenizer.fit(lines[:9], 30, model), lowercase)


def test_the_verb_writes_it_and_translate_reads_it(trained_folder, tmp_path):
    done = run(verb, trained_folder, "--to", "huggingface", "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["verification"]["float"]["different"] == 0
    assert said["versions"]["transformers"] == transformers.__version__
    places = tmp_path / "out", trained_folder
    one, other = (run(translate_verb, place, "--beam", 1, text=LINES).stdout for place in places)
    assert one == other and one.count("\n") == 3
