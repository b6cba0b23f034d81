"""Errors in Python name arguments instead of options of the command line."""

import pytest

import scalesearch as ss
from scalesearch.api.error_messages import python_error_messages
from scalesearch.errors import UserError, option, python_arguments


@pytest.mark.parametrize(("arguments", "in_command_line", "in_python"), [
    (("out",), "--out", "out="), (("resume",), "--resume", "resume=True"),
    (("set", "vocab=8k"), "--set vocab=8k", "vocab=8k"),
    (("budget", "'params.total <= 10M'"), "--budget 'params.total <= 10M'",
     "budget='params.total <= 10M'"),
    (("length-penalty", 11), "--length-penalty 11", "length_penalty=11"),
    (("to", "onnx"), "--to onnx", "format=onnx"), (("for", "width"), "--for width",
                                                   "for_each=width")])
def test_options_are_arguments_in_python(arguments, in_command_line, in_python):
    assert option(*arguments) == in_command_line
    with python_arguments({"to": "format"}):
        assert option(*arguments) == in_python
    assert option(*arguments) == in_command_line


def test_errors_of_decorated_functions_name_arguments():
    @python_error_messages(to="format")
    def call():
        raise UserError(f"{option('to', 'onnx')} cannot", help=f"choose {option('out')}", code="x")

    with pytest.raises(UserError) as caught:
        call()
    assert str(caught.value) == "format=onnx cannot; choose out=" and caught.value.code == "x"


def test_key_of_a_change_is_shown_without_option():
    with pytest.raises(UserError) as caught:
        ss.space("slim").set(widht=64)
    first, second, third, *_ = str(caught.value).splitlines()
    assert "widht" in first
    assert second.strip() == "widht=64"
    assert third.strip() == "^^^^^"


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
