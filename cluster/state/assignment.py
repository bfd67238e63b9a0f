"""One stream's assignment: what it is, on which nodes, and under which identity.

The incarnation is the meta log index of the creation, so a stream that was deleted and created again under its old
name is told from its namesake by number (the idea of redpanda's revision). The group id names the Raft group and its
directory; its eight random characters are drawn by the meta leader and are a fact of the log entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import attrs

if TYPE_CHECKING:
    from jetraft.store.model.config import StreamConfig
    from jetraft.store.model.ids import GroupId, NodeId


class StreamKey(NamedTuple):
    """The name of a stream inside its account."""

    account: str
    name: str


@attrs.frozen(kw_only=True, slots=True)
class StreamAssignment:
    """A stream as the meta group knows it. `revision` is the meta log index of the last change of config or peers.

    `peers` is what should be: the stream's leader brings the group's members in line, one at a time. Those that are on
    their way out are `leaving` until it says that they are out; only then they may delete their data. `founding` never
    changes: it is the configuration that a new log begins with. `newcomers` came later, or came back: they know
    nothing of the group and may not begin as its voters.
    """

    account: str
    config: StreamConfig
    group_id: GroupId
    incarnation: int
    revision: int
    peers: tuple[NodeId, ...]
    preferred: NodeId
    created_ns: int
    founding: tuple[NodeId, ...]
    leaving: tuple[NodeId, ...] = ()
    newcomers: tuple[NodeId, ...] = ()

    @property
    def key(self) -> StreamKey:
        """Account and name."""
        return StreamKey(self.account, self.config.name)

    @property
    def holders(self) -> tuple[NodeId, ...]:
        """The nodes that run a replica now: peers, and those that have not left yet."""
        return (*self.peers, *self.leaving)

    def reshaped(self, config: StreamConfig, peers: tuple[NodeId, ...], revision: int) -> StreamAssignment:
        """The row after a change; `peers` empty leaves them as they are."""
        peers = peers or self.peers
        leaving = tuple(node for node in self.holders if node not in peers)
        added = tuple(node for node in peers if node not in self.holders)
        newcomers = tuple(node for node in (*self.newcomers, *added) if node in (*peers, *leaving))
        return attrs.evolve(
            self,
            config=config,
            revision=revision,
            peers=peers,
            leaving=leaving,
            newcomers=newcomers,
            preferred=self.preferred if self.preferred in peers else peers[0],
        )
