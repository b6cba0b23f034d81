"""Commands of ``scalesearch study``, which import study and report when they run."""
