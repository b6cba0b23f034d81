"""Export: files, verification, refusals, the command, and translation by artifacts."""

import json
import os
import shutil
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from random import Random

import pytest

import scalesearch as ss
from scalesearch.cli import export as verb
from scalesearch.cli import score as score_verb
from scalesearch.cli import translate as translate_verb
from scalesearch.data import Corpus
from scalesearch.export import export as exporting
from scalesearch.export.base import ArtifactDecoder, ExportFormat, RankedHypotheses, get_format
from scalesearch.export.export import Artifact, VerificationSample, export_model, strip_paths
from scalesearch.export.torch_ import TorchDecoder, TorchFormat
from scalesearch.export.translator import Translator
from scalesearch.tasks import TASKS
from scalesearch.training import hardware, read_checkpoint, train
from scalesearch.training.input_files import load_data
from scalesearch.training.scoring.evaluate import DecodingOptions, translate_lines
from tests.bounds import invoke_bounded
from tests.cli.test_train import run
from tests.corpora import write_text
from tests.errors import refuses
from tests.studies.fakes import make_driver, make_plan
from tests.tasks.small import corpus_of, model_for, spec_of
from tests.training.conftest import recipe, tiny
from tests.training.test_damaged import damage_files

LINES = "the red dog sees the house\n\none old cat runs\n"


class Wrong(ArtifactDecoder):
    """A decoder that returns wrong tokens for each ``every``-th sentence."""

    def __init__(self, inner: ArtifactDecoder, every: int) -> None:
        self.inner = inner
        self.every = every
        self.seen = 0

    def greedy(self, source_ids: list[list[int]], max_lengths: list[int],
               allow_unk: bool = False) -> list[list[int]]:
        decoded = self.inner.greedy(source_ids, max_lengths, allow_unk)
        self.seen += len(decoded)
        return [[9, 9] if (self.seen + index) % self.every == 0 else row
                for index, row in enumerate(decoded)]

    def beam_search(self, rows: list[list[int]], limits: list[int],
                    search: object) -> list[RankedHypotheses]:
        raise AssertionError("only greedy search is verified")

    def decode_fixed_length(self, rows: list[list[int]], length: int, beam: int) -> None:
        raise AssertionError("verification measures no time")


class Right(TorchFormat):
    """A format whose artifacts pass verification."""

    name = "right"
    has_decoder = True


class Faulty(TorchFormat):
    """A format whose artifacts fail verification for some sentences."""

    name = "faulty"
    has_decoder = True
    every = 1
    quantizations = ("none", "int8")

    def open_decoder(self, folder: Path, threads: int) -> ArtifactDecoder:
        return Wrong(super().open_decoder(folder, threads), self.every)


def test_language_model_is_verified_by_continuations(tmp_path: Path) -> None:
    task = TASKS["language-model"]
    corpus = corpus_of(task, tmp_path)
    result = train(model_for(task), corpus, recipe(steps=30), tmp_path / "model")
    trained = read_checkpoint(tmp_path / "model")
    sample = VerificationSample.from_data(trained,
                                          spec_of(task, tmp_path).with_absolute_paths(tmp_path), 5)
    assert len(
        sample.split) == 5 and 0 < sample.split.source_ids.lengths.max() <= corpus.spec.window // 2
    report = export_model(trained, tmp_path / "out", Right(), "none", sample).verification
    assert (report["sentences"], report["float"]) == (5, {"different": 0,
                                                         "compute_type": "float32"})
    assert {name: report["model"][name] for name in task.metrics} == {
        name: result.metrics[name] for name in task.metrics}
    with refuses("export-differs", "5 of 5"):
        export_model(trained, tmp_path / "wrong", Faulty(), "none", sample)


@pytest.fixture
def sample(trained_folder: Path, corpus: Corpus) -> VerificationSample:
    return VerificationSample.from_data(read_checkpoint(trained_folder), corpus.spec, 15)


def test_export_to_torch_keeps_provenance_and_translations(trained_folder, tmp_path):
    done = run(verb, trained_folder, "--to", "torch", "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    on_disk = json.loads((tmp_path / "out" / "artifact.json").read_text())
    assert report == {**on_disk, "folder": str(tmp_path / "out")}
    result = json.loads((trained_folder / "result.json").read_text())
    origin = report["provenance"]
    assert (origin["architecture"], origin["seed"]) == (result["architecture_id"], result["seed"])
    assert origin["costs"]["params.total"] == result["n_params"] and origin["protocol"][
        "vocab"] == 80
    assert origin["metrics"]["test"]["bleu_signature"] and origin["data"]["hash"] == result[
        "corpus_hash"]
    assert report["bytes"] == {file.name: file.stat().st_size for file in trained_folder.iterdir()}
    translation, expected = (run(translate_verb, folder, text=LINES).stdout
                  for folder in (tmp_path / "out", trained_folder))
    assert translation == expected and translation.count("\n") == 3


def test_export_to_torch_copies_only_files_of_the_training(trained_folder, tmp_path):
    source = tmp_path / "model"
    shutil.copytree(trained_folder, source)
    os.mkfifo(source / "pipe")
    (source / "job.json").write_text('{"cache": "/home/user"}')
    export_model(read_checkpoint(source), tmp_path / "out", TorchFormat(), "none", None)
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "artifact.json", *(file.name for file in trained_folder.iterdir())}
    (source / "record.json").symlink_to("/dev/zero")
    with refuses("cannot-copy", "record.json"):
        export_model(read_checkpoint(source), tmp_path / "no", TorchFormat(), "none", None)
    assert not (tmp_path / "no").exists()


def test_artifact_has_no_local_path(tmp_path):
    train(tiny(), load_data(write_text(tmp_path)), recipe(), tmp_path / "model")
    assert str(tmp_path) in (tmp_path / "model" / "data.json").read_text()
    done = run(verb, tmp_path / "model", "--to", "ctranslate2", "--quantize", "none", "--out",
               tmp_path / "out")
    assert done.exit_code == 0, done.output
    texts = [(tmp_path / "out" / name).read_text() for name in ("data.json", "artifact.json")]
    assert all(str(tmp_path) not in text and '"train"' in text for text in texts)
    assert strip_paths(
        {"a": ["/x/y/z", "no/path", "/"], "b": 3}) == {"a": ["z", "no/path", "/"], "b": 3}


def test_study_exports_best_or_named_trial(trained_folder, tmp_path):
    make_driver(tmp_path / "study", make_plan(4)).run()
    for place in (tmp_path / "study" / "trials").iterdir():
        shutil.copytree(trained_folder, place, dirs_exist_ok=True)
    done = run(verb, tmp_path / "study", "--best", "bleu", "--to", "torch", "--out",
               tmp_path / "best")
    assert done.exit_code == 0 and "best bleu of the front (" in done.output, done.output
    assert (tmp_path / "best" / "record.json").is_file()
    again = json.loads(run(verb, tmp_path / "study", "2", "--to", "torch", "--out",
                           tmp_path / "two", "--json").stdout)
    assert again["provenance"]["chosen"] == "trial 2, selected by number"
    cheap = run(
        verb,
        tmp_path / "study",
        "--best",
        "params.total",
        "--constraint",
        "bleu >= 0",
        "--to",
        "torch",
        "--out",
        tmp_path / "cheap",
    )
    assert "best params.total of the trials with bleu >= 0 (" in cheap.output, cheap.output
    for words, code in ((["--best", "test.bleu"], "selection-on-test"),
                        (["--constraint", "bleu > 1e9"], "nothing-meets"),
                        (["1", "--constraint", "bleu > 0"], "options-conflict"),
                        (["--constraint", "blue > 0"], "unknown-key"),
                        (["1", "--best", "bleu"], "options-conflict"), (["77"], "no-such-trial"),
                        (["--quantize", "int8"], "unknown-quantization")):
        with refuses(code):
            raise run(verb, tmp_path / "study", "--to", "torch", "--out", tmp_path / "no",
                      *words).exception


def test_export_overwrites_nothing_and_failure_leaves_no_files(
        trained_folder, sample, tmp_path, monkeypatch):
    trained = read_checkpoint(trained_folder)
    export_model(trained, tmp_path / "one", TorchFormat(), "none", None)
    with refuses("already-exists"):
        export_model(trained, tmp_path / "one", TorchFormat(), "none", None)
    with refuses("export-differs", "15 of 15"):
        export_model(trained, tmp_path / "wrong", Faulty(), "none", sample)
    monkeypatch.setattr(exporting, "collect_provenance", lambda trained: {"not": object()})
    with pytest.raises(TypeError):
        export_model(trained, tmp_path / "half", TorchFormat(), "none", None)
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_differences_are_counted_and_scored(trained_folder, sample):
    trained = read_checkpoint(trained_folder)
    decoder = TorchDecoder(trained.model)
    report = exporting.verify_artifact(trained, sample, decoder, Wrong(decoder, 3))
    assert (
        report["sentences"],
        report["float"]["different"],
        report["quantized"]["different"],
    ) == (15, 0, 5)
    assert report["float"]["chrf"] == report["model"]["chrf"] != report["quantized"]["chrf"]
    assert report["model"]["bleu_signature"] and report["text"] == sample.name


@pytest.mark.full
def test_artifact_without_package_weights_translates(trained_folder, corpus, tmp_path, monkeypatch):
    """The format has its own decoder, so the weights of the package are not needed."""
    monkeypatch.setattr("scalesearch.export.base.FORMAT_CLASSES", {"other": f"{__name__}:Other"})
    monkeypatch.setattr(Other, "kept", trained_folder)
    trained = read_checkpoint(trained_folder)
    artifact = export_model(trained, tmp_path / "out", Other(), "none",
                         VerificationSample.from_data(trained, corpus.spec, 20))
    assert not (tmp_path / "out"
                / "model.safetensors").exists() and artifact.verification["float"]["different"] == 0
    for beam in (1, 3):
        search = DecodingOptions(beam, trained.recipe.length_penalty)
        lines = LINES.splitlines()
        expected = translate_lines(
            trained, lines,
            lambda split, search=search: TorchDecoder(trained.model).translate(split, trained,
                                                                               search))
        report = run(translate_verb, tmp_path / "out", "--beam", beam, text=LINES).stdout
        assert report.splitlines() == [line.translations[0].text for line in expected]
    sides = ["--source", f"{corpus.spec.validation[0]}.en", "--target",
             f"{corpus.spec.validation[0]}.de", "--beam", 1, "--json"]
    model, = json.loads(run(score_verb, tmp_path / "out", *sides).stdout)["models"]
    assert model["bleu"]["score"] == artifact.verification["model"]["bleu"]


class Other(ExportFormat):
    """A format of one file, which contains the path of a training run."""

    name = "other"
    kept = Path()

    def unsupported_reasons(self, block):
        return []

    def write(self, trained, folder, quantization):
        (folder / "where").write_text(str(self.kept))

    def open_decoder(self, folder, threads):
        return TorchDecoder(read_checkpoint(Path((folder / "where").read_text())).model)


def test_unsupported_model_is_refused_with_other_formats(trained_folder, tmp_path):
    trained = read_checkpoint(trained_folder)
    gated = replace(trained, architecture=tiny(encoder__gate="QgV", encoder__head_dim=8))
    with refuses("not-exportable", "encoder.attention: the runtime does not support the gate QgV",
                 "torch, huggingface, onnx"):
        export_model(gated, tmp_path / "out", get_format("ctranslate2"), "int8", None)
    with refuses("unknown-quantization", "int8, int16, bf16, none"):
        export_model(trained, tmp_path / "out", get_format("ctranslate2"), "int4", None)
    with refuses("unknown-quantization", "torch does not support it; supported: none; none is"):
        export_model(trained, tmp_path / "out", get_format("torch"), "int8", None)


@pytest.mark.parametrize("is_fast", [True, False])
def test_verification_reports_both_precisions(is_fast, trained_folder, sample, tmp_path,
                                              monkeypatch):
    monkeypatch.setattr(hardware, "has_fast_bf16", lambda device: is_fast)
    artifact = export_model(read_checkpoint(trained_folder), tmp_path / "out", Right(), "none",
                            sample)
    lines = artifact.summary_lines()
    assert [line.endswith("computed in float32")
            for line in lines if line.startswith(("model:", "float:"))] == [True, True]
    assert any("translate and score run the trained model in bf16" in line
               for line in lines) == is_fast


def test_summary_has_compute_type_and_accuracy_note():
    verification = {"sentences": 2, "quantized": {"bleu": 3.14159, "compute_type": "int8_float32",
                                                  "accuracy_note": "no VNNI", "different": 1}}
    artifact = Artifact("ctranslate2", "int8", bytes={"model.bin": 1000}, folder_bytes=1500,
                        verification=verification)
    assert artifact.summary_lines() == [
        "ctranslate2, int8: 1,000 bytes in 1 file; 1,500 bytes with tokenizer and description",
        "quantized: bleu 3.14; 1 of 2 sentences differ; computed in int8_float32", "note: no VNNI"]


@pytest.mark.parametrize("name", ["ctranslate2", "torch",
                                  pytest.param("onnx", marks=pytest.mark.full)])
def test_every_file_of_an_artifact_is_checked_when_it_is_opened(name, trained_folder, tmp_path):
    format = get_format(name)
    for package in format.packages:
        pytest.importorskip(package)
    out = tmp_path / "out"
    artifact = export_model(read_checkpoint(trained_folder), out, format, "none", None)
    files = {file.name: file.read_bytes() for file in out.iterdir() if file.name != "artifact.json"}
    assert set(artifact.checksums) == set(files)
    assert artifact.folder_bytes == sum(map(len, files.values()))
    for file, content in files.items():
        for other in (bytes(len(content)), content[:-1] + bytes([content[-1] ^ 1]), content * 2):
            (out / file).write_bytes(other)
            with refuses("file-damaged", place=str(out / file)):
                Translator(out)
        (out / file).unlink()
        with refuses("file-damaged", place=str(out / file)):
            Translator(out)
        os.mkfifo(out / file)
        with refuses("file-damaged", place=str(out / file)):
            Translator(out)
        (out / file).unlink()
        (out / file).write_bytes(content)
    assert len(Translator(out).best_translations(LINES.splitlines())) == 3


@pytest.mark.parametrize("examples", [6, pytest.param(60, marks=pytest.mark.full)])
def test_damaged_artifacts_work_or_raise_user_errors(examples, trained_folder, tmp_path):
    """As a disk, an editor or a copy may damage them."""
    pytest.importorskip("ctranslate2")
    trained = read_checkpoint(trained_folder)
    for name in ("ctranslate2", "torch"):
        export_model(trained, tmp_path / name, get_format(name), "none", None)
    for seed in range(examples):
        rng = Random(seed)
        name = ("ctranslate2", "torch")[seed % 2]
        folder = Path(shutil.copytree(tmp_path / name, tmp_path / str(seed)))
        damage_files(folder, rng)
        invoke_bounded("translate", folder, text=LINES)
        invoke_bounded("cost", folder, "--json")
        again = tmp_path / f"{seed}-again"
        invoke_bounded("export", folder, "--to", "torch", "--out", again)
        assert not again.exists() or not (again / "model.safetensors").is_fifo()


def test_other_version_of_the_runtime_is_noted(trained_folder, tmp_path):
    pytest.importorskip("ctranslate2")
    out = tmp_path / "out"
    artifact = export_model(read_checkpoint(trained_folder), out, get_format("ctranslate2"), "none",
                            None)
    assert Translator(out).notes == []
    artifact.versions["ctranslate2"] = "3.9.1"
    (out / "artifact.json").write_text(json.dumps(asdict(artifact)))
    note, = Translator(out).notes
    assert "3.9.1" in note and version("ctranslate2") in note
    assert "3.9.1" in run(translate_verb, out, text=LINES).stderr
    with pytest.warns(UserWarning, match=r"3\.9\.1"):
        assert ss.load(out).translate("the red dog")


def test_beam_is_at_most_the_vocabulary_and_1000(trained_folder):
    translator = Translator(trained_folder)
    vocab_size = translator.checkpoint.tokenizer.vocab_size
    assert translator.resolve_decoding(beam=vocab_size).beam == vocab_size
    with refuses("beam-too-large", vocab_size):
        translator.resolve_decoding(beam=vocab_size + 1)
    with refuses("below-one"):
        translator.resolve_decoding(beam=0)
    done = run(translate_verb, trained_folder, "--beam", 100_000, text=LINES)
    assert isinstance(done.exception, SystemExit) and done.exit_code == 2
    with refuses("bad-value", 1000, place="recipe: beam"):
        recipe(beam=1001)


def test_int8_artifact_and_float_artifact_are_verified(trained_folder, tmp_path):
    pytest.importorskip("ctranslate2")
    out = tmp_path / "out"
    done = run(verb, trained_folder, "--to", "ctranslate2", "--sentences", 12, "--out", out,
               "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["format"], report["quantization"]) == (
        "ctranslate2", "int8") and report["versions"]["ctranslate2"]
    assert report["verification"]["float"]["different"] == 0 and 0 <= report["verification"][
        "quantized"]["different"] <= 12
    assert report["verification"]["quantized"]["compute_type"].startswith("int8") and \
        report["verification"]["float"]["compute_type"] == "float32"
    assert set(report["bytes"]) == {"model.bin", "config.json", "shared_vocabulary.json"}
    assert not (out / "model.safetensors").exists() and run(
        translate_verb, out, text=LINES).stdout.count("\n") == 3
    (out / "model.bin").write_bytes((out / "model.bin").read_bytes()[:1000])
    with refuses("file-damaged", "model.bin"):
        raise run(translate_verb, out, text=LINES).exception
    del report["checksums"]  # as an earlier version wrote it
    (out / "artifact.json").write_text(json.dumps(report))
    with refuses("file-damaged", "ctranslate2"):
        raise run(translate_verb, out, text=LINES).exception
    (out / "artifact.json").write_text(
        (out / "artifact.json").read_text().replace("ctranslate2", "marian"))
    with refuses("unknown-format", "marian"):
        raise run(translate_verb, out, text=LINES).exception
