"""The identity of the other end: fixed-size frames, exchanged and verified before any other byte is parsed.

Both ends send a Hello with a fresh challenge, then a proof: HMAC-SHA256 over both hellos and the sender's side, keyed
by the cluster's secret. Each end so shows that it knows the secret for this very connection; a replayed or reflected
proof fits nothing. Without a secret the key is the cluster's name: that keeps strangers by mistake out, no attacker.

While the secret is changed there are several: the dialer proves its first, the acceptor accepts any of its own and
answers with the one that was proven (decision 88).

One link is kept per node pair, and one end decides: the node with the smaller id answers with a verdict, so that dials
which cross each other cannot be judged differently at both ends. The `boot` number of a process tells its restart from
a second server with the same name.

A second connection carries what is bulky. Its hello says so and names the session, by the number that the dialer gave
the first connection, and the accepting end decides: there is none without that session.
"""

import enum
import hashlib
import hmac
import struct
from collections.abc import Sequence
from typing import Final

import attrs

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.store.model.ids import ALPHABET, NODE_ID_CHARS, NodeId, node_id_of

MAGIC: Final = b"JETRAFT\x01"
PROTOCOL_VERSION: Final = 2
CHALLENGE_BYTES: Final = 32
PROOF_BYTES: Final = 32
VERDICT_BYTES: Final = 1
NAME_BYTES_MAX: Final = 128  # longer cluster and server names are cut here; ids are what is compared
_HELLO: Final = struct.Struct(f"<8sHH{NODE_ID_CHARS}s{NAME_BYTES_MAX}s{NAME_BYTES_MAX}sQQ{CHALLENGE_BYTES}s")
HELLO_BYTES: Final = _HELLO.size
_ID_BYTES: Final = frozenset(ALPHABET.encode())


class Side(enum.Enum):
    """Which end made the connection; part of what a proof covers."""

    DIALER = b"dialer"
    ACCEPTOR = b"acceptor"


class Purpose(enum.IntEnum):
    """The purpose of a connection."""

    LINK = 0
    BULK = 1


class HandshakeVerdict(enum.IntEnum):
    """The answer of the deciding end."""

    KEEP = 1
    ALREADY_LINKED = 2
    DUPLICATE_ID = 3
    NO_SESSION = 4  # a bulk connection beside a link that is not there (any more), or that has one already


class HandshakeRefusedError(Exception):
    """The other end may not join: the message says why. `is_self` when it is this very process."""

    def __init__(self, reason: str, *, is_self: bool = False) -> None:
        super().__init__(reason)
        self.is_self = is_self


class ProofRefusedError(HandshakeRefusedError):
    """The other end does not take this node's proof: nothing but another secret explains it for long."""


@attrs.frozen(kw_only=True, slots=True)
class Hello:
    """How an end introduces itself."""

    cluster: str
    node_id: NodeId
    name: str
    boot: int  # random per process
    session: int  # counts the connections of that process; with BULK: the number of the link's connection
    challenge: bytes
    purpose: Purpose = Purpose.LINK

    def encode(self) -> bytes:
        """`HELLO_BYTES` bytes."""
        return _HELLO.pack(
            MAGIC,
            PROTOCOL_VERSION,
            self.purpose,
            self.node_id.encode(),
            _cut(self.cluster),
            _cut(self.name),
            self.boot,
            self.session,
            self.challenge,
        )

    @classmethod
    def decode(cls, data: bytes) -> "Hello":
        """The reverse. Raises RemoteProtocolError."""
        magic, version, purpose, node_id, cluster, name, boot, session, challenge = _HELLO.unpack(data)
        if magic != MAGIC:
            raise RemoteProtocolError("not a jetraft node")
        if version != PROTOCOL_VERSION:
            raise RemoteProtocolError(f"protocol version {version}, not {PROTOCOL_VERSION}")
        if purpose > max(Purpose):
            raise RemoteProtocolError(f"a connection for purpose {purpose}")
        if not set(node_id) <= _ID_BYTES:
            raise RemoteProtocolError("what it calls its id is none")
        return cls(
            cluster=_text(cluster),
            node_id=NodeId(node_id.decode("ascii")),
            name=_text(name),
            boot=boot,
            session=session,
            challenge=challenge,
            purpose=Purpose(purpose),
        )


def _text(field: bytes) -> str:
    try:
        text = field.rstrip(b"\0").decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("a name is not UTF-8") from error
    if not text.isprintable():
        raise RemoteProtocolError("a name with characters that cannot be printed")
    return text


def _cut(name: str) -> bytes:
    """At most `NAME_BYTES_MAX` bytes, not inside a character."""
    return name.encode()[:NAME_BYTES_MAX].decode(errors="ignore").encode()


def cluster_key(secret: bytes, cluster: str) -> bytes:
    """The key of the proofs."""
    return hashlib.sha256(b"jetraft cluster\0" + (secret or _cut(cluster))).digest()


def proof(key: bytes, side: Side, dialer_hello: bytes, acceptor_hello: bytes) -> bytes:
    """The proof by which `side` shows that it knows the key."""
    return hmac.new(key, side.value + dialer_hello + acceptor_hello, hashlib.sha256).digest()


def check_hello(own: Hello, other: Hello) -> None:
    """Raises HandshakeRefusedError when the other end may not join."""
    if own.cluster != other.cluster:
        raise HandshakeRefusedError(f"it belongs to cluster {other.cluster!r}, this node to {own.cluster!r}")
    is_whole = len(other.name.encode()) <= NAME_BYTES_MAX - 4  # a longer one may have been cut
    if is_whole and node_id_of(other.name) != other.node_id:
        raise HandshakeRefusedError(f"{other.node_id} is not the id of a node with the name {other.name!r}")
    if own.node_id == other.node_id:
        if own.boot == other.boot:
            raise HandshakeRefusedError("it is this server itself", is_self=True)
        raise HandshakeRefusedError(f"it has this server's id {own.node_id} (name {other.name!r}): names must differ")


def proven_key(keys: Sequence[bytes], side: Side, dialer_hello: bytes, acceptor_hello: bytes, given: bytes) -> bytes:
    """The key of which `given` is the proof of `side`. Raises HandshakeRefusedError when it is none of them."""
    proven = None
    for key in keys:  # all of them: how long it takes says nothing about which
        if hmac.compare_digest(proof(key, side, dialer_hello, acceptor_hello), given):
            proven = key
    if proven is None:
        raise HandshakeRefusedError("it does not know this cluster's secret")
    return proven
