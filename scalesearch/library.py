"""Shipped files, the source of this installation, and missing optional packages."""

import difflib
import importlib.util
import json
import shlex
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from scalesearch.errors import UserError

ARCHITECTURE_FILE = "architecture.yaml"  # in the folder of a trained model
EXTRA_OF_PACKAGE = {package: extra for extra, packages in {
    "train": ("torch", "sentencepiece", "sacrebleu", "safetensors"),
    "study": ("jinja2", "matplotlib", "moocore", "optuna", "ray", "scipy", "tabulate"),
    "verify": ("fvcore",),
    "tasks": ("rouge_score",),
    "export": ("ctranslate2", "onnx", "onnxruntime", "onnxscript"),
    "huggingface": ("transformers",),
    "mcp": ("mcp",),
    "zstd": ("backports.zstd",)}.items() for package in packages}


def library_folder(category: str) -> Path:
    """Return the folder of the shipped ``spaces`` or ``studies``.

    It is inside the wheel, or next to the package in a source checkout.
    """
    package = Path(str(files("scalesearch")))
    shipped = package / "library" / category
    return shipped if shipped.is_dir() else package.parent / category


def shipped_names(category: str) -> list[str]:
    """Return the names of the shipped files."""
    folder = library_folder(category)
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml"))


def find_file(name: str, category: str) -> Path:
    """Find a file by path or name.

    The name is a path (``.yaml`` is optional), the folder of a trained model, or a shipped file,
    which any other folder of this name does not hide.

    Raises:
        UserError: it does not exist. The message suggests a similar name, or else lists the shipped
            files if ``name`` is not a path.
    """
    path = Path(name)
    with file_errors_named(name):
        if (path / ARCHITECTURE_FILE).is_file():
            return path / ARCHITECTURE_FILE
        for candidate in (path, Path(f"{name}.yaml")):
            if candidate.exists() and not candidate.is_dir():
                return candidate
        folder = library_folder(category)
        for candidate in (folder / name, folder / f"{name}.yaml", folder.parent / name):
            if candidate.is_file():
                return candidate
        if path.is_dir():
            return path
    shipped = shipped_names(category)
    # names in a folder are listed as the folder and their number
    counts = Counter(name.partition("/")[0] for name in shipped if "/" in name)
    listed = ", ".join([*(name for name in shipped if "/" not in name),
                        *(f"{inner}/… ({count})" for inner, count in counts.items())])
    in_folder = {file.stem: str(file) for file in path.parent.glob("*.yaml") if file != path}
    near = [*map(in_folder.get, difflib.get_close_matches(path.stem, in_folder, 1)),
            *difflib.get_close_matches(name.removesuffix(".yaml"), shipped, 1)]
    hint = f". Did you mean {near[0]}?" if near else ""
    if not near and "/" not in name:
        hint = f". The {category} that come with scalesearch: {listed or 'none'}"
    raise UserError(f"{name}: no such file{hint}", code="no-such-file")


def install_command(extra: str) -> str:
    """Return the command that installs an extra.

    It uses the same source as this package if that is known.
    """
    origin = "scalesearch"
    source = Path(str(files("scalesearch"))).parent
    if (source / "pyproject.toml").is_file():
        origin = str(source)
    else:
        with suppress(PackageNotFoundError):
            text = distribution("scalesearch").read_text("direct_url.json") or "{}"
            path = Path(unquote(urlparse(json.loads(text).get("url", "")).path))
            if path.is_absolute() and path.exists():
                origin = str(path)
    return f"pip install {shlex.quote(f'{origin}[{extra}]')}"


def require_packages(*packages: str) -> None:
    """Raise UserError if an optional package is missing."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise missing_package_error(package)


def missing_package_error(package: str) -> UserError:
    """Return the error for a missing optional package, with the command to install it."""
    return UserError(f"{package} is not installed: {install_command(EXTRA_OF_PACKAGE[package])}",
                     code="package-missing")


def load_entry_point(point: EntryPoint) -> Any:
    """Load what an installed package registers.

    Raises:
        UserError: the package cannot be imported, or what it registers is in use.
    """
    try:
        return point.load()
    except Exception as error:  # of any kind: it is code of another package
        package = point.dist.name if point.dist else point.module
        raise UserError(f"the package {package} cannot be loaded ({point.group}: {point.name} = "
                        f"{point.value}): {type(error).__name__}: {error}",
                        help=f"fix it, or uninstall it (pip uninstall {package})",
                        code="package-not-loaded") from error


@contextmanager
def file_errors_named(name: str = "") -> Iterator[None]:
    """Context that replaces the OSError of a file by a UserError.

    Args:
        name: name of the file in the message; by default its path.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise
        raise UserError(f"{name or error.filename}: {error.strerror}",
                        code="cannot-read") from error


@contextmanager
def import_errors_named() -> Iterator[None]:
    """Context that replaces the ImportError of an optional package by a UserError."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF_PACKAGE:
            raise
        raise missing_package_error(package) from None
