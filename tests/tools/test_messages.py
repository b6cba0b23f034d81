"""Every message is in tests/messages, where it is read as text; the pages are those of the code."""

import ast

from tools import messages


def test_the_pages_of_messages_are_those_of_the_code() -> None:
    assert messages.stale() == [], "run python tools/messages.py, and read what it changed"


def test_a_message_is_shown_with_its_code_its_values_and_its_help() -> None:
    text = "def f(n):\n    help = 'try 2'\n    raise UserError(f'{n} is too ' + 'few', code='few', help=help)\n"
    assert list(messages.messages(ast.parse(text), "a.py")) == [("few", "f", "{n} is too few; try 2")]
