"""The names of nodes, groups and accounts."""

import hashlib
from typing import Final, NewType

NodeId = NewType("NodeId", str)
GroupId = NewType("GroupId", str)

GLOBAL_ACCOUNT: Final = "$G"  # of connections without an account of their own, as in nats-server
SYSTEM_ACCOUNT: Final = "$SYS"  # what servers tell and are asked, unless the configuration names another

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
NODE_ID_CHARS = 8  # as nats-server: eight characters of a hash of the server's name


def node_id_of(server_name: str) -> NodeId:
    """The node's identity in Raft groups: eight characters derived from its name, the same after every restart."""
    digest = hashlib.sha256(server_name.encode()).digest()
    return NodeId("".join(ALPHABET[byte % len(ALPHABET)] for byte in digest[:NODE_ID_CHARS]))
