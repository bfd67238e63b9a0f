"""The live messages of a stream: an index by sequence and subject, limits, the window of duplicates, consumer state.

Everything here can be rebuilt from the log. The compiled modules are the indexes; they do not access files.
"""
