"""The effects that a member asks for: a `Ready`, and the collection that it is made from.

The engine does nothing itself. Its shell takes the `Ready` after an event and performs it (raft/outbox.py). What may
leave when is in the names: `send_now` promises nothing, `send_when_durable` rests on the log and waits for its token.

Source: etcd-io/raft, `Ready`.
"""

from collections.abc import Sequence
from typing import Final

import attrs

from jetraft.raft.engine.messages import Message, Role, SnapshotOffer
from jetraft.store.model.ids import NodeId
from jetraft.store.port import GroupLog


@attrs.frozen(kw_only=True, slots=True)
class Standing:
    """Role, term and leader of a member."""

    role: Role
    term: int
    leader: NodeId | None


@attrs.frozen(kw_only=True, slots=True)
class Ready:
    """The effects of the events since the last one, in the order in which they are performed."""

    standing: Standing | None = None  # when role, term or known leader changed
    voids_held: bool = False  # what earlier ones left to be sent when durable was promised in a term that is over
    send_now: Sequence[tuple[NodeId, Message]] = ()
    send_when_durable: Sequence[tuple[int, NodeId, Message]] = ()  # with the log's token to wait for; they ascend
    offer: tuple[NodeId, SnapshotOffer] | None = None  # a leader's snapshot that shall be fetched


NOTHING: Final = Ready()  # the same object each time: most events ask for nothing


class Effects:
    """Collects what one member wants done, for its next `Ready`."""

    __slots__ = (
        "_log",
        "_offer",
        "_send_now",
        "_send_when_durable",
        "_voids_held",
        "has_something",
        "told",
    )

    def __init__(self, log: GroupLog, *, role: Role, term: int, leader: NodeId | None) -> None:
        """`role`, `term` and `leader` are what the shell knows from the beginning."""
        self._log = log
        self.told: tuple[Role, int, NodeId | None] = (role, term, leader)  # what the shell knows
        self._send_now: list[tuple[NodeId, Message]] = []
        self._send_when_durable: list[tuple[int, NodeId, Message]] = []
        self._voids_held = False
        self._offer: tuple[NodeId, SnapshotOffer] | None = None
        self.has_something = False  # to be done, apart from what the member has become

    def send_now(self, to: NodeId, message: Message) -> None:
        """Send what promises nothing."""
        self._send_now.append((to, message))
        self.has_something = True

    def send_when_durable(self, to: NodeId, message: Message) -> None:
        """Send when everything written so far is durable, and not at all if the term ends before."""
        token = self._log.token()
        if token <= self._log.durable_token:
            self._send_now.append((to, message))
        else:
            self._send_when_durable.append((token, to, message))
        self.has_something = True

    def send_in_term(self, to: NodeId, message: Message) -> None:
        """Send as leader, when term and vote are durable: entries may still be on their way to the disk."""
        if self._log.hard_state_token <= self._log.durable_token:
            self.send_now(to, message)
        else:
            self.send_when_durable(to, message)

    def void_promises(self) -> None:
        """A promise that has not left yet is void: the term is over, or the member takes no part any more."""
        self._send_when_durable.clear()
        self._voids_held = self.has_something = True

    def fetch(self, leader: NodeId, offer: SnapshotOffer) -> None:
        """Have the leader's snapshot fetched."""
        self._offer = (leader, offer)
        self.has_something = True

    def take(self, role: Role, term: int, leader: NodeId | None) -> Ready:
        """The effects so far, now that the member is this."""
        is_new = self.told != (role, term, leader)
        ready = Ready(
            standing=Standing(role=role, term=term, leader=leader) if is_new else None,
            voids_held=self._voids_held,
            send_now=self._send_now,
            send_when_durable=self._send_when_durable,
            offer=self._offer,
        )
        self.told = role, term, leader
        self._send_now = []
        if self._send_when_durable:
            self._send_when_durable = []
        self._voids_held = self.has_something = False
        self._offer = None
        return ready
