"""SMAC on a table: ParEGO with the random forest of the hyperparameter facade, without rungs.

All objectives are learned, also exact ones.
"""

import logging
import tempfile

from table_search import Done, Task, main, nearest

BEGIN = 6


def search(task: Task, seed: int) -> Done:
    """Return the rows in the order of their training."""
    from ConfigSpace import Configuration, ConfigurationSpace, OrdinalHyperparameter
    from smac import HyperparameterOptimizationFacade as Facade
    from smac import Scenario
    from smac.multi_objective.parego import ParEGO
    from smac.runhistory.dataclasses import TrialInfo, TrialValue

    logging.disable(logging.CRITICAL)
    # Half steps are values of parameters that do not exist.
    halves = [[index / 2 for index in range(2 * int(count) - 1)] for count in task["options"]]
    space = ConfigurationSpace(seed=seed)
    names = [f"q{index}" for index in range(len(halves))]
    space.add([OrdinalHyperparameter(name, places) for name, places in zip(names, halves)])
    done: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        objectives = [f"objective{index}" for index in range(task["y"].shape[1])]
        scenario = Scenario(space, objectives=objectives, deterministic=True, n_trials=10**6, seed=seed,
                            output_directory=folder)
        smac = Facade(scenario, lambda config, seed: 0, multi_objective_algorithm=ParEGO(scenario),
                      overwrite=True,
                      initial_design=Facade.get_initial_design(scenario, n_configs=BEGIN),
                      logging_level=False)
        while len(done) < min(int(task["count"]), len(task["y"])):
            suggestion = smac.ask()
            row = nearest(task, [suggestion.config[name] for name in names], done)
            config = Configuration(space, values=dict(zip(names, map(float, task["codes"][row]))))
            smac.tell(TrialInfo(config, seed=suggestion.seed),
                      TrialValue(cost=(-task["y"][row]).tolist()), save=False)
            done.append(row)
    return [(row, len(task["shares"]) - 1) for row in done]


if __name__ == "__main__":
    main(search)
