"""Trials of a study: their state, the event log and the records. Imports config."""
