"""Studies: the study file, its trials, their execution, and their results.

Subpackages and modules, each of which may import those below it (``make lint`` checks this):

- ``engine``: setup, main loop and dry run of a study; distillation; training runs of an audit.
- ``results``: tables, figures and the page of a study.
- ``monitor``: live screen, status and loggers.
- ``forecast``, ``eta``: time of a study: forecast; progress and remaining time.
- ``warm_start``: trials of other studies.
- ``optuna_sync``: the Optuna study of the sampler, and a copy for dashboards.
- ``replicates``: view of all candidates with their seeds; further seeds.
- ``executors``: where jobs are trained.
- ``trials``: trial, event log, folder, records, evaluation.
- ``config``: keys, reader and values of study files.

Only ``api`` and ``cli`` import this package.
"""
