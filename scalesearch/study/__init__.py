"""Studies: a study file, its trials, who trains them, and what comes of them.

The rooms, each of which imports those below it: ``engine``, ``results``, ``monitor``, ``transfer``,
``optuna_sync``, ``replicates``, ``executors``, ``trials``, ``config``. Of the package, ``cli``
alone imports it.
"""
