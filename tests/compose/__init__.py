"""The cluster of deploy/docker-compose.yml under a container engine: `make compose-check`."""
