"""Errors in Python name arguments instead of options of the command line."""

import pytest

import scalesearch as ss
from scalesearch.api.error_messages import options_to_arguments, python_error_messages
from scalesearch.errors import UserError


@pytest.mark.parametrize(
    ("message", "expected"),
    [("give another folder with --out", "give another folder with out="),
     ("Continue with --resume", "Continue with resume=True"),
     ("set it: --set vocab=8k, or", "set it: vocab=8k, or"),
     ("set it with --set {name}=…", "set it with {name}=…"),
     ("as in --budget " "'params.total <= 10M'", "as in budget='params.total <= 10M'"),
     ("have it made by `scalesearch " "train --out X`",
      "have it made by `scalesearch train --out X`"),
     ("--length-penalty: " "above 0", "length_penalty: above 0"),
     ("--budget: no key\n  --budget " "param\n           ^^^^^\n",
      "budget: no key\n  budget=param\n         ^^^^^\n"),
     ("--set: unknown " "key `widht`\n  " "--set widht=64\n        ^^^^^\n",
      "unknown key `widht`\n  widht=64\n  ^^^^^\n"), ("a - b, a -- b", "a - b, a -- b")])
def test_options_become_arguments(message, expected):
    assert options_to_arguments(message, {}) == expected


def test_message_help_and_text_of_an_error_are_translated():
    @python_error_messages(to="format")
    def call():
        raise UserError("--to onnx cannot", help="choose --out", code="x")

    with pytest.raises(UserError) as caught:
        call()
    assert str(caught.value) == "format= onnx cannot; choose out=" and caught.value.code == "x"


@pytest.mark.parametrize(
    "mistake",
    [lambda: ss.space("slim").architecture(), lambda: ss.space("slim").architecture(with_=3),
     lambda: ss.space("transformer").solve("max width"),
     lambda: ss.space("transformer").solve("max width", "params.total <= 1M",
                                           {"encoder.depth": "x"}),
     lambda: ss.space("transformer").trade("width", "macs.total"),
     lambda: ss.space("slim").feasible("nothing"), lambda: ss.study("quick", trails=3)],
    ids=range(7))
def test_errors_in_python_name_no_option(mistake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        mistake()
    assert "--" not in str(caught.value)
