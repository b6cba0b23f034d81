"""Random and named architectures that tests share."""

from functools import cache
from random import Random
from typing import Any

from scalesearch.library import find_file
from scalesearch.space import Space, read_space
from scalesearch.space.architecture import Architecture, Unbuildable, assemble


def answers(**changes: Any) -> dict[str, Any]:
    """A small Transformer's answers; ``changes`` are written ``encoder__depth=3`` for ``encoder.depth``."""
    base = {
        "model": "encoder-decoder",
        "width": 8,
        "norm": "pre",
        "embedding.tie": "all",
        "embedding.positions": "sinusoidal",
        "embedding.max_length": 64,
        "share.norms": "own",
        "share.biases": "follow",
        "decoder.interleaved": False,
    }
    for stack in ("encoder", "decoder"):
        base |= {f"{stack}.depth": 2, f"{stack}.heads": 2, f"{stack}.head_dim": 4, f"{stack}.score_heads": 2}
        base |= {f"{stack}.ffn": "relu", f"{stack}.ffn.hidden": 16}
    return base | {path.replace("__", "."): value for path, value in changes.items()}


def transformer(width: int, encoder: int, decoder: int, hidden: int | None = None, **changes: Any) -> Architecture:
    """A post-norm Transformer with 8 heads and FFN of 4 · width, all embeddings one."""
    sizes: dict[str, Any] = {"width": width, "norm": "post", "encoder.depth": encoder, "decoder.depth": decoder}
    for stack in ("encoder", "decoder"):
        sizes |= {f"{stack}.heads": 8, f"{stack}.score_heads": 8, f"{stack}.head_dim": width // 8}
        sizes |= {f"{stack}.ffn.hidden": hidden or 4 * width}
    return assemble(answers() | sizes | {path.replace("__", "."): value for path, value in changes.items()})


SMALL = {
    "width": "4..24 step 2",
    "embedding.factorised.rank": "1..6",
    "embedding.adaptive.cutoffs": "[3, 7]",
    "embedding.max_length": "64",
    "encoder.depth": "1..4",
    "decoder.depth": "1..3",
    "share.encoder.ffn": "own | one | cycle(2..3) | sequence(2..3)",
    "adapt.lora.rank": "1..4",
    "adapt.lora.on": "[query, out, value]",
    "adapt.prompt.length": "1..3",
    "low_rank.attention": "off | 1..5 if tensor_chain.attention == off else off",
    "low_rank.ffn": "off | 1..5 if tensor_chain.ffn == off else off",
    **{f"{stack}.heads": "1 | 2 | 3 | 4 | 6" for stack in ("encoder", "decoder")},
    **{f"{stack}.head_dim": "1..5 | = max(1, width // heads)" for stack in ("encoder", "decoder")},
    **{f"{stack}.relative_clip": "1..3" for stack in ("encoder", "decoder")},
    **{f"{stack}.ffn.{kind}.hidden": "1..12" for stack in ("encoder", "decoder") for kind in ("relu", "swiglu")},
}


@cache
def slim() -> Space:
    """spaces/slim.yaml with sizes at which a thousand models can be run."""
    return read_space(find_file("slim", "spaces")).set(SMALL)


def random_architecture(rng: Random) -> Architecture:
    """Any architecture of spaces/slim.yaml, small, with any sharing; answers that cannot be built are drawn again."""
    while True:
        drawn = dict(slim().sample(rng))
        if rng.random() < 0.7:
            drawn["model"] = "encoder-decoder"  # which has more that can go wrong
        if rng.random() < 0.5:
            for slot in ("encoder.attention", "encoder.ffn", "decoder.self", "decoder.cross", "decoder.ffn"):
                drawn[f"share.{slot}"] = random_schedule(rng, drawn[f"{slot.split('.')[0]}.depth"])
        if rng.random() < 0.2:
            _borrow(rng, drawn)
        if rng.random() < 0.1 and drawn["encoder.depth"] > 2:
            drawn |= {"encoder.middle_width": rng.randint(2, 12), "share.encoder.attention": "sandwich"}
        try:
            if None not in drawn.values():  # a computed size that came out below 1
                return assemble(drawn)
        except Unbuildable:
            continue


def _borrow(rng: Random, drawn: dict[str, Any]) -> None:
    """Let the decoder's attention be the encoder's, as in EdgeFormer."""
    for path in [path for path in drawn if path.startswith("encoder.") and "ffn" not in path]:
        mine = path.replace("encoder.", "decoder.", 1)
        drawn[mine] = drawn[path]
    drawn |= {"decoder.cross_gate": drawn["encoder.gate"], "decoder.pg.on": "both", "decoder.depth": rng.randint(1, 2)}
    drawn["encoder.depth"] = 2 * drawn["decoder.depth"]
    for slot in ("encoder.ffn", "decoder.ffn"):
        drawn[f"share.{slot}"] = "own"
    drawn["share.encoder.attention"] = rng.choice(["own", "cycle(2)"])
    drawn |= {"share.decoder.self": "encoder.attention[2*i]", "share.decoder.cross": "encoder.attention[2*i + 1]"}


def random_schedule(rng: Random, depth: int) -> Any:
    """Any schedule that fits ``depth`` layers, as an answer."""
    first = rng.randint(1, depth)
    groups = rng.randint(1, 3)
    counted = f"{first}, {depth - first}" if first < depth else f"{depth}"
    return rng.choice(
        [
            "own",
            "one",
            "sandwich",
            f"cycle({groups})",
            f"sequence({groups})",
            f"reverse_cycle({groups})",
            f"runs({counted})",
            f"load({counted})",
            [rng.randint(0, 2) for _ in range(depth)],
        ]
    )
