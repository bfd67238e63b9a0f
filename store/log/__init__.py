"""The ordered log of one group: append, durability, reads, trims, repair, installation of a snapshot.

An entry that was reported as durable exists after any crash, or its index is reported as damaged; it never disappears
silently. `file_log.py` is the log in files, `mem_log.py` the one in memory.
"""
