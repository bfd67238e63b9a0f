"""Work that is done once, when a server starts: compiled code, limits of the kernel, files, first log lines.

Nothing here knows a client, an account or a stream.
"""
