"""Which candidate comes next, and which goes on: proposers, rungs and strategies. Knows nothing of training."""
