"""Windows of one stream of tokens, for a language model."""

import numpy as np

from scalesearch.data.split import Rows, Split
from scalesearch.data.tokens import EOS


def window_split(lines: Rows, text: list[str], window: int, stride: int) -> Split:
    """Cuts a text into windows of ``window`` tokens that begin ``stride`` apart.

    The last one reaches the end of the stream, which is the lines' tokens with EOS behind each line. A window repeats
    the last ``window - stride`` tokens of the one before; what it adds is what it is scored on, so that each token is
    scored once.
    """
    stream = _stream(lines)
    count = 1 + max(0, -(-(len(stream) - window) // stride))
    rows = [stream[start : start + window] for start in range(0, count * stride, stride)]
    lengths = np.array([len(row) for row in rows], np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    empty = Rows(np.zeros(0, np.int32), np.zeros(count + 1, np.int64))
    return Split.of_rows(empty, Rows(np.concatenate(rows), offsets), [], text, overlap=window - stride)


def _stream(lines: Rows) -> np.ndarray:
    stream = np.full(len(lines.flat) + len(lines), EOS, np.int32)
    places = np.arange(len(lines.flat)) + np.repeat(np.arange(len(lines)), lines.lengths)
    stream[places] = lines.flat
    return stream
