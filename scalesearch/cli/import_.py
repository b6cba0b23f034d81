"""``scalesearch import``: Hugging Face configurations as files of the space language."""

from __future__ import annotations

from pathlib import Path

import click

from scalesearch.cli.options import OutputPath, write_errors_named


@click.command(name="import")
@click.argument("config", type=click.Path(), metavar="CONFIG.json|FOLDER")
@click.option("--to", "output", type=OutputPath(), metavar="FILE.yaml",
              help="Write the file. By default, it is printed.")
@click.option("--force", is_flag=True, help="Overwrite FILE.yaml.")
def command(config: str, output: Path | None, force: bool) -> None:
    """Convert the config.json of a Hugging Face model to a file of the space language.

    Only the configuration is read: weights, network access and the transformers package are not
    needed. Comments list everything that the model has and the space language cannot express.

    \b
    Example: scalesearch import models/opus-mt-en-de/config.json --to model.yaml
    """
    from scalesearch.errors import UserError
    from scalesearch.files import write_text
    from scalesearch.spaces import ConfigError, Space, UnbuildableError
    from scalesearch.spaces.huggingface import (
        config_name,
        errors_named,
        read_config,
        require_config,
    )
    from scalesearch.terminal import open_console, print_data, print_text

    path = Path(config)
    if output is not None and output.suffix not in (".yaml", ".yml"):
        raise UserError(f"--to {output}: the file is YAML", code="cannot-write",
                        help=f"use --to {output.with_suffix('.yaml')}")
    with errors_named(path):
        architecture = read_config(require_config(path))
    text = architecture.to_yaml(config_name(path))
    space = Space.parse(text, f"{config}, converted")
    try:
        space.single_architecture(config)
    except UnbuildableError as error:
        raise ConfigError([space.problem_of(error)]) from None
    if output is None:
        print_data(text.removesuffix("\n"))
        return
    if output.exists() and not force:
        raise UserError(f"--to {output} exists", help="choose another file, or add --force",
                        code="already-exists")
    with write_errors_named("--to", output):
        write_text(output, text)
    print_text(f"Written: {output}", open_console(stderr=True))
    for difference in architecture.differences:
        print_text(f"{config}: warning: not expressed: {difference}", open_console(stderr=True))
