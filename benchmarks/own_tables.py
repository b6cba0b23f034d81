"""Tables of trained candidates: written from a study of a whole space, read to be replayed.

    scalesearch study run table-grammar
    python benchmarks/own_tables.py runs/table-grammar  # writes benchmarks/tables/table-grammar.csv

Each row is a candidate: parameters, costs, scores, CPU-seconds of its updates, and validation
losses at equal intervals of the run. Losses are per character if vocabularies differ. Scores are
means over the seeds of a candidate; losses and CPU-seconds are those of its first seed. Space and
measured objective are those of the study file with the name of the table.
"""

import argparse
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pandas as pd
from tabular import Row, Table

from scalesearch.errors import UserError
from scalesearch.files import write_text
from scalesearch.library import find_file
from scalesearch.pareto import Objective
from scalesearch.report.records import find_replicates
from scalesearch.studies.config.reader import read_study
from scalesearch.studies.results.results import Results, load_results
from scalesearch.studies.trials.trial import State

FOLDER = Path(__file__).parent / "tables"
MARK = "# scalesearch table"
SCORES = ("bleu", "chrf", "loss_per_char", "validation_loss")
PARAMETER_PREFIX = "asked "  # before the name of a parameter
COMPUTE = {"cpu": "CPU-seconds of updates",
           "macs": "multiply-accumulates: updates times macs.total"}


def is_own(file: Path) -> bool:
    """Whether ``file`` is in the format of this script."""
    with file.open() as lines:
        return lines.readline().startswith(MARK)


def export(folder: Path, to: Path) -> Path:
    """Writes the table of the study in ``folder``; where it lies.

    Raises:
        UserError: the folder does not contain a study of a whole trained space.
    """
    results = load_results(folder)
    trials = [trial for trial in results.study.trials.candidates()
              if trial.state in (State.COMPLETE, State.FAILED)]
    if len(trials) < results.study.meta.total_trials:
        raise UserError(f"{folder}: {len(trials)} of {results.study.meta.total_trials} candidates "
                        "are trained; a table needs all of them: resume with `scalesearch study run "
                        "… --resume`", code="study-unfinished")
    records = [record for trial in trials if (record := results.study.record(trial))]
    loss = "validation_loss" if len({record["params"].get("vocab")
                                for record in records}) == 1 else "validation_loss_per_char"
    table = pd.DataFrame([_line(record, _scores(record, results), loss) for record in records])
    text = _head(results, records[0]) + table.to_csv(
        index=False, float_format="%.6g", lineterminator="\n")
    file = to / f"{results.study.meta.name}.csv"
    write_text(file, text)
    return file


def _head(results: Results, first: dict[str, Any]) -> str:
    """Return the facts that are needed to interpret the numbers."""
    meta = results.study.meta
    scores = first.get("metrics") or {}
    recipe = {name: value for name, value in meta.recipe.items() if value is not None}
    facts = {"study": meta.name, "space": meta.space_hash,
             "data": f"{meta.data.name} {meta.data.hash}", "seed": meta.seed,
             "bleu": f"{scores.get('bleu_signature')}, {scores.get('decoding')}, {scores.get('split')}",
             "device": f"{first.get('device')}, {first.get('dtype')}",
             "protocol": json.dumps(meta.protocol), "recipe": json.dumps(recipe),
             "versions": json.dumps(first["versions"])}
    return "".join([MARK + "\n", *(f"# {name}: {value}\n" for name, value in facts.items())])


def _scores(record: dict[str, Any], results: Results) -> dict[str, Any]:
    """Return the mean scores of a candidate over its seeds, and the number of seeds."""
    runs = [record, *find_replicates(record["trial"], results.records)]
    metrics = [run["metrics"] for run in runs if run["state"] == State.COMPLETE]
    means = {name: [scores[name] for scores in metrics if scores.get(name) is not None]
             for name in SCORES}
    return {**{name: sum(values) / len(values) if values else None
               for name, values in means.items()}, "seeds": len(metrics)}


def _line(record: dict[str, Any], scores: dict[str, Any], loss: str) -> dict[str, Any]:
    cost = record["costs"]
    return {
        **{PARAMETER_PREFIX + name: value for name, value in record["params"].items()},
        **{f"{group}.{part}": cost[f"{group}.{part}"] for group in ("params", "macs")
           for part in ("total", "non_embedding")},
        **scores,
        "steps": record["steps"], "tokens": record["tokens"], "cpu_seconds": record["cpu_seconds"],
        "failed": record["state"] == State.FAILED,
        "curve": " ".join(f"{moment[loss]:.6g}" for moment in record["curve"] or ()),
    }


def read(file: Path, costs: Sequence[str], compute: str = "cpu", half: int = 0) -> Table:
    """The table in ``file`` with the goal of its study and these costs, and ``compute`` as one of :data:`COMPUTE`.

    With ``half`` 1 or 2, it has every second row, in an order that the parameters do not determine.

    Raises:
        UserError: it does not belong to the space that its study file has now, or lacks a column.
    """
    text = file.read_text()
    facts = dict(line[2:].split(": ", 1)
                 for line in text.splitlines() if line.startswith("# ") and ": " in line)
    study = read_study(find_file(facts["study"], "studies"))
    space = study.space
    goal = next(objective for objective in study.objectives if objective.is_measured)
    objectives = (goal, *(Objective(cost, "min", False) for cost in costs))
    if space.hash != facts["space"]:
        raise UserError(f"{file}: made of space {facts['space']}, and {facts['study']}.yaml now "
                        f"holds {space.hash}; train that again, or take back the change",
                        code="other-space")
    lines = pd.read_csv(io.StringIO(text), comment="#", keep_default_na=False).to_dict("records")
    if half:
        lines = sorted(lines, key=lambda line: crc32(repr(_options(line)).encode()))[half - 1::2]
    missing = [objective.name for objective in objectives if objective.name not in lines[0]]
    if missing:
        raise UserError(f"{file}: lacks the column {', '.join(missing)}", code="bad-table")
    return Table([_row(line, objectives, compute, space) for line in lines], objectives, space)


def _options(line: dict[str, Any]) -> dict[str, str]:
    """Return the parameters of a row as texts."""
    return {name.removeprefix(PARAMETER_PREFIX): str(value)
            for name, value in line.items() if name.startswith(PARAMETER_PREFIX)}


def _row(line: dict[str, Any], objectives: tuple[Objective, ...], compute: str, space: Any) -> Row:
    options = _options(line)
    failed = str(line["failed"]) == "True"
    spent = line["cpu_seconds"] if compute == "cpu" else line["steps"] * line["macs.total"]
    values = {objective.name: 0.0 if failed else float(line[objective.name])
              for objective in objectives}
    curve = tuple(map(float, str(line["curve"]).split()))
    return Row(_params(options, space), values, curve, float(spent), failed=failed)


def _params(options: dict[str, str], space: Any) -> dict[str, Any]:
    """Return parameters with the types of the space, from their texts."""
    def choose(path: str, parameter: Any) -> Any:
        return next(value for value in parameter.values() or () if _same(value, options[path]))

    return dict(space.resolve(choose).params)


def _same(value: Any, text: str) -> bool:
    try:
        return float(value) == float(text)  # pandas writes a column of numbers with gaps as floats
    except (TypeError, ValueError):
        return str(value) == text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path,
                        help="the folder of a study that trained its whole space")
    parser.add_argument("--to", type=Path, default=FOLDER, help="the folder of tables")
    options = parser.parse_args()
    try:
        print(export(options.study, options.to))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
