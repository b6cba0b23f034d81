"""Commands, options, files, scripts and links in documents exist."""

import re
import tomllib
from collections.abc import Iterator

import click
import pytest

from scalesearch.cli.main import app
from scalesearch.errors import UserError
from scalesearch.library import find_file
from scalesearch.spaces.schema.builtin import architecture_schema
from scalesearch.spaces.schema.cost_names import PROTOCOL_NAMES
from scalesearch.spaces.schema.types import SchemaField, SchemaGroup
from scalesearch.spaces.syntax.expressions import FUNCTIONS
from tests.docs.blocks import DOCUMENTS, REST, ROOT, WALK, blocks, commands

GENERATED = "docs/reference/command-line.md"  # by the commands themselves
# a parameter's name to the kind of file that it takes; the others take spaces
KINDS = {"study": "studies"}
FILES = ("file", "files", "architecture", "study", "near", "reference", "of")
# folders that commands make, and words for what the reader has
MADE = re.compile(r"runs/|export-|[A-Z_]+$|best($|/)")


def _lines() -> Iterator[tuple[str, str, bool]]:
    """Place, words and completeness of each command in blocks and text."""
    for document in DOCUMENTS:
        if document == GENERATED:
            continue
        for block in blocks(document):
            if block.shell:
                yield from ((block.where, command, REST in command) for command, _ in block.steps)
        prose = re.sub(r"```.*?```", "", (ROOT / document).read_text(encoding="utf-8"), flags=re.S)
        for code in re.findall(r"`([^`]+)`", prose):
            if re.match(r"(scalesearch|python benchmarks/\S+|make|pip install) ", code):
                yield document, " ".join(
                    re.sub(r"[\[\]]", "", code).split()) if code[0] == "s" else code, True


LINES = list(_lines())
WORDS = [(where, words, part) for where, line, part in LINES for words in commands(line) if words]


def _of(program: str) -> list[tuple[str, list[str], bool]]:
    return [item for item in WORDS if item[1][0] == program]


def test_documents_have_commands():
    assert len(_of("scalesearch")) > 40 and len(_of("python")) > 5 and len(_of("make")) > 3


@pytest.mark.parametrize(("where", "words", "open_ended"), _of("scalesearch"),
                         ids=lambda value: str(value)[:60])
def test_commands_options_and_files_exist(where, words, open_ended):
    verb = app
    arguments = [word for word in words[1:] if word != REST]
    context = click.Context(app)
    while isinstance(verb, click.Group):
        assert arguments, f"{where}: {' '.join(words)} names no verb"
        verb = (
            verb.get_command(context, arguments[0])
            if arguments[0] != "--help"
            else click.Command("help")
        )
        assert verb is not None, f"{where}: unknown command {arguments[0]}"
        name = arguments[0]
        arguments = arguments[1:]
    try:
        params = verb.make_context(name, arguments).params
    except click.MissingParameter:
        assert open_ended, f"{where}: {' '.join(words)} leaves out what must be given"
        return
    except click.ClickException as error:
        raise AssertionError(f"{where}: {' '.join(words)}: {error.message}") from None
    for key in FILES:
        for file in _texts(params.get(key)):
            _there(where, file, KINDS.get(key, "spaces"))


def _texts(value: object) -> list[str]:
    return [
        str(item) for item in value] if isinstance(value, tuple) else [str(value)] if value else []


def _there(where: str, name: str, kind: str) -> None:
    """Check that a file is shipped, written by the page, or a placeholder in capitals."""
    written = {block.mark.removeprefix("file:").strip() for page in WALK for block in blocks(page)}
    if MADE.match(name) or name in written:
        return
    try:
        find_file(name, kind)
    except UserError as error:
        raise AssertionError(f"{where}: {error}") from None


@pytest.mark.parametrize(("where", "words", "open_ended"), _of("python"),
                         ids=lambda value: str(value)[:60])
def test_benchmarks_and_their_options_exist(where, words, open_ended):
    script = ROOT / words[1]
    assert script.is_file(), f"{where}: no {words[1]}"
    text = script.read_text(encoding="utf-8")
    files = (script.parent / f"{name}.py"
              for name in re.findall(r"^(?:from|import) (\w+)", text, re.M))
    text += "".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
    for option in words[2:]:
        assert not option.startswith(
            "--") or f'"{option}"' in text, f"{where}: {words[1]} has no {option}"


def test_make_targets_and_extras_exist():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert {words[1] for _, words, _ in _of("make")} <= set(targets)
    extras = tomllib.loads(
        (ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    extra_lists = re.findall(r"scalesearch\[([\w,-]+)\]",
                       "".join((ROOT / page).read_text(encoding="utf-8") for page in WALK))
    assert extra_lists and {extra for names in extra_lists for extra in names.split(",")} <= set(
        extras
    )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_and_images_exist(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.S)):
        path, _, anchor = target.partition("#")
        target = (ROOT / document).parent / path if path else ROOT / document
        assert target.is_file(), f"{document}: no {target}"
        assert not anchor or anchor in _anchors(
            target.read_text(encoding="utf-8")), f"{document}: no heading {target}"


def _anchors(text: str) -> set[str]:
    """Anchors that GitHub generates from headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_all_keys_of_spaces_are_documented():
    pages = "".join((ROOT / "docs/reference" / page).read_text(encoding="utf-8")
                    for page in ("space-syntax.md", "space-language.md"))
    documented = set(re.findall(r"[\w-]+", pages)) | set(re.findall(r"\w+", pages))
    keys = set(_names(architecture_schema()))
    assert keys | set(FUNCTIONS) <= documented, sorted({*keys, *FUNCTIONS} - documented)
    table = (ROOT / "docs/concepts/protocols.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in table for name in PROTOCOL_NAMES)


def _names(group: SchemaGroup) -> Iterator[str]:
    """All keys, block names, options and schedules of space files."""
    for name, child in group.fields.items():
        yield name
        if isinstance(child, SchemaField):
            yield from (*child.words, *child.special_values, *child.calls)
        else:
            yield from _names(child)
    for name, inner in group.variants.items():
        yield name
        yield from _names(inner)
