"""File access behind a port (`Disk`): files, fsync, writer threads, free space.

Only this package changes files through the operating system, so tests can replace the disk. A write is durable only
after its fsync; after a failed fsync the content of the file is unknown, and the file is not written again.
"""
