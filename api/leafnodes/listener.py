"""The listener for leaf nodes."""

import errno
import socket
from contextlib import suppress
from functools import partial

import attrs
import trio

from jetraft.api.leafnodes.leafnodes import Leafnodes
from jetraft.api.options.interfaces import client_ip
from jetraft.api.sessions.arrivals import ArrivalPlaces
from jetraft.api.turns.reactor import Reactor

ACCEPT_RETRY_S = 0.1  # the pause when the process is out of descriptors


@attrs.define(eq=False)
class LeafListener:
    """Accepts connections on one socket and hands them to the plane."""

    sock: socket.socket
    leafnodes: Leafnodes
    reactor: Reactor
    arrivals: ArrivalPlaces

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
        ip = client_ip(address[0])
        if self.arrivals.has_place(ip):
            self._welcome(sock, ip, address[1])
        else:
            self.arrivals.wait(ip, partial(self._welcome, sock, ip, address[1]), sock.close)
        self.reactor.end_turn()

    def _welcome(self, sock: socket.socket, ip: str, port: int) -> None:
        cid = self.leafnodes.accept(sock, ip, port)
        if cid in self.leafnodes.links:
            self.arrivals.enter(cid, ip)


def prepare(sock: socket.socket) -> None:
    """Make a connected socket one that the plane can take over."""
    sock.setblocking(False)  # noqa: FBT003  the socket module's own signature
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
