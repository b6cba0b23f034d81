"""Checks of a registered block class, from the single block to the search."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

from scalesearch.blocks.core import Block
from scalesearch.blocks.ffn import FFNS
from scalesearch.blocks.mixers import MIXERS
from scalesearch.blocks.options import option_fields
from scalesearch.blocks.sublayers import SUBLAYERS
from scalesearch.cost import evaluate_cost, find_protocol
from scalesearch.feasible.counter import FeasibleCounter
from scalesearch.feasible.decomposition import Decomposition
from scalesearch.spaces import Space, UnbuildableError
from scalesearch.testing.block_sample import (
    MAX_OPTION_SIZES,
    BlockSample,
    ffn_sample,
    legal_values,
    mixer_sample,
)
from scalesearch.testing.checks import (
    check_activations,
    check_costs,
    check_model,
    check_output_projections,
    check_population_costs,
)
from scalesearch.testing.random_models import random_architecture, small_space

NUM_BLOCKS = 12
NUM_MODELS = 6
NUM_TRIALS = 24  # drawn, or searched, of each kind
STACKS = ("encoder", "decoder")
NOT_INTERLEAVED = {"encoder": {}, "decoder": {"interleaved": "no"}}
CHECKED_COSTS = ("params.total", "macs.total")


def check_ffn(name: str) -> None:
    """Run all checks on the feed-forward network ``name``.

    Samples blocks of random sizes, and models with them, also inside heads if the network has
    hidden units. Checks costs, also of a population; activations; decoding; causality; the counts
    of ``feasible``; and a search.

    Raises:
        AssertionError: a check fails.
        CausalityError: the network is not causal.
    """
    for seed in range(NUM_BLOCKS):
        specimen = ffn_sample(Random(seed), name)
        units = FFNS[name].hidden_part
        parts = specimen.block.parts()
        assert units is None or units in parts, f"{name}: hidden_part {units} is not a part"
        _check_block(specimen)
    keys = option_texts(FFNS[name])
    changes: dict[str, Any] = {f"{stack}.ffn": {name: keys} for stack in STACKS}
    if "hidden" in keys:
        within = {"ratio": "1 | 2"} | {key: text for key, text in keys.items() if key != "hidden"}
        changes |= {f"{stack}.pg": {name: within} for stack in STACKS}
    _check_models(changes)
    _check_activations({"ffn": {name: {}}})
    check_count(tiny_space({"ffn": {name: option_texts(FFNS[name], few=2)}}))
    check_search(tiny_space({"ffn": {"one of": {"relu": {}, name: keys}}}), "encoder.ffn", name)


def check_mixer(name: str) -> None:
    """Run all checks on the mixer ``name``.

    The checks are those of :func:`check_ffn`, in encoders, decoders and decoder-only models, with
    weight tying within and across stacks, and parallel to attention.

    Raises:
        AssertionError: a check fails.
        CausalityError: the mixer is not causal.
    """
    for seed in range(NUM_BLOCKS):
        _check_block(mixer_sample(Random(seed), name))
    keys = option_texts(MIXERS[name])
    for changes in ({f"{stack}.mixer": {name: keys} for stack in STACKS},
                    {f"{stack}.mixer": {"one of": {"attention": {}, name: keys}}
                     for stack in STACKS}):
        _check_models(changes)
    _check_activations({"mixer": {name: {}}})
    check_search(tiny_space({"mixer": {"one of": {"attention": {}, name: keys}}}), "encoder.mixer",
                 name)
    few = {"one of": {"attention": {"heads": "2 | 4"}, name: option_texts(MIXERS[name], few=2)}}
    check_count(tiny_space({"mixer": few, "depth": 2}, {"mixer": few},
                           model="encoder-decoder | decoder-only",
                           share={"encoder": {"mixing": "own | one"},
                                  "decoder": {"self": "own | encoder.mixing[1]"}}))


def check_sublayer(word: str) -> None:
    """Run all checks on the sub-layer ``word``.

    The checks are those of :func:`check_mixer`, as first, last and parallel sub-layer.

    Raises:
        AssertionError: a check fails.
        CausalityError: the sub-layer is not causal.
    """
    for seed in range(NUM_BLOCKS):
        _check_block(mixer_sample(Random(seed), word, SUBLAYERS))
    spelt = option_texts(SUBLAYERS[word])
    keys = {word: spelt} if spelt else {}
    few = {word: {key: " | ".join(text.split(" | ")[:2])
                  for key, text in list(spelt.items())[:4]}} if spelt else {}
    first = f"[{word}, attention, ffn]"
    none = "[attention, ffn]"
    orders = {"encoder": f"{first} | [[attention, {word}], ffn]",
              "decoder": f"[{word}, self, cross, ffn] | [self, [cross, {word}], ffn, {word}]"}
    _check_models({f"{stack}.{key}": value for stack in STACKS
                   for key, value in {**keys, "sublayers": orders[stack],
                                      **NOT_INTERLEAVED[stack]}.items()})
    check_activations(Space.from_python(
        {"width": 32, "encoder": {"sublayers": first}, "decoder": {"sublayers": f"[{word}, self, "
         "cross, ffn]"}}).single_architecture())
    check_search(tiny_space({"sublayers": f"{first} | {none}"} | keys), "encoder.sublayers",
                 [word, "attention", "ffn"])
    check_count(tiny_space({"sublayers": f"{first} | {none}", "depth": 2, "heads": "2 | 4"} | few,
                     share={"encoder": {word: "own | one"}}))


def _check_block(specimen: BlockSample) -> None:
    check_costs(specimen)
    check_population_costs(specimen.block)
    check_output_projections(specimen)


def _check_activations(keys: Mapping[str, Any]) -> None:
    """Check the activations of a model with ``keys`` in both stacks, and default options."""
    stack = {"depth": 3} | dict(keys)
    check_activations(Space.from_python({"width": 32, "encoder": stack, "decoder": stack})
                      .single_architecture())


def _check_models(changes: Mapping[str, Any]) -> None:
    """Check models of :func:`small_space` with ``changes``, half of them decoder-only."""
    space = small_space(**{path: to_flow_yaml(value) for path, value in changes.items()})
    for seed in range(NUM_MODELS):
        model = "decoder-only" if seed % 2 else "encoder-decoder"
        check_model(random_architecture(Random(seed), space, model=model), seed)


def tiny_space(encoder: Mapping[str, Any], decoder: Mapping[str, Any] | None = None,
               **more: Any) -> Space:
    """Return a small space with other keys of the stacks and of the model."""
    own = {"depth": 1, "ffn": {"relu": {"hidden": 16}}}
    return Space.from_python({"width": "8 | 12", "encoder": own | dict(encoder),
                              "decoder": own | dict(decoder or {})} | more)


def check_count(space: Space) -> None:
    """Compare the counts of ``feasible`` with a list of all candidates.

    The space is small.

    Raises:
        AssertionError: the counts differ.
    """
    protocol = find_protocol("forward", 6, 5, 40)
    num_candidates = 0
    ids = []
    for params in space.enumerate():
        num_candidates += 1
        try:
            if not space.violated_constraints(params):
                ids.append(space.architecture(params).id)
        except UnbuildableError:
            continue
    counter = FeasibleCounter(Decomposition(space, protocol, CHECKED_COSTS), [])
    counted = (counter.n_candidates, counter.n_valid, counter.count_distinct([]))
    listed = (num_candidates, len(ids), len(set(ids)))
    assert counted == listed, ("candidates, valid ones, and distinct architectures: `feasible` "
                               f"counts {counted}, and the list of all has {listed}")


def check_search(space: Space, key: str, name: Any) -> None:
    """Check that a sampler proposes models with and without ``key: name``.

    Raises:
        AssertionError: one of the two was not proposed in ``TRIALS`` trials.
    """
    import optuna

    from scalesearch.samplers.encoding import suggest_params
    from scalesearch.samplers.front_neighbors import FrontNeighbors

    protocol = find_protocol("forward", 6, 5, 40)
    proposed = set()

    def objective(trial: optuna.Trial) -> tuple[float, ...]:
        params = suggest_params(space, trial)
        try:
            architecture = space.architecture(params)
        except UnbuildableError as error:
            raise optuna.TrialPruned(str(error)) from None
        proposed.add(params[key] == name)
        costs = evaluate_cost(architecture.block, protocol)
        return tuple(costs[name] for name in CHECKED_COSTS)

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = FrontNeighbors(define=partial(suggest_params, space), seed=1, n_startup_trials=4)
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=sampler)
    study.optimize(objective, n_trials=NUM_TRIALS)
    assert proposed == {True,
                        False}, f"{name} was proposed {'always' if True in proposed else 'never'}"


def option_texts(kind: type[Block], few: int = MAX_OPTION_SIZES) -> dict[str, str]:
    """Return the options of a block class as texts with all values, but ``few`` sizes."""
    return {name: "yes | no" if option.type == "flag"
            else " | ".join(map(str, legal_values(option, few)))
            for name, option in option_fields(kind).items()}


def to_flow_yaml(value: Mapping[str, Any] | str) -> str:
    """Return keys as YAML flow mapping, the format of ``--set``."""
    if isinstance(value, str):
        return value
    return "{ " + ", ".join(f"{key}: {to_flow_yaml(inside)}"
                            for key, inside in value.items()) + " }"
