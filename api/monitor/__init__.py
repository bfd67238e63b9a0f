"""HTTP monitoring: pages from the same `statistics()` that tests read, with nats-server's field names.

It changes nothing, asks other nodes only for `/healthz`, and takes at most half of the node's time.
"""
