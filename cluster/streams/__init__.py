"""Streams: a replica of each, what its leader admits, and what its replicas answer.

Floors, from the ground: `stamps` and `mandate`; `publishing`, one message; `schedules`; `rules`, what a configuration
asks of a message; `batches`; `admission` and `gets`, writing and reading; `replica`, which joins them to a Raft group.
Committed entries mean the same on every replica (cluster/state): nothing here is decided again when they are applied.
"""
