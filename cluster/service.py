"""What the API asks of the cluster: create, change, find, list and delete streams, wherever it was asked.

A request enters at any node and is carried out by its owner: the meta leader for what exists, a stream's leader for
what is in it (`forward`). The methods here run on the owner and raise Moved when this node is not the owner (any more),
before they have done anything; errors of the catalogue are raised as ApiError.

Between nodes the service asks three questions of its own: a stream's info (from its leader), what a node's replicas
use, and "have you applied the meta log up to here?" (so that a deleted stream is gone everywhere when it
is answered).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
import msgpack
import orjson
import trio

from jetraft.cluster.forward import AnswerLost, Forwarder, MeshLike, Moved, Owner, Request
from jetraft.cluster.meta.assignment import StreamAssignment, StreamKey
from jetraft.cluster.meta.placement import NodeLoad, choose_heir
from jetraft.raft.heirs import Heirs, LedGroup
from jetraft.raft.proposals import NotLeaderError, OutcomeUnknownError
from jetraft.raft.rpc import CallTimeoutError, PeerUnavailableError, RemoteCallError
from jetraft.store.model import errors
from jetraft.store.model.config import StorageType, StreamConfig
from jetraft.store.model.state import AccountInfo, ApiStats
from jetraft.store.model.subject import overlaps
from jetraft.store.model.versioning import API_LEVEL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from jetraft.cluster.advisories import Advisories
    from jetraft.cluster.backup.desk import Backups
    from jetraft.cluster.meta.backend import MetaBackend
    from jetraft.cluster.meta.frontend import MetaFrontend
    from jetraft.cluster.meta.machine import MetaMachine
    from jetraft.cluster.meta.steward import MetaSteward
    from jetraft.cluster.meta.view import ClusterView
    from jetraft.cluster.streams.shell import StreamShell
    from jetraft.store.model.config import Placement
    from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

INFO_WAIT_S: Final = 1.0  # how long a stream's node waits for its replica to start, to lead, to take over a config
LIST_WAIT_S: Final = 4.0  # nats-server waits as long for the infos of a list; who is late goes to `missing`
USAGE_WAIT_S: Final = 1.0
CAUGHT_UP_WAIT_S: Final = 1.0
POLL_S: Final = 0.002

BACKUP_PREFIX: Final = b"backup."  # the questions of cluster/backup/desk.py
_INFO: Final = b"stream.info"
_SETTLED: Final = b"stream.settled"
_INDEX: Final = b"meta.index"
_USAGE: Final = "js.usage"
_CAUGHT_UP: Final = "meta.caught-up"


@attrs.frozen(kw_only=True, slots=True)
class NodeUsage:
    """What a node's replicas hold in bytes, the consumers of streams it leads, the API requests it answered."""

    memory: int = 0
    storage: int = 0
    consumers: int = 0
    api_requests: int = 0
    api_errors: int = 0


@attrs.frozen(kw_only=True, slots=True)
class StreamPage:
    """Infos of streams by name, as JSON objects, and the names whose leader did not answer in time."""

    infos: dict[str, dict[str, Any]]
    missing: tuple[str, ...]


class Transferable(LedGroup, Protocol):
    """A group whose leadership can be moved."""

    @property
    def members(self) -> tuple[NodeId, ...]:
        """Voters and learners."""

    def transfer_leadership(self, to: NodeId | None) -> bool:
        """Hand leadership over."""


class MetaGroup(Transferable, Protocol):
    """The meta group on this node."""

    @property
    def applied_index(self) -> int:
        """The highest index applied."""

    async def confirm_leadership(self) -> None:
        """Return when everything committed before the call is applied. Raises NotLeaderError."""


@attrs.frozen(kw_only=True, slots=True)
class ServiceStatistics:
    """A snapshot for monitoring."""

    streams: int
    replicas: int
    forwarded: int
    meta_leader: NodeId | None


class ClusterService:
    """The cluster as one node sees it. `not_answers` are what a handler may raise besides ApiError."""

    not_answers: Final = (Moved, AnswerLost, NotLeaderError, OutcomeUnknownError)

    def __init__(  # noqa: PLR0913  (the parts that node.py puts together)
        self,
        *,
        node_id: NodeId,
        cluster: ClusterView,
        mesh: MeshLike | None,
        machine: MetaMachine,
        frontend: MetaFrontend,
        steward: MetaSteward,
        backend: MetaBackend[StreamShell],
    ) -> None:
        self.node_id = node_id
        self.cluster = cluster
        self._mesh = mesh
        self._machine = machine
        self._frontend = frontend
        self._steward = steward
        self._backend = backend
        self.backups: Backups | None = None  # set by who makes it
        self.advisories: Advisories | None = None  # the same
        self.meta_group: MetaGroup | None = None  # set when the meta group has been started
        self.api_counts: Callable[[], tuple[int, int]] = lambda: (0, 0)  # requests and errors, the gateway's
        self.execute_api: Callable[[Request], Awaitable[bytes]] = _no_api
        self.forwarder = Forwarder(node_id=node_id, mesh=mesh, locate=self.locate)
        self.forwarder.execute = self._execute
        self._settled: dict[StreamKey, StreamAssignment] = {}
        self._settled_woken = trio.Event()
        frontend.leader_of = self._leader_of
        if mesh is not None:
            mesh.serve(_USAGE, self._serve_usage)
            mesh.serve(_CAUGHT_UP, self._serve_caught_up)

    # --- who owns it

    def locate(self, request: Request, asked: AbstractSet[NodeId] = frozenset()) -> NodeId | None:
        """Return the node that probably owns what the request is about, none of those that were just asked."""
        if request.owner is Owner.ANY:
            return self.node_id
        if request.owner is Owner.META:
            return self._first([*self._meta_leader(), *self._others()], asked)
        key = StreamKey(request.account, request.stream)
        replica, row = self._backend.get(key), self._machine.table.get(key)
        if replica is not None:
            # Without a leader, this node is the first to know of one.
            leader = self.node_id if replica.is_leader else replica.leader or self.node_id
            return self._first([leader], asked)
        if row is not None:
            return self._first([row.preferred, *row.holders], asked)
        return self._first([*self._meta_leader(), *self._others()], asked)

    def leading(self, account: str, name: str) -> StreamShell:
        """Return the stream's replica on this node if it leads. Raises Moved, or ApiError when there is no stream."""
        key = StreamKey(account, name)
        replica = self._backend.get(key)
        if replica is not None:
            if replica.is_leader:
                return replica
            raise Moved(replica.leader)
        if self._machine.table.get(key) is None and self._machine.leading_term is not None:
            raise errors.STREAM_NOT_FOUND.with_values()
        raise Moved

    # --- streams

    def check_config(self, config: StreamConfig, *, pedantic: bool) -> None:
        """Raise ApiError when the config is not valid, or Moved when it is not for this node to say."""
        if self._machine.leading_term is None:
            raise Moved(self._machine.leader)
        self._frontend.checked(config, pedantic=pedantic)

    async def create_stream(self, account: str, config: StreamConfig, *, pedantic: bool) -> tuple[dict[str, Any], bool]:
        """Create a stream and wait for its leader. Returns its info as a JSON object, and whether it is new."""
        created = await self._frontend.create(account, config, pedantic=pedantic)
        info = await self._info_of(created.assignment)
        if info is None:
            raise errors.CLUSTER_NOT_AVAILABLE.with_values()
        return info, created.fresh

    async def update_stream(self, account: str, config: StreamConfig, *, pedantic: bool) -> dict[str, Any]:
        """Change a stream's config and wait until its leader has taken it over. Returns its info as a JSON object."""
        row = await self._frontend.update(account, config, pedantic=pedantic)
        info = await self._info_of(row)
        if info is None:
            raise errors.CLUSTER_NOT_AVAILABLE.with_values()
        return info

    async def delete_stream(self, account: str, name: str) -> None:
        """Delete a stream; when this returns, the nodes that can be reached do not serve it any more."""
        row = await self._frontend.remove(account, name)
        index = self._applied_index
        await self._backend.settle()
        if self._mesh is None:
            return
        with trio.move_on_after(CAUGHT_UP_WAIT_S):
            async with trio.open_nursery() as nursery:
                for peer in row.holders:
                    if peer != self.node_id:
                        nursery.start_soon(self._call, peer, _CAUGHT_UP, msgpack.packb(index), CAUGHT_UP_WAIT_S)

    def report_settled(self, row: StreamAssignment) -> None:
        """Tell the meta leader that the stream's group has the members of its row. It may be reported again."""
        self._settled[row.key] = row
        self._settled_woken.set()

    async def run(self) -> None:
        """Pass on what is reported, until cancelled."""
        while True:
            await self._settled_woken.wait()
            self._settled_woken = trio.Event()
            while self._settled:
                key, row = self._settled.popitem()
                question = Request(
                    account=key.account,
                    owner=Owner.META,
                    stream="",
                    repeatable=True,
                    subject=_SETTLED,
                    hdr=b"",
                    payload=msgpack.packb([key.name, row.incarnation, row.revision]),
                )
                try:
                    await self.forwarder.answer(question)
                except errors.ApiError as error:
                    log.info("stream %s > %s: the meta leader does not know that it is settled: %s", *key, error)

    async def is_current(self, row: StreamAssignment) -> bool:
        """Say whether the table here has this row, and all that the meta group had committed when this was asked."""
        question = Request(
            account=row.account, owner=Owner.META, stream="", repeatable=True, subject=_INDEX, hdr=b"", payload=b""
        )
        try:
            index = msgpack.unpackb(await self.forwarder.answer(question))
        except errors.ApiError:
            return False
        return self._applied_index >= index and self._machine.table.get(row.key) == row

    async def remove_stream_peer(self, account: str, name: str, peer: str) -> None:
        """Move a stream's replica away from a node. Raises ApiError: also when there is no other node for it."""
        await self._frontend.replace_peer(account, name, self.cluster.id_of(peer))

    async def remove_server(self, name: str) -> None:
        """Take a node, by name or id, out of the cluster. Raises ApiError or Moved."""
        if self._machine.leading_term is None:
            raise Moved(self._machine.leader)
        node_id = self.cluster.id_of(name)
        if node_id is None:
            raise errors.CLUSTER_SERVER_NOT_MEMBER.with_values()
        await self._steward.remove(node_id)

    def streams_of(self, account: str, subject: str) -> Sequence[StreamAssignment]:
        """Return the account's streams by name, those that overlap `subject` unless it is empty. Raises Moved."""
        if self._machine.leading_term is None:
            raise Moved(self._machine.leader)
        rows = self._machine.table.of_account(account)
        wanted = subject.encode()
        if wanted:
            rows = (row for row in rows if any(overlaps(one, wanted) for one in row.config.subject_filters))
        return sorted(rows, key=lambda row: row.config.name)

    async def infos_of(self, rows: Iterable[StreamAssignment]) -> StreamPage:
        """Ask the leaders of all these streams at the same time; who is away or does not answer in time is missing."""
        infos: dict[str, dict[str, Any]] = {}
        wanted, online = list(rows), self.cluster.online()

        async def ask(row: StreamAssignment) -> None:
            info = await self._info_of(row)
            if info is not None:
                infos[row.config.name] = info

        with trio.move_on_after(LIST_WAIT_S):
            async with trio.open_nursery() as nursery:
                for row in wanted:
                    if any(peer in online for peer in row.peers):
                        nursery.start_soon(ask, row)
        missing = tuple(row.config.name for row in wanted if row.config.name not in infos)
        return StreamPage(infos={name: infos[name] for name in sorted(infos)}, missing=missing)

    async def info_of(self, row: StreamAssignment) -> dict[str, Any]:
        """Ask the stream's leader, who has this row's config in force. Raises ApiError when there is none in time."""
        info = await self._info_of(row)
        if info is None:
            raise errors.CLUSTER_NOT_AVAILABLE.with_values()
        return info

    # --- leaders

    def step_down(self, group: Transferable, placement: Placement | None) -> None:
        """Move the leadership of a group that this node leads, to whoever fits and leads least.

        Raises ApiError when no member fits. A group of one goes on, whatever was asked for, as in nats-server.
        """
        if len(group.members) == 1:
            return
        heirs = Heirs([replica.group for _, replica in self._backend.replicas()])
        members = [
            NodeLoad(
                node_id=node,
                name=self.cluster.name_of(node),
                online=self.cluster.is_up(node),
                leaders=heirs.led.get(node, 0),
                tags=self.cluster.profile_of(node).tags,
            )
            for node in group.members
        ]
        wanted = choose_heir(placement, members, own=self.node_id, cluster=self.cluster.name)
        group.transfer_leadership(wanted or heirs.choose(group))

    def meta_step_down(self, placement: Placement | None) -> None:
        """Move the leadership of the meta group. Raises as step_down, or Moved when this node does not lead it."""
        if self._machine.leading_term is None or self.meta_group is None:
            raise Moved(self._machine.leader)
        self.step_down(self.meta_group, placement)

    # --- the account

    async def account_info(self, account: str) -> AccountInfo:
        """Sum up what the account uses on all nodes, every replica counted, and what their APIs have answered."""
        usages = [self.usage(account), *await self._usages_of_peers(account)]
        rows = list(self._machine.table.of_account(account))
        reserved = {
            kind: sum(_reserved(row.config) for row in rows if row.config.storage is kind) for kind in StorageType
        }
        return AccountInfo(
            memory=sum(usage.memory for usage in usages),
            storage=sum(usage.storage for usage in usages),
            reserved_memory=reserved[StorageType.MEMORY],
            reserved_storage=reserved[StorageType.FILE],
            streams=len(rows),
            consumers=sum(usage.consumers for usage in usages),
            api=ApiStats(
                level=API_LEVEL,
                total=sum(usage.api_requests for usage in usages),
                errors=sum(usage.api_errors for usage in usages),
            ),
        )

    def usage(self, account: str) -> NodeUsage:
        """Sum up what this node's replicas of the account's streams hold."""
        memory = storage = consumers = 0
        for row, replica in self._backend.replicas():
            if row.account != account:
                continue
            used = replica.stored_bytes
            memory += used if row.config.storage is StorageType.MEMORY else 0
            storage += used if row.config.storage is StorageType.FILE else 0
            consumers += replica.consumer_count if replica.is_leader else 0
        requests, failures = self.api_counts()
        return NodeUsage(
            memory=memory, storage=storage, consumers=consumers, api_requests=requests, api_errors=failures
        )

    def statistics(self) -> ServiceStatistics:
        """Return a snapshot."""
        leads = self._machine.leading_term is not None
        return ServiceStatistics(
            streams=len(self._machine.table.streams),
            replicas=len(self._backend.replicas()),
            forwarded=self.forwarder.forwarded,
            meta_leader=self.node_id if leads else self._machine.leader,
        )

    # --- the inside

    async def _execute(self, request: Request) -> bytes:
        if request.subject == _INFO:
            return await self._serve_info(request)
        try:
            if request.subject.startswith(BACKUP_PREFIX) and self.backups is not None:
                return await self.backups.serve(request)
            if request.subject == _SETTLED:
                name, incarnation, revision = msgpack.unpackb(request.payload)
                await self._frontend.settle(request.account, name, incarnation=incarnation, revision=revision)
                return b""
            if request.subject == _INDEX:
                return await self._serve_index()
            return await self.execute_api(request)
        except NotLeaderError as error:
            raise Moved from error
        except OutcomeUnknownError as error:
            raise AnswerLost from error

    async def _info_of(self, row: StreamAssignment) -> dict[str, Any] | None:
        """Ask the stream's leader; None when there is none in time, or the stream is gone."""
        question = Request(
            account=row.account,
            owner=Owner.STREAM,
            stream=row.config.name,
            repeatable=True,
            subject=_INFO,
            hdr=b"",
            payload=msgpack.packb([row.incarnation, row.revision]),
        )
        try:
            answer: dict[str, Any] = orjson.loads(await self.forwarder.answer(question))
        except errors.ApiError:
            return None
        return answer

    async def _serve_info(self, request: Request) -> bytes:
        incarnation, revision = msgpack.unpackb(request.payload)
        key = StreamKey(request.account, request.stream)

        def current() -> bool:
            row = self._machine.table.get(key)
            replica = self._backend.get(key)
            if row is None or row.incarnation != incarnation or row.revision < revision or replica is None:
                return False
            return replica.incarnation == incarnation and (
                replica.has_config(row.config)
                if replica.is_leader
                else replica.leader not in (None, self.node_id)  # itself: elected, and about to lead
            )

        await wait_until(current, INFO_WAIT_S)
        if not current():
            raise Moved
        return orjson.dumps(self.leading(*key).info().to_json_dict())

    async def _serve_index(self) -> bytes:
        """The index up to which the meta group had committed when it was asked."""
        if self._machine.leading_term is None or self.meta_group is None:
            raise Moved(self._machine.leader)
        await self.meta_group.confirm_leadership()
        packed: bytes = msgpack.packb(self._applied_index)
        return packed

    async def _serve_usage(self, _sender: NodeId, payload: bytes) -> bytes:
        usage = self.usage(payload.decode())
        packed: bytes = msgpack.packb(attrs.astuple(usage))
        return packed

    async def _serve_caught_up(self, _sender: NodeId, payload: bytes) -> bytes:
        index = msgpack.unpackb(payload)
        await wait_until(lambda: self._applied_index >= index, CAUGHT_UP_WAIT_S)
        await self._backend.settle()
        return b""

    async def _usages_of_peers(self, account: str) -> Sequence[NodeUsage]:
        usages: list[NodeUsage] = []

        async def ask(peer: NodeId) -> None:
            answer = await self._call(peer, _USAGE, account.encode(), USAGE_WAIT_S)
            if answer is not None:
                memory, storage, consumers, requests, failures = msgpack.unpackb(answer)
                usages.append(
                    NodeUsage(
                        memory=memory,
                        storage=storage,
                        consumers=consumers,
                        api_requests=requests,
                        api_errors=failures,
                    )
                )

        async with trio.open_nursery() as nursery:
            for peer in self._others():
                nursery.start_soon(ask, peer)
        return usages

    async def _call(self, peer: NodeId, method: str, payload: bytes, timeout_s: float) -> bytes | None:
        assert self._mesh is not None
        try:
            return await self._mesh.call(peer, method, payload, timeout_s=timeout_s)
        except (PeerUnavailableError, CallTimeoutError, RemoteCallError) as error:
            log.debug("%s at %s: %s", method, peer, error)
            return None

    def _leader_of(self, row: StreamAssignment) -> NodeId | None:
        """The stream's leader as far as this node knows: it was asked of its replica here, or is where it began."""
        replica = self._backend.get(row.key)
        if replica is None:
            return row.preferred
        return self.node_id if replica.is_leader else replica.leader

    @property
    def _applied_index(self) -> int:
        """How far this node has applied the meta group's log."""
        return 0 if self.meta_group is None else self.meta_group.applied_index

    def _meta_leader(self) -> list[NodeId]:
        if self._machine.leading_term is not None:
            return [self.node_id]
        return [] if self._machine.leader is None else [self._machine.leader]

    def _others(self) -> list[NodeId]:
        if self._mesh is None:
            return []
        return sorted(node_id for node_id, peer in self._mesh.peers.items() if peer.up)

    def _first(self, candidates: Iterable[NodeId], asked: AbstractSet[NodeId]) -> NodeId | None:
        up = {self.node_id, *self._others()}
        return next((node for node in candidates if node in up and node not in asked), None)


def _reserved(config: StreamConfig) -> int:
    return max(0, config.max_bytes)


async def wait_until(condition: Callable[[], bool], timeout_s: float) -> None:
    """Return when the condition holds or the time is up; looks every POLL_S, for waits that are short or rare."""
    with trio.move_on_after(timeout_s):
        while not condition():  # noqa: ASYNC110  (what is waited for is in several objects)
            await trio.sleep(POLL_S)


async def _no_api(_request: Request) -> bytes:
    raise AnswerLost
