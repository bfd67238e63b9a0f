"""What streams can do besides storing what is published: each has clients, checks and mutations of its own here.

A feature configures the stream of a run, lets clients use it, looks at every entry that is committed and at every
answer, and judges the end. Everything else of a run (nodes, faults, the checks of Raft and of the stream) is the same
as without one.
"""
