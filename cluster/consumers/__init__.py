"""Consumers: what is delivered to whom, what is acknowledged, what is delivered again.

A consumer lives in the Raft group of its stream: what must survive its leader is an entry of the stream's log, applied
alike on every replica. `core` decides and awaits nothing, `pull` and `push` are its two kinds, `runner` and the
dispatcher drive them on the stream's leader with a clock, a socket plane and the group.
"""
