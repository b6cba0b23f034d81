"""Beginning with another training's weights instead of the recipe's first ones."""

from pathlib import Path
from typing import Any

from scalesearch.data import Corpus
from scalesearch.errors import UserError
from scalesearch.nn.inherit import inherit
from scalesearch.train import checkpoint


def begin_with(model: Any, folder: Path, corpus: Corpus) -> dict[str, Any]:
    """Give ``model`` what it can have of the finished training in ``folder``; what a result says of that.

    Returns:
        ``from`` (the folder's name), ``architecture`` (its id), and of :class:`scalesearch.nn.inherit.Inherited`
        ``share`` of the weights, ``of`` so many, ``fresh``, ``kept``, ``why``.

    Raises:
        UserError: the folder is no finished training, or has another vocabulary.
    """
    found = checkpoint.read_checkpoint(folder)
    if found.tokenizer != corpus.tokenizer:
        raise UserError(f"{folder}: has another vocabulary than the data, so its weights cannot be begun with. Name a "
                        "training on the same data and vocab")
    weights, vocab = found.model.state_dict(), corpus.tokenizer.vocab_size
    taken = inherit(found.architecture, weights, model, vocab)
    return {"from": folder.name, "architecture": found.architecture.id, **taken.to_json()}
