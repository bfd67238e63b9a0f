"""The second connections: beside each link one for what is bulky, with a rate of its own.

A snapshot of gigabytes must not stand in front of a heartbeat, neither in this process nor in the socket's buffers. So
frames of the BULK channel have a connection of their own, which the end that dialled the link dials too and keeps while
the session lasts. It belongs to that session: it is adopted for no other one and closed with it. While it is not there
bulk frames take the link, with the lowest priority; calls are matched by number, so the order between the two
connections does not matter.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import attrs
import trio

from jetraft.raft.mesh.addresses import Address
from jetraft.raft.mesh.connector import REDIAL_S, Made
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.framing import CHANNEL_BULK, CHANNEL_CONTROL
from jetraft.raft.mesh.handshake import HandshakeVerdict, Hello
from jetraft.raft.mesh.link import Link, LinkStatistics
from jetraft.raft.mesh.token_bucket import TokenBucket
from jetraft.store.model.clock import NS_PER_MS, Clock
from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

BYTES_PER_S: Final = 64 << 20  # per peer: half of a gigabit line, and less than a disk that is written to meanwhile
SILENCE_NS: Final = 5000 * NS_PER_MS  # a dead one costs transfers only: it is waited for longer than for a link
STOPPED: Final = "the session of the link is over"


class BulkEnded(Protocol):
    """Hears which node's bulk connection is gone, and whether the node broke the protocol."""

    def __call__(self, node: NodeId, /, *, broke_protocol: bool) -> None:
        """Called while the session of the link lasts."""
        ...


@attrs.define(slots=True)
class _Session:
    """A link's session, as far as bulk is concerned."""

    boot: int
    number: int  # what the dialer called the link's connection
    link: Link | None = None
    is_reserved: bool = False


class BulkLinks:
    """The bulk connections of one mesh; the mesh says which sessions there are."""

    def __init__(
        self,
        *,
        clock: Clock,
        on_frame: Callable[[NodeId, memoryview], None],
        on_ended: BulkEnded,
        after_frames: Callable[[], None],
        bytes_per_s: int = BYTES_PER_S,
    ) -> None:
        self._clock = clock
        self._on_frame = on_frame
        self._on_ended = on_ended
        self._after_frames = after_frames
        self._bytes_per_s = bytes_per_s
        self._sessions: dict[NodeId, _Session] = {}

    def session_began(self, node: NodeId, *, boot: int, number: int) -> None:
        """A link has this session now."""
        self._sessions[node] = _Session(boot=boot, number=number)

    def session_ended(self, node: NodeId) -> None:
        """Nothing more is taken from, or sent to, this session."""
        session = self._sessions.pop(node, None)
        if session is not None and session.link is not None:
            session.link.close(STOPPED)

    async def keep(self, address: Address, session: int, dial: Callable[[Address, int], Awaitable[bool]]) -> None:
        """Have a bulk connection beside a link that this end dialled, until cancelled."""
        failures = 0
        while True:
            served = await dial(address, session)
            failures = 0 if served else failures + 1
            await trio.sleep(REDIAL_S[min(failures, len(REDIAL_S) - 1)])

    def judge(self, hello: Hello) -> HandshakeVerdict:
        """Whether the connection belongs to a session of now that has none yet; KEEP reserves the place."""
        session = self._sessions.get(hello.node_id)
        if session is None or (session.boot, session.number) != (hello.boot, hello.session):
            return HandshakeVerdict.NO_SESSION
        if session.is_reserved or session.link is not None:
            return HandshakeVerdict.NO_SESSION
        session.is_reserved = True
        return HandshakeVerdict.KEEP

    def release(self, node: NodeId) -> None:
        """The handshake ended, one way or the other."""
        if (session := self._sessions.get(node)) is not None:
            session.is_reserved = False

    async def serve(self, made: Made) -> None:
        """Run a bulk connection until it or its session ends."""
        hello = made.established.hello
        node = hello.node_id
        self.release(node)
        session = self._sessions.get(node)
        link = self._link(made)
        if session is None or session.boot != hello.boot or session.link is not None:
            link.abandon()
            return
        session.link = link

        def handle(channel: int, payload: memoryview) -> None:
            if channel == CHANNEL_BULK:
                self._on_frame(node, payload)
            elif channel != CHANNEL_CONTROL or payload:
                raise RemoteProtocolError(f"a frame of channel {channel} on the connection for bulk")

        try:
            await link.run(handle, self._after_frames)
        finally:
            if self._sessions.get(node) is session:
                session.link = None
                log.debug("bulk connection to %s ended: %s", node, link.closed_because)
                self._on_ended(node, broke_protocol=link.broke_protocol)

    def _link(self, made: Made) -> Link:
        established = made.established
        return Link(
            made.connection.take(),
            node_id=established.hello.node_id,
            session=established.own_session,
            boot=established.hello.boot,
            clock=self._clock,
            pace=TokenBucket(self._bytes_per_s, now_ns=self._clock.mono_ns()),
        )

    def get(self, node: NodeId) -> Link | None:
        """The open bulk connection to a node."""
        session = self._sessions.get(node)
        link = None if session is None else session.link
        return link if link is not None and link.closed_because is None else None

    def statistics(self) -> Mapping[NodeId, LinkStatistics]:
        """Figures of the open connections."""
        return {node: link.statistics() for node in self._sessions if (link := self.get(node)) is not None}

    def watch(self, now_ns: int, keepalive_ns: int, *, is_late: bool) -> None:
        """Keepalives, and the end of connections that are silent. `is_late`: this node itself was, so wait for once."""
        for session in list(self._sessions.values()):
            link = session.link
            if link is None:
                continue
            link.keep_alive(keepalive_ns)
            if is_late:
                link.last_received_ns = max(link.last_received_ns, now_ns - SILENCE_NS // 2)
            elif now_ns - link.last_received_ns > SILENCE_NS:
                link.close(f"silent for {(now_ns - link.last_received_ns) // NS_PER_MS} ms")
