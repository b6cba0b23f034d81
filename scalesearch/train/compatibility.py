"""Checks that data, recipe and architecture go together, before anything starts; loads no PyTorch."""

from scalesearch.data.spec import DataSpec
from scalesearch.errors import UserError
from scalesearch.tasks import TASKS
from scalesearch.train.recipe import Recipe


def check_compatible(spec: DataSpec, recipe: Recipe) -> None:
    """Checks that the task's metrics can be computed here, and that the recipe fits it.

    Raises:
        UserError: saying which, and what would be right.
    """
    task = TASKS[spec.task]
    task.check(spec)
    if recipe.validate_bleu and task.score is None:
        raise UserError(f"recipe: validate_bleu: a {task.name} generates nothing that could be scored; its "
                        "perplexity is known at each validation, so leave it out, and `watch: loss`",
                        key="recipe.validate_bleu", code="nothing-to-score")


def check_model_kind(task: str, kind: str) -> None:
    """Checks that the task can use a kind of model (``encoder-decoder`` or ``decoder-only``).

    Raises:
        UserError: naming the kind that it needs.
    """
    needed = TASKS[task].model
    if needed is not None and kind != needed:
        raise UserError(f"the task {task} needs `model: {needed}`, and this architecture is {kind}", key="space",
                        code="other-model")
