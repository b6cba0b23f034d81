"""Entry point of the trainer: architecture, corpus and recipe to a result."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from scalesearch.blocks.core import Block
from scalesearch.blocks.embedding import AdaptiveOutput
from scalesearch.blocks.seq2seq import DecoderOnly
from scalesearch.data import BatchStream, Corpus
from scalesearch.errors import UserError, error_context, option
from scalesearch.files import DiskFullError
from scalesearch.nn.causality import CausalityError, check_causality
from scalesearch.nn.model import Seq2SeqModel
from scalesearch.signals import SignalInterrupt, deferred_signals
from scalesearch.spaces.assembly.architecture import ModelSpec
from scalesearch.terminal import format_count
from scalesearch.training import checkpoint
from scalesearch.training.checkpoint import Checkpoint
from scalesearch.training.effort import START, Effort, TrainingTimer
from scalesearch.training.finish import OpenArtifact, finish
from scalesearch.training.hardware import (
    Hardware,
    TrainingFailedError,
    estimate_run_seconds,
    estimate_update_flops,
    is_out_of_memory,
)
from scalesearch.training.loop import ReportFunction, TrainingRun
from scalesearch.training.recipe import (
    DECODE_WITH_MODEL,
    Recipe,
    check_compatible,
    check_model_type,
)
from scalesearch.training.result import RESULT_FILE, Result, package_versions
from scalesearch.training.scoring import proxies as zero_cost
from scalesearch.training.scoring.evaluate import check_beam, check_lengths
from scalesearch.training.scoring.measure import PeakMemory
from scalesearch.training.updates.captured import build_engine, choose_buckets, measure_precision
from scalesearch.training.updates.engine import build_initial_model


def train(architecture: ModelSpec, corpus: Corpus, recipe: Recipe, directory: Path | str,
          seed: int = 1, report: ReportFunction | None = None, resume: bool = True,
          until_share: float = 1.0, with_proxies: bool = False,
          open_artifact: OpenArtifact | None = None, start_seconds: float = 0.0,
          initial_model: Checkpoint | None = None) -> Result:
    """Train and score an architecture; write all files to ``directory``.

    With ``resume``, a complete result in ``directory`` is returned unchanged, and an interrupted
    run continues. With a budget of updates, tokens or epochs, it then ends with the same numbers on
    the same machine, to the last bit. The global random number generators of PyTorch are seeded.

    Args:
        architecture: a :class:`scalesearch.spaces.assembly.architecture.ModelSpec`.
        seed: seed of the initial weights, the order of batches and dropout.
        report: callback for progress; its argument is a mapping with a ``type`` of update,
            validation, decode or done.
        until_share: share of the budget after which to pause. A later call with a larger share
            continues.
        with_proxies: also compute zero-cost proxies of the initial weights; see
            :func:`.proxies.compute_proxies`.
        open_artifact: opens the exported model of ``decode_with``; see
            :mod:`scalesearch.export.base`.
        start_seconds: time from the start of the worker to this call, for ``phases``.
        initial_model: trained model whose weights training starts from, with a new optimizer.

    Returns:
        The result, also written to ``directory/result.json`` unless it is ``paused``; then its only
        metric is the validation loss. Divergence, lack of memory and a model that is not causal
        give ``failed`` results with a reason.

    Raises:
        UserError: ``directory`` holds another training run, the recipe needs a missing GPU, or the
            task needs another model type or a package that is not installed.
        DiskFullError: a checkpoint or a result cannot be written; the last checkpoint is kept.
        SignalInterrupt: Ctrl-C or SIGTERM, after saving; a complete result is on disk.
    """
    timer = TrainingTimer()
    timer.phases[START] += start_seconds
    folder = Path(directory)
    report_event = report or (lambda event: None)
    _check_compatible(architecture, corpus, recipe, open_artifact)
    initial = _describe_initial_model(initial_model, architecture, corpus)
    identity = checkpoint.run_identity(architecture, corpus, recipe, seed, initial.get("weights"))
    complete, state = _find_earlier_run(folder, identity) if resume else (None, None)
    if complete is not None:
        return complete
    hardware = _choose_hardware(architecture.block, corpus, recipe)
    result = Result("complete", device=hardware.name, dtype=hardware.dtype, seed=seed,
                    recipe=recipe.model_dump(), corpus_hash=corpus.content_hash,
                    architecture_id=architecture.id, versions=package_versions(),
                    initial_model=initial)
    checkpoint.write_description(folder, architecture, corpus, recipe)
    with deferred_signals() as stop_signal, _record_failures(result):
        model = build_initial_model(architecture.block, corpus.tokenizer.vocab_size, recipe, seed)
        if initial_model is not None:
            model.load_state_dict(initial_model.model.state_dict())
        result.n_params = sum(weight.numel() for weight in model.parameters())
        _check_model(model, corpus, recipe)
        proxies = ({"proxies": zero_cost.compute_proxies(model, corpus, hardware.device)}
                   if with_proxies else {})
        model = model.to(hardware.device).train()
        hardware, notes = _choose_shapes(model, corpus, recipe, hardware)
        hardware = _choose_precision(model, corpus, recipe, hardware, seed, state)
        result.dtype = hardware.dtype
        engine = build_engine(model, recipe, hardware)
        run = TrainingRun(engine, corpus, recipe, folder, seed, stop_signal, report_event, timer)
        run.notes += notes
        run.identity = identity
        _train_and_score(run, state, result, until_share, open_artifact)
        result.metrics |= proxies
    if result.state != "paused":
        result.write(folder)
    # Delete the state only now: if scoring or writing fails, the run can continue from it.
    if result.state == "complete":
        (folder / checkpoint.STATE_FILE).unlink(missing_ok=True)
        run.snapshots.clear()
    report_event({"type": "done", "state": result.state, "reason": result.reason})
    # Ctrl-C that came too late to interrupt anything must still reach the caller, which may have
    # more to train.
    stop_signal.raise_if_requested()
    return result


def _find_earlier_run(folder: Path, identity: dict[str, Any]
                      ) -> tuple[Result | None, dict[str, Any] | None]:
    """Return the complete result in ``folder``, or the state of an interrupted run.

    Raises:
        UserError: ``folder`` holds another training run.
    """
    earlier = Result.read(folder)
    if earlier is not None and earlier.state == "complete":
        stored = checkpoint.finished_run_identity(earlier, folder)
        checkpoint.check_identity(stored, identity, folder)
        return earlier, None
    state = checkpoint.load_state(folder)
    if state is not None:
        checkpoint.check_identity(state["identity"], identity, folder)
    return None, state


def _check_compatible(architecture: ModelSpec, corpus: Corpus, recipe: Recipe,
                      open_artifact: OpenArtifact | None) -> None:
    """Check that model, data and recipe fit together.

    Raises:
        UserError: they do not.
    """
    check_compatible(corpus.spec, recipe)
    if recipe.decode_with != DECODE_WITH_MODEL and open_artifact is None:
        raise UserError(
            f"decode_with: {recipe.decode_with} needs a function that exports the model",
            help="pass open_artifact=scalesearch.export.base.artifact_decoder",
            code="exporter-missing")
    check_model_type(corpus.spec.task, architecture.config["model"])
    tokenizer = corpus.tokenizer
    vocab, target_vocab = architecture.vocab_sizes
    if tokenizer.is_pair and target_vocab is None:
        raise UserError(f"the data have a target vocabulary of {tokenizer.target.vocab_size:,} "
                        "entries, and the architecture has one vocabulary for both sides",
                        help=f"set target_vocab: {tokenizer.target.vocab_size} in the architecture",
                        key="target_vocab", code="vocab-mismatch")
    if target_vocab is not None and not tokenizer.is_pair:
        raise UserError(f"the architecture has a target vocabulary of {target_vocab:,} entries, "
                        "and the data have one vocabulary for both sides",
                        help=f"set target_vocab: {target_vocab} in the data", key="target_vocab",
                        code="vocab-mismatch")
    if mismatch := corpus.class_mismatch(architecture.config.get("classes")):
        reason, fix = mismatch
        raise UserError(f"classes: {reason}", help=fix, key="classes", code="class-mismatch")
    for key, size, entries in (("vocab", vocab, tokenizer.vocab_size),
                               ("target_vocab", target_vocab, tokenizer.target.vocab_size)):
        if size not in (None, entries):
            raise UserError(f"the architecture fixes {key}: {size:,}, and the data have "
                            f"{entries:,} entries",
                            help="load the data with this size (DataSpec.with_vocab)", key=key,
                            code="vocab-mismatch")
    with error_context("recipe.beam"):
        check_beam(recipe.beam, tokenizer.target.vocab_size)


def _describe_initial_model(model: Checkpoint | None, architecture: ModelSpec,
                            corpus: Corpus) -> dict[str, str]:
    """Return folder and hash of the weights of an initial model; empty without one.

    Raises:
        UserError: it has another architecture, vocabulary, task or case than the run.
    """
    if model is None:
        return {}
    assert model.folder is not None, "an initial model is read from a folder"
    differing = [name for name, differs in (
        ("architecture", model.architecture.id != architecture.id),
        ("vocabulary", model.tokenizer != corpus.tokenizer),
        ("task", model.spec.task != corpus.spec.task),
        ("lowercase", model.spec.lowercase != corpus.spec.lowercase)) if differs]
    if differing:
        raise UserError(f"{model.folder}: its {' and its '.join(differing)} differ from those of "
                        "the training run: it cannot start from these weights",
                        code="models-incompatible")
    return {"folder": str(model.folder), "weights": checkpoint.hash_weights(model.folder)}


@contextmanager
def _record_failures(result: Result) -> Iterator[None]:
    """Context that records divergence, lack of memory or causality as a failure."""
    try:
        yield
    except (TrainingFailedError, CausalityError) as error:
        result.state = "failed"
        result.reason = str(error)
    except UserError as error:
        if error.code != "sentence-too-long":  # of source, padding and target in one sequence
            raise
        result.state = "failed"
        result.reason = str(error)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        message = str(error).partition("\n")[0] or type(error).__name__
        result.state = "failed"
        result.reason = f"out of memory on {result.device}: {message}"


def _choose_hardware(block: Block, corpus: Corpus, recipe: Recipe) -> Hardware:
    """Choose the hardware by the size of the updates and the length of the run."""
    update_flops = estimate_update_flops(block, corpus.tokenizer.vocab_size, recipe)
    epoch_tokens = int(corpus.train.target_ids.lengths.sum())
    return Hardware.from_recipe(recipe, update_flops,
                                estimate_run_seconds(recipe, update_flops, epoch_tokens))


def _check_model(model: Seq2SeqModel, corpus: Corpus, recipe: Recipe) -> None:
    """Check that the model can be trained on the corpus, and that it is causal.

    Raises:
        TrainingFailedError: it cannot.
        CausalityError: an output depends on later inputs.
    """
    output = model.output.block
    if corpus.train.soft_targets is not None and isinstance(output, AdaptiveOutput) and len(
            output.bands()) > 1:
        raise TrainingFailedError("soft targets need a single softmax over the vocabulary, and "
                                  "this model has several bands (adaptive softmax)")
    check_lengths(model, corpus, recipe)
    check_causality(model, corpus.tokenizer.common_vocab_size)


def _choose_shapes(model: Seq2SeqModel, corpus: Corpus, recipe: Recipe,
                   hardware: Hardware) -> tuple[Hardware, list[str]]:
    """Return the hardware without fixed shapes if a model has too few learned positions.

    Batches of fixed shapes have more padding. The second value is a list of notes.
    """
    if not hardware.has_fixed_shapes or model.max_length is None:
        return hardware, []
    buckets = choose_buckets(corpus, recipe)
    width = buckets.shapes(corpus.train)[-1][1]
    is_joined = isinstance(model.block, DecoderOnly)
    n_positions = width + (buckets.source_width or width) if is_joined else width
    if n_positions <= model.max_length:
        return hardware, []
    return replace(hardware, has_fixed_shapes=False), [
        "batches have no fixed shapes: the learned positions do not suffice for their padding"]


def _choose_precision(model: Seq2SeqModel, corpus: Corpus, recipe: Recipe, hardware: Hardware,
                      seed: int, state: dict[str, Any] | None) -> Hardware:
    """Return the hardware with the faster precision, if a run is long enough to measure it.

    A resumed run keeps the precision of ``state``.
    """
    if not hardware.measures_precision:
        return hardware
    if state is not None:
        return replace(hardware, uses_bf16=bool(state.get("uses_bf16", hardware.uses_bf16)))
    buckets = choose_buckets(corpus, recipe) if hardware.has_fixed_shapes else None
    batch_stream = BatchStream(corpus.train, recipe.max_tokens, seed, buckets=buckets)
    batches = batch_stream.take(recipe.accumulate)
    return replace(hardware, uses_bf16=measure_precision(model, recipe, hardware, batches))


def _train_and_score(run: TrainingRun, state: dict[str, Any] | None, result: Result,
                     until_share: float, open_artifact: OpenArtifact | None) -> None:
    """Train to the end and score, or train to a pause; save on interruption."""
    folder = run.directory
    peak_memory = PeakMemory(run.engine.hardware.device)
    if state is not None:
        run.restore(state)
    else:
        # of an earlier run
        for name in (checkpoint.STATE_FILE, checkpoint.WEIGHTS_FILE, RESULT_FILE):
            (folder / name).unlink(missing_ok=True)
        run.snapshots.clear()
    try:
        if not run.train(until_share):
            result.state = "paused"
            result.metrics = run.measure_validation_loss()
            return
        memory = peak_memory.read() if run.recipe.measure in ("memory", "both") else {}
        result.metrics = {**finish(run, open_artifact), **memory}
    except SignalInterrupt as interrupt:
        run.save()
        raise SignalInterrupt(f"{interrupt}: saved after "
                              f"{format_count(run.budget_used.steps, 'update')} in "
                              f"{folder}; continue with {option('resume')}",
                              interrupt.signal_number) from None
    except DiskFullError as error:
        updates = format_count(run.budget_used.steps, "update")
        raise DiskFullError(f"{error} with {option('resume')}: {updates} done") from error
    finally:
        used = run.budget_used
        result.curve = run.curve
        result.notes = run.notes + run.engine.notes
        result.stop_reason = run.stop_reason
        result.steps = used.steps
        result.tokens = used.tokens
        result.seconds = used.seconds
        result.cpu_seconds = used.cpu_seconds
        result.efforts = run.timer.efforts()
        result.phases = dict(run.timer.phases)
        total = sum(result.efforts.values(), Effort())
        result.total_seconds = total.seconds
        result.total_cpu_seconds = total.cpu_seconds
        result.tokens_per_cpu_second = used.tokens / used.cpu_seconds if used.cpu_seconds else 0.0
