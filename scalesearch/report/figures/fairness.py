"""Figure of a fairness audit: heatmap of the regret by architecture and recipe."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from scalesearch.report.fairness import Fairness
from scalesearch.report.figures.style import REFERENCE_COLOR, TEXT_COLOR, figure_text, new_figure

WHITE_TEXT_SHARE = 0.6  # share of the color scale above which text is white
# percentile of the regrets at which the color scale ends, so that a diverged run does not hide the
# differences between the others
SCALE_PERCENTILE = 90
MIN_SCALE = 1e-3  # nats per character


def plot_regrets(fairness: Fairness) -> Figure | None:
    """Plot the loss regret with a row per architecture and a column per recipe.

    A frame marks the study's recipe. Returns None if no recipe was used for all architectures.
    """
    options = sorted(alternative.option for alternative in fairness.alternatives)
    if not options:
        return None
    regrets = np.array([[dict(regret.loss_regret_by_option).get(option, np.nan)
                         for option in options]
                        for regret in fairness.regrets])  # (architectures, options)
    finite = regrets[np.isfinite(regrets)]
    scale_max = max(float(np.percentile(finite, SCALE_PERCENTILE)) if finite.size else 0.0,
                    MIN_SCALE)
    with new_figure(1.9 + 0.48 * len(options), 0.9 + 0.24 * len(regrets)) as (figure, (axes,)):
        mesh = axes.pcolormesh(np.clip(regrets, 0, scale_max), cmap="Blues", vmin=0,
                               vmax=scale_max, edgecolor="white", linewidth=0.6)
        for (row, column), value in np.ndenumerate(regrets):
            text = "–" if np.isnan(value) else "failed" if np.isinf(value) else f"{value:.2f}"
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=7,
                      color="white" if value > WHITE_TEXT_SHARE * scale_max else TEXT_COLOR)
        if fairness.study_option in options:
            axes.add_patch(Rectangle((options.index(fairness.study_option), 0), 1, len(regrets),
                                     fill=False, edgecolor=REFERENCE_COLOR, linewidth=1.6,
                                     clip_on=False, zorder=5))
        axes.set(xlabel="Multiple of the study's learning rate (frame: the study's recipe)")
        axes.set_xticks(np.arange(len(options)) + 0.5, [f"{rate:g}" for _, rate in options])
        rules = [rule for rule, _ in options]
        for rule in dict.fromkeys(rules):
            center = rules.index(rule) + rules.count(rule) / 2
            axes.text(center, -0.15, figure_text(rule), ha="center", va="bottom", fontsize=8)
        axes.set_yticks(np.arange(len(regrets)) + 0.5,
                        [figure_text(regret.architecture) for regret in fairness.regrets])
        axes.invert_yaxis()
        axes.grid(False)
        axes.tick_params(length=0)
        figure.colorbar(mesh, ax=axes, extend="max", shrink=0.6,
                        label="Regret in validation loss\n(nats per character)")
    return figure
