"""OpenNMT-py 3.5.1: its dynamic iterator, model, ``Trainer`` step and ``Translator``.

Modules that only some of its transforms need may be missing: an empty one is used for each.
"""

import importlib.util
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

for _name in ("spacy", "ahocorasick", "rapidfuzz", "fasttext", "pyonmttok", "subword_nmt"):
    if importlib.util.find_spec(_name) is None:
        sys.modules[_name] = MagicMock()
        sys.modules[f"{_name}.apply_bpe"] = MagicMock()

import torch  # noqa: E402
from onmt.constants import CorpusTask  # noqa: E402
from onmt.inputters.dynamic_iterator import build_dynamic_dataset_iter  # noqa: E402
from onmt.model_builder import build_model  # noqa: E402
from onmt.opts import train_opts, translate_opts  # noqa: E402
from onmt.train_single import _init_train  # noqa: E402
from onmt.trainer import build_trainer  # noqa: E402
from onmt.translate import GNMTGlobalScorer, Translator  # noqa: E402
from onmt.utils import Statistics  # noqa: E402
from onmt.utils.optimizers import Optimizer  # noqa: E402
from onmt.utils.parse import ArgumentParser  # noqa: E402


class System:
    """The trainer of ``onmt_train``, run update by update."""

    def __init__(self, job: dict[str, Any]) -> None:
        torch.set_num_threads(1)
        self.job = job
        self.opt = _options(job)
        _, self.vocabs, self.transforms = _init_train(self.opt)
        self.model = build_model(self.opt, self.opt, self.vocabs, None, -1)
        optimizer = Optimizer.from_opt(self.model, self.opt)
        self.trainer = build_trainer(self.opt, -1, self.model, self.vocabs, optimizer)
        data = build_dynamic_dataset_iter(self.opt, self.transforms, self.vocabs,
                                          task=CorpusTask.TRAIN, device_id=-1)
        self.batches = self.trainer._accum_batches(data)
        self.stats = Statistics(), Statistics()
        self.lines = Path(job["folder"], "sources").read_text().splitlines()

    def update(self) -> int:
        """One step; its target tokens."""
        batches, normalization = next(self.batches)
        self.trainer._gradient_accumulation(batches, normalization, *self.stats)
        pad = self.trainer.train_loss.padding_idx
        return sum(int(batch["tgt"][:, 1:, 0].ne(pad).sum()) for batch in batches)

    def decode(self, beam: int) -> list[int]:
        """Tokens of each translation."""
        self.model.eval()
        parser = ArgumentParser()
        translate_opts(parser)
        length = self.job["length"]
        size = self.job["batch"]
        opt = parser.parse_args([
            "-model", "none", "-src", "none", f"-beam_size={beam}", f"-min_length={length}", f"-max_length={length}",
            f"-batch_size={size}", "-batch_type=sents", "-gpu=-1"])  # fmt: skip
        opt.transforms = []
        opt.data_task = "seq2seq"
        translator = Translator.from_opt(self.model, self.vocabs, opt, self.opt,
                                         GNMTGlobalScorer.from_opt(opt), report_score=False)
        data = build_dynamic_dataset_iter(opt, self.transforms, self.vocabs, task=CorpusTask.INFER,
                                          src=self.lines, device_id=-1)
        lengths = []
        with torch.no_grad():
            for batch, _ in data:
                result = translator.translate_batch(batch, attn_debug=False)
                lengths += [len(best[0]) for best in result["predictions"]]
        return [min(count, length) for count in lengths]


def _options(job: dict[str, Any]) -> Any:
    """Return the options of the command line of ``onmt_train``."""
    folder = job["folder"]
    config = Path(folder, "opennmt.yaml")
    config.write_text(f"data: {{corpus: {{path_src: {folder}/joey-train.src, path_tgt: "
                      f"{folder}/joey-train.tgt}}}}\n")
    inner = job["dropout"] if job["inner_dropout"] else 0.0
    parser = ArgumentParser()
    train_opts(parser)
    opt = parser.parse_args([
        "-config", str(config), "-src_vocab", f"{folder}/vocabulary", "-share_vocab", f"-save_data={folder}/opennmt",
        f"-save_model={folder}/opennmt", f"-layers={job['depth']}", f"-hidden_size={job['width']}",
        f"-word_vec_size={job['width']}", f"-heads={job['heads']}", f"-transformer_ff={job['hidden']}",
        "-encoder_type=transformer", "-decoder_type=transformer", "-position_encoding", "-share_embeddings",
        "-share_decoder_embeddings", "-dropout", str(job["dropout"]), "-attention_dropout", str(inner),
        "-label_smoothing=0.1", "-optim=adam", "-adam_beta2=0.98", "-learning_rate=1e-4", "-max_grad_norm=1",
        "-batch_type=tokens", f"-batch_size={job['max_tokens']}", "-normalization=tokens", "-accum_count", "1",
        "-bucket_size=30000", "-num_workers=0", "-seed=1"])  # fmt: skip
    ArgumentParser.validate_train_opts(opt)
    ArgumentParser.update_model_opts(opt)
    ArgumentParser.validate_model_opts(opt)
    return opt
