"""The ``scalesearch study`` verbs. May import study and report, when a verb runs."""
