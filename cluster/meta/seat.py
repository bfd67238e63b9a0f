"""This node's seat in the meta group: the group over its log, from the founding, and anew when the log was replaced.

The log is replaced when this node was away for so long that the others have trimmed what it lacks (raft/catchup.py).
The table stays while the group is away for that moment: a table that is empty for an instant would look like a cluster
without streams, and every replica here would be stopped.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from jetraft.raft.group_spec import GroupSpec
from jetraft.raft.joining import JoinPendingError, until_durable
from jetraft.raft.recovery import known_members
from jetraft.raft.repair import RepairPendingError
from jetraft.raft.repair_pacing import rest_s
from jetraft.store.format import Identity
from jetraft.store.model.ids import GroupId
from jetraft.store.port import StoreCorrupt, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from jetraft.cluster.meta.founding import Founders
    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.raft.group import Group
    from jetraft.raft.joining import Admission
    from jetraft.raft.manager import Manager
    from jetraft.raft.repair import Repairs
    from jetraft.raft.swap import Swap
    from jetraft.store.block_cache import BlockCache
    from jetraft.store.log import FileLog
    from jetraft.store.model.ids import NodeId
    from jetraft.store.node_dir import NodeDir
    from jetraft.store.port import GroupLog

log = logging.getLogger(__name__)

META_GROUP: Final = GroupId("meta")
JOIN_RETRY_S: Final = 0.3


class MetaSeat:
    """See the module. `on_group` hears of every new group object; `linked` gives the nodes that can be reached now.

    It is None on a server that stands alone.
    """

    def __init__(  # noqa: PLR0913  (what a group on a node is made of)
        self,
        *,
        node_id: NodeId,
        machine: MetaMachine,
        manager: Manager,
        repairs: Repairs,
        node_dir: NodeDir,
        cache: BlockCache,
        linked: Callable[[], Iterable[NodeId]] | None,
        on_group: Callable[[Group], None],
    ) -> None:
        self._node_id = node_id
        self._machine = machine
        self._manager = manager
        self._repairs = repairs
        self._node_dir = node_dir
        self._cache = cache
        self._linked = linked
        self._on_group = on_group
        self._founders: Founders | None = None
        self._heard = trio.Event()  # of a member that damaged entries may be had from
        repairs.on_heard.append(self._on_heard)
        self.group: Group | None = None
        self._is_swapping = False

    async def take(self, founders: Founders, *, is_known: bool) -> None:
        """Open the log and start the group. Raises StoreError or OSError when the log cannot be opened.

        With `is_known` the group may count on a self of this node whose log was given up: a new log is of no use then.
        """
        self._founders = founders
        opened = await self._open()
        if is_known and opened.load_checkpoint() is None:
            opened.close()
            raise StoreCorrupt(f"{META_GROUP}: the log was given up, and no leader has admitted this node since")
        self._start(opened)

    async def trash(self) -> None:
        """Throw away what a log of an earlier attempt holds: it was never spoken of."""
        assert self._founders is not None
        await self._node_dir.move_to_trash(META_GROUP, self._founders.incarnation)

    async def set_aside(self) -> None:
        """Keep what is left of a log that is of no use, out of the way."""
        assert self._founders is not None
        await self._node_dir.set_aside(META_GROUP, self._founders.incarnation)

    async def join(
        self, founders: Founders, ask: Callable[[], Awaitable[Admission]], *, give_up: Callable[[], Awaitable[None]]
    ) -> Admission:
        """Start as a learner of a group that exists, once its leader has admitted this node.

        `give_up` then takes out of the way what is there. Returns the admission before the group is started: `take`
        does that, when it is written down that this node belongs to the group.
        """
        self._founders = founders
        told = ""
        while True:
            try:
                admission = await ask()
                break
            except JoinPendingError as error:
                if str(error) != told:
                    told = str(error)
                    log.info("not a member of the meta group yet: %s", told)
                await trio.sleep(JOIN_RETRY_S)
        await give_up()
        new = await self._open()
        admission.begin(new)
        await until_durable(new)
        new.close()
        return admission

    async def reopen(self, swap: Swap) -> None:
        """Replace the log: see raft/swap.py. When that fails the old one is opened again, and the failure raised.

        Without a log that opens there is no group until the next call.
        """
        swap.check(None if self._is_swapping else self.group)
        self._is_swapping = True
        try:
            await self._swap(swap)
        finally:
            self._is_swapping = False

    async def _swap(self, swap: Swap) -> None:
        old = swap.group.log
        if META_GROUP in self._manager.groups:
            self._manager.remove(META_GROUP)
        try:
            new = await swap.carry_out()
        except (StoreError, OSError):
            old.close()
            self._machine.rewind()
            self._start(await self._open())
            raise
        checkpoint = new.load_checkpoint()
        if checkpoint is None or checkpoint.index < self._machine.applied_index:
            self._machine.rewind()  # entries that were applied are applied again
        self._start(new)

    def _start(self, meta_log: GroupLog) -> None:
        assert self._founders is not None
        founders = self._founders
        spec = GroupSpec(
            group_id=META_GROUP,
            incarnation=founders.incarnation,
            members=founders.members,
            preferred_leader=founders.members[0],
        )
        self.group = self._manager.create(spec, meta_log, self._machine)
        self._on_group(self.group)

    async def _open(self) -> GroupLog:
        """Open the log; while damaged entries cannot be had from another member, this node takes no part.

        Raises StoreCorrupt when nobody has them: what exists must not be guessed. A server that stands alone goes on
        without them: its ledger has what they said, or the data of a stream tells that it is missing (adoption.py).
        """
        assert self._founders is not None
        founders = self._founders
        identity = Identity(node_id=self._node_id, group_id=META_GROUP, incarnation=founders.incarnation)
        path = self._node_dir.group(META_GROUP, founders.incarnation)
        is_alone = self._linked is None
        attempts = 0
        while True:
            self._heard = trio.Event()
            try:
                meta_log = await self._repairs.open(
                    self._node_dir.ledger,
                    path,
                    identity,
                    self._cache,
                    self._others,
                    accept_lost_hard_state=is_alone,
                    may_lose=is_alone,
                )
            except RepairPendingError:
                attempts += 1
                with trio.move_on_after(rest_s(attempts)):
                    await self._heard.wait()
                continue
            if meta_log.lost and not is_alone:
                meta_log.close()
                raise StoreCorrupt(f"{path}: entries {meta_log.lost} are damaged, and no other member has them")
            return meta_log

    def _others(self, meta_log: FileLog) -> list[NodeId]:
        """Who may have what a damaged log has lost.

        The founders may all have left long ago: the members are those of the newest configuration in the log; and as
        that may be among what is damaged, whoever is there is asked too.
        """
        if self._linked is None:
            return []
        assert self._founders is not None
        named = known_members(meta_log) if meta_log.damaged else ()
        return sorted({*(named or self._founders.members), *self._linked()} - {self._node_id})

    def _on_heard(self, group_id: GroupId) -> None:
        if group_id == META_GROUP:
            self._heard.set()
