"""The listener for leaf nodes."""

import errno
import socket
from contextlib import suppress

import attrs
import trio

from jetraft.api.interfaces import client_ip
from jetraft.api.leafnodes.leafnodes import Leafnodes
from jetraft.api.reactor import Reactor

ACCEPT_RETRY_S = 0.1  # the pause when the process is out of descriptors


@attrs.define(eq=False)
class LeafListener:
    """Accepts connections on one socket and hands them to the plane."""

    sock: socket.socket
    leafnodes: Leafnodes
    reactor: Reactor

    async def run(self) -> None:
        """Accept until cancelled, then close the socket."""
        try:
            while True:
                await trio.lowlevel.wait_readable(self.sock)
                try:
                    with suppress(BlockingIOError, ConnectionError):
                        self._accept()
                except OSError as error:
                    if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                        raise
                    await trio.sleep(ACCEPT_RETRY_S)
        finally:
            self.sock.close()

    def _accept(self) -> None:
        sock, address = self.sock.accept()
        prepare(sock)
        self.leafnodes.accept(sock, client_ip(address[0]), address[1])
        self.reactor.end_turn()


def prepare(sock: socket.socket) -> None:
    """Make a connected socket one that the plane can take over."""
    sock.setblocking(False)  # noqa: FBT003  the socket module's own signature
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
