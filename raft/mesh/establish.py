"""The handshake over a connection: TLS if it is configured, hello, hello, proof, proof, verdict.

The dialer proves first. The end with the smaller node id gives the verdict on a link, the accepting end on a bulk
connection; until it says KEEP neither end has one.
"""

import secrets
from collections.abc import Callable

import attrs
import trio

from jetraft.raft.mesh.connection import Connection
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.handshake import (
    CHALLENGE_BYTES,
    HELLO_BYTES,
    PROOF_BYTES,
    VERDICT_BYTES,
    HandshakeRefusedError,
    HandshakeVerdict,
    Hello,
    ProofRefusedError,
    Purpose,
    Side,
    check_hello,
    proof,
    proven_key,
)
from jetraft.store.model.ids import NodeId

Judge = Callable[[Hello], HandshakeVerdict]


@attrs.frozen(kw_only=True, slots=True)
class PeerIdentity:
    """This process's description of itself in every handshake."""

    cluster: str
    node_id: NodeId
    name: str
    boot: int
    keys: tuple[bytes, ...] = attrs.field(repr=False)  # the first is proven to those that are dialed; not empty

    def hello(self, session: int, purpose: Purpose = Purpose.LINK) -> Hello:
        """A greeting with a fresh challenge."""
        return Hello(
            cluster=self.cluster,
            node_id=self.node_id,
            name=self.name,
            boot=self.boot,
            session=session,
            challenge=secrets.token_bytes(CHALLENGE_BYTES),
            purpose=purpose,
        )


@attrs.frozen(kw_only=True, slots=True)
class Established:
    """A finished handshake: who is there, what was decided, and what this end called the connection."""

    hello: Hello
    own_session: int
    verdict: HandshakeVerdict


async def dial_handshake(connection: Connection, identity: PeerIdentity, own: Hello, judge: Judge) -> Established:
    """The dialer's part. Raises HandshakeRefusedError, RemoteProtocolError, trio.BrokenResourceError."""
    own_bytes = own.encode()
    await connection.send_all(own_bytes)
    other_bytes = await connection.receive_exactly(HELLO_BYTES)
    other = Hello.decode(other_bytes)
    check_hello(own, other)
    if other.purpose is not own.purpose:
        raise RemoteProtocolError("the answer to a greeting is for another purpose")
    await connection.send_all(proof(identity.keys[0], Side.DIALER, own_bytes, other_bytes))
    try:
        answer = await connection.receive_exactly(PROOF_BYTES)
    except trio.BrokenResourceError as error:  # who does not know the key is told nothing
        raise ProofRefusedError(
            "it does not take this node's proof: is the secret of the cluster another one?"
        ) from error
    proven_key(identity.keys[:1], Side.ACCEPTOR, own_bytes, other_bytes, answer)
    decides = own.purpose is Purpose.LINK and own.node_id < other.node_id
    return await _verdict(connection, own, other, judge if decides else None)


async def accept_handshake(connection: Connection, identity: PeerIdentity, session: int, judge: Judge) -> Established:
    """The acceptor's part; it says nothing about the key before the dialer has proved that it knows it."""
    other_bytes = await connection.receive_exactly(HELLO_BYTES)
    other = Hello.decode(other_bytes)
    own = identity.hello(session, other.purpose)
    own_bytes = own.encode()
    await connection.send_all(own_bytes)
    check_hello(own, other)
    given = await connection.receive_exactly(PROOF_BYTES)
    key = proven_key(identity.keys, Side.DIALER, other_bytes, own_bytes, given)
    await connection.send_all(proof(key, Side.ACCEPTOR, other_bytes, own_bytes))
    decides = own.purpose is Purpose.BULK or own.node_id < other.node_id
    return await _verdict(connection, own, other, judge if decides else None)


async def _verdict(connection: Connection, own: Hello, other: Hello, judge: Judge | None) -> Established:
    if judge is not None:
        verdict = judge(other)
        await connection.send_all(verdict.to_bytes(VERDICT_BYTES, "little"))
    else:
        try:
            verdict = HandshakeVerdict((await connection.receive_exactly(VERDICT_BYTES))[0])
        except ValueError as error:
            raise RemoteProtocolError("unknown verdict") from error
    if verdict is HandshakeVerdict.DUPLICATE_ID:
        raise HandshakeRefusedError(f"two servers have the id {max(own, other, key=_id).node_id}: names must differ")
    return Established(hello=other, own_session=own.session, verdict=verdict)


def _id(hello: Hello) -> NodeId:
    return hello.node_id
