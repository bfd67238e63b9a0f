"""Sockets that accept clients, in the clear, with TLS or behind a proxy.

Bytes of a connection belong to the plane from its acceptance on.
"""
