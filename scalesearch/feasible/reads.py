"""Which answers a piece of a network is made from: those that building it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

from scalesearch.space import Answers, Unbuildable
from scalesearch.space.questionnaire.answers import Questionnaire
from scalesearch.space.schema.bound_tree import Leaf
from scalesearch.space.syntax.choices import expressions
from scalesearch.space.syntax.expressions import keys_of

Answered = Mapping[str, Any]


class Missed(Exception):
    """Building read an answer that was not given, though the space has one."""

    def __init__(self, piece: object, key: str) -> None:
        super().__init__(f"{piece} is made from {key} as well")
        self.piece, self.key = piece, key


class Given(Mapping[str, Any]):
    """Some of a candidate's answers; reading another that the space has raises Missed, not KeyError.

    Args:
        answers: of the candidate.
        keys: those that may be read. known: all keys of the space.
        piece: what is built, for Missed to name.
    """

    def __init__(self, answers: Answered, keys: Container[str], known: Container[str], piece: object) -> None:
        self.answers, self.keys_given, self.known, self.piece = answers, keys, known, piece

    def __getitem__(self, key: str) -> Any:
        if key not in self.keys_given and key in self.known:
            raise Missed(self.piece, key)
        return self.answers[key]

    def __iter__(self) -> Iterator[str]:
        raise TypeError("answers are read key by key here, so that it is known which count")

    def __len__(self) -> int:
        return len(self.answers)


def keys_read(
    piece: object, build: Callable[[Answered], object], samples: Iterable[Answers], known: Container[str]
) -> set[str]:
    """The keys that ``build`` reads of any of the ``samples``; of sheets that it does not see it may read others."""
    keys: set[str] = set()
    for answers in samples:
        while True:
            try:
                build(Given(answers, keys, known, piece))
            except Missed as missed:
                keys.add(missed.key)
                continue
            except Unbuildable:
                pass
            break
    return keys


def leaves_behind(form: Questionnaire, keys: Iterable[str]) -> list[Leaf]:
    """The leaves that ``keys`` are the answers of, and all whose values those depend on."""
    leaves: dict[str, Leaf] = {}
    queue = list(keys)
    while queue:
        for leaf in form.by_key.get(queue.pop(), ()):
            if leaf.path not in leaves:
                leaves[leaf.path] = leaf
                queue += [key for expr in expressions(leaf.spec) for key in keys_of(expr)]
                queue += [group for group, _ in leaf.guards]
    return list(leaves.values())


def several(needs: Iterable[frozenset[str]]) -> set[str]:
    """The parameters that are in more than one of ``needs``."""
    counts = Counter(parameter for asked in needs for parameter in asked)
    return {parameter for parameter, count in counts.items() if count > 1}
