"""Catching up over the mesh: serves pieces of snapshots to other members, and fetches what this node was offered.

At most one fetch per group, few per node; an interrupted one goes on with the leader's next offer. Bulk calls have the
lowest priority on a link, so a transfer takes what the others leave. While pieces of a checkpoint are asked for, its
group takes no new checkpoint and trims nothing (rule 36), for a bounded time.

When everything is here, the replica's owner stops it, the log is replaced, and the owner starts the replica again over
the new log: exactly as at the start of a server, so there is no second way in which a replica comes to its state.
Until the owner comes to it the group goes on, and may come further than the snapshot: whether that is wanted is asked
again then, and once more of the stopped log (raft/recovery/swap.py; rules 35 and 37).
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.rpc import CallTimeoutError, PeerUnavailableError, RemoteCallError
from jetraft.raft.recovery.call_links import CallLinks
from jetraft.raft.recovery.joining import until_durable
from jetraft.raft.recovery.snapshot import SPOILT, SnapshotFetch, SnapshotGoneError, SnapshotRequest, answer, check_part
from jetraft.raft.recovery.swap import Swap, SwapRefusedError
from jetraft.store.disk.io import run_blocking
from jetraft.store.log.snapshot import PartDamagedError, covers
from jetraft.store.model.clock import NS_PER_S, Clock
from jetraft.store.model.events import REPLICA_BEHIND, REPLICA_CATCHUP_FAILED, REPLICA_CAUGHT_UP
from jetraft.store.model.files.manifest import Manifest
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Checkpoint, GroupLog, StoreCorrupt, StoreError

if TYPE_CHECKING:
    from jetraft.raft.engine.messages import SnapshotOffer
    from jetraft.raft.group import Group
    from jetraft.raft.manager import Manager

log = logging.getLogger(__name__)

METHOD: Final = "raft.snapshot"
PIECE_TIMEOUT_S: Final = 10.0
FETCHES_AT_ONCE: Final = 2  # a node that returns after long may be behind in every group
LEASE_NS: Final = 30 * NS_PER_S  # a checkpoint is held for a peer that long after its last request

Reopen = Callable[[Swap], Awaitable[None]]


@attrs.define(slots=True)
class _Held:
    """A snapshot that peers are fetching."""

    manifest: Manifest
    checkpoint: Checkpoint
    until_ns: int


@attrs.frozen(kw_only=True, slots=True)
class CatchupStatistics:
    """A snapshot of the figures."""

    fetches_running: int
    fetches_done: int
    fetches_failed: int
    pieces_served: int
    bytes_served: int
    damage_found: int  # in blocks of this node's, when a peer could not install them


class Catchup:
    """See the module. Construct it beside the manager; `run` owns the fetches.

    `reopen(swap)` is the owner's part: `swap.check`, end the replica (`Manager.remove`, but do not close its log),
    await `swap.carry_out()`, and start the replica over the log that it returns.
    """

    def __init__(self, manager: "Manager", links: CallLinks, *, clock: Clock, reopen: Reopen) -> None:
        self._manager = manager
        self._links = links
        self._clock = clock
        self._reopen = reopen
        self._held: dict[GroupId, _Held] = {}
        self._fetches: dict[GroupId, SnapshotFetch] = {}
        self._running: set[GroupId] = set()
        self._nursery: trio.Nursery | None = None
        self._limiter = trio.CapacityLimiter(FETCHES_AT_ONCE)
        self._looked_at: set[GroupId] = set()  # a peer has complained of a block of theirs
        self._done = self._failed = self._pieces_served = self._bytes_served = self._damage_found = 0
        manager.serve_offers(self._on_offer)
        links.serve(METHOD, self._serve)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fetch what is offered, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def statistics(self) -> CatchupStatistics:
        """Figures for monitoring and tests."""
        return CatchupStatistics(
            fetches_running=len(self._running),
            fetches_done=self._done,
            fetches_failed=self._failed,
            pieces_served=self._pieces_served,
            bytes_served=self._bytes_served,
            damage_found=self._damage_found,
        )

    # Serving.

    async def _serve(self, _sender: NodeId, payload: bytes) -> bytes:
        """One piece. Raises RemoteCallError, which the asking node takes as: wait for another offer."""
        await trio.lowlevel.checkpoint()
        try:
            request = SnapshotRequest.unpack(payload)
        except RemoteProtocolError as error:
            raise RemoteCallError(str(error)) from error
        group = self._manager.groups.get(request.group_id)
        if group is None or group.incarnation != request.incarnation or group.failed is not None:
            raise RemoteCallError(f"{request.group_id} is not here")
        try:
            held = await self._hold(group, request.index)
            if request.what == SPOILT:
                await self._look(group, held, request)
                return b""
            piece = answer(group.log, held.manifest, held.checkpoint, request)
        except StoreCorrupt as error:
            self._damage_found += 1
            group.distrust(error)
            raise RemoteCallError(str(error)) from error
        except (SnapshotGoneError, StoreError) as error:
            raise RemoteCallError(str(error)) from error
        self._pieces_served += 1
        self._bytes_served += len(piece)
        return piece

    async def _look(self, group: "Group", held: _Held, request: SnapshotRequest) -> None:
        """Verify a block that a peer complains of, one of a group at a time. Raises StoreCorrupt when it is right."""
        if group.group_id in self._looked_at:
            return
        self._looked_at.add(group.group_id)
        try:
            await run_blocking(check_part(group.log, held.manifest, request))
        finally:
            self._looked_at.discard(group.group_id)

    async def _hold(self, group: "Group", index: int) -> _Held:
        """The snapshot at `index`, held while it is asked for.

        A request for a later one than is held gives up the held one: the offers have moved on, and to renew its lease
        for requests that it cannot answer would keep it, and the member away, indefinitely.
        """
        now_ns = self._clock.mono_ns()
        for group_id in [group_id for group_id, held in self._held.items() if held.until_ns < now_ns]:
            del self._held[group_id]
        group.hold_checkpoint_until(now_ns + LEASE_NS)
        held = self._held.get(group.group_id)
        if held is None or held.checkpoint.index < index:
            found = await group.read_snapshot()
            if found is None:
                raise SnapshotGoneError(f"{group.group_id} has no checkpoint")
            if not self._runs(group):
                raise SnapshotGoneError(f"{group.group_id} is not here any more")
            held = self._held[group.group_id] = _Held(*found, 0)
        held.until_ns = now_ns + LEASE_NS
        return held

    # Fetching.

    def _on_offer(self, group: "Group", sender: NodeId, offer: "SnapshotOffer") -> None:
        """The engine found this offer worth taking; it is repeated until the group has caught up.

        Until a fetch has ended, with the replica over its new log or with a reason, no other begins: what it
        gathers lies in a directory of which each group has one.
        """
        if self._nursery is not None and group.group_id not in self._running:
            self._running.add(group.group_id)
            self._nursery.start_soon(self._fetch, group, sender, offer)

    async def _fetch(self, group: "Group", sender: NodeId, offer: "SnapshotOffer") -> None:
        group_id = group.group_id
        try:
            async with self._limiter:
                if not self._runs(group):
                    return  # it has ended while this waited: what is known may be of its successor
                await self._fetch_all(group, self._fetch_for(group, sender, offer))
            self._done += 1
            REPLICA_CAUGHT_UP.log(group=group_id, index=offer.index, node=sender)
        except (PeerUnavailableError, CallTimeoutError) as error:
            log.info("fetching %s stopped, to be continued: %s", group_id, error)
        except (RemoteCallError, RemoteProtocolError, StoreError, OSError) as error:
            self._failed += 1
            REPLICA_CATCHUP_FAILED.log(group=group_id, node=sender, error=str(error))
            self._drop(group_id)
        finally:
            self._running.discard(group_id)

    def _fetch_for(self, group: "Group", sender: NodeId, offer: "SnapshotOffer") -> SnapshotFetch:
        """The fetch to go on with: an interrupted one of the same snapshot over the same log, or a new one."""
        self._drop_orphans()
        known = self._fetches.get(group.group_id)
        if known is not None and known.continues(sender, offer):
            known.resume()
            return known
        self._drop(group.group_id)
        behind = offer.index - group.applied_index
        REPLICA_BEHIND.log(group=group.group_id, entries=behind, node=sender)
        fetch = self._fetches[group.group_id] = SnapshotFetch(
            group_id=group.group_id,
            incarnation=group.incarnation,
            sender=sender,
            offer=offer,
            members=group.configurations.members_at(offer.index, offer.index_term, offer.members),
            log=group.log,
        )
        return fetch

    def _drop_orphans(self) -> None:
        """Drop what was fetched for logs that are not in use any more; it may be of a deleted group."""
        groups = self._manager.groups
        for group_id, fetch in list(self._fetches.items()):
            group = groups.get(group_id)
            if group is None or group.log is not fetch.log:
                self._drop(group_id)

    def _drop(self, group_id: GroupId) -> None:
        fetch = self._fetches.pop(group_id, None)
        if fetch is not None:
            fetch.abandon()

    async def _complain(self, fetch: SnapshotFetch, error: PartDamagedError) -> None:
        """Tell the sender: unless this node caused the damage, no member can install what it offers."""
        payload = fetch.spoilt(error.block).pack()
        try:
            await self._links.call(fetch.sender, METHOD, payload, timeout_s=PIECE_TIMEOUT_S, bulk=True)
        except (PeerUnavailableError, CallTimeoutError, RemoteCallError) as answer_error:
            log.info("%s about its block %d: %s", fetch.sender, error.block, answer_error)

    async def _fetch_all(self, group: "Group", fetch: SnapshotFetch) -> None:
        while (request := fetch.next_request()) is not None:
            piece = await self._links.call(fetch.sender, METHOD, request.pack(), timeout_s=PIECE_TIMEOUT_S, bulk=True)
            if not self._is_wanted(group, fetch):
                raise RemoteCallError("the group has moved on")
            fetch.received(piece)
        if not self._is_wanted(group, fetch):
            raise RemoteCallError("the group has moved on")
        assert fetch.staging is not None
        del self._fetches[group.group_id]
        installation = Installation(group.log, fetch)
        try:
            await self._reopen(
                Swap(group, is_wanted=lambda: self._is_wanted(group, fetch), carry_out=installation.carry_out)
            )
        except PartDamagedError as error:
            await self._complain(fetch, error)
            raise
        if not installation.is_done:
            raise SwapRefusedError(f"{group.group_id} has moved on")

    def _is_wanted(self, group: "Group", fetch: SnapshotFetch) -> bool:
        """Whether the group is here and still behind the snapshot (rule 35)."""
        return self._runs(group) and is_behind(group, fetch.offer)

    def _runs(self, group: "Group") -> bool:
        return self._manager.groups.get(group.group_id) is group and group.failed is None


def is_behind(group: "Group", offer: "SnapshotOffer") -> bool:
    """Whether a group that runs needs the snapshot (rule 35)."""
    has_it = group.commit_index >= offer.index or covers(group.log, offer.index, offer.index_term)
    return not group.is_leader and not has_it


class Installation:
    """Puts a fetched log in place of a stopped one, durably. It takes over the term and vote that are on disk."""

    def __init__(self, old: GroupLog, fetch: SnapshotFetch) -> None:
        self._old = old
        self._fetch = fetch
        self.is_done = False

    async def carry_out(self) -> GroupLog:
        """Return the new log; or the old one, open as it was, when that has come as far by itself meanwhile."""
        old, staging = self._old, self._fetch.staging
        assert staging is not None
        await until_durable(old)
        if covers(old, self._fetch.offer.index, self._fetch.offer.index_term):
            staging.abandon()
            return old
        old.close()
        new = await run_blocking(staging.finish)
        try:
            await until_durable(new)
        except BaseException:
            new.close()
            raise
        self.is_done = True
        return new
