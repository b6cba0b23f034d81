"""The study in Optuna's words: a copy for dashboards. Imports trials and config."""
