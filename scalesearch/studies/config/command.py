"""Command of a study, saved in its folder so that it can be resumed.

::

    runs/edge/command.json   the study file, what options set besides, and the working folder
    runs/edge/study.yaml     the text of that file
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from scalesearch.errors import UserError, option
from scalesearch.files import read_json, write_json, write_text
from scalesearch.spaces.syntax.yaml_reader import read_text
from scalesearch.studies.config.reader import parse_study
from scalesearch.studies.config.spec import StudySpec
from scalesearch.studies.config.storage_url import MASK, mask_passwords

COMMAND_FILE = "command.json"
STUDY_TEXT_FILE = "study.yaml"
STUDY_META_FILE = "study.json"


@dataclass(frozen=True)
class SavedCommand:
    """Study file and changed options of a run, without passwords.

    Attributes:
        file: the study file, absolute; paths in it may begin at its folder.
        overrides: what options changed in it, as ``--set`` takes them.
        working_folder: the working folder, where other relative paths begin.
    """

    file: str
    overrides: tuple[str, ...] = ()
    working_folder: str = ""


def save_command(spec: StudySpec) -> None:
    """Keep the command and the text of the study file in the study's folder."""
    command = SavedCommand(str(spec.file.absolute()), tuple(map(mask_passwords, spec.overrides)),
                           os.getcwd())
    write_text(spec.out / STUDY_TEXT_FILE, mask_passwords(spec.text))
    write_json(spec.out / COMMAND_FILE, msgspec.to_builtins(command))


def started_study_folder(name: str) -> Path | None:
    """The folder of a started study that ``name`` denotes.

    It may name the folder or its ``study.yaml``.
    """
    place = Path(name)
    folder = place.parent if place.name == STUDY_TEXT_FILE else place
    return folder if os.path.isfile(folder / STUDY_META_FILE) else None


def read_started_study(folder: Path, overrides: Sequence[str] = (),
                       out: Path | None = None) -> StudySpec:
    """Read the study in ``folder`` as it was last run, changed by ``overrides``.

    This changes the working folder to the one in which the study was started. The original study
    file is read if it has not changed, because the folder of a study keeps no passwords.

    Args:
        out: folder of another study that begins like this one.

    Raises:
        UserError: the study is invalid, or a password must be given again.
    """
    command_file = folder / COMMAND_FILE
    command = read_json(command_file, SavedCommand) if command_file.is_file() else SavedCommand(
        str(folder / STUDY_TEXT_FILE))
    text = read_text(folder / STUDY_TEXT_FILE)
    out = (out or folder).absolute()
    if command.working_folder and Path(command.working_folder).is_dir():
        os.chdir(command.working_folder)
    file = _nearby(Path(command.file))
    if file.is_file() and mask_passwords(whole := read_text(file)) == text:
        text = whole
    changed = tuple(f"{_key(override)}." for override in overrides)
    kept = [override for override in command.overrides
            if not f"{_key(override)}.".startswith(changed)]
    spec = parse_study(text, file, (*kept, *overrides), _nearby(out))
    if MASK in (spec.storage or ""):
        raise UserError("storage: a study's folder keeps no passwords; give the whole URL again: "
                        f"{option('set', 'storage=URL')}", key="storage", code="no-password")
    return spec


def _nearby(path: Path) -> Path:
    """``path`` as it is called in the working folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _key(assignment: str) -> str:
    return assignment.partition("=")[0].strip()
