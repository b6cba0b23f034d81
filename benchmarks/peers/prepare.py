"""Inputs of all systems: tokenized sentences, sentences to decode, initial weights."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from scalesearch_system import architecture

from scalesearch.blocks.embedding import sinusoidal_positions
from scalesearch.data import Corpus, Split
from scalesearch.nn import build_model
from scalesearch.training.input_files import load_data

SPECIALS = 4  # PAD, UNK, BOS, EOS are the first ids; every toolkit puts its own four first as well


def prepare(job: dict[str, Any]) -> int:
    """Fill the job's folder; the number of distinct weights of the network.

    Text is the pieces' ids, separated by blanks, so all toolkits get the same tokens.
    """
    folder = Path(job["folder"])
    corpus = load_data(job["data"])
    folder.mkdir(parents=True, exist_ok=True)
    words = [str(i) for i in range(SPECIALS, corpus.tokenizer.vocab_size)]
    (folder / "vocabulary").write_text("\n".join(words) + "\n")
    for side in ("src", "tgt"):
        (folder / f"dict.{side}.txt").write_text("".join(f"{word} 1\n" for word in words))
    # as JoeyNMT (and OpenNMT-py) and as fairseq name files
    for name in ("joey-train", "train.src-tgt"):
        _write(folder / name, corpus.train)
    (folder / "sources").write_text("\n".join(sources(corpus, job["length"], job["sentences"]))
                                    + "\n")
    (folder / "joey-test.src").write_text((folder / "sources").read_text())
    return _weights(job, corpus)


def sources(corpus: Corpus, length: int, count: int) -> list[str]:
    """Test text cut into ``count`` sources of ``length`` places, EOS included."""
    ids = [word for row in corpus.test.source_ids for word in row.tolist() if word >= SPECIALS]
    n_ids = count * (length - 1)
    ids = (ids * (1 + n_ids // len(ids)))[:n_ids]
    return [" ".join(map(str, ids[i : i + length - 1])) for i in range(0, n_ids, length - 1)]


def _write(path: Path, split: Split) -> None:
    for side, sequences in (("src", split.source_ids), ("tgt", split.target_ids)):
        text = "\n".join(" ".join(map(str, row.tolist())) for row in sequences)
        Path(f"{path}.{side}").write_text(text + "\n")


def _weights(job: dict[str, Any], corpus: Corpus) -> int:
    """Our first weights, for a decoder that only reads trained models."""
    model = build_model(architecture(job).block, vocab=corpus.tokenizer.vocab_size, seed=1)
    weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
    positions = sinusoidal_positions(torch.arange(512), job["width"], torch.float32).numpy()
    table = weights["embedding.source.table.weight"]
    np.savez(Path(job["folder"], "weights.npz"), table=table, positions=positions, **weights)
    return sum(weight.numel() for weight in model.parameters())
