"""A front of score and size under a limit of size, which nothing has to learn."""

import optuna
import optunahub

LIMIT = 200_000
module = optunahub.load_module("samplers/exact_cost_bayes")


def define(trial: optuna.Trial) -> dict[str, int]:
    """Suggests all that a trial needs."""
    return {"width": trial.suggest_int("width", 16, 512, log=True),
            "depth": trial.suggest_int("depth", 1, 8)}


def cost(params: dict[str, int]) -> int:
    """Size of a model."""
    return params["width"] ** 2 * params["depth"]


def objective(trial: optuna.Trial) -> tuple[float, int]:
    """Stands for a training that takes hours."""
    found = define(trial)
    trial.set_constraint("size", cost(found) - LIMIT)
    return 1 - 1 / (found["width"] * found["depth"]) ** 0.5, cost(found)


if __name__ == "__main__":
    sampler = module.ExactCostBayes(
        define=define,
        facts=lambda params: module.CandidateFacts((None, cost(params)),
                                                   {"size": cost(params) - LIMIT}), seed=1)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    study.optimize(objective, n_trials=20)
    for trial in study.best_trials:
        print(trial.params, trial.values)
