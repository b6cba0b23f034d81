"""Tests of conditions on the rows of a table of trials."""

import pandas as pd
import pytest

from scalesearch.report.labels import column_heading, column_unit
from scalesearch.report.trial_filter import filter_trials
from tests.errors import refuses

ROWS = pd.DataFrame({"trial": [0, 1, 2], "bleu": [29.0, 31.0, None],
                     "params.total": [1000, 2000, 3000], "param.norm": ["pre", "post", "pre"],
                     "param.encoder.rank": [4, "", 8], "test.bleu": [1, 2, 3]})


@pytest.mark.parametrize(
    ("condition", "trials"),
    [("params.total <= 2k", [0, 1]), ("bleu >= 30 or params.total == 3k", [1, 2]),
     ("norm == pre", [0, 2]), ("bleu > 0", [0, 1]), ("not bleu > 30", [0]),
     ("encoder.rank >= 4", [0, 2]), ("params.total / encoder.rank < 300", [0]),
     ("1000 <= params.total <= 2000 and norm != post", [0]), ("params.total / 0 > 1", [])])
def test_filter_selects_rows(condition, trials):
    assert filter_trials(ROWS, condition)["trial"].tolist() == trials


@pytest.mark.parametrize(("condition", "code", "parts"),
                         [("blue >= 30", "unknown-key", ("blue", "bleu")),
                          ("bleu > 3 and params.total <= 2kB", "not-bytes", ("`params.total`",)),
                          ("test.bleu > 1", "unknown-key", ("test.bleu",)),
                          ("norm == pots", "unknown-key", ("pots",)), ("bleu >", "bad-syntax", ()),
                          ("", "bad-syntax", ())])
def test_filter_reports_invalid_condition(condition, code, parts):
    with refuses(code, *parts, place="condition"):
        filter_trials(ROWS, condition)


@pytest.mark.parametrize(("column", "unit"), [
    ("bleu", "BLEU"), ("test.loss", "nats per token"), ("params.total", "parameters"),
    ("params.active", "parameters that a token uses"), ("flops.total", "FLOPs per example"),
    ("memory.cache", "bytes, float32"),
    ("latency.predicted", "ms per sentence"),
    ("loss.half_width", "nats per token"), ("cpu_seconds", "seconds"),
    ("param.width", ""), ("trial", ""), ("front", ""), ("state", ""), ("artifact.bytes", "bytes"),
])
def test_units_of_columns(column, unit):
    assert column_unit(column) == unit


@pytest.mark.parametrize("column", ["rung_loss", "proxy.first_loss", "proxy.rung_loss_2"])
def test_losses_at_rungs_have_the_unit_by_which_trials_are_compared(column):
    assert column_unit(column) == "nats per token"
    assert column_unit(column, None, "validation_loss_per_char") == "nats per character"


@pytest.mark.parametrize(("column", "unit", "heading"), [
    ("memory.cache", "bytes, bf16", "Key-value cache (bytes, bf16)"),
    ("memory.weights", "bytes, float32", "Weights (bytes, float32)"),
    ("macs.decoder", "multiply-accumulates per example", "MACs, decoder"),
    ("artifact.bytes", "bytes", "Files of torch-bf16 (bytes)")])
def test_units_follow_the_protocol(column, unit, heading):
    protocol = {"name": "forward", "length": 64, "cache": "bf16", "artifact": "torch-bf16"}
    assert column_unit(column, protocol) == unit and column_heading(column, protocol) == heading
