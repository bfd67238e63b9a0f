"""One stream's assignment: what it is, on which nodes, and under which identity.

The incarnation is the meta log index of the creation, so a stream that was deleted and created again under its old
name is told from its namesake by number (the idea of redpanda's revision). The group id names the Raft group and its
directory; its eight random characters are drawn by the meta leader and are a fact of the log entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import attrs

if TYPE_CHECKING:
    from jetraft.store.model.config import Placement, StreamConfig
    from jetraft.store.model.ids import GroupId, NodeId


class StreamKey(NamedTuple):
    """The name of a stream inside its account."""

    account: str
    name: str


@attrs.frozen(kw_only=True, slots=True)
class Former:
    """The place of a stream, and what its config said of that, before a change of its peers that is not complete."""

    peers: tuple[NodeId, ...]
    replicas: int
    placement: Placement | None


@attrs.frozen(kw_only=True, slots=True)
class StreamAssignment:
    """A stream as the meta group knows it. `revision` is the meta log index of the last change of config or peers.

    `peers` is what should be: the stream's leader brings the group's members in line, one at a time. Those that are on
    their way out are `leaving` until it says that they are out; only then they may delete their data. `founding` never
    changes: it is the configuration that a new log begins with. `newcomers` came later, or came back: they know
    nothing of the group and may not begin as its voters. `former` is what a change of peers that is under way began
    with, whatever was changed again since: all of those are holders until it is complete.
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
    former: Former | None = None

    @property
    def key(self) -> StreamKey:
        """Account and name."""
        return StreamKey(self.account, self.config.name)

    @property
    def holders(self) -> tuple[NodeId, ...]:
        """The nodes that run a replica now: peers, and those that have not left yet."""
        return (*self.peers, *self.leaving)

    @property
    def is_changing(self) -> bool:
        """Whether the group's members have yet to become the peers."""
        return bool(self.leaving) or self.former is not None

    def reshaped(
        self, config: StreamConfig, peers: tuple[NodeId, ...], revision: int, *, remembers: bool = True
    ) -> StreamAssignment:
        """The row after a change; `peers` empty leaves them as they are. `remembers` what a change began with."""
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
            former=self.former if not remembers or set(peers) == set(self.peers) else self.former or self._as_former(),
            preferred=self.preferred if self.preferred in peers else peers[0],
        )

    def _as_former(self) -> Former:
        return Former(peers=self.peers, replicas=self.config.num_replicas, placement=self.config.placement)
