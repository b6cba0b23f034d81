"""Whether data, recipe and architecture go together; said before anything starts. Loads no PyTorch."""

from scalesearch.data.spec import DataSpec
from scalesearch.errors import UserError
from scalesearch.tasks import TASKS
from scalesearch.train.recipe import Recipe


def refuse_unfit(spec: DataSpec, recipe: Recipe) -> None:
    """Refuses a task whose metrics cannot be computed here, and a recipe that asks for what its task has not.

    Raises:
        UserError: saying which, and what would be right.
    """
    task = TASKS[spec.task]
    task.refuse(spec)
    if recipe.validate_bleu and task.score is None:
        raise UserError(f"recipe: validate_bleu: a {task.name} generates nothing that could be scored; its "
                        "perplexity is known at each validation, so leave it out, and `watch: loss`")


def refuse_model(task: str, kind: str) -> None:
    """Refuses a kind of model (``encoder-decoder``, ``decoder-only``) that the task cannot use. Raises UserError."""
    wanted = TASKS[task].model
    if wanted is not None and kind != wanted:
        raise UserError(f"the task {task} needs `model: {wanted}`, and this architecture is {kind}")
