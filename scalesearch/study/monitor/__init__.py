"""What one sees of a study that runs: snapshot, time left, console. Imports trials, executors, replicates."""
