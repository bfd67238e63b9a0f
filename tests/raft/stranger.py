"""A peer that a test plays itself over a blocking socket: it can prove who it is, and then says what it likes."""

import contextlib
import secrets
import socket
from types import TracebackType
from typing import Self

import msgpack

from jetraft.raft.mesh.framing import CHANNEL_CONTROL, frame_head
from jetraft.raft.mesh.handshake import (
    CHALLENGE_BYTES,
    HELLO_BYTES,
    PROOF_BYTES,
    Hello,
    Purpose,
    Side,
    cluster_key,
    proof,
)
from jetraft.store.model.ids import node_id_of
from tests.harness.patience import PATIENCE_S


class Stranger:
    """`with Stranger(port, name) as stranger:` connects; `join` goes through the handshake as the dialer."""

    def __init__(self, port: int, name: str = "stranger", *, cluster: str = "c", secret: bytes = b"s") -> None:
        self.name = name
        self.node_id = node_id_of(name)
        self.said = b""  # everything sent in the handshake, to be said again
        self._cluster = cluster
        self._key = cluster_key(secret, cluster)
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.sock.close()

    def hello(self, *, session: int = 1, boot: int = 1, purpose: Purpose = Purpose.LINK) -> Hello:
        """A greeting of this name."""
        return Hello(
            cluster=self._cluster,
            node_id=self.node_id,
            name=self.name,
            boot=boot,
            session=session,
            challenge=secrets.token_bytes(CHALLENGE_BYTES),
            purpose=purpose,
        )

    def join(self, hello: Hello | None = None) -> bool:
        """Say hello and prove it; True when the other end then wants a link. Raises OSError when it hangs up."""
        own = hello or self.hello()
        own_bytes = own.encode()
        self.sock.sendall(own_bytes)
        other_bytes = self._exactly(HELLO_BYTES)
        given = proof(self._key, Side.DIALER, own_bytes, other_bytes)
        self.sock.sendall(given)
        self.said = own_bytes + given
        self._exactly(PROOF_BYTES)
        other = Hello.decode(other_bytes)
        if own.purpose is Purpose.BULK or other.node_id < own.node_id:
            return self._exactly(1) == b"\1"
        self.sock.sendall(b"\1")
        self.said += b"\1"
        return True

    def introduce(self) -> None:
        """The control frame with which a session begins."""
        self.send(CHANNEL_CONTROL, msgpack.packb({"metadata": {}, "address": "", "peers": {}}))

    def send(self, channel: int, payload: bytes) -> None:
        """A well-formed frame."""
        self.sock.sendall(frame_head(channel, payload) + payload)

    def is_hung_up_on(self) -> bool:
        """Read until the other end closes; False when it does not in all that time."""
        with contextlib.suppress(ConnectionError):
            try:
                while self.sock.recv(65536):
                    pass
            except TimeoutError:
                return False
        return True

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.sock.recv(count - len(data))
            if not part:
                raise ConnectionResetError("the other end hung up")
            data += part
        return data
