"""Results of a scaling study: power laws, checks, predictions, ranking of rules.

``laws`` fits power laws, ``architectures`` reads records, ``study`` combines both. ``formatting``,
``tables`` and ``figures`` present the results.
"""
