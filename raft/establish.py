"""The handshake over a connection: hello, hello, proof, proof, verdict; then the plain socket for a link.

The dialer proves first. The end with the smaller node id gives the verdict; until it says KEEP nobody has a link.
"""

import secrets
import socket
from collections.abc import Callable

import attrs
import trio

from jetraft.raft.handshake import (
    CHALLENGE_BYTES,
    HELLO_BYTES,
    PROOF_BYTES,
    VERDICT_BYTES,
    HandshakeRefusedError,
    Hello,
    Side,
    Verdict,
    check_hello,
    check_proof,
    proof,
)
from jetraft.raft.wire import RemoteProtocolError
from jetraft.store.model.ids import NodeId

Judge = Callable[[Hello], Verdict]


@attrs.frozen(kw_only=True, slots=True)
class Identity:
    """What this process says of itself in every handshake."""

    cluster: str
    node_id: NodeId
    name: str
    boot: int
    key: bytes = attrs.field(repr=False)

    def hello(self, session: int) -> Hello:
        """A greeting with a fresh challenge."""
        return Hello(
            cluster=self.cluster,
            node_id=self.node_id,
            name=self.name,
            boot=self.boot,
            session=session,
            challenge=secrets.token_bytes(CHALLENGE_BYTES),
        )


@attrs.frozen(kw_only=True, slots=True)
class Established:
    """A finished handshake: who is there, and what was decided."""

    hello: Hello
    verdict: Verdict


async def dial_handshake(stream: trio.SocketStream, identity: Identity, session: int, judge: Judge) -> Established:
    """The dialer's part. Raises HandshakeRefusedError, RemoteProtocolError, or trio's for a broken connection."""
    own = identity.hello(session)
    own_bytes = own.encode()
    await stream.send_all(own_bytes)
    other_bytes = await receive_exactly(stream, HELLO_BYTES)
    other = Hello.decode(other_bytes)
    check_hello(own, other)
    await stream.send_all(proof(identity.key, Side.DIALER, own_bytes, other_bytes))
    check_proof(identity.key, Side.ACCEPTOR, own_bytes, other_bytes, await receive_exactly(stream, PROOF_BYTES))
    return await _verdict(stream, own, other, judge)


async def accept_handshake(stream: trio.SocketStream, identity: Identity, session: int, judge: Judge) -> Established:
    """The acceptor's part; it says nothing about the key before the dialer has proved that it knows it."""
    other_bytes = await receive_exactly(stream, HELLO_BYTES)
    other = Hello.decode(other_bytes)
    own = identity.hello(session)
    own_bytes = own.encode()
    await stream.send_all(own_bytes)
    check_hello(own, other)
    check_proof(identity.key, Side.DIALER, other_bytes, own_bytes, await receive_exactly(stream, PROOF_BYTES))
    await stream.send_all(proof(identity.key, Side.ACCEPTOR, other_bytes, own_bytes))
    return await _verdict(stream, own, other, judge)


async def _verdict(stream: trio.SocketStream, own: Hello, other: Hello, judge: Judge) -> Established:
    if own.node_id < other.node_id:
        verdict = judge(other)
        await stream.send_all(verdict.to_bytes(VERDICT_BYTES, "little"))
    else:
        try:
            verdict = Verdict((await receive_exactly(stream, VERDICT_BYTES))[0])
        except ValueError as error:
            raise RemoteProtocolError("unknown verdict") from error
    if verdict is Verdict.DUPLICATE_ID:
        raise HandshakeRefusedError(f"two servers have the id {max(own, other, key=_id).node_id}: names must differ")
    return Established(hello=other, verdict=verdict)


def _id(hello: Hello) -> NodeId:
    return hello.node_id


async def receive_exactly(stream: trio.SocketStream, count: int) -> bytes:
    """Exactly `count` bytes; nothing of what follows is read. Raises trio.BrokenResourceError at the end."""
    received = b""
    while len(received) < count:
        part = await stream.receive_some(count - len(received))
        if not part:
            raise trio.BrokenResourceError("the connection ended inside the handshake")
        received += part
    return received


def plain_socket(stream: trio.SocketStream) -> socket.socket:
    """Take the socket out of a trio stream: non-blocking, and without delay for small frames."""
    sock = socket.socket(fileno=stream.socket.detach())
    sock.setblocking(False)  # noqa: FBT003  (the socket API)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
