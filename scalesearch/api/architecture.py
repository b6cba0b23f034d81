"""Architectures: what they cost under a protocol, and their PyTorch module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalesearch.api.display import Displayable, as_subclass
from scalesearch.api.error_messages import python_error_messages
from scalesearch.cost import CostBreakdown, Protocol, evaluate_cost, load_protocol
from scalesearch.cost.tables import make_cost_tables, memory_line
from scalesearch.errors import UserError
from scalesearch.space.assembly import architecture as assembly
from scalesearch.space.syntax.diagnostics import suggest_match

if TYPE_CHECKING:
    import torch
    from rich.table import Table

    from scalesearch.nn import Seq2SeqModel

MIN_VOCAB_SIZE = 5  # the four that every vocabulary starts with, and one
# settings of a protocol that can be changed
PROTOCOL_OVERRIDES = ("source", "target", "vocab", "artifact", "latency")


@dataclass(frozen=True, repr=False)
class Architecture(assembly.ModelSpec):
    """One network: ``config``, ``block``, ``id`` and the ``protocol`` of its space."""

    @python_error_messages()
    def cost(self, protocol: str | Protocol | None = None, **overrides: int | str) -> Costs:
        """Params, MACs, FLOPs and memory, exactly, under a named protocol.

        Args:
            protocol: forward, decode, decode-uncached, edgeformer or delight; the space's own, if
                not given.
            lengths: source, target (tokens), vocab (entries), artifact, latency, in place of the
                protocol's.

        Raises:
            UserError: the protocol is unknown, or a length is below 1.
        """
        return as_subclass(Costs,
                           evaluate_cost(self.block,
                                         resolve_protocol(self.protocol, protocol,
                                                          overrides).with_vocab(self.vocab)))

    @python_error_messages()
    def module(self, seed: int = 1, *, vocab: int | None = None, init: str = "xavier",
               device: str | torch.device = "cpu") -> Seq2SeqModel:
        """The network as an ``nn.Module`` with fresh weights.

        Args:
            vocab: entries; its own, or else its protocol's.
            init: scheme of the first weights, drawn from ``seed``.

        Raises:
            UserError: too small a vocabulary, or a device that is not there.
        """
        import torch

        from scalesearch.nn import build_model

        if vocab is not None and (not isinstance(vocab, int) or vocab < MIN_VOCAB_SIZE):
            raise UserError(f"vocab: expected a whole number of at least {MIN_VOCAB_SIZE}, found "
                            f"{vocab!r}", code="bad-value")
        words = (int(resolve_protocol(self.protocol).with_vocab(self.vocab).vocab_size)
                 if vocab is None else vocab)
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:  # raised by torch for an unknown device
            raise UserError(f"device {str(device)!r}: {str(error).splitlines()[0]}",
                            code="no-device") from None
        return build_model(self.block, vocab=words, init=init, seed=seed, device=device)

    def __repr__(self) -> str:
        return f"<Architecture {self.id}, {self.cost()['params.total']:,} params>"


class Costs(Displayable, CostBreakdown):
    """Exact costs of an architecture, such as ``costs["params.total"]``; ``costs.values`` has all."""

    def to_dict(self) -> dict[str, Any]:
        """Costs by quantity and section, with the protocol and its conventions, as JSON values."""
        return {**self.to_json(), "conventions": self.protocol.conventions}

    def _display_parts(self) -> Iterator[Table | str]:
        yield from make_cost_tables(self)
        yield memory_line(self)
        yield from self.protocol.weight_work_lines(self.values["macs.once"])
        yield f"protocol {self.protocol} · {self.protocol.conventions}"


def resolve_protocol(settings: Mapping[str, Any], protocol: str | Protocol | None = None,
                   overrides: Mapping[str, int | str] | None = None) -> Protocol:
    """Return the protocol of a space's ``settings``, or another one by name, with changed lengths.

    Raises:
        UserError: no such protocol or length.
    """
    for name in overrides or {}:
        if name not in PROTOCOL_OVERRIDES:
            raise UserError(f"{name}: a protocol has no such length; "
                            f"{suggest_match(name, PROTOCOL_OVERRIDES)}", code="unknown-argument")
    if isinstance(protocol, Protocol):
        settings = protocol.settings
        protocol = None
    return load_protocol(settings, name=protocol, **(overrides or {}))
