"""A figure of a fairness audit: what each architecture loses by each recipe that it was trained by."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from scalesearch.report.fairness import Fairness
from scalesearch.report.figures.style import REFERENCE_COLOR, TEXT_COLOR, figure_text, new_figure

WHITE_TEXT_SHARE = 0.6  # share of the scale from which letters are white
# percentile of the losses at which the scale ends, so that one training that diverged hides no
# other
SCALE_PERCENTILE = 90


def plot_regrets(fairness: Fairness) -> Figure | None:
    """Figure with a row an architecture and a column a recipe, the study's framed; None without recipes for all."""
    options = sorted(one.option for one in fairness.alternatives)
    if not options:
        return None
    lost = np.array([[dict(one.loss_regret_by_option).get(option, np.nan) for option in options]
                     for one in fairness.regrets])
    finite = lost[np.isfinite(lost)]
    top = max(float(np.percentile(finite, SCALE_PERCENTILE)) if finite.size else 0.0, 1e-3)
    with new_figure(1.9 + 0.48 * len(options), 0.9 + 0.24 * len(lost)) as (figure, (axes,)):
        mesh = axes.pcolormesh(np.clip(lost, 0, top), cmap="Blues", vmin=0, vmax=top,
                               edgecolor="white", linewidth=0.6)
        for (row, column), value in np.ndenumerate(lost):
            word = "–" if np.isnan(value) else "fails" if np.isinf(value) else f"{value:.2f}"
            axes.text(column + 0.5, row + 0.5, word, ha="center", va="center", fontsize=7,
                      color="white" if value > WHITE_TEXT_SHARE * top else TEXT_COLOR)
        if fairness.study_option in options:
            axes.add_patch(Rectangle((options.index(fairness.study_option), 0), 1, len(lost),
                                     fill=False, edgecolor=REFERENCE_COLOR, linewidth=1.6,
                                     clip_on=False, zorder=5))
        axes.set(xlabel="Multiple of the study's rate (frame: its recipe)")
        axes.set_xticks(np.arange(len(options)) + 0.5, [f"{rate:g}" for _, rate in options])
        rules = [rule for rule, _ in options]
        for rule in dict.fromkeys(rules):
            middle = rules.index(rule) + rules.count(rule) / 2
            axes.text(middle, -0.15, figure_text(rule), ha="center", va="bottom", fontsize=8)
        axes.set_yticks(np.arange(len(lost)) + 0.5,
                        [figure_text(one.architecture) for one in fairness.regrets])
        axes.invert_yaxis()
        axes.grid(False)
        axes.tick_params(length=0)
        figure.colorbar(mesh, ax=axes, extend="max", shrink=0.6,
                        label="Loss above its best\n(nats a character)")
    return figure
