"""Trials in Optuna's format: the study that samplers read, and the export."""
