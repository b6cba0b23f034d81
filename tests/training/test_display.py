"""Display of a training run."""

from scalesearch.terminal import open_console
from scalesearch.training.display import score_table, training_bar

LANGUAGE_MODEL = {"split": "validation", "loss": 1.13903, "bits_per_byte": 0.337867,
                  "test": {"loss": 1.13762, "bits_per_byte": 0.339052}}


def test_scores_of_language_models_have_enough_digits():
    console = open_console(width=100)
    with console.capture() as capture, training_bar(console) as report:
        report({"type": "validation", "step": 8, "cpu_seconds": 3.0, "train_loss": 2.0,
                "validation_loss": 1.5, "bits_per_byte": 0.337867})
        console.print(score_table(LANGUAGE_MODEL))
    text = capture.get()
    assert "Bits per byte 0.3379" in text
    assert all(digits in text for digits in ("1.139", "0.3379", "1.138", "0.3391"))
