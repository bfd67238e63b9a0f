"""Backups of streams over the wire: snapshots out, restores in, in the archive format of nats-server 2.15."""
