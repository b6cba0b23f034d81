"""Measures of a trained model: heads, tokens, activations, load, gradients.

Each module defines one measure with its formula and source; ``write`` makes tables and figures.
"""

from scalesearch.analysis.run import Analysis, analyze_model, take_sentences

__all__ = ["Analysis", "analyze_model", "take_sentences"]
