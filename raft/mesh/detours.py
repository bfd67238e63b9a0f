"""Two nodes that have lost the link between them, and a third that is linked with both: what it carries for them.

A detour carries core messages and interest (what CHANNEL_ROUTE carries), so that clients of either node reach streams
that the other one leads. Raft does not take it: whether a node hears its leader stays a matter of the two.

    frame: u8 direction | node id | u8 kind | u64 own | u64 other | records

An end sends TO with the node that is meant; the one between sends FROM with the node that it comes from, or LOST. A
session has a number of each end. OPEN carries the sender's number and, if known, the other's; an end that receives its
own number is up. An OPEN that does not fit a session that is up ends it, and another one begins: both ends begin
together, with all their interest, as on a link. DATA of other numbers is not looked at, so nothing of an old session is
seen in a new one, whichever way it came (rule 23). A session ends with the link to the one between, with what that says
of its own links, and when the direct link is back. Messages on their way are lost then, as with a link.

A frame goes over one node between, never two: there are no loops.
"""

import struct
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

import attrs

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.framing import CHANNEL_DETOUR
from jetraft.store.model.ids import NODE_ID_CHARS, NodeId

RELAYED_BYTES_MAX: Final = (
    16 << 20
)  # wait in the link of a node between: its own frames have the rest (QUEUE_BYTES_MAX)

_TO, _FROM, _LOST = 0, 1, 2
_OPEN, _DATA = 0, 1
_HEAD: Final = struct.Struct(f"<B{NODE_ID_CHARS}sBQQ")


class Linked(Protocol):
    """A peer's report of its links."""

    @property
    def up(self) -> bool:
        """Whether this node is linked with it."""

    @property
    def links(self) -> Collection[NodeId] | None:
        """Whom it is linked with; None when it knows nothing of detours."""


class RelayLinks(Protocol):
    """The part of the mesh that is used here."""

    node_id: NodeId

    @property
    def peers(self) -> Mapping[NodeId, Linked]:
        """All known peers."""

    def is_up(self, node: NodeId) -> bool:
        """Whether there is a link."""

    def relay_to(self, node: NodeId) -> NodeId | None:
        """A node that is linked with both."""

    def send(self, to: NodeId, channel: int, payload: bytes) -> bool:
        """Queue a frame."""

    def queued_bytes(self, node: NodeId) -> int:
        """The bytes that wait for a node."""


@attrs.define(eq=False)
class _Session:
    """One end. `is_up`: both ends know both numbers."""

    via: NodeId
    own: int
    other: int = 0
    is_up: bool = False


class Detours:
    """The detours of one node, as an end and as the one between. The owner calls `update` now and then."""

    def __init__(
        self,
        links: RelayLinks,
        *,
        on_up: Callable[[NodeId], None],
        on_down: Callable[[NodeId], None],
        on_records: Callable[[NodeId, memoryview], None],
        new_number: Callable[[], int],
    ) -> None:
        self._links = links
        self._on_up, self._on_down, self._on_records = on_up, on_down, on_records
        self._new_number = new_number  # never the same again, also after a restart
        self._sessions: dict[NodeId, _Session] = {}
        self.relayed = 0

    @property
    def nodes(self) -> list[NodeId]:
        """Those that are reached by a detour now."""
        return [node for node, session in self._sessions.items() if session.is_up]

    def update(self) -> None:
        """After links have come or gone here or elsewhere: end what does not lead anywhere, begin what may."""
        for node, session in list(self._sessions.items()):
            says = self._links.peers.get(session.via)
            leads_there = says is not None and says.up and node in (says.links or ())
            if self._links.is_up(node) or not leads_there:
                self._end(node)
        for node in sorted(self._known()):
            begun = self._sessions.get(node) or self._begin(node)
            if begun is not None and not begun.is_up:
                self._open(node, begun)

    def queued_bytes(self, node: NodeId) -> int:
        """The bytes that wait in the link to the node between."""
        session = self._sessions.get(node)
        return 0 if session is None else self._links.queued_bytes(session.via)

    def send(self, node: NodeId, records: bytes) -> bool:
        """Send records of CHANNEL_ROUTE to a node that is up by a detour."""
        session = self._sessions.get(node)
        return session is not None and session.is_up and self._send(node, session, _DATA, records)

    def on_frame(self, sender: NodeId, payload: memoryview) -> None:
        """A frame of CHANNEL_DETOUR. Raises RemoteProtocolError."""
        if len(payload) < _HEAD.size:
            raise RemoteProtocolError("a detour frame that ends inside its head")
        direction, name, kind, own, other = _HEAD.unpack_from(payload)
        try:
            node = NodeId(name.decode("ascii"))
        except UnicodeDecodeError as error:
            raise RemoteProtocolError("a detour frame with a node that has no id") from error
        if direction == _TO:
            self._relay(sender, node, payload)
        elif direction == _LOST:
            session = self._sessions.get(node)
            if session is not None and session.via == sender:
                self._end(node)
        elif direction == _FROM and not self._links.is_up(node):
            if kind == _OPEN:
                self._on_open(node, own, other)
                return
            session = self._sessions.get(node)
            # Other numbers: nothing of an old session is delivered.
            if session is not None and session.is_up and (session.other, session.own) == (own, other):
                self._on_records(node, payload[_HEAD.size :])

    # --- an end

    def _known(self) -> set[NodeId]:
        """The nodes that some linked node is linked with, and this one is not."""
        known = {node for peer in self._links.peers.values() if peer.up for node in peer.links or ()}
        return {node for node in known if node != self._links.node_id and not self._links.is_up(node)}

    def _begin(self, node: NodeId) -> _Session | None:
        via = self._links.relay_to(node)
        if via is None:
            return None
        self._sessions[node] = session = _Session(via, self._new_number())
        return session

    def _end(self, node: NodeId) -> None:
        session = self._sessions.pop(node)
        if session.is_up:
            self._on_down(node)

    def _open(self, node: NodeId, session: _Session) -> None:
        self._send(node, session, _OPEN, b"")

    def _send(self, node: NodeId, session: _Session, kind: int, records: bytes) -> bool:
        head = _HEAD.pack(_TO, node.encode(), kind, session.own, session.other)
        return self._links.send(session.via, CHANNEL_DETOUR, head + records)

    def _on_open(self, node: NodeId, theirs: int, heard: int) -> None:
        session = self._sessions.get(node)
        if session is not None and session.is_up and (session.other, session.own) != (theirs, heard):
            self._end(node)
            session = None
        session = session or self._begin(node)
        if session is None:
            return  # it has found a way here, and there is none back
        was_up = session.is_up
        session.other = theirs
        session.is_up = heard == session.own
        if not was_up:
            self._open(node, session)
            if session.is_up:
                self._on_up(node)

    # --- the one between

    def _relay(self, sender: NodeId, node: NodeId, payload: memoryview) -> None:
        """Pass a frame on, or say that it was not."""
        peer = self._links.peers.get(node)
        knows = peer is not None and peer.up and peer.links is not None
        if knows and self._links.queued_bytes(node) <= RELAYED_BYTES_MAX:
            direction, name, to = _FROM, sender, node
            self.relayed += 1
        else:
            direction, name, to = _LOST, node, sender
        _, _, kind, own, other = _HEAD.unpack_from(payload)
        head = _HEAD.pack(direction, name.encode(), kind, own, other)
        self._links.send(to, CHANNEL_DETOUR, head + bytes(payload[_HEAD.size :]))
