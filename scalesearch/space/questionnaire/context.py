"""What a plan needs in order to decide: somebody to ask, and the answers given so far."""

from typing import Any, Protocol

from scalesearch.space.syntax.parameters import Question


class Fault(Exception):
    """A value that cannot be: the candidate is unbuildable."""


class Asker(Protocol):
    """Answers so far, and whoever gives the next one."""

    def ask(self, name: str, question: Question) -> Any:
        """The answer to a question, legal for sure."""

    def lookup(self, key: str) -> Any:
        """The answer ``key`` as JSON, or ABSENT."""
