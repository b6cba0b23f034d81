"""How the test of the README reads blocks and compares what is printed."""

from tests.docs.blocks import FENCE, Block, commands, missing, same


def test_marks_and_languages_of_blocks():
    text = "text\n<!-- run: slow -->\n```console\n$ a\n```\n\n```\nb\n```\n"
    found = [(match["mark"], match["language"], match["text"]) for match in FENCE.finditer(text)]
    assert found == [("run: slow", "console", "$ a\n"), (None, "", "b\n")]


def test_a_console_alternates_commands_and_what_they_print():
    block = Block("page", 1, "run", "console", "$ one \\\n    --more\nsaid\n…\n$ two\n")
    assert block.steps == [("one      --more", ["said", "…"]), ("two", [])]
    assert Block("page", 1, "run", "",
                 "one  # why\n# nothing\n\ntwo\n").steps == [("one  # why", []), ("two", [])]


def test_the_words_of_commands():
    assert commands("A=1 one 'a | b' < file | two x  # why") == [["one", "a | b"], ["two", "x"]]


def test_what_is_shown_is_what_is_printed():
    assert same(["a", "…", "d"], "a  \nb\nc\nd\n") and same(["a … c"], "a b c\n") and same(
        ["a", ""], "a\n\n\n")
    assert not same(["a", "c"], "a\nb\nc\n") and not same(
        ["a", "…", "d"], "a\nb\n") and not same(["a.c"], "abc\n")


def test_of_what_varies_the_words_are_compared():
    assert missing(["BLEU of  valid", "bleu 3.8", "┃ trial ┃", "…"],
                   "BLEU of valid\nbleu 1.2\n") == []
    assert missing(["BLEU of valid"], "BLEU of test\n") == ["BLEU of valid"]
