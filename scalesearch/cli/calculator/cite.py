"""``scalesearch cost FILE --cite``: what an architecture costs as formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scalesearch.cli.options import load_architecture, print_json

if TYPE_CHECKING:
    from scalesearch.whatif import Citation

SECTIONS = ("embedding", "encoder", "decoder", "output")
PLAIN = {"none", "off", "own", "nothing", "matrices", "euler", "auto", "solved", False}  # not worth a mention


def show_formulas(
    file: str, settings: tuple[str, ...], lengths: dict[str, Any], levels: int, as_json: bool
) -> None:
    """Prints the closed forms of params and MACs, by section (``levels`` 1) or by module."""
    from scalesearch.cost import protocol_of
    from scalesearch.whatif import cite

    space, architecture = load_architecture(file, settings)
    found = cite(space, architecture.answers, protocol_of(space.protocol, **lengths), levels)
    if as_json:
        print_json(found.to_json() | {"architecture": architecture.to_json()})
    else:
        _show(found, architecture.id)


def _show(found: Citation, identity: str) -> None:
    import click

    for at, quantity in enumerate(("params", "macs")):
        click.echo(f"{quantity}.total = {' + '.join(_parts(found, quantity)) or 0}")
        for path, formulas in found.modules.items():
            if formulas[at].terms:
                click.echo(f"  {'  ' * path.count('.')}{path} = {formulas[at].collected()}")
        click.echo("")
    click.echo("with")
    for name in found.names:
        follows = f"    (here = {found.where[name]})" if name in found.where else ""
        click.echo(f"  {name} = {found.values[name]:,}{follows}")
    for line in _notes(found):
        click.echo(line)
    click.echo(f"architecture {identity} · protocol {found.protocol} · flops = 2 · macs")


def _parts(found: Citation, quantity: str) -> list[str]:
    """The sections that a total is the sum of."""
    return [f"{quantity}.{name}" for name in SECTIONS if found.sections[f"{quantity}.{name}"].terms]


def _notes(found: Citation) -> list[str]:
    held = [f"{key} {_word(value)}" for key, value in found.held.items()
            if not (isinstance(value, str | bool) and value in PLAIN)]
    notes = [f"held fixed: {', '.join(held)}"]
    if found.numbers:
        many = f"{found.numbers} numbers stand" if found.numbers > 1 else "1 number stands"
        notes.append(f"{many} for sizes that follow from others by more than sums and products (a schedule's groups, "
                     "a quotient, the smaller of two)")
    if found.vocab_bound:
        notes.append("some shapes follow from the vocabulary: the formulas hold for V as it is here")
    return notes


def _word(value: Any) -> str:
    return "yes" if value is True else "no" if value is False else str(value)
