"""How this node becomes a member of the meta group: as founder, by joining, or again over a log that is of no use.

A founder opens its log and starts. A node that the founding went on without asks the leader until it is admitted, and
writes that down before its log begins. One whose log has lost its promises (term and vote, its checkpoints, its end) is
admitted as if it had never been there, and what is left of the log is kept aside (decision 34). All
three are one opening (cluster/replica_logs.py), which is tried until it comes to a log.
A server that stands alone then begins an empty one, when its ledger knows every stream (adoption.py).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.cluster.meta.members.meta_replica import META_GROUP, MetaReplica
from jetraft.cluster.replica_logs import OF_NO_USE, ReplicaLogs, Wish, members_of
from jetraft.raft.recovery.joining import Begins, Joining, JoinPendingError
from jetraft.raft.recovery.repair import RepairPendingError
from jetraft.raft.recovery.repair_pacing import rest_s
from jetraft.store.port import StoreCorrupt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from jetraft.cluster.calls.forward import MeshLike
    from jetraft.cluster.meta.members.bootstrap import Bootstrap
    from jetraft.cluster.meta.members.founding import Founders
    from jetraft.raft.recovery.joining import MemberAdmission
    from jetraft.store.log.file_log import FileLog
    from jetraft.store.model.ids import GroupId, NodeId
    from jetraft.store.model.signal import Signal
    from jetraft.store.port import GroupLog

log = logging.getLogger(__name__)

JOIN_RETRY_S: Final = 0.3


class NodeAdmission:
    """See the module. `joining` and `mesh` are None on a server that stands alone.

    `unknown` gives the groups with data here that only the meta group's log can name. `on_heard` tells of a member that
    a damaged log waits for.
    """

    def __init__(  # noqa: PLR0913  (all that membership depends on)
        self,
        *,
        node_id: NodeId,
        bootstrap: Bootstrap,
        meta_replica: MetaReplica,
        logs: ReplicaLogs,
        joining: Joining | None,
        mesh: MeshLike | None,
        unknown: Callable[[], Sequence[GroupId]],
        on_heard: Signal[[GroupId]],
    ) -> None:
        self._node_id = node_id
        self._bootstrap = bootstrap
        self._meta_replica = meta_replica
        self._logs = logs
        self._joining = joining
        self._mesh = mesh
        self._unknown = unknown
        self._heard = trio.Event()  # of a member that damaged entries may be had from
        self._waits: Callable[[], None] = _nothing_waits
        on_heard.connect(self._note_heard)
        self.is_outside = False  # while this node asks to be admitted

    async def run(self, *, waits: Callable[[], None]) -> None:
        """Return when the meta group runs here. `waits` is called before a wait to be admitted by others.

        Raises StoreError or OSError when the log cannot be opened.
        """
        self._waits = waits
        founders = await self._bootstrap.run()
        if founders is None:
            founders = self._bootstrap.elsewhere
            assert founders is not None
            self.is_outside = True
            # What an earlier attempt has left: it was never announced, and no record says that it was admitted.
            await self._logs.node_dir.move_to_trash(META_GROUP, founders.incarnation)
        opened = await self._opened(founders)
        self._meta_replica.take(founders, opened, open_again=partial(self._open_wished, founders))

    async def rejoin(self) -> None:
        """Become a member again after this node was removed from the group; what it has of the log is set aside.

        Returns when the meta group runs here again. Raises StoreError or OSError when the log cannot be opened.
        """
        founders = self._bootstrap.founded
        assert founders is not None
        self.is_outside = True
        wish = attrs.evolve(self._wish(founders), admit=partial(self._admitted, founders, forgot_groups=False))
        again = partial(self._logs.begin_again, wish, "this server was removed from the meta group")
        opened = await self._until_open(again)
        self._meta_replica.take(founders, opened, open_again=partial(self._open_wished, founders))

    async def _open_wished(self, founders: Founders) -> GroupLog:
        return await self._until_open(partial(self._logs.open, self._wish(founders)))

    async def _opened(self, founders: Founders) -> GroupLog:
        """The log, whatever it takes; on a server that stands alone, an empty one if nothing is lost with the old."""
        try:
            return await self._open_wished(founders)
        except OF_NO_USE as error:
            if self._joining is not None:
                raise
            await self._set_aside(founders, error)
            return await self._open_wished(founders)

    async def _until_open(self, open_log: Callable[[], Awaitable[GroupLog]]) -> GroupLog:
        """Try again for as long as other members have to be asked; until then this node takes no part."""
        attempts, told = 0, ""
        while True:
            self._heard = trio.Event()
            try:
                opened = await open_log()
            except JoinPendingError as error:
                if str(error) != told:
                    told = str(error)
                    log.info("not a member of the meta group yet: %s", told)
                await trio.sleep(JOIN_RETRY_S)
            except RepairPendingError:
                attempts += 1
                with trio.move_on_after(rest_s(attempts)):
                    await self._heard.wait()
            else:
                self.is_outside = False
                return opened

    def _wish(self, founders: Founders) -> Wish:
        key, is_outside = (META_GROUP, founders.incarnation), self.is_outside

        def may_be_known() -> bool:
            has_joined = is_outside or self._bootstrap.joined_index > 0
            return not self._is_alone() and (has_joined or self._logs.is_forgotten(key))

        return Wish(
            key=key,
            is_alone=self._is_alone,
            others=lambda meta_log: self._others(founders, meta_log),
            may_be_known=may_be_known,
            require_current=_nothing_to_ask,
            admit=lambda: self._admitted(founders),
            may_lose=self._is_alone,  # what exists must not be guessed; alone, the ledger tells (adoption.py)
        )

    def _is_alone(self) -> bool:
        return self._joining is None

    def _others(self, founders: Founders, meta_log: FileLog) -> list[NodeId]:
        """The nodes that may have what a damaged log has lost.

        The founders may all have left long ago: the members are those of the newest configuration in the log; and as
        that may be among what is damaged, all nodes that are linked are asked too.
        """
        if self._mesh is None:
            return []
        return sorted(members_of(meta_log, self._linked(), if_unnamed=founders.members) - {self._node_id})

    def _linked(self) -> list[NodeId]:
        assert self._mesh is not None
        return sorted(peer for peer, info in self._mesh.peers.items() if info.up)

    async def _admitted(self, founders: Founders, *, forgot_groups: bool = True) -> MemberAdmission:
        """Ask to be admitted, and write down that this node is, before its log begins. Raises JoinPendingError.

        What was lost of the ledger with the log, if that was the reason, may have named groups in memory, of which
        nothing else tells. So every group up to now may know a self of this node that it has forgotten. A server that
        was removed and returns has forgotten none (`forgot_groups`): a group that is not in its ledger was never here,
        and its stream, if this server is its only holder, is founded now as it would have been before.
        """
        assert self._joining is not None
        self.is_outside = True
        self._waits()
        admission = await self._joining.ask(
            META_GROUP, founders.incarnation, own=self._node_id, others=self._linked(), begins=Begins.NEVER
        )
        await self._bootstrap.joined(founders, admission.commit_index if forgot_groups else 0)
        return admission

    async def _set_aside(self, founders: Founders, error: Exception) -> None:
        """Make room for an empty meta group on a server that stands alone, whose streams are known without it.

        Raises the error when they are not: data that cannot be named must not look as if it were absent.
        """
        unknown = self._unknown()
        if unknown:
            raise StoreCorrupt(
                f"{error}; nothing else says what the streams of {', '.join(unknown)} are: restore the store from a "
                "backup, or move it away to start with an empty one"
            ) from error
        log.error(
            "%s: %s; it begins empty, what is left of it is kept aside, and every stream is taken back from the ledger",
            META_GROUP,
            error,
        )
        await self._logs.node_dir.set_aside(META_GROUP, founders.incarnation)

    def _note_heard(self, group_id: GroupId) -> None:
        if group_id == META_GROUP:
            self._heard.set()


def _nothing_waits() -> None:
    """Before `run`."""


def _nothing_to_ask() -> None:
    """The founders were decided durably (bootstrap.py), and the leader decides about others."""
