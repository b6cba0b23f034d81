"""Each metric is what its library or its definition says."""

import math
import sys
from types import ModuleType, SimpleNamespace

import pytest
from rouge_score import rouge_scorer

from scalesearch.data import DataSpec
from scalesearch.errors import UserError
from scalesearch.tasks import TASKS, Texts
from scalesearch.tasks.correction import m2_scores
from scalesearch.tasks.edits import Edit, extract_edits, lowercase_edits, parse_m2
from scalesearch.tasks.summarization import rouge_scores
from scalesearch.tasks.translation import bleu_chrf_scores, compare_systems, tokenized_bleu
from tests.errors import refuses

FILES = {"source": "a", "target": "b", "train": "x", "validation": "y", "test": "z"}
SAID = ["The cats sat on a mat .", "police killed the gunman"]
RIGHT = ["the cat sat on the mat", "the gunman was killed by police"]


def spec(**more) -> DataSpec:
    return DataSpec.from_mapping(FILES | more)


def test_rouge_is_the_librarys_mean_f1() -> None:
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    found = rouge_scores(SAID, RIGHT)
    for name in ("rouge1", "rouge2", "rougeL"):
        single = [scorer.score(right, said)[name].fmeasure for said, right in zip(SAID, RIGHT)]
        assert found[name] == pytest.approx(100 * sum(single) / 2)
    assert "stemmer:porter" in found["rouge_signature"] and "rouge-score:0." in found[
        "rouge_signature"]


def test_rouge_by_hand() -> None:
    found = rouge_scores(["police killed the gunman"], ["police kill the gunman"],
                         is_tokenized=True)
    assert [found[name]
            for name in ("rouge1", "rouge2", "rougeL")] == pytest.approx([75, 100 / 3, 75])
    assert rouge_scores(["a b"], ["b a"], is_tokenized=True)["rougeL"] == pytest.approx(50)


def test_rouge_of_other_scripts_needs_words_apart_by_blanks() -> None:
    score = TASKS["summarization"].score
    texts = Texts(["x"], ["кошка сидит"])
    with refuses("rouge-not-latin", "tokenized: true", key="data"):
        score(["кошка сидит"], texts, spec(task="summarization"))
    assert score(["кошка сидит"], texts,
                 spec(task="summarization", tokenized=True))["rouge2"] == 100


def test_tokenized_text_has_a_score_of_its_own(caplog) -> None:
    said = ["the cat sat on the mat .", "a b c d ."] * 60
    plain = bleu_chrf_scores(said, said)
    found = bleu_chrf_scores(said, said, is_tokenized=True)
    # the corpus warns of it, once, in the tool's words
    assert not caplog.text and "tokenized_bleu" not in plain
    assert found["tokenized_bleu"] == pytest.approx(100)
    assert {key: found[key] for key in plain} == plain
    assert tokenized_bleu(["a b c"], ["a b d"]) == 0  # without smoothing, as multi-bleu.perl


def test_lengths_are_of_hypotheses_to_references() -> None:
    right = ["a b c d e", "f g h i j"]
    said = [line.rpartition(" ")[0] for line in right]
    assert bleu_chrf_scores(said, right)["length_ratio"] == 0.8 and bleu_chrf_scores(
        right, said)["length_ratio"] == 1.25
    [short], [long] = (compare_systems([one], right, 10)
                       for one in (said, [line + " k l" for line in right]))
    assert short["bleu"]["brevity_penalty"] == pytest.approx(math.exp(1 - 10 / 8))
    assert (short["bleu"]["length_ratio"], long["bleu"]["length_ratio"]) == (0.8, 1.4)
    assert long["bleu"]["brevity_penalty"] == 1


def test_what_differs_in_nothing_is_not_significant() -> None:
    right = ["a b c d e", "f g h i j", "k l m n o"]
    said = [right[0], "f g h x y", right[2]]
    first, same, other = compare_systems([said, said, right], right, 100)
    assert first["bleu"]["p"] is None and same["bleu"]["p"] == same["chrf"]["p"] == 1
    assert other["bleu"]["p"] < 1


def test_comet_is_asked_of_the_package(monkeypatch) -> None:
    asked = []
    fake = ModuleType("comet")
    fake.__spec__ = SimpleNamespace(name="comet")
    fake.download_model = lambda name: asked.append(name) or "there.ckpt"
    fake.load_from_checkpoint = lambda path: SimpleNamespace(
        predict=lambda rows, **how: asked.append((path, rows)) or SimpleNamespace(system_score=0.5))
    monkeypatch.setitem(sys.modules, "comet", fake)
    task = TASKS["translation"]
    data = spec(comet="some/model")
    task.check_options(data)
    found = task.score(["m"], Texts(["s"], ["r"]), data)
    assert (found["comet"], found["comet_signature"]) == (0.5, "model:some/model")
    assert asked == ["some/model", ("there.ckpt", [{"src": "s", "mt": "m", "ref": "r"}])]
    assert "comet" in task.metrics_for(data) and "comet" not in task.metrics_for(spec())


def test_comet_that_is_not_installed_is_said(monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refuses("package-missing", "unbabel-comet", key="data.comet"):
        TASKS["translation"].check_options(spec(comet="m"))
    TASKS["translation"].check_options(spec())
    with refuses("package-missing", "rouge-score", key="data.task"):
        TASKS["summarization"].check_options(spec(task="summarization"))


def test_references_are_edits_of_their_source() -> None:
    assert extract_edits("The cat sat at mat .",
                         "The cat sat on the mat .") == (Edit(3, 4, ("on the",)),)
    assert extract_edits("a b c", "b c d") == (Edit(0, 1, ("",)), Edit(3, 3, ("d",)))
    assert extract_edits("a", "a") == ()
    found = m2_scores(["The cat sat on the mat ."],
                      Texts(["The cat sat at mat ."], ["The cat sat " "on the mat ."]))
    assert found["f05"] == 100 and "correct:1|proposed:1|gold:1" in found["m2_signature"]


def test_lower_casing_drops_edits_of_case_alone() -> None:
    edits = (Edit(0, 1, ("The",)), Edit(1, 2, ("Dog",)))
    assert lowercase_edits(edits, "the Cat") == (Edit(1, 2, ("dog",)),)


@pytest.mark.parametrize(("lines", "said"),
                         [(["A 0 1|||X|||y|||R|||-|||0"],
                           "f.m2:1: a sentence of an M2 file begins with `S `"),
                          (["S a b", "A 0 1|||X|||y|||0"], "f.m2:2: an edit is `A START END"),
                          (["S a b", "A x 1|||X|||y|||R|||-|||0"], "f.m2:2: an edit is"),
                          (["", "S a b", "A 1 3|||X|||y|||R|||-|||0"],
                           "f.m2:3: the edit covers words 1 to 3, but its sentence has 2")])
def test_a_broken_m2_file_is_said_with_its_place(lines: list[str], said: str) -> None:
    with pytest.raises(UserError) as error:
        parse_m2(lines, "f.m2")
    assert said in str(error.value)


@pytest.mark.parametrize(("mapping", "said"),
                         [({"task": "translating"}, "did you mean `translation`?"),
                          ({"task": "correction", "window": 9},
                           "window: it is for " "`language-model`, and the task is correction"),
                          ({"task": "correction", "tokenized": True},
                           "tokenized: it is for `summarization` or `translation`"),
                          ({"task": "summarization", "test": {"source": "a", "target": ["b", "c"]}},
                           "several references are for"),
                          ({"task": "correction", "train": {"source": "a", "target": ["b", "c"]}},
                           "several references are for"),
                          ({"task": "language-model"}, "source: it is for pairs of texts"),
                          ({"tokenized": 3},
                           "tokenized: expected `yes` " "or `no`, found a number")])
def test_what_is_wrong_with_a_spec_is_said(mapping: dict, said: str) -> None:
    with pytest.raises(UserError) as error:
        spec(**mapping)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("mapping", "said"),
    [({"train": "t", "validation": "v"}, "`test` is missing"),
     ({"train": "t", "validation": "v", "test": {"source": "a", "target": "b"}}, "give one text file"),
     ({"train": "t", "validation": "v", "test": "w", "window": 8, "stride": 9},
      "at most the window of 8"),
     ({"builtin": "grammar"}, "the built-in corpus is for translation")])
def test_what_is_wrong_with_a_spec_of_text_is_said(mapping: dict, said: str) -> None:
    with pytest.raises(UserError) as error:
        DataSpec.from_mapping({"task": "language-model"} | mapping)
    assert said in str(error.value)


def test_gold_edits_need_no_endings_and_prefixes_do() -> None:
    parts = {"task": "correction", "train": "t.m2", "validation": {"source": "a", "target": "b"},
             "test": "t.m2.gz"}
    assert DataSpec.from_mapping(parts).source is None
    with refuses("bad-value", "`source`"):
        DataSpec.from_mapping(parts | {"train": "t"})


def test_a_window_has_defaults() -> None:
    text = {"task": "language-model", "train": "t", "validation": "v", "test": "w"}
    assert (DataSpec.from_mapping(text).window, DataSpec.from_mapping(text).stride) == (128, 64)
    assert DataSpec.from_mapping(text | {"window": 9}).stride == 4
