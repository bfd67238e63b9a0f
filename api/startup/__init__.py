"""Work that is done once, when a server starts: compiled code, limits of the kernel, signals.

Nothing here knows a client, an account or a stream.
"""
