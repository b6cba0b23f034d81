"""A space: a questionnaire with a name, constraints, budgets and a protocol."""

import hashlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalesearch.errors import UserError
from scalesearch.space.binding.bind import Bound, bind, respelled
from scalesearch.space.binding.other_kinds import refuse_study
from scalesearch.space.questionnaire.answers import Answers, AskFunction, Endless, explore
from scalesearch.space.questionnaire.constraints import Constraint
from scalesearch.space.questionnaire.count import count
from scalesearch.space.schema.types import Field, Group
from scalesearch.space.schema.yaml_writer import flow, lines, scalar, tree
from scalesearch.space.syntax.choices import whole_numbers
from scalesearch.space.syntax.diagnostics import Problem, Source, SpaceErrors, Unbuildable
from scalesearch.space.syntax.lexer import SyntaxProblem
from scalesearch.space.syntax.nodes import Table
from scalesearch.space.syntax.parameters import Parameter
from scalesearch.space.syntax.value_parser import parse_schedule
from scalesearch.space.syntax.yaml_reader import compose, read_text

if TYPE_CHECKING:
    from scalesearch.space.assembly.architecture import Architecture


class Space:
    """A search space of architectures. Made by ``read_space``, ``Space.parse`` or ``Space.of``; never changed after.

    Attributes:
        name: what the file calls itself, or an empty text.
        notes: free text.
        where: constraints over answers and costs.
        budgets: named constraints.
        protocol: ``name`` and, where given, ``source``, ``target``, ``vocab``.
        root: the bound tree.
    """

    def __init__(self, document: Table, schema: Group, problems: list[Problem]) -> None:
        """Binds ``document``. Raises SpaceErrors with every problem, ``problems`` included."""
        document = respelled(document, schema, problems)
        bound: Bound = bind(document, schema, problems)
        self.document, self.schema = document, schema
        self.name, self.notes, self.form, self.root = bound.name, bound.notes, bound.form, bound.root
        self.where, self.budgets, self.protocol = bound.where, dict(bound.budgets), dict(bound.protocol)

    @classmethod
    def parse(cls, text: str, name: str = "<string>", schema: Group | None = None) -> "Space":
        """The space that a YAML text describes. Raises SpaceErrors."""
        document, problems = compose(Source(name, text))
        return cls(document, schema or default_schema(), problems)

    @classmethod
    def of(cls, forms: Mapping[str, Any], schema: Group | None = None) -> "Space":
        """The space that Python forms describe: dicts, lists, constants, texts of the language, ``Range``, ``OneOf``…

        Raises SpaceErrors, with lines of the YAML that the forms stand for.
        """
        from scalesearch.space.python_api import to_yaml

        return cls.parse(to_yaml(forms), "<python>", schema)

    def set(self, overrides: Mapping[str, str], option: str = "--set") -> "Space":
        """This space with some keys given anew, as by ``option``, which errors name. Raises SpaceErrors."""
        from scalesearch.space.binding.overrides import override

        problems: list[Problem] = []
        document = override(self.document, self.schema, overrides, problems, option)
        return Space(document, self.schema, problems)

    def dimensions(self) -> list[tuple[str, Parameter]]:
        """Every parameter that may be asked, with its name."""
        return self.form.dimensions()

    def vocabularies(self, most: int) -> tuple[int, ...]:
        """The values that the key ``vocab`` may have, rising; none where the space has no such key.

        Raises:
            UserError: they are computed, or more than ``most``.
        """
        leaves = self.form.by_key.get("vocab", [])
        try:
            sizes = sorted({size for leaf in leaves for size in islice(whole_numbers(leaf.spec), most + 1)})
        except TypeError:
            sizes = []
        if len(sizes) > most or (leaves and not sizes):
            raise UserError(f"vocab: {leaves[0].spec} is no list of at most {most} sizes, each of which takes a "
                            "tokenizer", help="write the sizes out, as in 1k | 2k | 4k", key="space",
                            code="too-many-vocabularies")
        return tuple(sizes)

    def answer(self, ask: AskFunction) -> Answers:
        """Decides every key; ``ask(name, parameter)`` gives a legal answer to what has to be known.

        Raises UserError where an answer is not legal.
        """
        return self.form.answer(ask)

    def sample(self, rng: random.Random) -> Answers:
        """Random answers: uniform per parameter, log-uniform for log ranges."""
        return self.answer(lambda name, parameter: parameter.draw(rng))

    def enumerate(self) -> Iterator[Answers]:
        """Every answer sheet, in a fixed order. Raises UserError where a continuous range makes them endless."""
        try:
            yield from explore(self.answer)
        except Endless as endless:
            raise UserError(f"{endless}: a continuous range cannot be enumerated; give it a step",
                            code="endless") from None

    def size(self) -> int | None:
        """The exact number of answer sheets; ``None`` where a range makes them endless. Raises TooTangled."""
        return count(self.form)

    def replay(self, answers: Mapping[str, Any]) -> AskFunction:
        """An ``ask`` that repeats given answers, or the JSON of some.

        The function raises UserError for a parameter to which the sheet holds no legal answer.
        """
        known: dict[str, Any] = {}
        for leaf in self.form.leaves:
            if leaf.key in answers:
                value = _parsed(leaf.field, answers[leaf.key])
                known.update(self.form.domains[leaf.path].retrace(value, answers.__getitem__) or {})
        if isinstance(answers, Answers):
            known.update(answers.params)

        def ask(name: str, parameter: Parameter) -> Any:
            if name not in known:
                raise UserError(f"{name}: the given answers hold no legal value; expected {parameter}",
                                code="no-legal-answer")
            return known[name]

        return ask

    def holds(self, answers: Answers) -> bool:
        """True if this space contains the network of ``answers``, a sheet of another space."""
        wanted = self.architecture(answers).id
        try:
            mine = self.answer(self.replay(answers))
            return self.architecture(mine).id == wanted and not self.problems_of(mine)
        except UserError:
            return False

    def problems_of(self, answers: Mapping[str, Any]) -> list[Constraint]:
        """The constraints over answers alone that ``answers`` violate."""
        return [one for one in self.where if not one.costs and not one.holds(answers.__getitem__)]

    def architecture(self, answers: Answers) -> "Architecture":
        """The network that ``answers`` describe. Raises Unbuildable where there is none."""
        from scalesearch.space.assembly import architecture

        for path, reason in answers.problems:
            raise Unbuildable(path, reason)
        return architecture.assemble(answers)

    def closed(self, name: str | None = None) -> "Architecture":
        """The one network of a space that leaves nothing to choose; ``name`` is what an error calls it.

        Raises UserError where parameters are open, or no network can be built.
        """
        names = [name for name, _ in self.dimensions()]
        if names:
            shown = ", ".join(names[:6]) + f" and {len(names) - 6} more" * (len(names) > 6)
            raise UserError(f"{name or self.document.place.source.name} leaves {shown} open; "
                            "choose one value for each (--set key=value, in a study file under set:)",
                            code="open-parameters")
        return replace(self.architecture(self.answer(self.replay({}))), protocol=self.protocol)

    def fault(self, error: Unbuildable, message: str = "") -> Problem:
        """The problem at the key that keeps a network from being built; ``message`` comes before the reason."""
        leaf = next(iter(self.form.by_key.get(error.path, ())), None)
        place = leaf.place((0, 0)) if leaf else self.document.place
        return Problem(place, f"{message}{error}", code=error.code)

    def to_yaml(self) -> str:
        """The canonical YAML, with defaults and full names; reads back to an equal space."""
        head = {key: scalar(text) for key, text in (("space", self.name), ("notes", self.notes)) if text}
        where = {"where": [scalar(constraint.text) for constraint in self.where]} if self.where else {}
        return "\n".join(lines({**head, **tree(self.root, self.schema), **where, **self._cost()})) + "\n"

    def _cost(self) -> dict[str, Any]:
        cost: dict[str, Any] = {"protocol": flow(self.protocol)}
        if self.budgets:
            cost["budgets"] = {name: scalar(constraint.text) for name, constraint in self.budgets.items()}
        return {"cost": cost}

    @cached_property
    def hash(self) -> str:
        """Identifies the space: equal for equal canonical texts, whatever the file is called or notes.

        Keys that say what they say by default are left out, so that a new key changes no space that does not use it.
        """
        own = lines(_beyond(tree(self.root), self._plain()))
        parts = [*own, *sorted(c.text for c in self.where), *lines(self._cost())]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def _plain(self) -> dict[str, Any]:
        """The canonical tree of a space that gives a width alone; empty where the schema asks for more."""
        try:
            return tree(Space.parse("width: 1", "<plain>", self.schema).root)
        except SpaceErrors:
            return {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self.to_yaml() == other.to_yaml()

    def __hash__(self) -> int:
        return hash(self.hash)

    def __repr__(self) -> str:
        return f"<Space {self.name or 'without a name'}, {len(self.dimensions())} parameters>"


def _beyond(given: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    """What ``given`` says otherwise than ``plain``, or beyond it."""
    return {name: _beyond(value, other) if isinstance(value, Mapping) and isinstance(other, Mapping) else value
            for name, value in given.items() if value != (other := plain.get(name))}


def _parsed(field: Field, value: Any) -> Any:
    """The object of a JSON value; a text that is no schedule stays a text."""
    try:
        return parse_schedule(value) if field.kind == "schedule" and isinstance(value, str) else value
    except (ValueError, SyntaxProblem):
        return value


def default_schema() -> Group:
    """The built-in keys."""
    from scalesearch.space.schema.builtin import architecture_schema

    return architecture_schema()


def read_space(path: Path | str, schema: Group | None = None) -> Space:
    """Reads a space file, by the built-in keys where no schema is given.

    Raises:
        SpaceErrors: all problems of the file, each with file, line, column, the text underlined and a suggestion.
    """
    document, problems = compose(Source(str(path), read_text(Path(path))))
    refuse_study(document)
    return Space(document, schema or default_schema(), problems)
