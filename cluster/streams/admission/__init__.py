"""Admission: what the leader of a stream does with published messages and copies before it proposes them.

`admit` asks the rules and the batches in a fixed order, as nats-server answers; what it admits becomes one entry of the
log. Admission runs on the leader alone; apply never repeats a decision that was made here.
"""
