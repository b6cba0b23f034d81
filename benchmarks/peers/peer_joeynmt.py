"""JoeyNMT 2.3.0: its dataset, token batches, model, ``TrainManager`` step and search.

Its step is called as its loop calls it (loss, clipping, Adam). Modules that only other tokenizers,
plots and logs need may be missing: each is replaced by an empty one.
"""

import importlib.util
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

for _name in ("subword_nmt", "matplotlib", "tensorboard"):
    if importlib.util.find_spec(_name) is None:
        for _module in (_name, f"{_name}.apply_bpe", f"{_name}.pyplot",
                        f"{_name}.backends.backend_pdf"):
            sys.modules[_module] = MagicMock()

import torch  # noqa: E402
from joeynmt.config import parse_global_args  # noqa: E402
from joeynmt.data import load_data  # noqa: E402
from joeynmt.model import build_model  # noqa: E402
from joeynmt.search import search  # noqa: E402
from joeynmt.training import TrainManager  # noqa: E402


class System:
    """The trainer of ``joeynmt train``, run update by update."""

    def __init__(self, job: dict[str, Any]) -> None:
        torch.set_num_threads(1)
        self.job = job
        args = parse_global_args(_config(job), mode="train")
        source, target, self.train_data, _, self.test_data = load_data(args.data, ["train", "test"])
        self.model = build_model(args.model, source, target)
        self.manager = TrainManager(0, self.model, Path(args.model_dir), torch.device("cpu"), 0, 0,
                                    args.autocast, 1, args.train, args.test)
        self.model.loss_function = ("crossentropy", 0.1)
        self.autocast = args.autocast
        self.batches = self._batches()

    def _batches(self) -> Any:
        epoch = 0
        while True:
            yield from self._iter(self.train_data, self.job["max_tokens"], "token", epoch, True)
            epoch += 1

    def _iter(self, data: Any, size: int, kind: str, seed: int, shuffle: bool) -> Any:
        return data.make_iter(size, kind, seed=seed, shuffle=shuffle, num_workers=0,
                              device=torch.device("cpu"), eos_index=self.model.eos_index,
                              pad_index=self.model.pad_index)

    def update(self) -> int:
        """One step; its target tokens."""
        batch = next(self.batches)
        manager = self.manager
        manager._train_step(batch)
        manager.clip_grad_fun(parameters=self.model.parameters())
        manager.optimizer.step()
        self.model.zero_grad()
        return int(batch.ntokens)

    def decode(self, beam: int) -> list[int]:
        """Tokens of each translation."""
        self.model.eval()
        length = self.job["length"]
        lengths = []
        for batch in self._iter(self.test_data, self.job["batch"], "sentence", 1, False):
            rows, _, _ = search(self.model, batch, length, beam, 1.0, min_output_length=length,
                                autocast=self.autocast)
            lengths += [len(row) for row in rows]
        return lengths


def _config(job: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a configuration file."""
    side = {"level": "word", "lowercase": False, "max_length": 1000,
            "voc_file": f"{job['folder']}/vocabulary"}
    stack = {"type": "transformer", "num_layers": job["depth"], "num_heads": job["heads"],
             "embeddings": {"embedding_dim": job["width"], "scale": True,
                            "dropout": job["dropout"]}, "hidden_size": job["width"],
             "ff_size": job["hidden"], "dropout": job["dropout"], "layer_norm": "pre"}
    return {
        "name": "peer", "joeynmt_version": "2.3.0", "model_dir": f"{job['folder']}/joeynmt", "use_cuda": False,
        "fp16": job["precision"] == "bf16", "random_seed": 1,
        "data": {"train": f"{job['folder']}/joey-train", "test": f"{job['folder']}/joey-test", "dataset_type": "plain",
                 "src": {"lang": "src", **side}, "trg": {"lang": "tgt", **side},
                 "special_symbols": {"unk_token": "<unk>", "unk_id": 0, "pad_token": "<pad>", "pad_id": 1,
                                     "bos_token": "<s>", "bos_id": 2, "eos_token": "</s>", "eos_id": 3}},
        "testing": {"beam_size": 5, "beam_alpha": 1.0, "batch_size": 64, "batch_type": "sentence"},
        "training": {"optimizer": "adam", "adam_betas": [0.9, 0.98], "learning_rate": 1e-4, "clip_grad_norm": 1.0,
                     "batch_size": job["max_tokens"], "batch_type": "token", "normalization": "tokens", "epochs": 1,
                     "label_smoothing": 0.1, "loss": "crossentropy", "scheduling": "exponential",
                     "batch_multiplier": 1},
        "model": {"initializer": "xavier_uniform", "embed_initializer": "xavier_uniform", "bias_initializer": "zeros",
                  "tied_embeddings": True, "tied_softmax": True, "encoder": stack, "decoder": stack},
    }  # fmt: skip
