"""Recognize a file of another type by its keys: one error instead of one per key."""

from scalesearch.space.syntax.diagnostics import ConfigError, Problem, SourcePosition
from scalesearch.space.syntax.nodes import MappingNode

STUDY_KEYS = ("study", "data", "recipe", "objectives", "architectures", "sampler", "trials")
SPACE_KEYS = ("width", "encoder", "decoder")


def check_not_study(document: MappingNode) -> None:
    """Raise ConfigError if a file that is read as a space is a study."""
    position = _first_key(document, STUDY_KEYS, SPACE_KEYS)
    if position is not None:
        raise ConfigError([Problem(position, "this is a study file, and a space is expected",
                                   "`scalesearch study run FILE --dry-run` checks a study; its "
                                   "space is under the key `space`", code="wrong-type")])


def check_not_space(document: MappingNode) -> None:
    """Raise ConfigError if a file that is read as a study is a space."""
    position = _first_key(document, SPACE_KEYS, STUDY_KEYS)
    if position is not None:
        raise ConfigError([Problem(position, "this is a space, and a study file is expected",
                                   "`scalesearch check FILE` checks a space; a study names it "
                                   "under `space`, next to `data` and `objectives`",
                                   code="wrong-type")])


def _first_key(document: MappingNode, other_keys: tuple[str, ...],
               expected_keys: tuple[str, ...]) -> SourcePosition | None:
    """The position of the first of ``other_keys``, if there are two of them and no expected key."""
    names = [name for name, _ in document.entries]
    positions = [name.position for name in names if name.text in other_keys]
    if len(positions) < 2 or any(name.text in expected_keys for name in names):
        return None
    return positions[0]
