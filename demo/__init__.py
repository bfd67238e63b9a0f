"""The main job on real input: three nodes, acknowledged publishes, Spark reading from the replicas (`make demo`)."""
