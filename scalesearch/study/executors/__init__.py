"""Who trains the trials: in this process, in subprocesses, on Ray. Imports trials and config."""
