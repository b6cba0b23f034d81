"""Metrics compared with their libraries and definitions."""

import importlib.util
import math
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import sacrebleu
from rouge_score import rouge_scorer

from scalesearch.data import DataSpec
from scalesearch.errors import UserError
from scalesearch.tasks import TASKS, Texts, format_score
from scalesearch.tasks.correction import m2_scores
from scalesearch.tasks.edits import Edit, extract_edits, lowercase_edits, parse_m2
from scalesearch.tasks.summarization import rouge_scores
from scalesearch.tasks.translation import (
    bleu_chrf_scores,
    choose_tokenizer,
    compare_systems,
    tokenized_bleu,
)
from tests.errors import refuses

FILES = {"source": "a", "target": "b", "train": "x", "validation": "y", "test": "z"}
HYPOTHESES = ["The cats sat on a mat .", "police killed the gunman"]
REFERENCES = ["the cat sat on the mat", "the gunman was killed by police"]


def spec(**more) -> DataSpec:
    return DataSpec.from_mapping(FILES | more)


def test_rouge_equals_the_mean_of_the_library() -> None:
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    result = rouge_scores(HYPOTHESES, [REFERENCES])
    for name in ("rouge1", "rouge2", "rougeL"):
        single = [scorer.score(right, expected_text)[name].fmeasure
                  for expected_text, right in zip(HYPOTHESES, REFERENCES)]
        assert result[name] == pytest.approx(100 * sum(single) / 2)
    assert "stemmer:porter" in result["rouge_signature"] and "rouge-score:0." in result[
        "rouge_signature"]


def test_rouge_of_an_example() -> None:
    result = rouge_scores(["police killed the gunman"], [["police kill the gunman"]],
                         is_tokenized=True)
    assert [result[name]
            for name in ("rouge1", "rouge2", "rougeL")] == pytest.approx([75, 100 / 3, 75])
    assert rouge_scores(["a b"], [["b a"]], is_tokenized=True)["rougeL"] == pytest.approx(50)


def test_rouge_of_other_scripts_needs_tokenized_text() -> None:
    score = TASKS["summarization"].score
    texts = Texts(["x"], ["кошка сидит"])
    with refuses("rouge-not-latin", "tokenized: true", key="data"):
        score(["кошка сидит"], texts, spec(task="summarization"))
    assert score(["кошка сидит"], texts,
                 spec(task="summarization", tokenized=True))["rouge2"] == 100


def test_tokenized_text_has_tokenized_bleu(caplog) -> None:
    expected_text = ["the cat sat on the mat .", "a b c d ."] * 60
    plain = bleu_chrf_scores(expected_text, [expected_text])
    result = bleu_chrf_scores(expected_text, [expected_text], is_tokenized=True)
    # no warning of sacreBLEU, because the corpus already reports tokenized text
    assert not caplog.text and "tokenized_bleu" not in plain
    assert result["tokenized_bleu"] == pytest.approx(100)
    assert {key: result[key] for key in plain} == plain
    assert tokenized_bleu(["a b c"], [["a b d"]]) == 0  # without smoothing, as multi-bleu.perl


def test_length_ratio_of_hypotheses_to_references() -> None:
    right = ["a b c d e", "f g h i j"]
    expected_text = [line.rpartition(" ")[0] for line in right]
    assert bleu_chrf_scores(expected_text, [right])["length_ratio"] == 0.8 and bleu_chrf_scores(
        right, [expected_text])["length_ratio"] == 1.25
    [short], [long] = (compare_systems([item], [right], 10)
                       for item in (expected_text, [line + " k l" for line in right]))
    assert short["bleu"]["brevity_penalty"] == pytest.approx(math.exp(1 - 10 / 8))
    assert (short["bleu"]["length_ratio"], long["bleu"]["length_ratio"]) == (0.8, 1.4)
    assert long["bleu"]["brevity_penalty"] == 1


def test_equal_systems_do_not_differ_significantly() -> None:
    right = ["a b c d e", "f g h i j", "k l m n o"]
    expected_text = [right[0], "f g h x y", right[2]]
    first, same, other = compare_systems([expected_text, expected_text, right], [right], 100)
    assert first["bleu"]["p"] is None and same["bleu"]["p"] == same["chrf"]["p"] == 1
    assert other["bleu"]["p"] < 1
    assert same["bleu"]["difference"] == same["bleu"]["difference_half"] == 0


def test_interval_of_the_difference_is_that_of_paired_resamples() -> None:
    right = [" ".join(chr(97 + (7 * line + word) % 26) for word in range(8)) for line in range(12)]
    worse = [line if number % 3 else line[:-4] + " x y" for number, line in enumerate(right)]
    other = [line if number % 4 else "x " + line[2:] for number, line in enumerate(right)]
    [_, row] = compare_systems([worse, other], [right], 40)
    bleu = sacrebleu.metrics.BLEU(force=True)
    differences = []
    for lines in np.random.default_rng(12345).choice(12, size=(40, 12)):
        scores = [bleu.corpus_score([system[line] for line in lines],
                                    [[right[line] for line in lines]]).score
                  for system in (other, worse)]
        differences.append(scores[0] - scores[1])
    differences.sort()
    assert row["bleu"]["difference_half"] == pytest.approx(
        (differences[38] - differences[1]) / 2) != 0
    assert row["bleu"]["difference"] == pytest.approx(
        bleu.corpus_score(other, [right]).score - bleu.corpus_score(worse, [right]).score)


def test_comet_score_uses_the_package(monkeypatch) -> None:
    calls = []
    fake = ModuleType("comet")
    fake.__spec__ = SimpleNamespace(name="comet")
    fake.download_model = lambda name: calls.append(name) or "model.ckpt"
    fake.load_from_checkpoint = lambda path: SimpleNamespace(
        predict=lambda rows, **how: calls.append((path, rows)) or SimpleNamespace(system_score=0.5))
    monkeypatch.setitem(sys.modules, "comet", fake)
    task = TASKS["translation"]
    data = spec(comet="some/model")
    task.check_options(data)
    result = task.score(["m"], Texts(["s"], ["r"]), data)
    assert (result["comet"], result["comet_signature"]) == (0.5, "model:some/model")
    assert calls == ["some/model"] * 2 + [("model.ckpt", [{"src": "s", "mt": "m", "ref": "r"}])]
    assert "comet" in task.metrics_for(data) and "comet" not in task.metrics_for(spec())


def test_missing_packages_are_reported(monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refuses("package-missing", "unbabel-comet", key="data.comet"):
        TASKS["translation"].check_options(spec(comet="m"))
    TASKS["translation"].check_options(spec())
    with refuses("package-missing", "rouge-score", key="data.task"):
        TASKS["summarization"].check_options(spec(task="summarization"))


def test_extract_edits() -> None:
    assert extract_edits("The cat sat at mat .",
                         "The cat sat on the mat .") == (Edit(3, 4, ("on the",)),)
    assert extract_edits("a b c", "b c d") == (Edit(0, 1, ("",)), Edit(3, 3, ("d",)))
    assert extract_edits("a", "a") == ()
    result = m2_scores(["The cat sat on the mat ."],
                      Texts(["The cat sat at mat ."], ["The cat sat on the mat ."]))
    assert result["f05"] == 100 and "correct:1|proposed:1|gold:1" in result["m2_signature"]


def test_lowercase_edits_drops_case_changes() -> None:
    edits = (Edit(0, 1, ("The",)), Edit(1, 2, ("Dog",)))
    assert lowercase_edits(edits, "the Cat") == (Edit(1, 2, ("dog",)),)


@pytest.mark.parametrize(("lines", "expected_text"),
                         [(["A 0 1|||X|||y|||R|||-|||0"],
                           "f.m2:1: a sentence of an M2 file begins with `S `"),
                          (["S a b", "A 0 1|||X|||y|||0"], "f.m2:2: an edit is `A START END"),
                          (["S a b", "A x 1|||X|||y|||R|||-|||0"], "f.m2:2: an edit is"),
                          (["", "S a b", "A 1 3|||X|||y|||R|||-|||0"],
                           "f.m2:3: the edit covers words 1 to 3, but its sentence has 2")])
def test_invalid_m2_file_is_reported_with_position(lines: list[str], expected_text: str) -> None:
    with pytest.raises(UserError) as error:
        parse_m2(lines, "f.m2")
    assert expected_text in str(error.value)


@pytest.mark.parametrize(("mapping", "expected_text"),
                         [({"task": "translating"}, "did you mean `translation`?"),
                          ({"task": "correction", "window": 9},
                           "window: it is for `language-model` or `masked-language-model`, and the "
                           "task is correction"),
                          ({"task": "correction", "tokenized": True},
                           "tokenized: it is for `summarization` or `translation`"),
                          ({"task": "summarization",
                            "train": {"source": "a", "target": ["b", "c"]}},
                           "several references are for"),
                          ({"task": "correction", "train": {"source": "a", "target": ["b", "c"]}},
                           "several references are for"),
                          ({"task": "language-model"}, "source: it is for pairs of texts"),
                          ({"tokenized": 3},
                           "tokenized: expected `yes` or `no`")])
def test_invalid_task_keys_are_reported(mapping: dict, expected_text: str) -> None:
    with pytest.raises(UserError) as error:
        spec(**mapping)
    assert expected_text in str(error.value)


@pytest.mark.parametrize(("mapping", "expected_text"),
                         [({"train": "t", "test": "v"}, "`validation` is missing"),
                          ({"train": "t", "validation": "v",
                            "test": {"source": "a", "target": "b"}}, "give one text file"),
                          ({"train": "t", "validation": "v", "test": "w", "window": 8, "stride": 9},
                           "at most the window of 8"),
                          ({"task": "masked-language-model", "builtin": "grammar"},
                           "the built-in corpus is for")])
def test_invalid_language_model_data_are_reported(mapping: dict, expected_text: str) -> None:
    with pytest.raises(UserError) as error:
        DataSpec.from_mapping({"task": "language-model"} | mapping)
    assert expected_text in str(error.value)


def test_prefixes_need_suffixes_and_m2_files_do_not() -> None:
    parts = {"task": "correction", "train": "t.m2", "validation": {"source": "a", "target": "b"},
             "test": "t.m2.gz"}
    assert DataSpec.from_mapping(parts).source is None
    with refuses("bad-value", "`source`"):
        DataSpec.from_mapping(parts | {"train": "t"})


def test_window_has_defaults() -> None:
    text = {"task": "language-model", "train": "t", "validation": "v", "test": "w"}
    assert (DataSpec.from_mapping(text).window, DataSpec.from_mapping(text).stride) == (128, 64)
    assert DataSpec.from_mapping(text | {"window": 9}).stride == 4


@pytest.mark.parametrize(("target", "line", "tokenizer"), [
    ("zh", "他喜欢在早上喝一杯热茶", "zh"), ("zh_CN", "他喜欢在早上喝一杯热茶", "zh"),
    ("x", "他喜欢在早上喝一杯热茶", "zh"), ("x", "彼は毎朝お茶を飲みます", "char"),
    ("ja", "彼は毎朝お茶を飲みます", "char"), ("x", "เขาชอบดื่มชาร้อนตอนเช้า", "char"),
    ("th", "เขาชอบดื่มชาร้อนตอนเช้า", "char"), ("ko", "그는 아침에 차를 마신다", "13a"),
    ("x", "on aime le thé le matin", "13a"), ("de", "12 34 56 78 90", "13a"),
    ("x", "the word 茶 means tea in China", "13a")])
def test_tokenizer_fits_language_or_script(target: str, line: str, tokenizer: str,
                                           monkeypatch) -> None:
    """Without MeCab, Japanese is scored by characters and Korean by words."""
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: (
        None if name.lower().startswith(("mecab", "ipadic")) else find(name)))
    texts = Texts(["x"] * 3, [line] * 3)
    data = spec(target=target)
    assert choose_tokenizer(texts, data)[0] == tokenizer
    scores = TASKS["translation"].score([line] * 3, texts, data)
    assert scores["bleu"] == pytest.approx(100) and f"tok:{tokenizer}" in scores["bleu_signature"]
    [compared] = compare_systems([[line] * 3], texts.references, 10, tokenizer=tokenizer)
    assert f"tok:{tokenizer}" in compared["bleu"]["signature"]
    notes = list(TASKS["translation"].check_texts(texts, data))
    assert bool(notes) == (tokenizer != "13a" or target == "ko")


def test_tokenizer_can_be_set() -> None:
    texts = Texts(["x"], ["他喜欢在早上喝一杯热茶"])
    for tokenizer in ("13a", "char", "none", "intl"):
        data = spec(target="zh", tokenize=tokenizer)
        scores = TASKS["translation"].score(texts.target, texts, data)
        assert f"tok:{tokenizer}" in scores["bleu_signature"]
        # a line of one token cannot have BLEU
        assert (scores["bleu"] > 99) == (tokenizer == "char")
        notes = list(TASKS["translation"].check_texts(texts, data))
        assert len(notes) == (tokenizer != "char")


@pytest.mark.parametrize("settings", [{"tokenize": "ja-mecab"}, {"tokenize": "flores200"},
                                      {"comet": "Unbabel/wmt22-comet-da"}])
def test_missing_packages_of_metrics_are_reported_before_training(settings, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "MeCab", None)
    monkeypatch.setattr("urllib.request.urlopen", _no_network)
    monkeypatch.setenv("SACREBLEU", "/dev/null/nowhere")
    with refuses("package-missing", key=f"data.{next(iter(settings))}"):
        TASKS["translation"].check_options(spec(**settings))


def _no_network(*args: object, **options: object) -> None:
    raise OSError("no network")


def test_missing_comet_checkpoint_is_reported_before_training(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "comet", ModuleType("comet"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    with refuses("no-such-file", "nowhere.ckpt", key="data.comet"):
        TASKS["translation"].check_options(spec(comet="nowhere.ckpt"))


def test_several_references_are_scored_as_by_the_library() -> None:
    others = ["a cat was on the mat", "police killed the gunman today"]
    texts = Texts(["x"] * 2, REFERENCES, more_references=[others])
    scores = TASKS["translation"].score(HYPOTHESES, texts, spec())
    expected = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES, others])
    assert scores["bleu"] == expected.score and "nrefs:2" in scores["bleu_signature"]
    assert scores["chrf"] == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES, others]).score
    [compared] = compare_systems([HYPOTHESES], texts.references, 10)
    assert compared["bleu"]["score"] == expected.score
    scorer = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=True)
    best = [max(scorer.score(reference, line)["rougeL"].fmeasure for reference in choices)
            for line, *choices in zip(HYPOTHESES, REFERENCES, others)]
    scores = TASKS["summarization"].score(HYPOTHESES, texts, spec(task="summarization"))
    assert scores["rougeL"] == pytest.approx(100 * sum(best) / 2)
    assert "best of 2" in scores["rouge_signature"]


@pytest.mark.parametrize(("name", "text"), [
    ("bits_per_byte", "0.3464"), ("test.bits_per_byte", "0.3464"), ("loss_per_char", "0.3464"),
    ("comet", "0.3464"), ("loss", "0.346"), ("test.loss", "0.346"), ("bleu", "0.35"),
    ("perplexity", "0.35"), ("unknown", "0.35")])
def test_small_scores_have_more_decimals(name: str, text: str) -> None:
    assert format_score(0.34642, name) == text and format_score(0.34642, name, "+") == f"+{text}"
