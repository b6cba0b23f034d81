"""Which answers a piece of a network is made from: those that building it reads."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

from scalesearch.space import Answers, Unbuildable

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
