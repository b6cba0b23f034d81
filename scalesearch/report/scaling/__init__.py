"""What a scaling study shows: power laws by rule, their checks, the next size, and the rule to follow.

``laws`` fits, ``rows`` reads records, ``study`` puts both together; ``words``, ``tables`` and
``figures`` show it.
"""
