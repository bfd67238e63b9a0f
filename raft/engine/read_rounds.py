"""A leader's rounds of contact for linearizable reads (rule 21): whom it asks, and when it asks others.

A round is confirmed when a majority has said, after it began, that it still follows this leader. So it asks as many
voters as make a majority with the leader, those that were heard last: one of three members. When they do not answer in
a moment, or a link ends, every voter is asked. A member that is asked says no less than one of many: what counts is
counted over all voters. Pure.
"""

from collections.abc import Callable
from typing import Final

from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.messages import Message, ReadProbe
from jetraft.raft.engine.replication import Progress, Replication
from jetraft.store.model.clock import NS_PER_MS
from jetraft.store.model.ids import NodeId

RETRY_NS: Final = 20 * NS_PER_MS  # a member of the same site has answered; across continents all are asked
RETRY_NS_MAX: Final = 640 * NS_PER_MS  # the pause doubles; a leader out of contact steps down after a second


class ReadRounds:
    """The rounds of one term of leadership. `due_ns` is when `tick` has something to do."""

    __slots__ = ("_newest", "_node_id", "_replication", "_retry_ns", "_send", "_term", "due_ns")

    def __init__(
        self, node_id: NodeId, *, term: int, replication: Replication, send: Callable[[NodeId, Message], None]
    ) -> None:
        self._node_id = node_id
        self._term = term
        self._replication = replication
        self._send = send
        self._newest = 0
        self._retry_ns = RETRY_NS
        self.due_ns: int | None = None

    def begin(self, configuration: Configuration, now_ns: int) -> int:
        """Begin a round and return its number."""
        self._newest += 1
        others = self._others(configuration)
        for peer in sorted(others, key=_likely_first)[: len(configuration.voters) // 2]:
            self._ask(peer.node)
        if others and self.due_ns is None:
            self._retry_ns = RETRY_NS
            self.due_ns = now_ns + RETRY_NS
        return self._newest

    def seen(self, peer: Progress, read_round: int) -> None:
        """A member still followed this leader when a round's question came."""
        peer.read_round = max(peer.read_round, min(read_round, self._newest))

    def confirmed(self, configuration: Configuration) -> int:
        """The newest round that a majority has answered."""
        return self._replication.confirmed_round(configuration, self._node_id, self._newest)

    def hurry(self, now_ns: int) -> None:
        """A link has ended: who was asked may not answer."""
        if self.due_ns is not None:
            self.due_ns = now_ns

    def tick(self, configuration: Configuration, now_ns: int) -> None:
        """Ask every voter that has not answered the newest round, if it is still not confirmed."""
        if self.due_ns is None or self.due_ns > now_ns:
            return
        if self.confirmed(configuration) >= self._newest:
            self.due_ns = None
            return
        for peer in self._others(configuration):
            if peer.read_round < self._newest:
                self._ask(peer.node)
        self.due_ns = now_ns + self._retry_ns
        self._retry_ns = min(2 * self._retry_ns, RETRY_NS_MAX)

    def _others(self, configuration: Configuration) -> list[Progress]:
        return [self._replication.peers[node] for node in configuration.voters if node != self._node_id]

    def _ask(self, node: NodeId) -> None:
        self._send(node, ReadProbe(term=self._term, round=self._newest))


def _likely_first(peer: Progress) -> tuple[bool, int, NodeId]:
    """Those in contact, the one heard last first."""
    return not (peer.up and peer.responded), -peer.active_ns, peer.node
