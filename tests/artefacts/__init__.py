"""What users install, tested as they install it: wheels, source distributions, and the steps of deploy/Dockerfile."""
