"""Leaf nodes: which server is at the other end of a connection, and what the two exchange.

It accepts leaf nodes and connects to hubs, judges who they are, and negotiates accounts and permissions. It never
parses or forwards a message: api/plane does.
"""
