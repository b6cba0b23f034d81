"""The ``scalesearch`` command: its exit statuses."""

import json
import sys
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from subprocess import PIPE, Popen, run

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from scalesearch.cli import main as entry
from scalesearch.cli.main import COMMANDS, app
from scalesearch.cli.options import load_space, print_json
from scalesearch.terminal import (
    format_count,
    format_size,
    make_table,
    open_console,
    print_data,
    print_text,
)
from tests.errors import refuses


def status(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["scalesearch", *arguments])
    with pytest.raises(SystemExit) as stopped:
        entry.main()
    return stopped.value.code or 0


@pytest.mark.parametrize(("count", "noun", "text"), [
    (1, "class", "1 class"), (2, "class", "2 classes"), (2400, "candidate", "2,400 candidates")])
def test_counted_nouns_have_their_plural(count, noun, text):
    assert format_count(count, noun) == text


def test_ctrl_c_exits_with_130(monkeypatch, capsys):
    def stop():
        raise KeyboardInterrupt

    monkeypatch.setattr(entry.LazyGroup, "get_command",
                        lambda *_: click.Command("check", callback=stop))
    assert status(monkeypatch, "check") == 130
    assert capsys.readouterr().err.strip() == "Interrupted."


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1251"])
def test_text_is_printed_in_any_encoding_and_data_as_utf8(encoding, monkeypatch):
    def show():
        print_text("μ = 3 ± 1 ж")
        print_text(make_table(["μ"], [["中"]], has_box=True))
        print_data("μ ± ж 中")

    monkeypatch.setattr(entry.LazyGroup, "get_command",
                        lambda *_: click.Command("x", callback=show))
    output = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(output, encoding=encoding))
    assert status(monkeypatch, "check") == 0
    sys.stdout.flush()
    *text, data = output.getvalue().splitlines()
    assert data.decode() == "μ ± ж 中"
    assert text[0] == "μ = 3 ± 1 ж".encode(encoding, errors="replace")


@pytest.mark.parametrize("arguments", [["schema", "study"], ["check", "FILE", "--json"]])
def test_json_is_utf8_in_any_encoding(arguments, tmp_path, monkeypatch):
    file = tmp_path / "ж.yaml"
    file.write_text("width: ж中\n", "utf-8")
    output = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(output, encoding="latin-1"))
    status(monkeypatch, *[str(file) if word == "FILE" else word for word in arguments])
    text = output.getvalue().decode()
    assert json.loads(text) and ("FILE" not in arguments or "ж中" in text)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--version"], 0, "version"),
        (["check", "--help"], 0, "Usage: scalesearch check"),
        (["chekc"], 2, "No such command 'chekc'. Did you mean 'check'?"),
        (["zzz"], 2, "No such command 'zzz'."),
        (["check"], 2, "Missing argument 'FILE'"),
        (["check", "no-such.yaml"], 2, "no-such.yaml: no such file"),
    ],
)
def test_exit_statuses(monkeypatch, capsys, arguments, code, text):
    assert status(monkeypatch, *arguments) == code
    captured = capsys.readouterr()
    assert text in captured.out + captured.err


@pytest.mark.parametrize("arguments", [
    ["check"], ["cost"], ["cost", "transformer"], ["feasible"], ["solve"],
    ["study", "run", "--dry-run"]])
def test_json_of_invalid_file_lists_problems(arguments, monkeypatch, capsys, tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("width: 3\nencoder.depth: 2\ndecoder.dept: 2\n")
    goal = ["max width"] if "solve" in arguments else []
    assert status(monkeypatch, *arguments, str(file), *goal, "--json") == 2
    captured = capsys.readouterr()
    problems = json.loads(captured.out)["problems"]
    if "study" not in arguments:
        [place] = [(problem["file"], problem["line"], problem["column"]) for problem in problems
                   if problem["code"] == "unknown-key"]
        assert place == (str(file), 3, 9)
    assert all(problem["message"] in captured.err for problem in problems)


@pytest.mark.parametrize(("arguments", "code", "help"), [
    (["cost", "transformer", "--set", "encoder.dept=3"], "unknown-key",
     "did you mean `encoder.depth`?"),
    (["feasible", "no-such.yaml"], "no-such-file", None), (["cost"], "usage", None),
    (["cost", "transformer", "--source", "1e30"], "usage", None),
    (["cost", "transformer", "--csv", "x.csv"], "option-missing", None)])
def test_json_of_error_without_place(arguments, code, help, monkeypatch, capsys):
    assert status(monkeypatch, *arguments, "--json") == 2
    captured = capsys.readouterr()
    [line] = captured.out.splitlines()  # as each translation of `translate --json`
    [problem] = json.loads(line)["problems"]
    assert (problem["line"], problem["code"], problem["help"]) == (None, code, help)
    assert problem["message"] in captured.err


def test_json_has_no_numbers_that_are_not_finite(capsys):
    print_json({"loss": float("nan"), "scores": (1.5, float("-inf"))})
    assert json.loads(capsys.readouterr().out) == {"loss": None, "scores": [1.5, None]}


@pytest.mark.parametrize(("setting", "code"), [
    ("=5", "not-key-value"), ("a.b", "not-key-value"), ("a.b=", "unknown-key"),
    ("encoder.depth=", "bad-syntax")])
def test_incomplete_setting_gets_an_example(setting, code):
    with refuses(code, setting, "for example", place="--set"):
        load_space("transformer", [setting])


def test_infeasible_budget_exits_with_2_after_table(monkeypatch, capsys, tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text("width: 32\nencoder.depth: 1 | 2\ndecoder.depth: 1\ncost.budgets: { tiny: "
                    "params.total <= 1 }\n")
    assert status(monkeypatch, "check", str(file), "--samples", "2") == 2
    captured = capsys.readouterr()
    assert "meets all constraints" in captured.out
    assert f"{file}:4:23: none of the 2 random candidates satisfies this constraint" in captured.err


@pytest.mark.parametrize("verb", [["cost", "transformer"], ["cost", "transformer", "--json"]])
def test_closed_output_pipe_is_not_an_error(verb):
    with Popen([sys.executable, "-m", "scalesearch", *verb], stdout=PIPE, stderr=PIPE) as verb:
        verb.stdout.close()
        assert (verb.wait(), verb.stderr.read()) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(("arguments", "message"), [
    (["cost", "transformer"], "standard output: cannot be written"),
    (["cost", "transformer", "--json"], "standard output: cannot be written"),
    (["cost", "no-such", "--json"], "no-such: no such file"),
    (["cost", "--no-such", "--json"], "No such option")])
def test_output_to_a_full_disk_exits_with_2(arguments, message):
    with open("/dev/full", "w") as full:
        done = run([sys.executable, "-m", "scalesearch", *arguments], stdout=full, stderr=PIPE,
                   text=True)
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr


def test_other_broken_pipe_is_an_error(tmp_path):
    code = """
import click
from scalesearch.cli import main

def broken():
    click.echo("begun")
    raise BrokenPipeError("of a process that died")

main.LazyGroup.get_command = lambda *_: click.Command("check", callback=broken)
main.main()
"""
    with (tmp_path / "out").open("w") as out, Popen(
            [sys.executable, "-c", code, "check"], stdout=out) as verb:
        assert verb.wait() == 1
    assert (tmp_path / "out").read_text() == "begun\n"


def test_earlier_names_of_commands_and_options_are_hidden() -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["analyse", "--help"]).exit_code == 0
    for arguments, present, earlier in ((["--help"], "analyze", "analyse"),
                                        (["cost", "--help"], "--artifact", "--artefact"),
                                        (["cost", "--help"], "--formula", "--cite"),
                                        (["solve", "--help"], "--reference", "--of "),
                                        (["export", "--help"], "--constraint", "--under")):
        output = runner.invoke(app, arguments).stdout
        assert present in output and earlier not in output
    renamed = [runner.invoke(app, ["cost", "transformer", option, "ctranslate2-int8", "--json"])
               for option in ("--artifact", "--artefact")]
    assert renamed[0].stdout == renamed[1].stdout and renamed[0].exit_code == 0


def test_trial_to_export_is_selected_once() -> None:
    pytest.importorskip("optuna")
    with refuses("options-conflict", "TRIAL 1"):
        CliRunner().invoke(app, ["export", "nowhere", "1", "--constraint", "bleu > 1", "--to",
                                 "torch"], catch_exceptions=False)


@pytest.mark.parametrize("path", [name for name in COMMANDS if name not in ("latency", "study")]
                         + ["latency measure", "latency calibrate", "study run", "study audit",
                            "study status", "study front", "study show", "study plot",
                            "study report", "study repair", "study watch", "study table",
                            "study scaling", "study compare"])
def test_help_has_an_example(path: str) -> None:
    result = CliRunner().invoke(app, [*path.split(), "--help"])
    assert result.exit_code == 0 and f"Example: scalesearch {path}" in result.stdout


def test_sizes_have_three_digits_and_a_unit():
    assert [format_size(size) for size in (7, 999, 2000, 1_234_567, 999_999, 2.5e9, 1e12)] == [
        "7", "999", "2k", "1.23M", "1M", "2.5G", "1T"]


@pytest.mark.parametrize(("width", "heading"), [(40, "params.non-embedding"), (24, "embedding")])
def test_headings_are_split_if_this_is_enough(width, heading):
    table = make_table(("width", "params.non-embedding"), [("64", "15,959,808")], left_columns=())
    output = StringIO()
    print_text(table, open_console(width=width, file=output))
    lines = [line.split() for line in output.getvalue().splitlines()]
    assert lines[-2:] == [["64", "15,959,808"], []] and heading in lines[-3]


@pytest.mark.parametrize(("width", "expected"), [
    (44, ["score score", "trial plain-0.50m wide-1.19m.v2"]),
    (30, ["score", "score wide-", "plain- 1.19m.", "trial 0.50m v2"])])
def test_headings_are_split_at_spaces_before_names_are(width, expected):
    table = make_table(("trial", "score plain-0.50m", "score wide-1.19m.v2"), [("1", "9", "8")])
    output = StringIO()
    print_text(table, open_console(width=width, file=output))
    assert [" ".join(line.split()) for line in output.getvalue().splitlines()[:-2]] == expected


@pytest.mark.parametrize(("width", "bleu", "fits"), [
    (60, "24.39 ± 0.25 (3)", True), (44, "24.39 ±", True), (30, "24.39 ± 0.25 (3)", False)])
def test_numbers_are_not_split_in_a_narrow_table(width, bleu, fits):
    table = make_table(("trial", "bleu", "params"), [
        ("3 (a long name of an architecture)", "24.39 ± 0.25 (3)", "15,959,808")], has_box=True)
    output = StringIO()
    print_text(table, open_console(width=width, file=output))
    lines = output.getvalue().splitlines()
    assert all(len(line) <= width for line in lines) == fits
    assert any(bleu in line for line in lines)
    assert any("15,959,808" in line for line in lines)


@pytest.mark.parametrize(("command", "incomplete", "expected"), [
    (["check"], "small/pl", [("small/plain", "plain")]),
    (["cost", "transformer"], "mi", [("mine.yaml", "plain")]),
    (["study", "run"], "quick", [("quick", "plain")]),
    (["study", "status"], "runs/", [("runs/", "file")]),
    (["translate"], "runs/m", [("runs/m", "file")])])
def test_names_of_shipped_files_and_paths_are_completed(
        tmp_path, monkeypatch, command, incomplete, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").touch()
    completer = ShellComplete(app, {}, "scalesearch", "_SCALESEARCH_COMPLETE")
    assert [(item.value, item.type)
            for item in completer.get_completions(command, incomplete)] == expected
