"""Trials taken over from other studies: warm starts and forks. Imports trials and config."""
