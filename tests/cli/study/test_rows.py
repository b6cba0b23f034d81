"""``scalesearch study run`` with fixed architectures: tables, laws, files and JSON."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from scalesearch.cli.study.group import command
from tests.corpora import DATA
from tests.errors import refuses

REST = f"""\
data: {DATA}
recipe: {{ steps: 2, max_tokens: 64, beam: 1, score_splits: validation }}
objectives: {{ bleu: max, params.total: min }}
"""
KINDS = {
    "ablation": """\
base: { file: small/edgeformer, set: { width: 16, encoder.depth: 4 } }
changes: [share: none, adapt: nothing]
""",
    "scaling": """\
base: { file: small/partialformer, set: { width: 16, encoder.depth: 1, decoder.depth: 1 } }
rules: { wider: 24 | 32 }
""",
    "grid": "space: { file: small/plain, "
            "set: { width: 16 | 24, encoder.depth: 1, decoder.depth: 1 } }\n",
}
FILES = {"ablation": {"table.md", "table.csv", "table.tex"},
         "grid": {"table.md", "table.csv", "table.tex"},
         "scaling": {"scaling.md", "scaling.csv", "scaling.json", "scaling-curves.png",
                     "scaling-params.svg"}}


@pytest.mark.full
@pytest.mark.usefixtures("text_folder")
@pytest.mark.parametrize("kind", KINDS)
def test_run_prints_results_of_its_type(tmp_path, kind):
    file = tmp_path / f"{kind}.yaml"
    file.write_text(f"kind: {kind}\n{REST}{KINDS[kind]}seeds: 2\n")
    folder = tmp_path / "run"
    arguments = ["run", str(file), "--out", str(folder)]
    dry = CliRunner().invoke(command, [*arguments, "--dry-run", "--json"], catch_exceptions=False)
    promised = json.loads(dry.stdout)
    assert not folder.exists() and promised["runs"] == 2 * len(promised["architectures"])

    shown = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    rows = [row["label"] for row in promised["architectures"]]
    assert all(name.split()[0] in shown.output
               for name in rows) and "architectures trained" in shown.output
    written = {Path(name).name
               for name in shown.output.rpartition("Written: ")[2].replace("\n", " ").split(", ")}
    assert FILES[kind] <= {name.strip() for name in written} and all(
        (folder / name).is_file() for name in FILES[kind])

    again = CliRunner().invoke(command, [*arguments, "--resume", "--json"], catch_exceptions=False)
    report = json.loads(again.stdout)
    costs = {row["label"]: row["costs"]["params.total"] for row in promised["architectures"]}
    table = report["scaling" if kind == "scaling" else "table"]["rows"]
    assert {row.get("name", row.get("label")): row["params"] if "params" in row
            else row["costs"]["params.total"] for row in table} == costs
    assert report["counts"]["complete"] == len(rows) and len(report["front"]) >= 1

    status = CliRunner().invoke(command, ["status", str(folder)], catch_exceptions=False)
    assert status.exit_code == 0 and f"{len(rows)}" in status.output
    if kind == "grid":  # the others' pages and tables are tested elsewhere
        assert CliRunner().invoke(command, ["report", str(folder)],
                                  catch_exceptions=False).exit_code == 0


def test_option_of_searches_is_refused(tmp_path):
    file = tmp_path / "ablation.yaml"
    file.write_text(f"type: ablation\n{REST}{KINDS['ablation']}")
    with refuses("key-of-other-study-type", "`trials`"):
        CliRunner().invoke(command,
                           ["run", str(file), "--trials", "3", "--out", str(tmp_path / "run")],
                           catch_exceptions=False)
    assert not (tmp_path / "run").exists()
