"""Reading of blocks of the README and comparison with printed output."""

from tests.docs.blocks import FENCE, Block, commands, missing, same


def test_blocks_have_marks_and_languages():
    text = "text\n<!-- run: slow -->\n```console\n$ a\n```\n\n```\nb\n```\n"
    marks = [(match["mark"], match["language"], match["text"]) for match in FENCE.finditer(text)]
    assert marks == [("run: slow", "console", "$ a\n"), (None, "", "b\n")]


def test_console_block_has_commands_and_output():
    block = Block("page", 1, "run", "console", "$ one \\\n    --more\nsaid\n…\n$ two\n")
    assert block.steps == [("one      --more", ["said", "…"]), ("two", [])]
    assert Block("page", 1, "run", "",
                 "one  # why\n# nothing\n\ntwo\n").steps == [("one  # why", []), ("two", [])]


def test_words_of_commands():
    assert commands("A=1 one 'a | b' < file | two x  # why") == [["one", "a | b"], ["two", "x"]]


def test_shown_output_equals_printed_output():
    assert same(["a", "…", "d"], "a  \nb\nc\nd\n") and same(["a … c"], "a b c\n") and same(
        ["a", ""], "a\n\n\n")
    assert not same(["a", "c"], "a\nb\nc\n") and not same(
        ["a", "…", "d"], "a\nb\n") and not same(["a.c"], "abc\n")


def test_only_words_of_varying_output_are_compared():
    assert missing(["BLEU  score", "bleu 3.8", "┃ trial ┃", "…"], "BLEU score\nbleu 1.2\n") == []
    assert missing(["BLEU score"], "chrF score\n") == ["BLEU score"]
