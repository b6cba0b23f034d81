"""The generated corpus: what the package ships, disjoint splits, a Zipfian vocabulary, every phenomenon present."""

import json
import lzma
import math
import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from scalesearch.data import DataSpec
from scalesearch.data.sources import GRAMMAR_FILE, read_sentences
from scalesearch.data.spec import MAX_PAIRS
from tools.grammar import generate
from tools.grammar.__main__ import corpus_lines, write_text

_SAMPLE = (
    "from tools.grammar import generate; import json; print(json.dumps(generate(3, 200, 20, 20)))"
)


@pytest.fixture(scope="module")
def corpus():
    return generate(pairs=6000)


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_other_processes_generate_the_same(hash_seed):
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", _SAMPLE], env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == json.loads(json.dumps(generate(3, 200, 20, 20)))


def test_the_first_lines_are_those_of_the_shipped_file():
    assert first_lines(pairs=2000) == shipped_lines()[:3000]


@pytest.mark.slow
def test_all_lines_are_those_of_the_shipped_file():
    assert first_lines(MAX_PAIRS) == shipped_lines()


def first_lines(pairs: int) -> list[bytes]:
    return corpus_lines(pairs).splitlines(keepends=True)


def shipped_lines() -> list[bytes]:
    return lzma.decompress(GRAMMAR_FILE.read_bytes()).splitlines(keepends=True)


def test_text_files_hold_the_same_corpus(tmp_path):
    write_text(tmp_path, pairs=30, seed=1)
    files = {"train": str(tmp_path / "train"), "validation": str(tmp_path / "valid"),
             "test": str(tmp_path / "test")}
    text = read_sentences(DataSpec(source="en", target="de", **files))
    assert text == read_sentences(DataSpec(builtin="grammar", pairs=30))


def test_held_out_pairs_occur_once_and_nowhere_else(corpus):
    held = corpus["valid"] + corpus["test"]
    assert (len(corpus["train"]), len(corpus["valid"]), len(corpus["test"])) == (6000, 500, 500)
    for side in (0, 1):
        alone = [pair[side] for pair in held]
        assert len(set(alone)) == len(alone)
        assert not set(alone) & {pair[side] for pair in corpus["train"]}
    assert len({source for source, _ in corpus["train"]}) > 0.99 * 6000


def test_held_out_pairs_do_not_depend_on_the_size_of_train(corpus):
    small = generate(pairs=10)
    assert small["valid"] == corpus["valid"] and small["test"] == corpus["test"]
    assert small["train"] == corpus["train"][:10]


def test_seeds_give_other_sentences():
    assert not set(generate(1, 200, 5, 5)["train"]) & set(generate(2, 200, 5, 5)["train"])


def test_lengths(corpus):
    lengths = [len(source.split()) for source, _ in corpus["train"]]
    assert min(lengths) >= 4 and max(lengths) <= 25
    assert 10 < sum(lengths) / len(lengths) < 13


@pytest.mark.parametrize("side", [0, 1])
def test_the_vocabulary_is_zipfian(corpus, side):
    """Log frequency falls about linearly with log rank, and a few thousand words occur."""
    words = Counter(word for pair in corpus["train"]
                    for word in re.findall(r"\w+", pair[side].lower()))
    counts = sorted(words.values(), reverse=True)
    points = [(math.log(rank), math.log(counts[rank - 1])) for rank in (10, 30, 100, 300, 1000)]
    mean_x, mean_y = (sum(axis) / len(points) for axis in zip(*points))
    slope = sum(
        (x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    assert 2000 < len(words) < 9000
    assert -1.4 < slope < -0.7


# Pattern of a German sentence per phenomenon, and its minimum count in 1000 sentences.
PHENOMENA = {
    "subordinate": (r", (weil|wenn|falls|obwohl|bevor|da|während|sobald) ", 80),
    "that": (r", dass ", 30),
    "whether": (r", ob ", 15),
    "zu infinitive": (r", .*\bzu \w+en\b", 15),
    "zu inside": (r"\b(an|auf|aus|ab|ein|mit|vor|nach|um|weg|zurück|teil|weg)zu\w+n\b", 5),
    "purpose": (r", um .* zu ", 15),
    "relative dative": (r", (dem|denen) ", 5),
    "relative accusative": (r", den ", 5),
    "relative preposition": (r", (auf|an|über|von) (den|die|das|dem|der|denen) ", 3),
    "perfect with sein": (r"\b(ist|sind|bin|seid|bist)\b.*\b\w*ge\w+en\b", 20),
    "perfect with haben": (r"\b(hat|haben|habe)\b", 150),
    "future": (r"\b(wird|werden|werde)\b", 60),
    "modal": (r"\b(kann|muss|will|soll|darf|können|müssen|wollen|musste|konnte|wollte)\b", 50),
    "kein": (r"\b[Kk]ein(e|en|em|er|es)?\b", 30),
    "nicht": (r"\bnicht\b", 60),
    "comparative": (r"er als ", 5),
    "equal": (r"\bso \w+ wie\b", 3),
    "contraction": (r"\b(im|ins|am|zum|zur|beim)\b", 60),
    "number word": (r"\w+und(zwan|drei|vier|fünf|sech|sieb|acht|neun)\w*zig", 3),
    "polite": (r"^(Mein Herr|Gnädige Frau), .*\bSie\b", 2),
    "genitive": (r"\b(des|meines|unseres|seines) \w+e?s\b", 5),
    "question": (r"\?$", 50),
    "als for when in the past": (r"^Als |, als ", 5),
    "ambiguous noun": (
        r"\b(Ufer|Quelle|Taste|Kranich|Rüssel|Schnabel|Werk|Siegel|Gericht|Pupille|Streichholz)\b",
        5,
    ),
}


@pytest.mark.parametrize("name", PHENOMENA)
def test_each_phenomenon_occurs(corpus, name):
    pattern, least = PHENOMENA[name]
    count = sum(bool(re.search(pattern, target)) for _, target in corpus["train"])
    assert count / len(corpus["train"]) * 1000 >= least


def test_separable_particles_end_their_clause(corpus):
    """The particle of a main clause in the present closes it: "Sie ruft ... an."""
    ending = re.compile(r"\b(an|auf|aus|ab|ein|mit|weg|zurück)[.,?]")
    assert sum(bool(ending.search(target)) for _, target in corpus["train"]) > 200


def test_one_source_has_one_target(corpus):
    """Translation is a function: no source of the sample has two targets."""
    targets: dict[str, set[str]] = {}
    for pairs in corpus.values():
        for source, target in pairs:
            targets.setdefault(source, set()).add(target)
    ambiguous = [source for source, translations in targets.items() if len(translations) > 1]
    assert len(ambiguous) <= 0.001 * len(targets), ambiguous[:5]
