"""Replacements of the blocks of a trained parent, and configurations of combinations of them.

A *chain* is one kind of sub-layer of a stack, such as ``encoder.ffn``, from the first layer to the
last. An *alternative* gives a size or a structure to one layer of a chain, or one set of weights to
neighboring layers. A combination has at most one alternative per layer of a chain; the other layers
keep their blocks. Layers that lose all sub-layers are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from scalesearch.blocks.ffn import GatedFFN, TwoLayerFFN
from scalesearch.blocks.layers import Layer
from scalesearch.blocks.maps.linear_factories import DENSE
from scalesearch.blocks.mixers.attention import Attention
from scalesearch.blocks.seq2seq import EncoderDecoder
from scalesearch.blocks.stacks import Stack
from scalesearch.cost import Protocol, evaluate_cost, find_protocol
from scalesearch.errors import UserError
from scalesearch.spaces.assembly.architecture import ModelSpec, assemble
from scalesearch.spaces.syntax.diagnostics import UnbuildableError, suggest_match

# key of the size in a configuration, name of the part in a layer, and map whose outputs are summed
CHAINS = {"encoder.attention": ("encoder.heads", "attention", "out"),
          "encoder.ffn": ("encoder.ffn.hidden", "ffn", "down"),
          "decoder.self": ("decoder.heads", "self_attention", "out"),
          "decoder.cross": ("decoder.cross_heads", "cross_attention", "out"),
          "decoder.ffn": ("decoder.ffn.hidden", "ffn", "down")}
# other keys of a chain's blocks, which set their structure instead of their size
STRUCTURES = {"encoder.attention": ("encoder.key_value_heads", "encoder.attention_rank"),
              "encoder.ffn": ("encoder.ffn_rank", "encoder.ffn_groups", "encoder.ffn_products"),
              "decoder.self": ("decoder.key_value_heads", "decoder.attention_rank"),
              "decoder.cross": ("decoder.cross_key_value_heads", "decoder.cross_rank"),
              "decoder.ffn": ("decoder.ffn_rank", "decoder.ffn_groups", "decoder.ffn_products")}
# keys whose default is the value of another one
DEFAULT_OF = {"decoder.key_value_heads": ("decoder.cross_key_value_heads", "off"),
              "decoder.attention_rank": ("decoder.cross_rank", 0)}
DEFAULT_SHARES = {"heads": (0, 0.5), "hidden": (0, 0.25, 0.5, 0.75)}  # of the parent's sizes
DEFAULT_RUN = 2  # neighboring layers that may share weights


@dataclass(frozen=True, order=True)
class Alternative:
    """A replacement of a block, or one block for neighboring layers.

    Attributes:
        chain: a key of ``CHAINS``.
        first, last: layers, counted from 0; they differ if the layers share their weights.
        size: heads or hidden units, 0 if the sub-layer is removed; or the value of ``structure``.
        structure: a key of ``STRUCTURES`` without the stack; empty if only the size changes.
    """

    chain: str
    first: int
    last: int
    size: int
    structure: str = ""

    @property
    def name(self) -> str:
        """Its name, such as ``encoder.ffn[2] 128``; layers count from 1."""
        layers = str(self.first + 1)
        if self.last > self.first:
            layers += f"-{self.last + 1}"
        return " ".join(filter(None, (f"{self.chain}[{layers}]", self.structure, str(self.size))))

    @property
    def key(self) -> str:
        """The key that it sets in a configuration."""
        if self.structure:
            return f"{self.chain.partition('.')[0]}.{self.structure}"
        return CHAINS[self.chain][0]

    @property
    def layers(self) -> range:
        """The layers that it replaces."""
        return range(self.first, self.last + 1)


@dataclass(frozen=True)
class Parent:
    """The architecture of a trained model whose blocks can be replaced.

    Attributes:
        architecture: its architecture.
        sizes: heads or hidden units by layer, for each chain.
    """

    architecture: ModelSpec
    sizes: Mapping[str, tuple[int, ...]]

    @classmethod
    def from_architecture(cls, architecture: ModelSpec) -> Parent:
        """Check that the blocks of an architecture can be replaced.

        Raises:
            UserError: they cannot; the message lists the reasons.
        """
        reasons = list(find_obstacles(architecture))
        if reasons:
            raise UserError(f"parent: its blocks cannot be replaced: {'; '.join(reasons)}",
                            help="compression needs a plain encoder-decoder Transformer with dense "
                            "matrices", key="parent", code="parent-unsupported")
        block: Any = architecture.block
        sizes = {}
        for chain, (_, part, _) in CHAINS.items():
            layers = getattr(block, chain.partition(".")[0]).layers
            blocks = [layers.layer_at(index).parts().get(part) for index in range(layers.depth)]
            sizes[chain] = tuple(
                0 if use is None else use.block.hidden if part == "ffn" else use.block.heads
                for use in blocks)
        return cls(architecture, sizes)

    def configuration(self, combination: Iterable[Alternative]) -> tuple[dict[str, Any],
                                                                         dict[str, list[int]]]:
        """Return the configuration of a combination, and the kept layers of each stack."""
        sizes = {chain: list(values) for chain, values in self.sizes.items()}
        groups = {chain: list(range(len(values))) for chain, values in self.sizes.items()}
        structures: dict[tuple[str, str], dict[int, int]] = {}  # chain and key: values by layer
        for alternative in combination:
            if alternative.structure:
                by_layer = structures.setdefault((alternative.chain, alternative.key), {})
                by_layer[alternative.first] = alternative.size
                continue
            for layer in alternative.layers:
                sizes[alternative.chain][layer] = alternative.size
                groups[alternative.chain][layer] = alternative.first
        config = dict(self.architecture.config)
        kept = {}
        for stack in ("encoder", "decoder"):
            chains = [chain for chain in CHAINS if chain.startswith(f"{stack}.")]
            depth = len(sizes[chains[0]])
            kept[stack] = [layer for layer in range(depth)
                           if any(sizes[chain][layer] for chain in chains)]
            for key, value in config.items():
                if (key.startswith(f"{stack}.") and isinstance(value, list) and len(value) == depth
                        and not isinstance(value[0], str | list)):
                    config[key] = _shortened([value[layer] for layer in kept[stack]])
            config[f"{stack}.depth"] = len(kept[stack])
            for chain in (chain for chain in chains if any(self.sizes[chain])):
                chosen = _shortened([sizes[chain][layer] for layer in kept[stack]])
                config[CHAINS[chain][0]] = chosen
                if CHAINS[chain][0] == f"{stack}.heads":
                    config[f"{stack}.score_heads"] = chosen
                owners = [kept[stack].index(groups[chain][layer]) for layer in kept[stack]]
                if owners != list(range(len(owners))):
                    config[f"share.{chain}"] = str(owners)
        for (chain, key), by_layer in structures.items():
            # attention with all its heads for keys and values is the usual one
            plain = sizes[chain] if key.endswith("key_value_heads") else [0] * len(sizes[chain])
            config[key] = _shortened([
                by_layer.get(layer, max(1, plain[layer]) if any(plain) else 0)
                for layer in kept[chain.partition(".")[0]]])
        for key, (dependent, value) in DEFAULT_OF.items():
            if key in config:
                config.setdefault(dependent, value)
        return config, kept

    def describe(self, combination: Iterable[Alternative]) -> str:
        """The keys that a combination changes, such as ``encoder.heads [4, 2]``."""
        config, kept = self.configuration(combination)
        own = self.architecture.config
        changed = [f"{stack}.depth {len(kept[stack])}" for stack in kept
                   if len(kept[stack]) < own[f"{stack}.depth"]]
        changed += [f"{key} {config[key]}" for chain, (key, _, _) in CHAINS.items()
                    if any(self.sizes[chain]) and config[key] != own[key]]
        changed += [f"{key} {config[key]}" for keys in STRUCTURES.values() for key in keys
                    if config.get(key, 0) not in (0, "off", own.get(key))]
        changed += [f"share.{chain} {config[f'share.{chain}']}" for chain in CHAINS
                    if config.get(f"share.{chain}") != own.get(f"share.{chain}")]
        return ", ".join(changed) or "none"

    def assemble(self, combination: Iterable[Alternative]) -> ModelSpec:
        """Return the architecture of a combination.

        Raises:
            UnbuildableError: a stack has no layers left.
        """
        config, _ = self.configuration(combination)
        assembled = assemble(config)
        return ModelSpec(assembled.config, assembled.block, assembled.id,
                         self.architecture.protocol)


def _shortened(values: list[Any]) -> Any:
    """One value in place of equal ones."""
    return values[0] if values and all(value == values[0] for value in values) else values


def find_obstacles(architecture: ModelSpec) -> Iterator[str]:
    """Yield the reasons why the blocks of an architecture cannot be replaced."""
    block = architecture.block
    if not isinstance(block, EncoderDecoder):
        yield "it is not an encoder-decoder model"
        return
    for name, stack in (("encoder", block.encoder), ("decoder", block.decoder)):
        if not isinstance(stack, Stack):
            yield f"{name}.middle_width is set"
            continue
        has_biases = stack.global_scores is not None or stack.position_bias is not None
        if has_biases or stack.step_signals or stack.solver != "euler":
            yield f"{name} has global scores or biases by distance, step signals or a solver"
        if stack.layers.ties:
            yield f"share.{name}: its layers share weights already"
        for layer in stack.layers.layers_by_size:
            assert isinstance(layer, Layer)
            if (layer.multi_path or layer.extra_sublayers
                    or layer.effective_order != layer.default_order):
                yield f"{name}.sublayers: not the usual order of sub-layers"
            mixers = [layer.mixer, getattr(layer, "cross_attention", None)]
            for mixer in mixers:
                if mixer is not None and not mixer.is_absent and not _is_plain(mixer):
                    yield (f"{name}: attention without biases, or with norms, gates, adapters, "
                           "shared heads, slopes of single heads or structured maps")
            ffn = layer.ffn
            if not ffn.is_absent and not (isinstance(ffn, TwoLayerFFN | GatedFFN)
                                          and ffn.linear_factory == DENSE and not ffn.norm_type
                                          and ffn.bias):
                yield f"{name}.ffn: not a network with dense matrices and biases"


def _is_plain(mixer: Any) -> bool:
    return (isinstance(mixer, Attention) and mixer.gate == "none" and mixer.head_ffn is None
            and not mixer.expands_heads and not mixer.kv_heads and not mixer.adapters
            and not mixer.prompt_length and not mixer.residual_scores and not mixer.mask_distance
            and mixer.qk_norm == "none" and not mixer.alibi
            and mixer.heads == mixer.score_heads and mixer.bias and mixer.output_bias is None
            and mixer.linear_factory == DENSE and mixer.output_factory == DENSE)


def default_alternatives(parent: Parent) -> dict[str, Any]:
    """Return the value of ``replace`` if it is not set: smaller sizes, none, and shared weights."""
    values: dict[str, Any] = {}
    for chain, sizes in parent.sizes.items():
        if not any(sizes):
            continue
        key = CHAINS[chain][0]
        shares = DEFAULT_SHARES["hidden" if key.endswith("hidden") else "heads"]
        values[key] = sorted({int(share * max(sizes)) for share in shares})
        values[f"share.{chain}"] = DEFAULT_RUN
    return values


def list_alternatives(parent: Parent, replace: Mapping[str, Any]) -> list[Alternative]:
    """List the alternatives of ``replace``, in the order of the layers.

    Args:
        parent: the parent.
        replace: key to sizes, such as ``encoder.heads`` or ``encoder.ffn.hidden[2]`` (layer 2
            only); a key of ``STRUCTURES``, such as ``encoder.ffn_rank``, to its values; or
            ``share.encoder.ffn`` to the number of neighboring layers that may share.

    Raises:
        UserError: a key is unknown, a size is not smaller than the parent's, or a structure cannot
            be built or has no fewer parameters.
    """
    keys = [*(key for key, _, _ in CHAINS.values()), *(f"share.{chain}" for chain in CHAINS),
            *(key for structure_keys in STRUCTURES.values() for key in structure_keys)]
    for key in replace:
        if key.partition("[")[0] not in keys:
            raise UserError(f"replace: {key} cannot be replaced; {suggest_match(key, keys)}",
                            help=f"keys are {', '.join(keys)}", key="replace",
                            code="unknown-key")
    alternatives = []
    for chain, sizes in parent.sizes.items():
        key = CHAINS[chain][0]
        longest = replace.get(f"share.{chain}", 1)
        for layer, size in enumerate(sizes):
            chosen = replace.get(f"{key}[{layer + 1}]", replace.get(key, ()))
            for value in sorted(set(chosen)):
                if value >= size and len(set(sizes)) == 1:
                    raise UserError(f"replace: {key}: {value} is not smaller than the parent's "
                                    f"{size}", key="replace", code="bad-value")
                if value < size:
                    alternatives.append(Alternative(chain, layer, layer, value))
            for structure_key in STRUCTURES[chain]:
                values = replace.get(f"{structure_key}[{layer + 1}]",
                                     replace.get(structure_key, ()))
                structure = structure_key.partition(".")[2]
                alternatives += [Alternative(chain, layer, layer, value, structure)
                                 for value in sorted(set(values)) if size]
            alternatives += [Alternative(chain, layer, last, size)
                             for last in range(layer + 1, min(layer + longest, len(sizes)))
                             if size and set(sizes[layer : last + 1]) == {size}]
    if not alternatives:
        raise UserError("replace: no block has an alternative", key="replace", code="bad-value")
    protocol = find_protocol("forward", 1, 1, 100)
    own_params = evaluate_combination(parent, (), ["params.total"], protocol)
    for alternative in alternatives:
        if alternative.structure:
            name = f"{alternative.key}[{alternative.first + 1}]: {alternative.size}"
            try:
                params = evaluate_combination(parent, [alternative], ["params.total"], protocol)
            except UnbuildableError as error:
                raise UserError(f"replace: {name}: {error}", key="replace",
                                code="bad-value") from None
            if params >= own_params:
                raise UserError(f"replace: {name} has no fewer parameters than the parent's block",
                                key="replace", code="bad-value")
    return alternatives


@dataclass(frozen=True)
class MeasuredCombination:
    """Measured rise of the loss of a combination, in nats per character, before fine-tuning."""

    alternatives: tuple[Alternative, ...]
    rise: float
    standard_error: float


def random_combinations(parent: Parent, alternatives: Sequence[Alternative], count: int,
                        seed: int) -> list[list[Alternative]]:
    """Draw combinations of all sizes, each of which can be built.

    The share of replaced blocks is uniform between 0.1 and 0.9.
    """
    rng = Random(seed)
    combinations: list[list[Alternative]] = []
    for _ in range(100 * count):
        if len(combinations) == count:
            break
        share = rng.uniform(0.1, 0.9)
        replaced: set[tuple[str, int]] = set()
        combination = []
        for alternative in rng.sample(alternatives, len(alternatives)):
            blocks = {(alternative.chain, layer) for layer in alternative.layers}
            if rng.random() < share and not blocks & replaced:
                combination.append(alternative)
                replaced |= blocks
        _, kept = parent.configuration(combination)
        if combination and all(kept.values()):
            combinations.append(combination)
    return combinations


@dataclass(frozen=True)
class CostDeltas:
    """Exact costs of a parent, and by how much each alternative changes them.

    Attributes:
        names: names of the costs.
        parent: (costs,) costs of the parent.
        deltas: change of each cost, for each alternative.
        unsupported: alternatives that have no such costs, with the reason: the export format of
            ``artifact.bytes`` does not support them.
    """

    names: tuple[str, ...]
    parent: tuple[float, ...]
    deltas: Mapping[Alternative, tuple[float, ...]]
    unsupported: Mapping[Alternative, str]


def cost_deltas(parent: Parent, alternatives: Sequence[Alternative], names: Sequence[str],
                protocol: Protocol) -> CostDeltas:
    """Evaluate the costs of the parent with each alternative alone."""
    own = evaluate_combination(parent, (), names, protocol)
    deltas = {}
    unsupported = {}
    for alternative in alternatives:
        try:
            costs = evaluate_combination(parent, [alternative], names, protocol)
        except UnbuildableError as error:
            unsupported[alternative] = str(error)
        else:
            deltas[alternative] = tuple(cost - base for cost, base in zip(costs, own))
    return CostDeltas(tuple(names), own, deltas, unsupported)


def evaluate_combination(parent: Parent, combination: Iterable[Alternative],
                         names: Sequence[str], protocol: Protocol) -> tuple[float, ...]:
    """Evaluate the costs of a combination exactly."""
    architecture = parent.assemble(combination)
    breakdown = evaluate_cost(architecture.block, protocol.for_candidates(architecture.config))
    return tuple(breakdown[name] for name in names)
