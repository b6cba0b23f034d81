"""Display of values in terminals and notebooks; errors that name arguments instead of options."""

from html.parser import HTMLParser
from io import StringIO

import pytest
from rich.console import Console

import scalesearch as ss
from scalesearch.api.base import Displayable, python_error_messages, to_html
from scalesearch.errors import UserError, option, python_arguments
from scalesearch.terminal import make_table, open_console, print_text
from tests.api.spaces import SMALL


class Texts(HTMLParser):
    """Parser that collects the text of a page and checks that tags are closed."""

    def __init__(self, page):
        super().__init__()
        self.open = []
        self.texts = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def shown():
    space = ss.space(SMALL)
    return {"space": space, "cost": space.sample().cost(), "feasible": space.feasible("tiny"),
            "solve": ss.space("transformer").solve("max width", "params.total <= 9M")}


@pytest.mark.full
@pytest.mark.parametrize("name", ["space", "cost", "feasible", "solve"])
def test_text_and_html_have_equal_content(name):
    value = shown()[name]
    page = Texts(value._repr_html_())
    assert page.open == [] and page.texts
    words = [word for part in page.texts for word in part.split()]
    text = repr(value)
    assert "\x1b" not in text and [word for word in words if word not in text] == []


def test_rich_prints_tables():
    console = Console(width=160, file=StringIO())
    console.print(ss.space(SMALL))
    assert "encoder.depth" in console.file.getvalue()


def test_user_text_is_escaped():
    name = "<script>alert(1)</script> [bold] \x1b[31m"
    page = to_html([name, make_table((name,), [(name,)], title=name)])
    assert "<script" not in page and "\x1b" not in page and page.count("&lt;script&gt;") == 4


def test_width_follows_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len,
                   repr(ss.space("transformer").architecture().cost()).splitlines()[:20])) <= 60


def test_text_is_plain_in_a_notebook_and_with_forced_colors(monkeypatch, capsys):
    space = ss.space(SMALL)
    text = repr(space)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "encoder.depth" in text and repr(space) == str(space) == text
    console = open_console(file=StringIO())
    print_text("message", console, style="bold")
    assert console.file.getvalue() == "message\n" and capsys.readouterr() == ("", "")


def test_displayable_needs_parts():
    with pytest.raises(NotImplementedError):
        repr(Displayable())


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
