"""How is a stream of bytes made smaller so that nats-server reads it? S2: its blocks, and the frames around them.

It knows of bytes alone: archives of streams (cluster/backup) and connections of leaf nodes (api/plane) are made of it.
"""
