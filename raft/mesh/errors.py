"""Errors of peers."""


class RemoteProtocolError(Exception):
    """A peer sent what the protocol does not allow; the link to it is closed, nothing was changed."""
