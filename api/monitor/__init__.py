"""HTTP monitoring: pages made from the same `statistics()` that tests read."""
