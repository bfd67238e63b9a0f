"""Distinct types for the quantities that must never be mixed up, and the names of nodes and groups."""

import hashlib
from typing import NewType

StreamSeq = NewType("StreamSeq", int)
ConsumerSeq = NewType("ConsumerSeq", int)
LogIndex = NewType("LogIndex", int)
Term = NewType("Term", int)
NodeId = NewType("NodeId", str)
GroupId = NewType("GroupId", str)

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
NODE_ID_CHARS = 8  # as nats-server: eight characters of a hash of the server's name


def node_id_of(server_name: str) -> NodeId:
    """The node's identity in Raft groups: eight characters derived from its name, the same after every restart."""
    digest = hashlib.sha256(server_name.encode()).digest()
    return NodeId("".join(ALPHABET[byte % len(ALPHABET)] for byte in digest[:NODE_ID_CHARS]))
