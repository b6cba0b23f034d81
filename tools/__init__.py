"""Programs that make what the package ships; run from the repository, not installed."""
