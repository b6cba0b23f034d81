"""Trains an architecture on a corpus by a recipe: the trainer's entry point."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scalesearch.blocks.embedding import AdaptiveOutput
from scalesearch.blocks.seq2seq import DecoderOnly
from scalesearch.data import Corpus
from scalesearch.errors import UserError
from scalesearch.files import DiskFullError
from scalesearch.nn.causality import CausalityError, check_causality
from scalesearch.signals import SignalInterrupt, deferred_signals
from scalesearch.train import checkpoint
from scalesearch.train.effort import Effort, TrainingTimer
from scalesearch.train.finish import OpenArtifact, finish
from scalesearch.train.hardware import Hardware, TrainingFailedError, is_out_of_memory
from scalesearch.train.loop import ReportFunction, TrainingRun
from scalesearch.train.parallel.gradients import build_leader, run_follower
from scalesearch.train.parallel.team import Team, local_team
from scalesearch.train.recipe import DECODE_WITH_MODEL, Recipe, check_compatible, check_model_type
from scalesearch.train.result import RESULT_FILE, Result, package_versions
from scalesearch.train.scoring import proxies as zero_cost
from scalesearch.train.scoring.evaluate import check_lengths
from scalesearch.train.scoring.measure import PeakMemory
from scalesearch.train.updates.engine import Engine, build_initial_model


def train(architecture: Any, corpus: Corpus, recipe: Recipe, directory: Path | str, seed: int = 1,
          report: ReportFunction | None = None, resume: bool = True, until_share: float = 1.0,
          processes: int = 1, team: Team | None = None, with_proxies: bool = False,
          open_artifact: OpenArtifact | None = None) -> Result:
    """Trains ``architecture`` on ``corpus`` and scores it; writes all files to ``directory``.

    With ``resume``, a complete result in ``directory`` is returned as it is, and an interrupted run
    is resumed with the same outcome (to the bit with a budget of updates, tokens or epochs on the
    same machine). The global random number generators of PyTorch are seeded.

    Args:
        architecture: a :class:`scalesearch.space.assembly.architecture.ModelSpec`.
        seed: of the initial weights, the order of batches and dropout.
        report: callback for progress, a mapping whose ``kind`` is update, validation, decode or
            done.
        until_share: share of the budget after which to pause: the state is saved, and a call with a
            larger one resumes.
        processes: number of processes on this machine that share each update, on CPUs or with a GPU
            each. The sentences
            of an update stay the same, and without dropout so do the losses, but for rounding.
        team: processes that are running already, of which this one leads; the others do
            :func:`parallel.follow`.
        open_artifact: makes what translates where the recipe says ``decode_with``; see
            :mod:`scalesearch.export.scoring`.
        with_proxies: also compute the zero-cost proxies of the initial weights; see
            :func:`.proxies.proxies`.

    Returns:
        The result, also written to ``directory/result.json`` unless it is ``paused``; then the
        validation loss is its
        only metric. Divergence, lack of memory and a model that is not causal are ``failed``
        results with a reason.

    Raises:
        UserError: ``directory`` holds another training, a recipe asks for GPUs that are not there,
            or the task needs
            another kind of model or a package that is not installed.
        DiskFull: a checkpoint or a result cannot be written; the last checkpoint is as it was.
        ProcessLost: one of the other processes ended; the last checkpoint is kept.
        Interrupted: Ctrl-C or SIGTERM, after saving; a result that was complete by then is on disk.
    """
    folder = Path(directory)
    tell = report or (lambda event: None)
    meter = TrainingTimer()
    _check_compatible(architecture, corpus, recipe, open_artifact)
    done = Result.read(folder) if resume else None
    processes = team.size if team else processes
    wanted = checkpoint.run_identity(architecture, corpus, recipe, seed, processes)
    if done is not None and done.state == "complete":
        checkpoint.check_identity(checkpoint.finished_run_identity(done, folder), wanted, folder)
        return done
    hardware = Hardware.from_recipe(recipe)
    result = Result("complete", device=hardware.name, dtype=hardware.dtype, seed=seed,
                    recipe=recipe.to_json(), corpus_hash=corpus.content_hash,
                    architecture_id=architecture.id, versions=package_versions(),
                    processes=processes)
    checkpoint.write_description(folder, architecture, corpus, recipe)
    with deferred_signals() as stop, _process_team(
            processes, team, recipe, hardware) as members, _record_failures(result):
        model = build_initial_model(architecture.block, corpus.tokenizer.vocab_size, recipe, seed)
        result.n_params = sum(weight.numel() for weight in model.parameters())
        _check_soft_targets(model, corpus)
        check_lengths(model, corpus, recipe)
        check_causality(model, corpus.tokenizer.vocab_size)
        scores = ({"proxies": zero_cost.compute_proxies(model, corpus, hardware.device)}
                  if with_proxies else {})
        engine = _build_engine(model, architecture, corpus, recipe, seed, hardware, members)
        run = TrainingRun(engine, corpus, recipe, folder, seed, stop, tell, meter)
        run.identity = wanted
        _train_and_score(run, resume, result, until_share, open_artifact)
        result.metrics |= scores
    if result.state != "paused":
        result.write(folder)
    # not before: what is lost while it is scored or written can go on from there
    if result.state == "complete":
        (folder / checkpoint.STATE_FILE).unlink(missing_ok=True)
        run.snapshots.clear()
    tell({"type": "done", "state": result.state, "reason": result.reason})
    # Ctrl-C too late to interrupt anything must still reach the caller, who may have more to train.
    stop.raise_if_requested()
    return result


def _check_compatible(architecture: Any, corpus: Corpus, recipe: Recipe,
                      open_artifact: OpenArtifact | None) -> None:
    """Checks that model, data and recipe go together. Raises UserError."""
    check_compatible(corpus.spec, recipe)
    if recipe.decode_with != DECODE_WITH_MODEL and open_artifact is None:
        raise UserError(f"decode_with: {recipe.decode_with} needs what makes artifacts",
                        help="pass artifacts=scalesearch.export.scoring.artifact_decoder",
                        code="exporter-missing")
    kind = "decoder-only" if isinstance(architecture.block, DecoderOnly) else "encoder-decoder"
    check_model_type(corpus.spec.task, kind)
    if architecture.vocab not in (None, corpus.tokenizer.vocab_size):
        raise UserError(f"the architecture has a vocabulary of {architecture.vocab:,} of its own, "
                        f"and the data {corpus.tokenizer.vocab_size:,} entries",
                        help="load the data at that size (DataSpec.at)", code="vocab-mismatch")


@contextmanager
def _record_failures(result: Result) -> Iterator[None]:
    """Context in which divergence, a model that is not causal and lack of memory make ``result`` a failed one."""
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
        why = str(error).partition("\n")[0] or type(error).__name__
        result.state = "failed"
        result.reason = f"out of memory on {result.device}: {why}"


def _check_soft_targets(model: Any, corpus: Corpus) -> None:
    output = model.output.block
    if corpus.train.soft_targets is not None and isinstance(output, AdaptiveOutput) and len(
            output.bands()) > 1:
        raise TrainingFailedError("soft targets are of one softmax over the vocabulary, and this "
                                  "model's has bands")


def _build_engine(model: Any, architecture: Any, corpus: Corpus, recipe: Recipe, seed: int,
                  hardware: Hardware, team: Team | None) -> Engine:
    model = model.to(hardware.device).train()
    if team is None:
        return Engine(model, recipe, hardware)
    return build_leader(model, architecture, corpus.tokenizer.vocab_size, recipe, seed, hardware,
                        team)


@contextmanager
def _process_team(processes: int, team: Team | None, recipe: Recipe,
                  hardware: Hardware) -> Iterator[Team | None]:
    """Context with the team that shares updates: given, new, or None for one process."""
    if team is not None or processes == 1:
        yield team
        return
    if processes < 1:
        raise UserError(f"processes: expected at least 1, found {processes}", code="below-one")
    with local_team(processes, hardware.device.type == "cuda", recipe.threads,
                    run_follower) as started:
        yield started


def _train_and_score(run: TrainingRun, resume: bool, result: Result, until_share: float,
                     open_artifact: OpenArtifact | None) -> None:
    """Trains to the end and scores, or to a pause; saves when interrupted."""
    folder = run.directory
    peak = PeakMemory(run.engine.hardware.device)
    state = checkpoint.load_state(folder) if resume else None
    if state is not None:
        checkpoint.check_identity(state["identity"], run.identity, folder)
        run.restore(state)
    else:
        # that an earlier run has left
        for name in (checkpoint.STATE_FILE, checkpoint.WEIGHTS_FILE, RESULT_FILE):
            (folder / name).unlink(missing_ok=True)
        run.snapshots.clear()
    try:
        if not run.train(until_share):
            result.state = "paused"
            result.metrics = run.measure_validation_loss()
            return
        used = peak.read() if run.recipe.measure in ("memory", "both") else {}
        result.metrics = {**finish(run, open_artifact), **used}
    except SignalInterrupt as stopped:
        run.save()
        raise SignalInterrupt(f"{stopped}: saved after {run.budget_used.steps} updates in "
                              f"{folder}; go on with --resume", stopped.signal_number) from None
    except DiskFullError as full:
        raise DiskFullError(
            f"{full} with --resume: {run.budget_used.steps} updates were done") from full
    finally:
        _copy_measurements(run, result)


def _copy_measurements(run: TrainingRun, result: Result) -> None:
    """Copies what a run has measured to its result."""
    spent = run.budget_used
    result.curve = run.curve
    result.notes = run.notes
    result.stop_reason = run.stop_reason
    result.steps = spent.steps
    result.tokens = spent.tokens
    result.seconds = spent.seconds
    result.cpu_seconds = spent.cpu_seconds
    result.efforts = run.timer.efforts()
    total = sum(result.efforts.values(), Effort())
    result.total_seconds = total.seconds
    result.total_cpu_seconds = total.cpu_seconds
    result.tokens_per_cpu_second = spent.tokens / spent.cpu_seconds if spent.cpu_seconds else 0.0
