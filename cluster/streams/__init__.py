"""Streams: a replica of each, what its committed entries mean, and who is admitted to publish.

`machine` applies entries and is the same on every replica: no clock, no randomness, no I/O. `admit` decides on the
leader, before the entry is proposed, from state that later entries cannot change. `replica` joins them to a Raft group;
what replicas need in the background (expiry, compaction, comparison) proposes entries like any client.
"""
