"""The end of a run: does the cluster come to what it should be, and is everything there that anybody was told?"""

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import trio

from jetraft.cluster.meta.members.meta_replica import META_GROUP
from jetraft.cluster.state.assignment import StreamKey
from jetraft.store.model.config import StorageType
from jetraft.store.port import StoreCorrupt
from tests.simulator.nodes.clients import body_of
from tests.simulator.world import ViolationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from tests.simulator.nodes.clients import Clients, Stream
    from tests.simulator.nodes.cluster import SimCluster
    from tests.simulator.nodes.life import Life

SETTLED_WITHIN_S = 12.0
COMPARED_WITHIN_S = 150.0  # where half of the events are lost: five looks at all replicas (replica_duties.py)
MENDED_WITHIN_S = 12.0
SWEPT_WITHIN_S = 70.0  # SWEEP_S of cluster/node.py, and a little
LOOK_S = 0.1
ACCOUNT = "$G"


class Judge:
    """Looks at all nodes of a healed cluster."""

    def __init__(self, cluster: "SimCluster", clients: "Clients", *, events_are_lost: bool = False) -> None:
        self._cluster = cluster
        self._clients = clients
        self._settled_within_s = COMPARED_WITHIN_S if events_are_lost else SETTLED_WITHIN_S

    async def verdict(self) -> str | None:
        """What is wrong; None when nothing is. Raises ViolationError for what was promised and is not there."""
        for look, within_s in (
            (partial(self._what_is_not_settled, StorageType.FILE), self._settled_within_s),
            (self._what_is_damaged, MENDED_WITHIN_S),
            (self._what_is_not_swept, SWEPT_WITHIN_S),
            (partial(self._what_is_not_settled, StorageType.MEMORY), self._settled_within_s),
        ):
            missing = await self._until_none(look, within_s)
            if missing is not None:
                return f"liveness: {missing}"
            self._compare()
        return None

    async def _until_none(self, look: "Callable[[], str | None]", within_s: float) -> str | None:
        missing: str | None = ""
        with trio.move_on_after(within_s):
            while (missing := look()) is not None:  # noqa: ASYNC110  (nobody tells)
                await trio.sleep(LOOK_S)
        return missing

    @property
    def _streams(self) -> "list[Stream]":
        return list(self._clients.streams.values())

    def _rows(self, life: "Life") -> "list[StreamAssignment]":
        assert life.node is not None
        return list(life.node.machine.table.streams.values())

    def _what_is_not_settled(self, kind: StorageType) -> str | None:  # noqa: PLR0911  (one reason each)
        lives = self._cluster.lives
        for life in lives:
            if not (life.is_alive and life.is_serving and life.node is not None and life.node.meta_group is not None):
                return f"{life.name} is not serving"
        leading = [life for life in lives if life.node is not None and life.node.machine.leading_term is not None]
        if len(leading) != 1:
            return f"{len(leading)} nodes lead the meta group"
        tables = {life.name: {row.key: row for row in self._rows(life)} for life in lives}
        table = tables[leading[0].name]
        behind = [name for name, other in tables.items() if other != table]
        if behind:
            return f"{behind} have another table"
        for stream in self._streams:
            there = StreamKey(ACCOUNT, stream.name) in table
            if stream.exists and not stream.may_be_gone and not there:
                return f"{stream.name} was created and is not in the table"
            if stream.is_gone and there:
                return f"{stream.name} was deleted and is in the table"
            if stream.exists and not stream.may_be_gone and stream.unfinished and stream.storage == kind.value:
                return f"{stream.name}: {len(stream.unfinished)} messages are not acknowledged"
        rows = [row for row in table.values() if row.config.storage is kind]
        return next(filter(None, map(self._what_is_not_right, rows)), None)

    def _what_is_not_right(self, row: "StreamAssignment") -> str | None:
        """Of one stream: all replicas run, one leads, the others have all it has."""
        replicas = self._replicas(row)
        name = row.config.name
        gone = {self._cluster.machines[name].life for name in self._cluster.gone}
        if any(life is not None and life.mesh.node_id in row.peers for life in gone):
            return f"{name}: it keeps the replica of a server that was removed"
        missing = [node for node in row.holders if node not in replicas]
        if missing or row.leaving:
            return f"{name}: no replica on {missing}, leaving {row.leaving}"
        failed = [str(replica.group.failed) for replica in replicas.values() if replica.group.failed is not None]
        if failed:
            return f"{name}: {failed}"
        if sum(replica.is_leader for replica in replicas.values()) != 1:
            return f"{name}: {sum(replica.is_leader for replica in replicas.values())} lead"
        members = {tuple(sorted(replica.group.configuration.voters)) for replica in replicas.values()}
        if members != {tuple(sorted(row.peers))}:
            return f"{name}: the voters are {members}, not {row.peers}"
        applied = {replica.group.applied_index for replica in replicas.values()}
        commits = {replica.group.commit_index for replica in replicas.values()}
        return None if applied == commits and len(applied) == 1 else f"{name}: applied {applied} of {commits}"

    def _replicas(self, row: "StreamAssignment") -> "Mapping[str, StreamReplica]":
        found = {}
        for life in self._cluster.lives:
            assert life.node is not None
            replica = life.node.directory.get(row.key)
            if replica is not None:
                found[str(life.mesh.node_id)] = replica
        return found

    def _what_is_not_swept(self) -> str | None:
        """Of file streams each node stores those that it holds, and no other."""
        for life in self._cluster.lives:
            assert life.node is not None
            own = life.mesh.node_id
            rows = [row for row in self._rows(life) if own in row.holders and row.config.storage is StorageType.FILE]
            stored = {group_id for group_id, _ in life.stored_groups() if group_id != META_GROUP}
            assigned = {row.group_id for row in rows}
            if stored != assigned:
                return f"{life.name} stores {sorted(stored - assigned)} and lacks {sorted(assigned - stored)}"
        return None

    def _what_is_damaged(self) -> str | None:
        """A damaged message that somebody reads is mended; nothing is compared before."""
        for row in self._rows(self._cluster.lives[0]):
            for node, replica in self._replicas(row).items():
                try:
                    _messages(replica)
                except StoreCorrupt as error:
                    replica.group.distrust(error)
                    return f"{row.config.name} on {node}: {error}"
        return self._what_is_not_settled(StorageType.FILE)

    # What was promised.

    def _compare(self) -> None:
        rows = {row.config.name: row for row in self._rows(self._cluster.lives[0])}
        for stream in self._streams:
            row = rows.get(stream.name)
            if row is not None and self._what_is_not_right(row) is None:
                with suppress(StoreCorrupt):  # it is seen later
                    self._compare_stream(stream, row)

    def _compare_stream(self, stream: "Stream", row: "StreamAssignment") -> None:
        contents = {node: _messages(replica) for node, replica in self._replicas(row).items()}
        first = next(iter(contents.values()))
        if any(other != first for other in contents.values()):
            sizes = {node: len(messages) for node, messages in contents.items()}
            raise ViolationError(f"{stream.name}: replicas differ: {sizes}")
        if len(set(first.values())) != len(first):
            raise ViolationError(f"{stream.name}: a message is there twice")
        if stream.may_lose:
            return
        lowest = min(first, default=1 << 62) if stream.max_msgs > 0 else 0
        lost = [
            (number, seq)
            for number, seq in stream.acknowledged.items()
            if seq >= lowest and first.get(seq) != body_of(number)
        ]
        if lost or (stream.max_msgs > 0 and stream.acknowledged and not first):
            raise ViolationError(
                f"{stream.name}: {len(lost)} of {len(stream.acknowledged)} acknowledged are lost: {lost[:5]}"
            )


def _messages(replica: "StreamReplica") -> dict[int, bytes]:
    store = replica.machine.store
    return {message.seq: message.payload for message in store.load_many(range(store.first_seq, store.last_seq + 1))}
