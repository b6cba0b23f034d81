"""Invalid studies: errors with position and fix before the start, and exit status 2."""

from pathlib import Path

import pytest

from scalesearch.cli.main import main
from scalesearch.cli.study.shared import find_study_folder
from scalesearch.library import install_command
from tests.errors import refuses

GOOD = {
    "study": "bad",
    "data": "{ builtin: grammar, pairs: 300, vocab: 300 }",
    "recipe": "{ steps: 6, max_tokens: 256, beam: 1 }",
    "objectives": "{ loss: min, params.total: min }",
    "space": """
  width: 16..48 step 16
  encoder: { depth: 1..2, heads: 2, head_dim: 8, ffn: { relu: { hidden: 32 } } }
  decoder: { depth: 1, heads: 2, head_dim: 8, ffn: { relu: { hidden: 32 | 64 } } }""",
}
FILES = "source: en, target: de, train: {0}/t, validation: {0}/v, test: {0}/w"


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Run a study with changed keys; return its error after a check that no file was written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(keys, *arguments):
        text = "".join(f"{key}: {value}\n"
                       for key, value in (GOOD | keys).items() if value is not None)
        (tmp_path / "s.yaml").write_text(text)
        monkeypatch.setattr("sys.argv", ["scalesearch", "study", "run", "s.yaml", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        error = capsys.readouterr().err
        assert ended.value.code == 2 and "Traceback" not in error
        assert not list(tmp_path.glob("runs/*/trials")) and not list(
            tmp_path.glob("runs/*/events.jsonl"))
        return error

    return run


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            {"space": "nowhere"},
            [
                "s.yaml:5:8: nowhere: no such file. The spaces that come with scalesearch: ",
                "^^^^^^^",
            ],
        ),
        ({"space": None}, ["s.yaml:1:1: `space` is missing"]),
        ({"data": "wmt"}, ["s.yaml:2:7: data: ", "`builtin`", "data.yaml"]),
        (
            {"data": f"{{ {FILES.format('/nope')} }}"},
            ["s.yaml:2:40: data: train: no such file: /nope/t.en"],
        ),
        (
            {"data": "{ source: en, target: de, train: /nope }"},
            ["s.yaml:2:7: data: `validation` is missing"],
        ),
        ({"objectives": "{ blue: max }"}, ["s.yaml:4:15: ", "did you mean `bleu`?"]),
        ({"objectives": "{ rouge1: max }"}, ["s.yaml:4:15: `rouge1` is a metric of summarization"]),
        (
            {"objectives": "{ loss: min, loss: min }"},
            ["s.yaml:4:26: the objective loss is given twice", "keep one of them"],
        ),
        (
            {"objectives": "{ loss: up }"},
            ["s.yaml:4:21: loss: the direction is `min` or `max`, not `up`"],
        ),
        (
            {"budget": "params.total <= 10"},
            ["s.yaml:9:9: budget: no candidate", "params.total", "Raise the budget, or a"],
        ),
        (
            {"reference": "[{ name: open, set: { width: 32 } }]"},
            ["s.yaml:9:12: reference open", "encoder.depth"],
        ),
        ({"budget": "tiny"}, ["s.yaml:9:9: the space has no budget `tiny`", "write an expression"]),
        (
            {"storage": "foo"},
            [
                "s.yaml:9:10: storage: not a storage: write "
                "`embedded`, or a URL such as postgresql://"
            ],
        ),
        (
            {"storage": "postgres://a@h/d"},
            ["s.yaml:9:10: storage: the scheme `postgres` is not known; write postgresql://"],
        ),
        (
            {"storage": "postgresql://ann:pw@127.0.0.1:1/x"},
            [
                "s.yaml:9:10: "
                "storage: postgresql://ann:***@127.0.0.1:1/x cannot be used: "
                "connection failed",
                "refused",
                "--set storage=embedded",
            ],
        ),
        (
            {"ray": "{ address: 127.0.0.1:1 }"},
            [
                "s.yaml:9:6: ray: no cluster responds at 127.0.0.1:1: ",
                "refused",
                "ray start --head",
            ],
        ),
        (
            {"resources": "{ address: 127.0.0.1:1 }"},
            ["s.yaml:9:12: ray: no cluster responds at 127.0.0.1:1"],
        ),
        (
            {"ray": "{ address: 'a:1' }", "resources": "{ address: 'b:1' }"},
            ["s.yaml:10:23: the cluster is at `b:1` here and at `a:1` under `ray:`", "keep one"],
        ),
        (
            {"ray": "head:6379"},
            ["s.yaml:9:6: ray: expected a mapping, found `head:6379`", "`address`"],
        ),
        (
            {"resources": "{ gpus_per_trial: 1.5 }"},
            ["s.yaml:9:30: resources.gpus_per_trial: use a whole number above 1"],
        ),
        (
            {"resources": "{ cpus_per_trial: 0.00001 }"},
            ["s.yaml:9:30: resources.cpus_per_trial: 1e-05 is less"],
        ),
        ({"resources": "{ custom: { GPU: 1 } }"}, ["s.yaml:9:24: `GPU`", "gpus_per_trial"]),
        (
            {"resources": "{ custom: { a: much } }"},
            ["s.yaml:9:27: a: expected a number of at least 0.0001"],
        ),
        (
            {"resources": "{ custom: 3 }"},
            ["s.yaml:9:22: custom resources are a mapping of their names to numbers"],
        ),
    ],
)
def test_invalid_key_is_reported_with_position(refused, keys, expected):
    error = refused(keys)
    for words in expected:
        assert words in error


def test_error_in_option_names_the_option(refused):
    error = refused({"storage": "embedded"}, "--set", "storage=postgresql://a:pw@127.0.0.1:1/x")
    assert error.startswith("--set storage=postgresql://a:***@127.0.0.1:1/x cannot be used: "
                            "connection failed")
    assert "pw" not in error
    assert refused({}, "--address", "127.0.0.1:1").startswith(
        "--set ray.address=127.0.0.1:1: ray: no cluster responds")


def test_unreachable_storage_is_reported_before_data_are_read(refused, monkeypatch):
    monkeypatch.setattr("scalesearch.studies.engine.corpora.load_corpus",
                        lambda *_: pytest.fail("read"))
    assert "cannot be used" in refused({"storage": "sqlite:////nowhere/at/all.db"})
    assert "no cluster responds" in refused({"ray": "{ address: 127.0.0.1:1 }"})


def test_errors_do_not_show_passwords(refused):
    for storage in ("postgresql://a:pwd@127.0.0.1:1/x", "nosuch://a:pwd@h/x",
                    "postgres://a:pwd@h/x"):
        for keys in ({"storage": storage}, {"storage": storage, "trials": "-1", "out": "[1]"}):
            assert "pwd" not in refused(keys)


def test_missing_package_is_reported_with_extra(refused, monkeypatch):
    find = __import__("importlib.util").util.find_spec
    monkeypatch.setattr("importlib.util.find_spec",
                        lambda name: None if name == "ray" else find(name))
    assert refused({"backend": "ray"}) == f"ray is not installed: {install_command('study')}\n"


@pytest.mark.parametrize("verb",
                         ["run", "status", "front", "show", "plot", "report", "audit", "repair"])
def test_commands_without_extra_have_help_and_error(verb, monkeypatch, capsys):
    find = __import__("importlib.util").util.find_spec
    monkeypatch.setattr("importlib.util.find_spec",
                        lambda name: None if name == "moocore" else find(name))
    for argument, status, words in (("quick", 2,
                                  f"moocore is not installed: {install_command('study')}"),
                                 ("--help", 0, "Usage: ")):
        monkeypatch.setattr("sys.argv", ["scalesearch", "study", verb, argument])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == status and words in "".join(capsys.readouterr())


def test_a_missing_folder_suggests_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    (tmp_path / "bigg.txt").touch()
    with refuses("no-study", tmp_path / "bigg", f"{tmp_path / 'big'}?"):
        find_study_folder(str(tmp_path / "bigg"), None)
