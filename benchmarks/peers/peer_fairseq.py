"""fairseq 0.12.2: its task, batches, model, criterion and ``Trainer``, and its ``SequenceGenerator``.

On Python 3.11 its command line does not start: dataclasses with mutable defaults (fairseq's and
Hydra's) are refused. They are accepted if hashable, so those two packages' dataclasses are made so
here; nothing else is changed.
"""

import dataclasses
import functools
from argparse import Namespace
from pathlib import Path
from typing import Any

_dataclass = dataclasses.dataclass


def _hashable(cls: Any = None, **settings: Any) -> Any:
    if cls is None:
        return functools.partial(_hashable, **settings)
    if cls.__module__.split(".")[0] in ("fairseq", "hydra"):
        settings.setdefault("unsafe_hash", True)
    return _dataclass(cls, **settings)


dataclasses.dataclass = _hashable  # type: ignore[assignment]

import torch  # noqa: E402
from fairseq import options, tasks  # noqa: E402
from fairseq.data import iterators  # noqa: E402
from fairseq.dataclass.utils import convert_namespace_to_omegaconf  # noqa: E402
from fairseq.trainer import Trainer  # noqa: E402


class System:
    """The trainer of ``fairseq-train``, run update by update."""

    def __init__(self, job: dict[str, Any]) -> None:
        torch.set_num_threads(1)
        self.length = job["length"]
        self.batch = job["batch"]
        arguments = _arguments(job)
        parser = options.get_training_parser()
        cfg = convert_namespace_to_omegaconf(
            options.parse_args_and_arch(parser, input_args=arguments))
        self.cfg = cfg
        self.task = tasks.setup_task(cfg.task)
        self.task.load_dataset("train")
        self.model = self.task.build_model(cfg.model)
        self.trainer = Trainer(cfg, self.task, self.model, self.task.build_criterion(cfg.criterion))
        self.samples = self._samples()
        self.ready_to_generate = False
        lines = Path(job["folder"], "sources").read_text().splitlines()
        self.sources = [self.task.source_dictionary.encode_line(line, add_if_not_exist=False).long()
                        for line in lines]

    def _samples(self) -> Any:
        self.trainer.get_train_iterator(epoch=1)
        epochs = self.trainer.get_train_iterator(epoch=1)
        self.trainer.begin_epoch(1)
        while True:
            yield from iterators.GroupedIterator(epochs.next_epoch_itr(shuffle=True), 1)

    def update(self) -> int:
        """One step; its target tokens."""
        samples = next(self.samples)
        self.trainer.train_step(samples)
        return sum(int(sample["ntokens"]) for sample in samples)

    def decode(self, beam: int) -> list[int]:
        """Tokens of each translation."""
        if not self.ready_to_generate:  # as fairseq-generate prepares a model
            self.model.eval()
            self.model.prepare_for_inference_(self.cfg)
            self.ready_to_generate = True
        settings = Namespace(beam=beam, max_len_a=0, max_len_b=self.length, min_len=self.length,
                             lenpen=1.0)
        generator = self.task.build_generator([self.model], settings)
        hypotheses = []
        for start in range(0, len(self.sources), self.batch):
            piece = self.sources[start : start + self.batch]
            data = self.task.build_dataset_for_inference(piece, [len(line) for line in piece])
            sample = data.collater([data[i] for i in range(len(piece))])
            hypotheses += self.task.inference_step(generator, [self.model], sample)
        return [len(best[0]["tokens"]) - 1 for best in hypotheses]


def _arguments(job: dict[str, Any]) -> list[str]:
    """Return the command line of ``fairseq-train``."""
    inner = job["dropout"] if job["inner_dropout"] else 0.0
    sizes = [f"--{stack}-{name}={job[key]}" for stack in ("encoder", "decoder")
             for name, key in (("embed-dim", "width"), ("ffn-embed-dim", "hidden"),
                               ("attention-heads", "heads"), ("layers", "depth"))]
    return [
        job["folder"], "--dataset-impl=raw", "--source-lang=src", "--target-lang=tgt", "--arch=transformer", *sizes,
        "--encoder-normalize-before", "--decoder-normalize-before", "--share-all-embeddings",
        f"--dropout={job['dropout']}", f"--attention-dropout={inner}", f"--activation-dropout={inner}",
        "--criterion=label_smoothed_cross_entropy", "--label-smoothing=0.1", "--optimizer=adam",
        "--adam-betas=(0.9,0.98)", "--clip-norm=1.0", "--lr=1e-4", f"--max-tokens={job['max_tokens']}", "--cpu",
        "--num-workers=0", "--no-progress-bar", "--disable-validation", "--no-save", "--log-format=none", "--seed=1",
    ]  # fmt: skip


