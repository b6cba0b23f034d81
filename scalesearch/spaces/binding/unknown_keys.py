"""Help for unknown keys: the key that was probably meant, and the legal keys.

A file of another type is recognized by its keys: one error instead of one per key.
"""

from collections.abc import Iterable, Sequence

from scalesearch.spaces.schema.bound_tree import SchemaIndex
from scalesearch.spaces.schema.types import SchemaGroup
from scalesearch.spaces.syntax.diagnostics import (
    ConfigError,
    Problem,
    closest_match,
    format_alternatives,
)
from scalesearch.spaces.syntax.nodes import MappingNode
from scalesearch.spaces.syntax.parser import COMMA_HELP

MAX_LISTED_KEYS = 12  # legal keys that are listed next to a suggestion, at most
MIN_SIMILARITY = 0.66  # ratio of difflib that a suggested key of another group needs
BLOCK_GROUPS = ("ffn", "pg", "mixer")  # their keys may be blocks of other packages
STUDY_KEYS = ("study", "data", "recipe", "objectives", "architectures", "sampler", "trials")
SPACE_KEYS = ("width", "encoder", "decoder")
RECIPE_KEYS = ("preset", "dropout", "lr", "learning_rate", "optimizer", "steps", "epochs", "warmup",
               "weight_decay", "label_smoothing", "max_tokens", "batch_size")
DATA_KEYS = ("builtin", "train", "validation", "test", "source", "target", "pairs")
# Name, typical keys of the top level, and help if another type is expected.
FILE_TYPES = {
    "study": ("a study file", STUDY_KEYS, "`scalesearch study run FILE --dry-run` checks a study; "
              "its space is under the key `space`"),
    "space": ("a space", SPACE_KEYS, "`scalesearch check FILE` checks a space; a study names it "
              "under `space`, next to `data` and `objectives`"),
    "data": ("a data file", DATA_KEYS, "a study names it under `data`, and `scalesearch train` "
             "reads it with --data"),
    "recipe": ("a recipe", RECIPE_KEYS, "a study names it under `recipe`, and `scalesearch train` "
               "reads it with --recipe")}
# Keys of the top level of a space that a study file may contain by mistake, and the reverse.
MISPLACED_IN_STUDY = (*SPACE_KEYS, "norm", "embedding", "share")
MISPLACED_IN_SPACE = (*STUDY_KEYS, "objective", "rungs", "seeds", "workers", "compute")


def suggest_key(name: str, group: SchemaGroup, path: str, legal: Sequence[str], index: SchemaIndex,
                suggests_other_groups: bool = True) -> str:
    """A help line for the unknown key ``name`` of the group at ``path``.

    Args:
        legal: the keys of the group.
        suggests_other_groups: whether a similar key of another group may be suggested.
    """
    owners = [variant for variant, fields in group.variants.items() if name in fields.fields]
    if owners:
        return f"it belongs to {format_alternatives(owners)}: write `{owners[0]}: {{ {name}: … }}`"
    if name in group.unsupported:
        return group.unsupported[name]
    if not path and "space" in legal and name in MISPLACED_IN_STUDY:
        return f"`{name}` is a key of a space: write it under `space`"
    if not path and "encoder" in legal and name == "budget":
        return "write `cost: { budgets: { NAME: … } }`, or use --budget; a study has `budget`"
    if not path and "encoder" in legal and name in ("constraints", "constraint"):
        return "write constraints as a list under `where`"
    if not path and "encoder" in legal and name in MISPLACED_IN_SPACE:
        return f"`{name}` is a key of a study file, which contains the space under `space`"
    if "encoder" in index.groups and name in RECIPE_KEYS:
        return f"`{name}` belongs to the recipe of a study, not to a space"
    synonym = index.describe_synonym(name, path)
    if synonym:
        return synonym
    paths = [other for other in (*index.groups, *index.entries) if other]
    same_name = _nearest((other for other in paths if _last(other) == name), path)
    if same_name and "." not in same_name:
        return f"`{name}` is a key of the top level"
    match = None if same_name else closest_match(name, legal)
    if match:
        return f"did you mean `{match}`?"
    if not same_name and any(bracket in name for bracket in "()[]"):
        return COMMA_HELP
    keys = (f"the keys {f'in `{path}`' if path else 'here'} are {format_alternatives(legal)}"
            if legal else f"`{path}` has no keys of its own")
    if not same_name and (packages_help := unknown_block_help(path)):
        return f"{keys}; {packages_help}"
    suggestion = same_name
    if not suggestion and suggests_other_groups:  # the key with the most similar spelling
        match = closest_match(name, {_last(other) for other in paths}, MIN_SIMILARITY)
        suggestion = (_nearest((other for other in paths if _last(other) == match), path)
                      or closest_match(name, paths, MIN_SIMILARITY))
    if not suggestion:
        return keys
    question = f"did you mean `{suggestion}`?"
    return f"{question} Otherwise, {keys}" if len(legal) <= MAX_LISTED_KEYS else question


def unknown_block_help(path: str) -> str:
    """A help line for an unknown block of the group at ``path``; empty for other groups."""
    return ("blocks of other packages need these packages to be installed"
            if _last(path) in BLOCK_GROUPS else "")


def _nearest(paths: Iterable[str], path: str) -> str | None:
    """The path with the longest common prefix with ``path``.

    Of equal ones, the shortest is returned; one of a plain feed-forward network, if possible.
    """
    def distance(other: str) -> tuple[int, int, bool]:
        matches = [a == b for a, b in zip(other.split("."), path.split("."))]
        return -(*matches, False).index(False), other.count("."), ".pg." in other

    return min(paths, key=distance, default=None)


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def check_file_type(document: MappingNode, expected: str) -> None:
    """Raise ConfigError if a file that is read as ``expected`` is a file of another type.

    At least two keys of the other type must be present, and none of the expected one.
    """
    names = [name for name, _ in document.entries]
    expected_name, expected_keys, _ = FILE_TYPES[expected]
    if any(name.text in expected_keys for name in names):
        return
    for file_type, keys, help in FILE_TYPES.values():
        positions = [name.position for name in names if name.text in keys]
        if len(positions) >= 2:
            raise ConfigError([Problem(
                positions[0], f"this is {file_type}, and {expected_name} is expected", help,
                code="wrong-type")])
