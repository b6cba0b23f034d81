"""Diagrams of building blocks, each drawn from a short description in ``BLOCKS``.

``tools/diagrams.py`` writes them. A diagram has panels, a panel has rows from the input upwards, and
a row has cells that are separated by ``|``: ``attention | ffn`` are two parallel sub-layers. A cell
is a label, and optionally its width and height as shares of a full row, such as ``A : 0.3 x 2``.
The first word of a label sets its color; a label of symbols is text without a box.
"""

import re
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from scalesearch.report.figures.style import FRONT_COLOR, REFERENCE_COLOR, TEXT_COLOR

GREEN = "#009E73"
PURPLE = "#CC79A7"
GRAY = "#777777"
COLORS = {
    "attention": FRONT_COLOR, "self": FRONT_COLOR, "cross": "#56B4E9", "A": FRONT_COLOR,
    "ffn": GREEN, "head": GREEN, "B": GREEN, "convolution": REFERENCE_COLOR, "map": REFERENCE_COLOR,
    "second": REFERENCE_COLOR, "C": REFERENCE_COLOR, "table": PURPLE, "D": PURPLE,
    "first": FRONT_COLOR, "shared": GREEN, "last": PURPLE,
}
PANEL_WIDTH = 1.5  # inches, as all lengths below
ROW_WIDTH = 1.3
ROW_HEIGHT = 0.24
GAP = 0.13
MARGIN = 0.12
TITLE_HEIGHT = 0.3
CELL = re.compile(r"(?P<label>[^:]+?)(?: : (?P<width>[\d.]+)(?: x (?P<height>[\d.]+))?)?")

# Diagram to its panels, and panel to its rows; a panel whose rows begin with "=" has no arrows.
BLOCKS: dict[str, dict[str, list[str]]] = {
    "sublayers": {
        "[attention, ffn]": ["x", "attention", "ffn", "output"],
        "[ffn, attention, ffn]": ["x", "ffn", "attention", "ffn_2", "output"],
        "[[attention, ffn]]": ["x", "attention : 0.48 | ffn : 0.48", "+ x"],
        "interleaved: yes": ["x", "self", "ffn", "cross", "ffn again", "output"],
    },
    "paths": {
        "of: attention, count: 2": ["x", "attention : 0.48 | attention : 0.48", "merge", "ffn",
                                    "output"],
        "of: sublayer, count: 2": ["x", "attention : 0.48 | attention : 0.48", "merge",
                                   "ffn : 0.48 | ffn : 0.48", "merge"],
        "of: layer, count: 2": ["x", "attention : 0.48 | attention : 0.48",
                                "ffn : 0.48 | ffn : 0.48", "merge"],
    },
    "mixers": {
        "mixer: dynamic": ["x", "convolution", "output map"],
        "join: split": ["x", "attention : 0.6 | second : 0.36", "concatenation"],
        "join: sum": ["x", "attention : 0.48 | second : 0.48", "sum"],
        "join: before": ["x", "second", "attention", "output"],
    },
    "matrices": {
        "dense: d × e": ["=", "A : 0.5 x 4"],
        "low_rank(r)": ["=", "A : 0.12 x 4 | · : 0.1 | B : 0.5 x 1"],
        "chain(ratio, 3)": ["=", "A : 0.22 x 1.4 | – : 0.08 | B : 0.22 x 1.4 | – : 0.08 |"
                            " C : 0.22 x 1.4"],
        "kronecker(2)": ["=", "A : 0.16 x 1.2 | ⊗ : 0.12 | B : 0.22 x 1.8 | + : 0.1 |"
                         " C : 0.16 x 1.2 | ⊗ : 0.12 | D : 0.22 x 1.8"],
        "group(3)": ["=", "0 : 0.2 x 1.2 | 0 : 0.2 x 1.2 | C : 0.2 x 1.2",
                     "0 : 0.2 x 1.2 | B : 0.2 x 1.2 | 0 : 0.2 x 1.2",
                     "A : 0.2 x 1.2 | 0 : 0.2 x 1.2 | 0 : 0.2 x 1.2"],
    },
    "units": {
        "lift (DeLighT)": ["x", "map : 0.45", "map : 0.34 | map : 0.34",
                          "map : 0.22 | map : 0.22 | map : 0.22 | map : 0.22",
                          "map : 0.25 | map : 0.25", "attention : 0.5", "ffn : 0.35"],
        "attentive (Subformer)": ["table : 0.5", "attention : 0.5", "map to width", "layers"],
        "middle_width": ["x", "first layer", "shared layer : 0.65", "shared layer : 0.65",
                         "last layer"],
    },
    "sizes": {
        "hidden: 512": ["=", "ffn 512 : 0.5", "ffn 512 : 0.5", "ffn 512 : 0.5", "ffn 512 : 0.5"],
        "hidden: [256, 512, …]": ["=", "ffn 256 : 0.3", "ffn 512 : 0.5", "ffn 512 : 0.5",
                                  "ffn 1024 : 1"],
        "ramp(256, 1024)": ["=", "ffn 256 : 0.3", "ffn 512 : 0.5", "ffn 768 : 0.75",
                            "ffn 1024 : 1"],
    },
    "sharing": {
        "own": ["x", "A", "B", "C", "D"],
        "cycle(2)": ["x", "A", "B", "A", "B"],
        "sequence(2)": ["x", "A", "A", "B", "B"],
        "sandwich": ["x", "A", "B", "B", "C"],
        "one": ["x", "A", "A", "A", "A"],
    },
}


class Cell(NamedTuple):
    """A cell of a row, with its width and height in inches."""

    label: str
    width: float
    height: float

    @property
    def color(self) -> str:
        """Color of the box; none for symbols and empty blocks."""
        return COLORS.get(self.label.split()[0].split("_")[0], GRAY)

    @property
    def has_box(self) -> bool:
        """Whether the cell is drawn as a box."""
        return self.label.split()[0].split("_")[0] in COLORS


def parse_row(row: str) -> list[Cell]:
    """Parse the cells of a row."""
    cells = []
    for text in row.split("|"):
        match = CELL.fullmatch(text.strip())
        assert match is not None, f"not a cell: {text!r}"
        cells.append(Cell(match["label"], float(match["width"] or 1) * ROW_WIDTH,
                          float(match["height"] or 1) * ROW_HEIGHT))
    return cells


def draw_block(name: str) -> Figure:
    """Draw the panels of a diagram next to each other."""
    panels = {title: [parse_row(row) for row in rows if row != "="]
              for title, rows in BLOCKS[name].items()}
    has_arrows = {title: rows[0] != "=" for title, rows in BLOCKS[name].items()}
    heights = [sum(max(cell.height for cell in row) for row in rows)
               + (GAP if has_arrows[title] else 0.03) * (len(rows) - 1)
               for title, rows in panels.items()]
    size = (len(panels) * PANEL_WIDTH + 2 * MARGIN, max(heights) + TITLE_HEIGHT + 2 * MARGIN)
    figure = Figure(figsize=size)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, size[0]), ylim=(0, size[1]))
    axes.set_axis_off()
    for index, (title, rows) in enumerate(panels.items()):
        center = MARGIN + (index + 0.5) * PANEL_WIDTH
        axes.text(center, size[1] - MARGIN, title, ha="center", va="top", fontsize=8,
                  fontweight="bold", color=TEXT_COLOR)
        bottom = MARGIN if has_arrows[title] else MARGIN + (max(heights) - heights[index]) / 2
        draw_panel(axes, center, bottom, rows, has_arrows[title])
    return figure


def draw_panel(axes: Axes, center: float, bottom: float, rows: list[list[Cell]],
               has_arrows: bool) -> None:
    """Draw rows of cells from the bottom up."""
    for index, row in enumerate(rows):
        height = max(cell.height for cell in row)
        gap = (ROW_WIDTH - sum(cell.width for cell in row)) / max(len(row), 2)
        gap = max(0.0, min(gap, 0.04))
        left = center - (sum(cell.width for cell in row) + gap * (len(row) - 1)) / 2
        for cell in row:
            draw_cell(axes, left, bottom + (height - cell.height) / 2, cell)
            left += cell.width + gap
        if has_arrows and index + 1 < len(rows):
            top = bottom + height
            axes.annotate("", (center, top + GAP), (center, top), arrowprops={
                "arrowstyle": "-|>", "color": TEXT_COLOR, "linewidth": 0.8, "shrinkA": 1,
                "shrinkB": 1, "mutation_scale": 7})
        bottom += height + (GAP if has_arrows else 0.03)


def draw_cell(axes: Axes, left: float, bottom: float, cell: Cell) -> None:
    """Draw a box with its label; symbols have no box, and zero blocks are empty."""
    is_zero = cell.label == "0"
    if cell.has_box or is_zero:
        axes.add_patch(FancyBboxPatch(
            (left, bottom), cell.width, cell.height, linewidth=0.8,
            boxstyle="round,pad=0,rounding_size=0.03",
            facecolor="none" if is_zero else cell.color + "26",
            edgecolor="#cccccc" if is_zero else cell.color))
    axes.text(left + cell.width / 2, bottom + cell.height / 2, cell.label, ha="center",
              va="center", fontsize=7, color=GRAY if is_zero else TEXT_COLOR)
