"""Small models of each family, and sentences for them."""

from random import Random

from scalesearch.data import Split
from scalesearch.library import find_file
from scalesearch.nn import Seq2SeqModel, build_model
from scalesearch.spaces import read_space
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.training import Recipe
from scalesearch.training.hardware import Hardware
from scalesearch.training.updates.engine import Engine

VOCAB = 40
FAMILIES = ("plain", "partialformer", "anthe", "edgeformer")
RECIPE = Recipe(steps=1, precision="fp32", device="cpu", compile="no", label_smoothing=0.1)


def family(name: str) -> ModelSpec:
    """An architecture of spaces/small with width 32."""
    space = read_space(find_file(f"small/{name}", "spaces")).with_overrides({"width": "32"})
    return space.single_architecture()


def model_of(architecture: ModelSpec, seed: int = 1) -> Seq2SeqModel:
    return build_model(architecture.block, vocab=VOCAB, seed=seed)


def sentences(count: int = 12, seed: int = 0) -> Split:
    """Pairs with 1 to 9 tokens per side."""
    rng = Random(seed)

    def line() -> list[int]:
        return [rng.randrange(4, VOCAB) for _ in range(rng.randint(1, 9))]

    return Split.from_lists([line() for _ in range(count)], [line() for _ in range(count)])


def shuffled(split: Split, seed: int = 1) -> Split:
    order = list(range(len(split)))
    Random(seed).shuffle(order)
    rows = [[[int(token) for token in side[i]] for i in order]
            for side in (split.source_ids, split.target_ids)]
    return Split.from_lists(*rows)


def engine_of(model: Seq2SeqModel) -> Engine:
    return Engine(model, RECIPE, Hardware.from_recipe(RECIPE))
