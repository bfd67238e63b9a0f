"""The messages of a node's groups in a turn, gathered to one payload per peer."""

from collections.abc import Callable, Iterable

from jetraft.raft.engine.messages import Message
from jetraft.raft.payloads import payloads_of
from jetraft.raft.wire import encode
from jetraft.store.model.ids import NodeId


class Outgoing:
    """See the module. Messages keep their order towards each peer."""

    def __init__(self) -> None:
        self.parts: dict[NodeId, list[bytes]] = {}  # what waits for `send`
        self.messages_sent = 0
        self.payload_bytes_sent = 0

    def add(self, group_name: bytes, incarnation: int, sends: Iterable[tuple[NodeId, Message]]) -> None:
        """Queue messages of one group."""
        for to, message in sends:
            self.parts.setdefault(to, []).extend(encode(group_name, incarnation, message))
            self.messages_sent += 1

    def clear(self) -> None:
        """Drop what is queued."""
        self.parts.clear()

    def send(self, send: Callable[[NodeId, bytes], object]) -> None:
        """Send everything. A peer whose link is down gets nothing: `peer_down` tells the groups."""
        parts, self.parts = self.parts, {}
        for to, queued in parts.items():
            for payload in payloads_of(queued):
                self.payload_bytes_sent += len(payload)
                send(to, payload)
