"""Configurations and architectures that tests share."""

from typing import Any

from scalesearch.spaces.assembly.architecture import ModelSpec, assemble


def transformer_config(**changes: Any) -> dict[str, Any]:
    """The configuration of a small Transformer; ``encoder__depth=3`` sets ``encoder.depth``."""
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
        base |= {f"{stack}.depth": 2, f"{stack}.heads": 2, f"{stack}.head_dim": 4,
                 f"{stack}.score_heads": 2}
        base |= {f"{stack}.ffn": "relu", f"{stack}.ffn.hidden": 16}
    return base | {path.replace("__", "."): value for path, value in changes.items()}


def transformer(width: int, encoder: int, decoder: int, hidden: int | None = None,
                **changes: Any) -> ModelSpec:
    """A post-norm Transformer with 8 heads, FFNs of 4 · width and all embeddings tied."""
    sizes: dict[str, Any] = {"width": width, "norm": "post", "encoder.depth": encoder,
                             "decoder.depth": decoder}
    for stack in ("encoder", "decoder"):
        sizes |= {f"{stack}.heads": 8, f"{stack}.score_heads": 8, f"{stack}.head_dim": width // 8}
        sizes |= {f"{stack}.ffn.hidden": hidden or 4 * width}
    return assemble(transformer_config() | sizes
                    | {path.replace("__", "."): value for path, value in changes.items()})
