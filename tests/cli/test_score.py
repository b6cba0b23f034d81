"""``scalesearch score`` and the decoding of ``scalesearch translate``."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu

from scalesearch import load
from scalesearch.cli import score as score_verb
from scalesearch.cli import translate as translate_verb
from scalesearch.cli.options import distinct_names
from scalesearch.export import translator
from scalesearch.tasks import TASKS
from scalesearch.training import train
from scalesearch.training.input_files import load_data
from tests.cli.test_train import run
from tests.corpora import write_text
from tests.errors import refuses
from tests.tasks.small import corpus_of
from tests.training.conftest import recipe, tiny


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two training runs with their own decoding options, next to their text."""
    where = tmp_path_factory.mktemp("scored")
    corpus = load_data(str(write_text(where)))
    for seed in (1, 2):
        train(tiny(), corpus, recipe(beam=3, length_penalty=0.3), where / f"model{seed}",
              seed=seed)
    return where


def text_of(place: Path, split: str = "test") -> list[str]:
    return ["--source", str(place / f"{split}.en"), "--target", str(place / f"{split}.de")]


@pytest.mark.full
def test_scores_of_training_are_reproduced(place: Path) -> None:
    done = run(score_verb, place / "model1", *text_of(place), "--samples", "50", "--json")
    assert done.exit_code == 0, done.exception
    model_scores = json.loads(done.stdout)["models"][0]
    expected = json.loads((place / "model1" / "result.json").read_text())["metrics"]["test"]
    assert (
        model_scores["decoding"] == expected["decoding"] == "beam 3, log-probability / length^0.3"
    )
    assert [model_scores[name]["score"] for name in ("bleu", "chrf")] == [
        expected["bleu"],
        expected["chrf"],
    ]
    assert (
        model_scores["chrf"]["half"] > 0
        and model_scores["chrf"]["p"] is None
        and "bs:50" in model_scores["bleu"]["signature"]
    )


def test_models_are_compared_with_the_first(place: Path) -> None:
    models = [place / "model1", place / "model2", place / "model1"]
    done = run(score_verb, *models, *text_of(place), "--samples", "50", "--json")
    assert done.exit_code == 0, done.exception
    first, second, again = json.loads(done.stdout)["models"]
    assert first["chrf"]["p"] is None and 0 < second["chrf"]["p"] <= 1
    assert again["chrf"] | {"difference": None, "difference_half": None,
                            "p": None} == first["chrf"]
    shown = run(score_verb, *models[:2], *text_of(place), "--samples", "50").stdout
    assert f"{second['chrf']['p']:.4f}" in shown
    compared = f"{second['chrf']['difference']:+.2f} ± {second['chrf']['difference_half']:.2f}"
    assert f", {first['compute_type']}) " in " ".join(shown.split())
    assert compared in shown and "minus the score of model1," in " ".join(shown.split())
    for model in models[:2]:
        assert f"{model.name}: {model} (" in shown.replace("\n", "")
    rows = [line.split()[:2] for line in shown.splitlines() if " ± " in line][1:]
    assert rows == [[f"model{number}", metric] for number in (1, 2) for metric in ("BLEU", "chrF")]
    assert max(map(len, shown.splitlines()[:5])) <= 80


def test_rows_have_the_shortest_distinct_names() -> None:
    assert distinct_names(["runs/a", "runs/b"]) == ["a", "b"]
    assert distinct_names(["x/a/best", "x/b/best"]) == ["a/best", "b/best"]
    assert distinct_names(["runs/a", "runs/a", "runs/b"]) == ["a (1)", "a (2)", "b"]
    assert distinct_names(["/a", "x/a"])[0] == "/a"
    assert distinct_names(["."]) == [Path.cwd().name]


@pytest.mark.full
def test_ensemble_is_scored_with_its_members(place: Path) -> None:
    models = [place / "model1", place / "model2"]
    done = run(score_verb, *models, *text_of(place), "--samples", "50", "--ensemble", "--json")
    assert done.exit_code == 0, (done.output, repr(done.exception))
    *members, together = json.loads(done.stdout)["models"]
    assert [row["model"] for row in members] == list(map(str, models))
    assert together["model"] == " + ".join(map(str, models)) and together["chrf"]["p"] is not None
    shown = run(score_verb, *models, *text_of(place), "--samples", "50", "--ensemble").stdout
    assert "model1 + model2: (beam" in shown or "model1 + model2: (greedy" in shown, (
        "an ensemble decodes by its first member's settings"
    )
    alone = run(score_verb, models[0], *text_of(place), "--samples", "50", "--ensemble", "--json")
    assert len(json.loads(alone.stdout)["models"]) == 1


def test_models_with_two_vocabularies_are_no_ensemble(place: Path, tmp_path: Path) -> None:
    other = (place / "data.yaml").read_text().replace("vocab: 60", "vocab: 58")
    (place / "other.yaml").write_text(other)
    train(tiny(), load_data(str(place / "other.yaml")), recipe(), tmp_path / "other")
    with refuses("models-incompatible", "tokenizer"):
        raise run(translate_verb, place / "model1", tmp_path / "other", text="a\n").exception


@pytest.mark.full
@pytest.mark.parametrize("task, metrics", [("translation", ("bleu", "chrf", "tokenized_bleu")),
                                           ("summarization", ("rougeL", "rouge1", "rouge2"))])
def test_models_of_tokenized_text_are_scored_on_tokens(
        task: str, metrics: tuple[str, ...], tmp_path: Path) -> None:
    corpus = corpus_of(TASKS[task], tmp_path, tokenized=True)
    result = train(tiny(), corpus, recipe(steps=30), tmp_path / "model")
    sides = ["--source", str(tmp_path / "validation.a"), "--target", str(tmp_path / "validation.b")]
    [model] = json.loads(run(score_verb, tmp_path / "model", *sides, "--samples", "10",
                             "--json").stdout)["models"]
    assert [model[name]["score"] for name in metrics] == [result.metrics[name] for name in metrics]
    assert model["model"] and set(metrics) == model.keys() - {
        "model", "decoding", "compute_type", "cropped", "reached_limit"}
    train(tiny(), corpus_of(TASKS[task], tmp_path), recipe(), tmp_path / "other")
    with refuses("models-incompatible", "tokenized False"):
        raise run(score_verb, tmp_path / "model", tmp_path / "other", *sides).exception


@pytest.mark.full
@pytest.mark.parametrize("task", ["correction", "summarization"])
def test_other_tasks_report_missing_intervals(task: str, tmp_path: Path) -> None:
    train(tiny(), corpus_of(TASKS[task], tmp_path), recipe(), tmp_path / "model")
    sides = ["--source", str(tmp_path / "validation.a"), "--target", str(tmp_path / "validation.b")]
    report = json.loads(run(score_verb, tmp_path / "model", *sides, "--json").stdout)
    note, [model] = report["notes"][0], report["models"]
    assert task in note and "No intervals" in note and not any(
        "half" in model[name] for name in TASKS[task].metrics)
    assert all(model[name]["signature"] for name in TASKS[task].metrics)
    output = run(score_verb, tmp_path / "model", *sides).stdout
    assert "No intervals" in output and model[
        next(iter(TASKS[task].metrics))]["signature"][:20] in output


def test_short_translations_are_reported(place: Path, tmp_path: Path) -> None:
    lines = (place / "test.en").read_text().splitlines()
    output = run(translate_verb, place / "model1", text="\n".join(lines)).stdout.splitlines()
    # an empty reference would be refused
    pairs = [(line, words) for line, words in zip(lines, output) if words]
    files = {name: tmp_path / name for name in ("source", "same", "long")}
    files["source"].write_text("".join(f"{line}\n" for line, _ in pairs))
    files["same"].write_text("".join(f"{words}\n" for _, words in pairs))
    files["long"].write_text("".join(f"{words} und {words}\n" for _, words in pairs))

    def shown(target: str, *more: str) -> str:
        sides = ["--source", str(files["source"]), "--target", str(files[target]), "--samples",
                 "10"]
        done = run(score_verb, place / "model1", *sides, *more)
        assert done.exit_code == 0, done.exception
        return done.stdout

    [model] = json.loads(shown("long", "--json"))["models"]
    assert model["bleu"]["length_ratio"] < 0.5
    assert f"{100 * (1 - model['bleu']['length_ratio']):.1f} % shorter" in shown(
        "long") and "shorter" not in shown("same")


def test_files_of_different_length_are_refused(place: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.de"
    short.write_text("eins\n")
    output = run(score_verb, place / "model1", "--source", str(place / "test.en"), "--target",
               str(short))
    with refuses("unequal-lines", "short.de has 1"):
        raise output.exception


def test_translate_uses_decoding_options_of_scoring(place: Path, tmp_path: Path) -> None:
    lines = (place / "test.en").read_text()
    output = run(translate_verb, place / "model1", text=lines)
    same = run(translate_verb, place / "model1", "--beam", "3", "--length-penalty", "0.3",
               text=lines)
    assert output.stdout == same.stdout
    done = run(translate_verb, place / "model1", "--output", tmp_path / "out.de", text=lines)
    assert done.stdout == "" and (tmp_path / "out.de").read_text() == output.stdout


def test_n_best_translations_per_line(place: Path) -> None:
    lines = "one red dog\n\nthe old house\n"
    several = run(translate_verb, place / "model1", "--nbest", "3", text=lines).stdout
    rows = [row.split("\t") for row in several.splitlines()]
    best = run(translate_verb, place / "model1", text=lines).stdout.splitlines()
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] + ["3"] * 3 and rows[3] == ["2", "", ""]
    assert [rows[0][2], "",
            rows[4][2]] == best and float(rows[0][1]) >= float(rows[1][1]) >= float(rows[2][1])
    [first, *_] = run(translate_verb, place / "model1", "--nbest", "2", "--json",
                      text=lines).stdout.splitlines()
    assert [hypothesis["translation"] for hypothesis in json.loads(first)["nbest"]] == [
        rows[0][2],
        rows[1][2],
    ]
    with refuses("nbest-above-beam", "beam 3"):
        raise run(translate_verb, place / "model1", "--nbest", "4", text=lines).exception
    for penalty in ("nan", "1000"):
        with refuses("bad-value", penalty, "from 0 to 10"):
            raise run(translate_verb, place / "model1", "--length-penalty", penalty,
                      text=lines).exception


def test_lines_are_translated_in_bounded_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translator, "MAX_CHARACTERS_PER_CHUNK", 10)
    monkeypatch.setattr(translator, "MAX_LINES_PER_CHUNK", 3)
    lines = ["12345", "12345", "1", "", "", "", "123456789012", "1"]
    groups = list(translator.chunk_lines(lines))
    assert [line for group in groups for line in group] == lines and list(map(len, groups)) == [
        3, 3, 1, 1]


def test_endless_line_is_refused(place: Path) -> None:
    with refuses("line-too-long", "line 2"):
        raise run(translate_verb, place / "model1", text="one\n" + "a" * 3_000_000).exception


def test_empty_files_and_zero_beam_are_refused(place: Path, tmp_path: Path) -> None:
    (empty := tmp_path / "empty").write_text("")
    with refuses("nothing-to-score"):
        raise run(score_verb, place / "model1", "--source", empty, "--target", empty).exception
    for ask in (lambda model: model.translate("one", beam=0),
                lambda model: model.score(["one"], ["eins"], beam=0),
                lambda model: model.score(["one"], ["eins"], resamples=0)):
        with refuses("below-one", "0"):
            ask(load(place / "model1"))


def test_several_references_are_all_used(place: Path, tmp_path: Path) -> None:
    """The second --target must neither replace the first nor be ignored."""
    other = tmp_path / "other.de"
    other.write_text("".join(f"{line} noch etwas\n" for line in
                             (place / "test.de").read_text().splitlines()))
    both = [*text_of(place), "--target", other]
    done = run(score_verb, place / "model1", *both, "--samples", "10", "--json")
    assert done.exit_code == 0, done.exception
    report = json.loads(done.stdout)
    [model] = report["models"]
    assert report["target"] == [str(place / "test.de"), str(other)]
    assert "nrefs:2" in model["bleu"]["signature"]
    references = [file.read_text().splitlines() for file in (place / "test.de", other)]
    hypotheses = load(place / "model1").translate((place / "test.en").read_text().splitlines())
    expected = sacrebleu.corpus_bleu(hypotheses, references)
    assert model["bleu"]["score"] == expected.score
    sources = (place / "test.en").read_text().splitlines()
    for target in ([place / "test.de", other], references):
        source = place / "test.en" if isinstance(target[0], Path) else sources
        of_model = load(place / "model1").score(source, target, resamples=10)
        assert of_model["bleu"]["score"] == expected.score
    with refuses("unequal-lines"):
        load(place / "model1").score(sources, [references[0], references[1][:-1]])


@pytest.mark.full
def test_cropped_sources_are_listed(place: Path, tmp_path: Path) -> None:
    """A source of 600 words has more tokens than the model was trained on."""
    long = "the old house " * 200
    lines = ["one red dog", long, "two cats"]
    (tmp_path / "x.en").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "x.de").write_text("ein roter Hund\nein Haus\nzwei Katzen\n")
    done = run(score_verb, place / "model1", "--source", tmp_path / "x.en", "--target",
               tmp_path / "x.de", "--samples", "10", "--json")
    report = json.loads(done.stdout)
    assert report["models"][0]["cropped"] == [2]
    assert any("256 tokens" in note and "line 2" in note for note in report["notes"])
    output = run(translate_verb, place / "model1", text="\n".join(lines))
    assert output.stdout.count("\n") == 3 and "line 2" in output.stderr.replace("\n", " ")
    objects = [json.loads(line) for line in run(translate_verb, place / "model1", "--json",
                                                text="\n".join(lines)).stdout.splitlines()]
    assert ["cropped" in item for item in objects] == [False, True, False]


def test_length_limit_can_be_set_and_is_reported(place: Path) -> None:
    lines = (place / "test.en").read_text()
    options = ["--max-length-a", "0", "--max-length-b", "1"]
    output = run(translate_verb, place / "model1", *options, "--json", text=lines)
    records = [json.loads(line) for line in output.stdout.splitlines()]
    assert all(record["reached_limit"] for record in records)
    assert "8 translations ended at the length limit" in output.stderr.replace("\n", " ")
    done = run(score_verb, place / "model1", *text_of(place), *options, "--samples", "10", "--json")
    [model] = json.loads(done.stdout)["models"]
    assert model["reached_limit"] == list(range(1, 9))
    assert model["decoding"].endswith("at most 0 · source tokens + 1")
    shown = run(score_verb, place / "model1", *text_of(place), *options, "--samples", "10").stdout
    assert "shorter" in shown and "--length-penalty" not in shown


@pytest.mark.full
def test_tables_are_translated_and_scored(place: Path, tmp_path: Path) -> None:
    sides = [(place / f"test.{side}").read_text().splitlines() for side in ("en", "de")]
    rows = list(zip(*sides))
    (tmp_path / "rows.tsv").write_text("target\tsource\n" + "".join(
        f"{target}\t{source}\n" for source, target in rows))
    (tmp_path / "rows.jsonl").write_text("".join(
        json.dumps({"source": source, "target": target}) + "\n" for source, target in rows))
    expected = run(translate_verb, place / "model1", text="\n".join(sides[0]))
    assert expected.exit_code == 0
    scores = run(score_verb, place / "model1", *text_of(place), "--samples", 10, "--json")
    for name in ("rows.tsv", "rows.jsonl"):
        file = tmp_path / name
        piped = ["--format", file.suffix[1:]]
        for options, text in (["--input", file], None), (piped, file.read_text()):
            done = run(translate_verb, place / "model1", *options, text=text)
            assert done.stdout == expected.stdout
        done = run(score_verb, place / "model1", "--source", file, "--target", file,
                   "--samples", 10, "--json")
        assert json.loads(done.stdout)["models"] == json.loads(scores.stdout)["models"]


def test_pause_of_the_input_ends_a_chunk() -> None:
    lines = ["a", None, None, "b", "c", None, "d"]
    assert list(translator.chunk_lines(lines)) == [["a"], ["b", "c"], ["d"]]


@pytest.mark.full
def test_lines_of_a_pipe_are_translated_as_they_arrive(place: Path) -> None:
    """The translation of the first line must not wait for the end of the input."""
    process = subprocess.Popen([sys.executable, "-m", "scalesearch", "translate",
                                str(place / "model1")], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    translations = []
    for line in ("one red dog", "", "two cats"):
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        translations.append(process.stdout.readline().rstrip("\n"))
    process.stdin.write("the old house")  # without a line end
    last, _ = process.communicate()
    assert process.returncode == 0
    whole = run(translate_verb, place / "model1", text="one red dog\n\ntwo cats\nthe old house")
    assert [*translations, last.rstrip("\n")] == whole.stdout.split("\n")[:4]
