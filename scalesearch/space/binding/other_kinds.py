"""Recognises a file of another kind by its keys: one error in place of one for each key."""

from scalesearch.space.syntax.diagnostics import Place, Problem, SpaceErrors
from scalesearch.space.syntax.nodes import Table

OF_STUDY = ("study", "data", "recipe", "objectives", "rows", "proposer", "trials")
OF_SPACE = ("width", "encoder", "decoder")


def refuse_study(document: Table) -> None:
    """Raises SpaceErrors where a file that is read as a space is a study."""
    if place := _first(document, OF_STUDY, OF_SPACE):
        raise SpaceErrors([Problem(
            place, "this is a study, and a space is wanted",
            "`scalesearch study run FILE --dry-run` checks a study; its space is what it has under `space`",
            code="other-kind")])


def refuse_space(document: Table) -> None:
    """Raises SpaceErrors where a file that is read as a study is a space."""
    if place := _first(document, OF_SPACE, OF_STUDY):
        raise SpaceErrors([Problem(
            place, "this is a space, and a study is wanted",
            "`scalesearch check FILE` checks a space; a study names it under `space`, beside `data` and `objectives`",
            code="other-kind")])


def _first(document: Table, theirs: tuple[str, ...], ours: tuple[str, ...]) -> Place | None:
    """The place of the first of their keys, where there are two of these and none of ours."""
    names = [name for name, _ in document.entries]
    found = [name.place for name in names if name.text in theirs]
    return found[0] if len(found) > 1 and not any(name.text in ours for name in names) else None
