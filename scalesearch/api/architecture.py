"""Architectures: exact costs and PyTorch modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

from scalesearch.api.base import Displayable, as_subclass, python_error_messages
from scalesearch.cost import CostBreakdown, Protocol, evaluate_cost, load_protocol
from scalesearch.cost.tables import make_cost_tables, memory_line
from scalesearch.errors import UserError, first_line
from scalesearch.spaces.assembly import architecture as assembly
from scalesearch.spaces.schema.cost_names import PROTOCOL_SIZES
from scalesearch.spaces.syntax.diagnostics import suggest_match

if TYPE_CHECKING:
    import torch
    from rich.table import Table

    from scalesearch.nn import Seq2SeqModel

MIN_VOCAB_SIZE = 5  # four special tokens and one word
# keys of a protocol that an argument can override
PROTOCOL_OVERRIDES = (*PROTOCOL_SIZES, "artifact", "latency", "cache", "optimizer", "recipe")


@dataclass(frozen=True, repr=False)
class Architecture(assembly.ModelSpec):
    """An architecture: all parameters of its space have values.

    Attributes:
        config: key to value.
        block: description from which costs and module follow.
        id: hash of the network.
        protocol: protocol of its space, under which costs are evaluated.
    """

    to_json = assembly.ModelSpec.to_dict  # documented name

    @python_error_messages()
    def cost(self, protocol: str | Protocol | None = None, **overrides: int | str) -> Costs:
        """Evaluate params, MACs, FLOPs and memory exactly.

        Args:
            protocol: forward, decode, decode-uncached, edgeformer, delight or train; by default
                the protocol of the space.
            overrides: keys of the protocol with other values: source and target (tokens), or
                length (tokens of a language model's context), cache (type of its numbers), vocab
                (entries), artifact, latency; for the costs of training also recipe (name, file
                or keys) and pairs (sentence pairs of an epoch), or the recipe's keys steps,
                tokens, max_tokens, accumulate and optimizer.

        Raises:
            UserError: the protocol is unknown, or a length is below 1.
        """
        resolved = resolve_protocol(self.protocol, protocol, overrides).with_vocab(self.vocab)
        return as_subclass(Costs, evaluate_cost(self.block, resolved))

    @python_error_messages()
    def module(self, seed: int = 1, *, vocab: int | None = None, init: str = "xavier",
               device: str | torch.device = "cpu") -> Seq2SeqModel:
        """Build the architecture as an ``nn.Module`` with initial weights.

        Args:
            seed: seed of the initial weights.
            vocab: size of the vocabulary; by default that of the architecture or its protocol.
            init: initialization scheme, as in a recipe.

        Raises:
            UserError: the vocabulary is too small, or the device does not exist.
        """
        import torch

        from scalesearch.nn import build_model

        if vocab is not None and (not isinstance(vocab, int) or vocab < MIN_VOCAB_SIZE):
            raise UserError(f"vocab: expected a whole number of at least {MIN_VOCAB_SIZE}, found "
                            f"{vocab!r}", code="bad-value")
        if vocab is None:
            vocab = int(resolve_protocol(self.protocol).with_vocab(self.vocab).vocab_size)
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:  # raised by torch for an unknown device
            raise UserError(f"device {str(device)!r}: {first_line(error)}",
                            code="no-device") from None
        return build_model(self.block, vocab=vocab, init=init, seed=seed, device=device)

    def __repr__(self) -> str:
        return f"<Architecture {self.id}, {self.cost()['params.total']:,} params>"


class Costs(Displayable, CostBreakdown):
    """Exact costs of an architecture.

    ``costs["params.total"]`` is one of them, and ``costs.values`` has all.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return costs by quantity and section, protocol and conventions as JSON values."""
        return {**self.by_quantity, "protocol": self.protocol.facts,
                "conventions": self.protocol.conventions}

    def _display_parts(self) -> Iterator[Table | str]:
        yield from make_cost_tables(self)
        yield memory_line(self)
        yield from self.protocol.weight_work_lines(self.values["macs.once"])
        yield f"protocol {self.protocol} · {self.protocol.conventions}"


def resolve_protocol(settings: Mapping[str, Any], protocol: str | Protocol | None = None,
                     overrides: Mapping[str, int | str] | None = None) -> Protocol:
    """Return a protocol with some keys changed.

    Args:
        settings: protocol of a space.
        protocol: another one in its place, or its name.
        overrides: key to value.

    Raises:
        UserError: the protocol or a key is unknown.
    """
    for name, value in (overrides or {}).items():
        if name not in PROTOCOL_OVERRIDES:
            raise UserError(f"{name}: a protocol has no such length; "
                            f"{suggest_match(name, PROTOCOL_OVERRIDES)}", code="unknown-argument")
        if name in PROTOCOL_SIZES and not isinstance(value, Integral):
            raise UserError(f"{name}: expected a whole number, found {value!r}", code="bad-value")
    if isinstance(protocol, Protocol):
        settings = protocol.settings
        protocol = None
    values = dict(overrides or {})
    if (recipe := values.pop("recipe", None)) is not None:
        from scalesearch.training.input_files import load_training_costs

        values = load_training_costs(recipe, values.pop("pairs", None)) | values
    return load_protocol(settings, name=protocol, **values)
