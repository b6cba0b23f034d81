"""Cost breakdowns per section and per module: params, MACs, FLOPs, memory."""

from collections.abc import Sequence

import numpy as np

from scalesearch.cost import evaluate_cost, load_protocol
from scalesearch.cost.breakdown import ModuleCost, module_costs
from scalesearch.errors import UserError
from scalesearch.report.figures.style import fixed_size_panel
from scalesearch.report.labels import format_protocol, protocol_conventions
from scalesearch.spaces import read_space
from scalesearch.studies.monitor.format import format_percent
from scalesearch.studies.results.page.elements import (
    MISSING_CELL,
    PageSection,
    Part,
    TableCell,
    fold,
    table,
    text,
)
from scalesearch.studies.results.page.facts import PageFacts, trial_name
from scalesearch.studies.results.page.svg import picture
from scalesearch.studies.trials.study_dir import StudyDir
from scalesearch.studies.trials.trial import Trial

SECTION_COLORS = {"embedding": "#0072B2", "encoder": "#E69F00", "decoder": "#009E73",
                  "output": "#CC79A7"}
QUANTITY_CAPTIONS = {
    "params": "unique weights; a tied table counts once, in the section that uses it first",
    "macs": "multiply-accumulates per sentence pair; the look-up of embeddings is free",
    "flops": "floating-point operations per sentence pair"}
MEMORY_LABELS = {"weights": "weights", "cache": "key-value cache",
                 "activations": "training activations"}
MAX_BARS = 40
MAX_MODULE_DEPTH = 3  # depth of the module tree: down to the parts of a layer


def cost_section(facts: PageFacts) -> PageSection:
    """Create the section: figures and tables per quantity, and modules of each trial."""
    title = "Cost breakdowns of the front" if facts.is_search else "Cost breakdowns"
    trials = [facts.trials[number] for number in facts.itemized]
    if not trials:
        return PageSection("costs", title,
                           [text("No trial is on the front yet." if facts.is_search
                                 else "No finished trials.")])
    params, macs, flops = (_table(facts, trials, quantity) for quantity in QUANTITY_CAPTIONS)
    return PageSection("costs", title,
                       [*_pictures(facts, trials[:MAX_BARS]), params, macs,
                        fold("FLOPs by section", [flops]), _memory(facts, trials),
                        ("heading", "Module by module"),
                        *(_modules(facts, trial) for trial in trials)], "Cost breakdowns")


def _amount(trial: Trial, quantity: str, name: str = "total") -> int:
    return int(trial.costs.get(f"{quantity}.{name}", 0))


def _share(value: int, total: int) -> TableCell:
    return TableCell(f"{value:,} ({format_percent(value / total)})" if total else "0", value)


def _table(facts: PageFacts, trials: Sequence[Trial], quantity: str) -> Part:
    rows = []
    for trial in trials:
        total = _amount(trial, quantity)
        rows.append([TableCell(trial_name(trial), trial.number, left=True),
                     *(_share(_amount(trial, quantity, name), total) for name in SECTION_COLORS),
                     total])
    caption = (f"{quantity}: {QUANTITY_CAPTIONS[quantity]}; "
               f"{format_protocol(facts.meta.protocol)}; "
               f"{protocol_conventions(facts.meta.protocol)}.")
    return table(["trial", *SECTION_COLORS, "total"], rows, caption, f"costs-{quantity}")


def _memory(facts: PageFacts, trials: Sequence[Trial]) -> Part:
    rows = [[TableCell(trial_name(trial), trial.number, left=True),
             *(_mebibytes(trial.costs.get(f"memory.{name}")) for name in MEMORY_LABELS)]
            for trial in trials]
    target = facts.meta.protocol["target"] or "the protocol's"
    caption = (f"memory: MiB in float32; the key-value cache after {target} target tokens; "
               "activations: estimated memory of one sentence pair for the backward pass.")
    return table(["trial", *MEMORY_LABELS.values()], rows, caption, "costs-memory")


def _mebibytes(size: float | None) -> TableCell:
    return MISSING_CELL if size is None else TableCell(f"{size / 2**20:,.2f}", size)


def _modules(facts: PageFacts, trial: Trial) -> Part:
    """Module costs of a trial, the uses of its weights, and its architecture file."""
    params = _amount(trial, "params")
    macs = _amount(trial, "macs")
    modules = enumerate(trial_module_costs(facts.results.study, trial))
    rows = [[TableCell(row.path.rpartition(".")[2], index, left=True, indent=row.level),
             _share(row.params, params), _share(row.macs, macs),
             "" if row.calls is None else row.calls] for index, row in modules]
    parts = [table(["module", "params", "MACs", "calls per pass"], rows,
                   f"{trial_name(trial)}: the costs of a module include its parts; the layers of a "
                   "stack are summed.", f"costs-{trial.number}-modules") if rows
             else text("The architecture file is missing, or its costs differ from those of the "
                       "trial, so module costs are not shown.")]
    load = {name: value for name, value in trial.costs.items() if name.startswith("load.")}
    if load:
        parts.append(text(f"Uses of a weight per pass: {load['load.mean']:.3g} on average, "
                          f"{load['load.min']:.3g} to {load['load.max']:.3g}; balance (Jain's "
                          f"index) {load['load.balance']:.3g}."))
    if config := architecture_text(facts.results.study, trial):
        parts.append(fold("architecture.yaml", [("code", config)]))
    return fold(f"{trial_name(trial)}: {params:,} params, {macs:,} MACs", parts,
                f"costs-{trial.number}")


def _pictures(facts: PageFacts, trials: Sequence[Trial]) -> list[Part]:
    """Bar charts of params and MACs, side by side, with a caption."""
    panels = []
    positions = np.arange(len(trials))[::-1]
    for quantity, words in (("params", "Params (millions)"),
                            ("macs", "MACs per sentence pair (millions)")):
        with fixed_size_panel(0.9 + 0.22 * len(trials), (0.55, 0.5, 0.1, 0.3)) as (figure, axes):
            left = np.zeros(len(trials))
            for name, color in SECTION_COLORS.items():
                values = np.array([_amount(trial, quantity, name) for trial in trials]) / 1e6
                axes.barh(positions, values, left=left, color=color, height=0.7, label=name)
                left += values
            axes.grid(False, axis="y")
            axes.set_yticks(positions, [str(trial.number) for trial in trials])
            axes.set(xlabel=words, ylabel="Trial")
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(SECTION_COLORS),
                        borderaxespad=0.3)
        alt = "; ".join(f"trial {trial.number}: "
                        + ", ".join(f"{name} {_amount(trial, quantity, name):,}"
                                    for name in (*SECTION_COLORS, "total")) for trial in trials)
        panels.append(picture(figure, f"costs-figure-{quantity}",
                              f"Bars of {quantity} by section. {alt}.", ""))
    content = "The front, from the lowest cost" if facts.is_search else "All finished trials"
    return [("panels", (panels, None)),
            ("caption", f"{content}; {format_protocol(facts.meta.protocol)}.")]


def architecture_text(study: StudyDir, trial: Trial) -> str:
    """Text of the candidate's architecture file; empty if it is missing."""
    file = study.trial_folder(trial) / "architecture.yaml"
    return file.read_text() if file.is_file() else ""


def trial_module_costs(study: StudyDir, trial: Trial) -> tuple[ModuleCost, ...]:
    """Costs per module of a candidate.

    Empty if the architecture file is missing, damaged, or its costs differ from the trial's.
    """
    file = study.trial_folder(trial) / "architecture.yaml"
    try:
        architecture = read_space(file).single_architecture()
    except (UserError, OSError):
        return ()
    costs = evaluate_cost(architecture.block,
                          load_protocol(study.meta.protocol).for_candidates(architecture.config))
    same = all(costs[name] == trial.costs.get(name) for name in ("params.total", "macs.total"))
    return tuple(module_costs(costs, MAX_MODULE_DEPTH)) if same else ()
