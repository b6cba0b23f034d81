"""Further seeds: which trials get them, and what they show. Imports trials and config."""
