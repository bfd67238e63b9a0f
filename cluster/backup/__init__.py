"""Backups of streams over the wire: snapshots out, restores in, in the archive format of nats-server 2.15.

An archive is read as hostile input: every length, checksum and order is verified before an entry is proposed. A restore
is all or nothing, and goes through the stream's log like any other entry (decision 23). Nothing here writes to a store.
"""
