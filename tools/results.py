"""Write the tables of the results pages from ``benchmarks/results.json`` and ``huggingface.json``.

    python tools/results.py            # --check: only report whether the tables are current

A table is between the lines ``<!-- results: NAME -->`` and ``<!-- end -->`` of a page.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for the benchmarks, if this file is run as a script
PAGES = (ROOT / "docs/results/benchmarks.md", ROOT / "docs/results/huggingface.md")
HUGGINGFACE = ROOT / "benchmarks" / "huggingface.json"
RESULTS = ROOT / "benchmarks" / "results.json"
SEARCH_TITLES = {"bayes + rungs": "`bayes` with rungs", "bayes": "`bayes`",
                 "botorch": "BoTorch qLogEHVI", "tpe": "Optuna TPE", "random": "random",
                 "nsga2": "Optuna NSGA-II", "tpe + rungs": "TPE with rungs",
                 "random + rungs": "random with rungs"}
MARKED = re.compile(r"(<!-- results: (?P<name>[\w-]+) -->\n\n).*?(\n<!-- end -->)", re.S)
# Half widths of 90 % intervals of the mean, in standard errors.
T_20_SEEDS = 1.73  # Student's t with 19 degrees of freedom
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


TABLES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "replay-mean": mean_table, "replay-10": table_after_10_runs, "huggingface": huggingface_table}


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
