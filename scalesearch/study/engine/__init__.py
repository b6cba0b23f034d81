"""The loop of a study and its setup. Imports every other room; none imports it."""
