"""Recognizes a file of another kind by its keys: one error in place of one for each key."""

from scalesearch.space.syntax.diagnostics import ConfigError, Problem, SourcePosition
from scalesearch.space.syntax.nodes import MappingNode

STUDY_KEYS = ("study", "data", "recipe", "objectives", "architectures", "sampler", "trials")
SPACE_KEYS = ("width", "encoder", "decoder")


def check_not_study(document: MappingNode) -> None:
    """Raises SpaceErrors where a file that is read as a space is a study."""
    if place := _first(document, STUDY_KEYS, SPACE_KEYS):
        raise ConfigError([Problem(place, "this is a study, and a space is wanted",
                                   "`scalesearch study run FILE --dry-run` checks a study; its "
                                   "space is what it has under `space`", code="wrong-type")])


def check_not_space(document: MappingNode) -> None:
    """Raises SpaceErrors where a file that is read as a study is a space."""
    if place := _first(document, SPACE_KEYS, STUDY_KEYS):
        raise ConfigError([Problem(place, "this is a space, and a study is wanted",
                                   "`scalesearch check FILE` checks a space; a study names it "
                                   "under `space`, beside `data` and `objectives`",
                                   code="wrong-type")])


def _first(document: MappingNode, theirs: tuple[str, ...],
           ours: tuple[str, ...]) -> SourcePosition | None:
    """The place of the first of their keys, where there are two of these and none of ours."""
    names = [name for name, _ in document.entries]
    found = [name.position for name in names if name.text in theirs]
    return found[0] if len(found) > 1 and not any(name.text in ours for name in names) else None
