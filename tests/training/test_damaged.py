"""Damaged checkpoints work or raise a user error, within bounded time."""

import hashlib
import io
import json
import os
import random
import shutil
import zipfile
from pathlib import Path

import pytest
import torch

from scalesearch.errors import UserError
from scalesearch.signals import SignalInterrupt
from scalesearch.training import Result, read_checkpoint, train
from scalesearch.training.input_files import load_data
from scalesearch.training.updates.averaging import read_weights, write_weights
from tests.bounds import bounded, invoke_bounded
from tests.corpora import write_text
from tests.errors import refuses
from tests.mutated import place_something_else
from tests.training.conftest import recipe, tiny
from tests.training.test_run import stop_at

JSON = ("recipe.json", "data.json", "result.json")
STRANGE = (None, True, -1, 0, 10**9, 10**400, 0.5, "", "NaN", "x" * 10_000, [], {}, [[]],
           {"a": {"b": None}}, "\ud800")
ODD_FILES = (b"", b"null", b"{}", b"[]", b"[" * 100_000, b"9" * 5000, b'{"a": NaN}', b"\0",
             b"\xff\xfe", b'{"spec": 3}')
ABSURD = (("width: 16", "width: 1000000000"), ("depth: 1", "depth: 100000000"),
          ("max_length: 128", "max_length: 1.5"), ("hidden:", "hidden: 100000000000000000000 #"),
          ("heads:", "heads: 3 #"), ("width: 16", "width: 32"))
NUMBERS = (torch.nan, torch.inf, -torch.inf, 3e38)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a parallel text, a finished run ``whole`` and an interrupted ``stopped``."""
    folder = tmp_path_factory.mktemp("trained")
    corpus = load_data(str(write_text(folder)))
    train(tiny(), corpus, recipe(beam=2), folder / "whole")
    with pytest.raises(SignalInterrupt):
        train(tiny(), corpus, recipe(), folder / "stopped", report=stop_at(4))
    return folder


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained / "whole", tmp_path / "copy"))


# -- random damage


def damage_files(folder: Path, rng: random.Random) -> None:
    """Damage one or two files of a run as disks, editors and copies do."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    for file in rng.sample(files, rng.choice([1, 1, 1, 2])):
        rng.choice(DAMAGES.get(file.name,
                               (*BYTES, *VALUES) if file.suffix == ".json" else BYTES))(file, rng)


def flip(file: Path, rng: random.Random) -> None:
    data = bytearray(file.read_bytes())
    position = rng.random()
    data[int(position * len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


def cut(file: Path, rng: random.Random) -> None:
    os.truncate(file, rng.randrange(file.stat().st_size))


def insert(file: Path, rng: random.Random) -> None:
    data = file.read_bytes()
    position = rng.randrange(len(data))
    file.write_bytes(data[:position] + rng.randbytes(rng.randint(1, 40)) + data[position:])


def replace(file: Path, rng: random.Random) -> None:
    file.write_bytes(rng.choice(ODD_FILES))


def remove(file: Path, rng: random.Random) -> None:
    file.unlink()
    if rng.random() < 0.5:
        place_something_else(file, rng)


def swap(file: Path, rng: random.Random) -> None:
    shutil.copy(rng.choice(sorted(path
                                  for path in file.parent.iterdir()
                                  if path.is_file() and path != file)), file)


def write_strange_value(file: Path, rng: random.Random) -> None:
    """Replace or remove a value at any depth."""
    whole = table = json.loads(file.read_text())
    if isinstance(whole, list):  # a vocabulary
        whole[rng.randrange(len(whole))] = rng.choice(STRANGE)
    while isinstance(table, dict):
        key = rng.choice(sorted(table))
        if not isinstance(table[key], dict) or not table[key] or rng.random() < 0.3:
            break
        table = table[key]
    if isinstance(whole, dict):
        table.pop(key) if rng.random() < 0.2 else table.update({key: rng.choice(STRANGE)})
    file.write_text(json.dumps(whole))


def write_absurd_size(file: Path, rng: random.Random) -> None:
    text = file.read_text()
    old, new = rng.choice([change for change in ABSURD if change[0] in text])
    file.write_text(text.replace(old, new))


def write_invalid_numbers(file: Path, rng: random.Random) -> None:
    """Write weights that are not finite or too large, with a valid checksum."""
    weights = read_weights(file)
    weight = weights[rng.choice(sorted(weights))]
    weight.view(-1)[rng.randrange(weight.numel())] = rng.choice(NUMBERS)
    write_weights(file, weights)


def write_other_weights(file: Path, rng: random.Random) -> None:
    """Write weights of which one is missing or has another name, shape or type."""
    weights = read_weights(file)
    name = rng.choice(sorted(weights))
    weight = weights.pop(name)
    weights |= rng.choice([{}, {"other": weight}, {name: weight[:-1]}, {name: weight.half()},
                           {name: weight.long()}, {name: weight.flatten()[None]}])
    write_weights(file, weights)


BYTES = (flip, cut, insert, replace, remove, swap)
VALUES = (write_strange_value,) * 6
DAMAGES = {"architecture.yaml": (*BYTES, *(write_absurd_size,) * 6),
           "model.safetensors": (*BYTES, write_invalid_numbers, write_other_weights)}


def run_all_commands(trained: Path, folder: Path) -> list[int]:
    """Exit statuses of the commands that read runs, for the runs in ``folder``."""
    whole = folder / "whole"
    stopped = folder / "stopped"
    data = trained / "data.yaml"
    return [invoke_bounded(*arguments, text="one red dog\n\nthe old house\n").exit_code
            for arguments in (("cost", whole, "--json"), ("translate", whole),
                              ("analyze", whole, "--data", data, "--sentences", 5, "--json"),
                              ("score", whole, "--source", trained / "test.en", "--target",
                               trained / "test.de", "--samples", 10),
                              ("distill", whole, "--data", data, "--out", folder / "kd", "--json"),
                              ("train", whole / "architecture.yaml", "--data", data, "--out",
                               folder / "new", "--set", "recipe.steps=2", "--json"),
                              ("train", trained / "stopped", "--recipe", stopped / "recipe.json",
                               "--data", data, "--out", stopped, "--resume", "--json"))]


def copy_models(trained: Path, folder: Path) -> tuple[Path, Path]:
    """Copies of the finished and the interrupted run below ``folder``."""
    return shutil.copytree(trained / "whole", folder / "whole"), shutil.copytree(
        trained / "stopped", folder / "stopped")


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow)
                                               for seed in range(6, 300))])
def test_damaged_models_work_or_raise_user_errors(trained: Path, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for model in copy_models(trained, tmp_path):
        damage_files(model, rng)
    run_all_commands(trained, tmp_path)


@pytest.mark.full
def test_commands_accept_undamaged_models(trained: Path, tmp_path: Path) -> None:
    copy_models(trained, tmp_path)
    assert not any(run_all_commands(trained, tmp_path))


# -- specific damage


@pytest.mark.parametrize("content", ODD_FILES)
@pytest.mark.parametrize("name", JSON)
def test_invalid_json_raises_user_errors(copy: Path, name: str, content: bytes) -> None:
    (copy / name).write_bytes(content)
    for read in (read_checkpoint, Result.read):
        with bounded():
            try:
                read(copy)
            except UserError as error:
                assert error.code and str(error)


@pytest.mark.parametrize(("old", "new"), ABSURD)
def test_changed_architecture_is_refused(copy: Path, old: str, new: str) -> None:
    file = copy / "architecture.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with bounded(), pytest.raises(UserError) as caught:
        read_checkpoint(copy)
    assert "architecture.yaml" in str(caught.value)
    invoke_bounded("cost", copy, "--json")


def test_architecture_beyond_memory_fails_before_building(corpus, tmp_path: Path) -> None:
    with bounded():
        result = train(tiny(width=16 * 10**9), corpus, recipe(), tmp_path / "large", resume=False)
    assert (result.state, result.steps) == ("failed", 0) and "out of memory" in result.reason


def test_weights_that_are_not_finite_are_refused(copy: Path) -> None:
    weights = read_weights(copy / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] = torch.nan
    write_weights(copy / "model.safetensors", weights)
    with refuses("weights-not-finite", next(iter(weights))):
        read_checkpoint(copy)


def test_huge_weights_are_refused_in_decoding(copy: Path) -> None:
    weights = read_weights(copy / "model.safetensors")
    for weight in weights.values():
        weight.fill_(3e38)
    write_weights(copy / "model.safetensors", weights)
    with refuses("diverged"):
        raise invoke_bounded("translate", copy, "--beam", 2, text="one red dog\n").exception


def test_checksum_detects_any_flipped_bit(copy: Path) -> None:
    file = copy / "model.safetensors"
    whole = file.read_bytes()
    for position in range(len(whole) - 1, len(whole) // 2, -len(whole) // 20):
        flipped = bytes([whole[position] ^ 1])
        file.write_bytes(whole[:position] + flipped + whole[position + 1 :])
        with refuses("damaged-weights", "model.safetensors"):
            read_checkpoint(copy)


@pytest.mark.full
def test_damaged_checkpoint_is_not_resumed(corpus, tmp_path: Path) -> None:
    with pytest.raises(SignalInterrupt):
        train(tiny(), corpus, recipe(), tmp_path, report=stop_at(4))
    file = tmp_path / "checkpoint.pt"
    whole = file.read_bytes()
    damaged = [b"", b"\n", whole[:-1], whole + b"x", whole[1:]]
    damaged += [whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :]
                for position in range(0, len(whole), 40_000)]
    for content in damaged:
        file.write_bytes(content)
        with refuses("not-a-checkpoint", "checkpoint.pt"):
            train(tiny(), corpus, recipe(), tmp_path)
    _, _, archive = whole.partition(b"\n")
    saved = io.BytesIO()
    torch.save({"weights": torch.zeros(100_000)}, saved)
    compressed = io.BytesIO()
    with zipfile.ZipFile(saved) as stored, zipfile.ZipFile(
            compressed, "w", zipfile.ZIP_DEFLATED) as written:
        for entry in stored.namelist():
            written.writestr(entry, stored.read(entry))
    for content in (b"", b"nonsense", archive[:-100], compressed.getvalue()):
        checksum = hashlib.blake2b(content, digest_size=16).hexdigest().encode()
        file.write_bytes(whole[:whole.index(b"\n") - len(checksum)] + checksum + b"\n" + content)
        with refuses("not-a-checkpoint", "checkpoint.pt"):
            train(tiny(), corpus, recipe(), tmp_path)
    file.unlink()
    file.symlink_to("/dev/zero")
    with pytest.raises(OSError, match="not a regular file"):
        train(tiny(), corpus, recipe(), tmp_path)
    file.unlink()
    file.write_bytes(whole)
    assert train(tiny(), corpus, recipe(), tmp_path).state == "complete"
