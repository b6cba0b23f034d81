"""Studies: the study file, its trials, their execution, and their results.

Folders, each of which may import those after it: ``engine``, ``results``, ``monitor``,
``forecast``, ``transfer``, ``optuna_sync``, ``replicates``, ``executors``, ``trials``, ``config``. Only ``api``
and ``cli`` import this package.
"""
