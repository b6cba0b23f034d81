"""Looks up the names of an expression and checks its types.

A bare name is first looked up among the legal words of what it is compared with (``norm == post``), then among the
keys, from the innermost group outwards. What is neither is a misspelt reference.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from scalesearch.space.schema.bound_tree import Index, Known, Leaf
from scalesearch.space.schema.cost_names import COST_NAMES
from scalesearch.space.schema.types import Field
from scalesearch.space.syntax.choices import Computed
from scalesearch.space.syntax.diagnostics import closest, either
from scalesearch.space.syntax.domains import Indexed, Spec
from scalesearch.space.syntax.expressions import Compare, Expr, Name, Operation, Ref, Value
from scalesearch.space.syntax.lexer import SyntaxProblem
from scalesearch.space.syntax.parameters import say

ANY = frozenset({"number", "flag", "word", "list", "text"})
NUMBER, TRUTH = frozenset({"number"}), frozenset({"flag"})
WHAT = {"number": "a number", "flag": "yes or no", "word": "a word", "list": "a list", "text": "a text"}
LOGIC = ("and", "or", "not")
COST = Field("number")


def kinds_of(field: Field) -> frozenset[str]:
    """The types of a field's values."""
    own = {"size": "number", "number": "number", "schedule": "word"}.get(field.kind, field.kind)
    return frozenset({own, *(["word"] if field.also else [])})


def words_of(field: Field) -> tuple[str, ...]:
    """The words that a field's answer may be."""
    own = field.words if field.kind == "word" else tuple(field.calls) if field.kind == "schedule" else ()
    return (*own, *field.also)


@dataclass
class Resolver:
    """Resolves the expressions that stand inside the group ``scope``.

    Args:
        costs: whether the names of costs may be used.
        complain: takes every problem.
    """

    index: Index
    scope: str
    costs: bool
    complain: Callable[[SyntaxProblem], None]

    def truth(self, expr: Expr) -> Expr:
        """A condition or a constraint."""
        return self.expr(expr, TRUTH, ())

    def value(self, expr: Expr, field: Field) -> Expr:
        """A computed value for ``field``."""
        return self.expr(expr, kinds_of(field), words_of(field))

    def option(self, option: Spec, leaf: Leaf) -> Spec:
        """``option``, an alternative of ``leaf``, with its names looked up."""
        match option:
            case Computed(expression):
                return replace(option, expression=self.value(expression, leaf.field))
            case Indexed():
                return self.layer(option, leaf)
        return option

    def layer(self, option: Indexed, leaf: Leaf) -> Spec:
        """``encoder.attention[i]`` in its first spelling; complains where it points to no other schedule."""
        known = self.index.find(option.path, self.scope)
        schedules = [path for path, other in self.index.paths.items() if other.field.kind == "schedule"]
        short = [path.removeprefix(f"{leaf.path.partition('.')[0]}.") for path in schedules if path != leaf.path]
        span = (option.span[0], option.span[0] + len(option.path))
        if known is None or known.field.kind != "schedule":
            meant = closest(option.path, short)
            help = f"did you mean `{meant}`?" if meant else f"the schedules are {', '.join(short)}"
            self.complain(SyntaxProblem(f"`{option.path}` is not a schedule of this space", span, help,
                                        code="unknown-schedule"))
        elif known.key == leaf.key:
            self.complain(SyntaxProblem(f"`{leaf.path}` cannot use its own layers", span,
                                        "for that, write `cycle(2)` or a list", code="depends-on-itself"))
        scope = option.path.rpartition(".")[0]
        return replace(option, path=f"{scope}.{known.key.rpartition('.')[2]}") if known and scope else option

    def expr(self, expr: Expr, want: frozenset[str], words: tuple[str, ...]) -> Expr:
        """``expr`` with its names looked up, where one of the types ``want`` is due."""
        match expr:
            case Value():
                return self.constant(expr, want, words)
            case Name():
                return self.name(expr, want, words)
            case Compare():
                self.due(expr, TRUTH, want)
                return self.compare(expr)
            case Operation("if", (then, condition, other)):
                condition = self.expr(condition, TRUTH, ())
                return replace(expr, operands=(self.expr(then, want, words), condition, self.expr(other, want, words)))
            case Operation(op, operands):
                kind = TRUTH if op in LOGIC else NUMBER
                self.due(expr, kind, want)
                return replace(expr, operands=tuple(self.expr(operand, kind, ()) for operand in operands))
        return expr

    def due(self, expr: Expr, kinds: frozenset[str], want: frozenset[str]) -> None:
        """Complains where none of the types kinds is wanted."""
        if not kinds & want:
            self.wrong(expr, f"expected {_say(want)}, but this is {_say(kinds)}")

    def wrong(self, expr: Expr, message: str, help: str | None = None, code: str = "bad-value") -> None:
        """Notes a problem with ``expr``."""
        self.complain(SyntaxProblem(message, expr.span, help, code=code))

    def constant(self, expr: Value, want: frozenset[str], words: tuple[str, ...]) -> Expr:
        """A number, yes or no, or a quoted word."""
        kind = "flag" if isinstance(expr.value, bool) else "word" if isinstance(expr.value, str) else "number"
        if kind == "flag" and say(expr.value) in words:
            return replace(expr, value=say(expr.value))  # a word that happens to be spelt yes or no
        if kind not in want and not (kind == "word" and "text" in want):
            self.wrong(expr, f"expected {_say(want)}, but `{say(expr.value)}` is {WHAT[kind]}")
        return expr

    def name(self, expr: Name, want: frozenset[str], words: tuple[str, ...]) -> Expr:
        """A word or a reference."""
        if expr.text in words and "word" in want:
            return Value(expr.text, span=expr.span)
        known = self.find(expr.text)
        if known is None:
            self.unknown(expr, words)
            return Value(0, span=expr.span)
        kinds = kinds_of(known.field)
        if not kinds & want:
            legal = words_of(known.field)
            values = f" ({' | '.join(legal)})" if legal and known.field.kind == "word" else ""
            self.wrong(expr, f"expected {_say(want)}, but `{expr.text}` is {_say(kinds)}{values}")
        return Ref(self.shown(expr.text, known), known.key, known.guards, span=expr.span)

    def find(self, text: str) -> Known | None:
        """The key or cost that a name means here."""
        known = self.index.find(text, self.scope)
        if known is None and self.costs and text in COST_NAMES:
            return Known(text, (), COST)
        return known

    def shown(self, text: str, known: Known) -> str:
        """The canonical spelling: the full path, unless an inner group would capture it."""
        path = next((path for path, other in self.index.paths.items() if other is known), text)
        return path if self.index.find(path, self.scope) is known else text

    def unknown(self, expr: Name, words: tuple[str, ...]) -> None:
        """Complains about a name that is neither word nor key."""
        if expr.text in COST_NAMES:
            help = "costs can be used under `where:` and in budgets"
            self.wrong(expr, f"`{expr.text}` is a cost, known only once all answers are given", help,
                       code="cost-too-early")
        elif "-" in expr.text and self.find(expr.text.partition("-")[0]):
            self.wrong(expr, f"there is no key `{expr.text}`", "a minus sign needs spaces around it",
                       code="unknown-name")
        elif expr.text in self.index.groups:
            inside = [path for path in self.index.paths if path.startswith(f"{expr.text}.")]
            help = f"name one of its keys, such as {either(inside[:2])}"
            self.wrong(expr, f"`{expr.text}` is a group of keys, not a value", help, code="group-not-value")
        else:
            what = f"neither a key nor one of {either(words)}" if words else "not a key of this space"
            self.wrong(expr, f"`{expr.text}` is {what}", self.meant(expr.text, words), code="unknown-name")

    def meant(self, text: str, words: tuple[str, ...]) -> str | None:
        """A help line for a misspelt name: a similar word, key or last part of a key."""
        legal = [*words, *self.index.paths, *(COST_NAMES if self.costs else ())]
        last = {path.rpartition(".")[2]: path for path in reversed(list(self.index.paths))}
        meant = closest(text, legal) or last.get(closest(text.rpartition(".")[2], last) or "")
        if meant:
            return f"did you mean `{meant}`?"
        return f"the words are {either(words)}" if words else None

    def compare(self, expr: Compare) -> Expr:
        """A comparison: each operand against its neighbour."""
        operands, ops = expr.operands, [op for op, _ in expr.rest]
        if any(op not in ("==", "!=") for op in ops):
            resolved = [self.expr(operand, NUMBER, ()) for operand in operands]
        else:
            resolved = [self.equal(operands, at) for at in range(len(operands))]
        return replace(expr, first=resolved[0], rest=tuple(zip(ops, resolved[1:], strict=True)))

    def equal(self, operands: tuple[Expr, ...], at: int) -> Expr:
        """One side of an equality, which takes its legal words and types from the other."""
        other = operands[at - 1] if at else operands[1]
        known = self.find(other.text) if isinstance(other, Name) else None
        mine = operands[at]
        if isinstance(mine, Name) and isinstance(other, Name) and known and mine.text not in words_of(known.field):
            own = self.find(mine.text)
            if own and other.text in words_of(own.field):  # of `tie == decoder`, the other side is a word of this one
                return self.expr(mine, ANY, ())
        if known is None:
            misspelt = at and isinstance(other, Name) and isinstance(mine, Name) and self.find(mine.text) is None
            return Value(0) if misspelt else self.expr(mine, _kinds(other), ())  # one complaint is enough
        return self.expr(mine, kinds_of(known.field), words_of(known.field))


def _kinds(expr: Expr) -> frozenset[str]:
    """The types an operand has by its form alone."""
    match expr:
        case Value(bool()) | Compare() | Operation("and" | "or" | "not"):
            return TRUTH
        case Value(str()) | Name():
            return ANY
        case Operation("if", (then, _, other)):
            return _kinds(then) | _kinds(other)
    return NUMBER


def _say(kinds: frozenset[str]) -> str:
    return " or ".join(WHAT[kind] for kind in ("number", "flag", "word", "list", "text") if kind in kinds)
