"""The messages of a member, until they may leave and the manager takes them.

The order of one member's messages is kept: what waited for the disk leaves, when it is durable, before what is sent
because of that.
"""

from collections.abc import Sequence

from jetraft.raft.engine.messages import Message, SnapshotOffer
from jetraft.raft.engine.ready import Ready
from jetraft.store.model._fifo import Fifo
from jetraft.store.model.ids import NodeId


class RaftOutbox:
    """Performs the part of a `Ready` that leaves this node, for one member."""

    __slots__ = ("_held", "_offer", "_sends", "has_something")

    def __init__(self) -> None:
        self._held: Fifo[tuple[int, NodeId, Message]] = Fifo()  # (token of the log, ...): the tokens ascend
        self._sends: list[tuple[NodeId, Message]] = []
        self._offer: tuple[NodeId, SnapshotOffer] | None = None
        self.has_something = False  # to be taken, since it was taken last

    def put(self, ready: Ready) -> None:
        """Send, hold or void what the engine says."""
        if ready.voids_held:
            self._held.clear()
        if ready.send_now:
            self._sends += ready.send_now
            self.has_something = True
        for waiting in ready.send_when_durable:
            self._held.append(waiting)
        if ready.offer is not None:
            self._offer = ready.offer
            self.has_something = True

    def release(self, durable_token: int) -> None:
        """The log is durable up to the token. To be called before the engine hears of that."""
        held = self._held
        while held and held[0][0] <= durable_token:
            _, to, message = held.popleft()
            self._sends.append((to, message))
            self.has_something = True

    def take_sends(self) -> Sequence[tuple[NodeId, Message]]:
        """The messages that may leave now, in order."""
        self.has_something = self._offer is not None
        if not self._sends:
            return ()
        sends, self._sends = self._sends, []
        return sends

    def take_offer(self) -> tuple[NodeId, SnapshotOffer] | None:
        """The newest snapshot that a leader has offered since the last call."""
        offer, self._offer = self._offer, None
        self.has_something = bool(self._sends)
        return offer
