"""What goes on inside a trained model: heads, tokens, activations, load of shared weights, gradients.

One file a measure, each with its formula and its source; ``write`` makes tables and figures of
them.
"""

from scalesearch.analysis.run import Analysis, analyze_model, take_sentences

__all__ = ["Analysis", "analyze_model", "take_sentences"]
