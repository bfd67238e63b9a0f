"""The demo (`make demo`): three nodes, acknowledged publishes of real data, Spark reads from the replicas."""
