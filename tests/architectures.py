"""Random and named architectures that tests share."""

from random import Random
from typing import Any

from scalesearch.blocks.embed import POSITIONS
from scalesearch.blocks.ffn import FFNS
from scalesearch.blocks.layers import NORMS
from scalesearch.blocks.seq2seq import TYINGS
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


def random_architecture(rng: Random) -> Architecture:
    """Any architecture of the catalogue, small; answers that cannot be built are drawn again."""
    while True:
        try:
            return assemble(_random_answers(rng))
        except Unbuildable:
            continue


def _random_answers(rng: Random) -> dict[str, Any]:
    drawn = answers(
        model="decoder-only" if rng.random() < 0.15 else "encoder-decoder",
        width=rng.randint(1, 12),
        norm=rng.choice(NORMS),
        embedding__tie=rng.choice(TYINGS),
        embedding__positions=rng.choice(POSITIONS),
        share__norms=rng.choice(["own", "follow"]),
        share__biases=rng.choice(["own", "follow"]),
        decoder__interleaved=rng.random() < 0.4,
    )
    for stack in ("encoder", "decoder"):
        del drawn[f"{stack}.ffn.hidden"]
        drawn |= _random_stack(rng, stack)
    for slot in ("encoder.attention", "encoder.ffn", "decoder.self", "decoder.cross", "decoder.ffn"):
        drawn[f"share.{slot}"] = random_schedule(rng, drawn[f"{slot.split('.')[0]}.depth"])
    if rng.random() < 0.25:
        _borrow(rng, drawn)
    return drawn


def _random_stack(rng: Random, stack: str) -> dict[str, Any]:
    score_heads = rng.randint(1, 3)
    drawn: dict[str, Any] = {
        "depth": rng.randint(1, 5),
        "heads": score_heads * rng.randint(1, 2),
        "head_dim": rng.randint(1, 5),
        "score_heads": score_heads,
        "ffn": rng.choice(list(FFNS)),
    }
    drawn |= {} if drawn["ffn"] == "none" else {"ffn.hidden": rng.randint(1, 12)}
    return {f"{stack}.{key}": value for key, value in drawn.items()}


def _borrow(rng: Random, drawn: dict[str, Any]) -> None:
    """Let the decoder's attention be the encoder's, as in EdgeFormer."""
    for key in ("heads", "score_heads", "head_dim"):
        drawn[f"decoder.{key}"] = drawn[f"encoder.{key}"]
    drawn["encoder.depth"] = 2 * drawn["decoder.depth"]
    drawn["share.encoder.attention"] = rng.choice(["own", "cycle(2)"])
    drawn["share.encoder.ffn"] = "own"
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
