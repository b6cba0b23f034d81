"""Write the tables of the results pages from files in ``benchmarks``, and of lines per block.

    python tools/results.py            # --check: only report whether the tables are current

A table is between the lines ``<!-- results: NAME -->`` and ``<!-- end -->`` of a page.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for the benchmarks, if this file is run as a script
PAGES = (ROOT / "docs/results/benchmarks.md", ROOT / "docs/results/huggingface.md",
         ROOT / "docs/results/board.md", ROOT / "docs/develop/blocks.md")
HUGGINGFACE = ROOT / "benchmarks" / "huggingface.json"
BOARD = ROOT / "benchmarks" / "board.json"
RESULTS = ROOT / "benchmarks" / "results.json"
SEARCH_TITLES = {"bayes + rungs": "`bayes` with rungs", "bayes": "`bayes`",
                 "botorch": "BoTorch qLogEHVI", "tpe": "Optuna TPE", "random": "random",
                 "nsga2": "Optuna NSGA-II", "tpe + rungs": "TPE with rungs",
                 "random + rungs": "random with rungs"}
MARKED = re.compile(r"(<!-- results: (?P<name>[\w-]+) -->\n\n).*?(\n<!-- end -->)", re.S)
# Half widths of 90 % intervals of the mean, in standard errors.
T_20_SEEDS = 1.73  # Student's t with 19 degrees of freedom
T_3_SEEDS = 2.92
Z_ALL_TABLES = 1.65  # seven tables of 20 seeds


def load_results() -> dict[str, Any]:
    """Load the committed results."""
    results: dict[str, Any] = json.loads(RESULTS.read_text("utf-8"))
    return results


def mean_regret(results: Mapping[str, Any], search: str, end: int) -> tuple[float, float]:
    """Mean regret of a search over all tables after ``end`` runs, and its 90 % half width."""
    replays = results["replays"]
    index = replays["ends"].index(end)
    cells = [table["regret"][search][index] for table in replays["tables"].values()]
    mean = sum(cell[0] for cell in cells) / len(cells)
    standard_error = math.hypot(*(cell[1] for cell in cells)) / len(cells)
    return mean, Z_ALL_TABLES * standard_error


def table_regret(results: Mapping[str, Any], table: str, search: str,
                 end: int) -> tuple[float, float]:
    """Mean regret of a search on one table after ``end`` runs, and its 90 % half width."""
    replays = results["replays"]
    mean, standard_error = replays["tables"][table]["regret"][search][replays["ends"].index(end)]
    return mean, T_20_SEEDS * standard_error


def mean_table(results: Mapping[str, Any]) -> str:
    """Table of the mean regrets over all tables."""
    ends = results["replays"]["ends"]
    rows = [[SEARCH_TITLES[search],
             *(_interval(mean_regret(results, search, end)) for end in ends)]
            for search in SEARCH_TITLES]
    return _markdown(["search", *map(str, ends)], rows)


def table_after_10_runs(results: Mapping[str, Any]) -> str:
    """Table of the regrets after 10 runs, one row per replayed table."""
    searches = list(SEARCH_TITLES)[:5]
    rows = []
    for name, table in results["replays"]["tables"].items():
        title = f"{name} (held out)" if table["held_out"] else name
        cells = (_interval(table_regret(results, name, search, 10)) for search in searches)
        rows.append([title, str(table["models"]), *cells])
    return _markdown(["table", "models", *(SEARCH_TITLES[search] for search in searches)], rows)


def huggingface_table(results: Mapping[str, Any]) -> str:
    """Table of the Hugging Face models, one row per model."""
    import scalesearch as ss
    from benchmarks.huggingface import explained_differences, unexplained_differences

    rows = []
    for model in json.loads(HUGGINGFACE.read_text("utf-8"))["models"]:
        config = model["config"]
        listed = sum(difference.params for difference in ss.from_huggingface(config).not_expressed)
        counts = [f"{model[key]:,}" if key in model else ""
                  for key in ("params", "macs_forward", "macs_decode", "cache")]
        unexplained = sum(map(abs, unexplained_differences(model).values()))
        _, _, reason = explained_differences(config)
        rows.append([f"`{config['model_type']}` {model['name']}", *counts, f"{listed:,}", reason,
                     f"{unexplained:,}"])
    return _markdown(["model", "params", "MACs, forward", "MACs, decoding", "bytes of the cache",
                      "listed params", "other differences", "unexplained"], rows)


BOARD_TEST = "test_2016_flickr"
# Limits of the board: column of a row, limit, text.
BOARD_LIMITS = (("params", 500_000, "0.5M"), ("params", 1_300_000, "1.3M"), ("params", 2_600_000, "2.6M"),
                ("int8_bytes", 1_000_000, "1 MB"), ("int8_bytes", 2_000_000, "2 MB"),
                ("int8_bytes", 4_000_000, "4 MB"))


def board_rows(results: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Rows of the board, the smallest first: those of the flagship, then ``board.json``."""
    flagship = results["flagship"]
    front = {name: (row, "search", "found-by-the-search") for name, row in flagship["front"].items()
             if (ROOT / f"spaces/found/{name}.yaml").is_file()}
    by_hand = {name: (flagship[name], "hand", "sized-by-hand-distilled")
               for name in ("plain-1.28m", "plain-2.54m")}
    rows = {name: {"method": method, "how": f"[flagship](flagship.md#{section})",
                   "params": row["params"], "int8_bytes": _predicted_int8_bytes(name),
                   "validation_bleu": row["validation_bleu"],
                   "tests": {BOARD_TEST: {"tokenized_bleu": row["test_bleu"]}}}
            for name, (row, method, section) in (front | by_hand).items()}
    rows |= {name: row | {"how": f"`{row['command']}`"}
             for name, row in json.loads(BOARD.read_text("utf-8")).items()}
    return dict(sorted(rows.items(), key=lambda item: item[1]["params"]))


def board_table(results: Mapping[str, Any]) -> str:
    """Table of the board, one row per model."""
    rows = board_rows(results)
    best_within: dict[str, list[str]] = {name: [] for name in rows}
    for key, limit, text in BOARD_LIMITS:
        within = [name for name, row in rows.items() if row[key] <= limit]
        if within:
            best_within[max(within, key=lambda name: mean(rows[name]["validation_bleu"]))].append(text)
    lines = []
    for name, row in rows.items():
        scores = row["tests"][BOARD_TEST]
        cells = (_seed_interval(scores[metric]) if metric in scores else "–"
                 for metric in ("tokenized_bleu", "bleu", "chrf"))
        lines.append([f"`{name}`", row["method"], f"{row['params']:,}", f"{row['int8_bytes']:,}",
                      _seed_interval(row["validation_bleu"]), *cells,
                      ", ".join(best_within[name]) or "–", row["how"]])
    return _markdown(["model", "found by", "params", "int8 bytes", "validation, tokenized BLEU",
                      "test, tokenized BLEU", "test, sacreBLEU", "test, chrF", "best within",
                      "command"], lines)


def _predicted_int8_bytes(name: str) -> int:
    """Bytes of a model in ``spaces/found`` as CTranslate2 model, or as ONNX if it has to be."""
    import scalesearch as ss

    architecture = ss.space(f"found/{name}").architecture()
    try:
        return round(architecture.cost(artifact="ctranslate2-int8")["artifact.bytes"])
    except ss.UserError:
        return round(architecture.cost(artifact="onnx-int8")["artifact.bytes"])


def half_width(scores: Sequence[float]) -> float:
    """Half width of the 90 % interval of the mean of three seeds."""
    return T_3_SEEDS * stdev(scores) / math.sqrt(len(scores))


def _seed_interval(scores: list[float]) -> str:
    return f"{mean(scores):.2f} ± {half_width(scores):.2f}"


def block_lines_table(results: Mapping[str, Any]) -> str:
    """Table of the lines of code per block type."""
    from tools.block_lines import table_rows

    return _markdown(["block", "description and costs", "operation"], table_rows())


TABLES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "replay-mean": mean_table, "replay-10": table_after_10_runs, "huggingface": huggingface_table,
    "board": board_table, "block-lines": block_lines_table}


def updated(text: str, results: Mapping[str, Any]) -> str:
    """Text of a page with current tables."""
    return MARKED.sub(lambda match: match[1] + TABLES[match["name"]](results) + match[3], text)


def _interval(mean_and_half_width: tuple[float, float]) -> str:
    mean, half_width = mean_and_half_width
    return f"{mean:.1f} ± {half_width:.1f}"


def _markdown(header: list[str], rows: Iterable[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "".join(f"| {' | '.join(row)} |\n" for row in (header, rule, *rows)).replace(
        "| --- | ---:", "|---|---:").replace("---: | ---:", "---:|---:").replace(
        "---: | ---:", "---:|---:").replace("---: |\n", "---:|\n")


def main() -> None:
    """Write the tables, or with --check report the stale pages (exit status 1)."""
    results = load_results()
    stale = [page for page in PAGES
             if updated(page.read_text("utf-8"), results) != page.read_text("utf-8")]
    if "--check" in sys.argv[1:]:
        names = ", ".join(page.name for page in stale)
        print(f"stale: {names}; run python tools/results.py" if stale else "the tables are current")
        raise SystemExit(bool(stale))
    for page in stale:
        page.write_text(updated(page.read_text("utf-8"), results), "utf-8")


if __name__ == "__main__":
    main()
