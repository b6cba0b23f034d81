"""``scalesearch generate``: continue a text with a trained language model."""

from __future__ import annotations

import sys

import click

from scalesearch.cli.options import option, print_json
from scalesearch.terminal import open_console, print_data, print_text


@click.command(name="generate")
@click.argument("model", type=click.Path(), metavar="MODEL")
@click.argument("prompt", required=False, metavar="[PROMPT]")
@click.option("--tokens", default=100, show_default=True, type=click.IntRange(1),
              help="Number of tokens to generate, with ends of lines.")
@click.option("--temperature", default=1.0, show_default=True, type=click.FloatRange(0),
              help="Divisor of the logits; 0 selects the most probable token.")
@click.option("--top-k", type=click.IntRange(1), metavar="K",
              help="Sample from the K most probable tokens only.")
@option("seed", default=1, help="Random seed of the samples.")
@option("json")
def command(model: str, prompt: str | None, tokens: int, temperature: float, top_k: int | None,
            seed: int, as_json: bool) -> None:
    """Continue PROMPT, or standard input, with the language model in the folder MODEL.

    The model is trained or exported. Prints the prompt and its continuation. An end of line in the
    prompt starts a new line.

    \b
    Example: scalesearch generate runs/model 'The guests' --temperature 0.8 --seed 3
    """
    from scalesearch.export.translator import read_language_model
    from scalesearch.training.scoring.texts import continue_text

    trained, notes = read_language_model(model)
    for note in notes:
        print_text(f"note: {note}", open_console(stderr=True), style="dim")
    if prompt is None:
        prompt = "" if sys.stdin.isatty() else sys.stdin.read()
    result = continue_text(trained, prompt, tokens, temperature, top_k, seed)
    if as_json:
        print_json({"prompt": result.prompt, "continuation": result.text, "tokens": tokens,
                    "temperature": temperature, "top_k": top_k, "seed": seed})
    else:
        print_data(result.prompt + result.text)
