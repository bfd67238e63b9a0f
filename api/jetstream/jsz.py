"""/jsz and the JetStream part of /varz: streams and consumers of this node, and the meta group as it sees it.

Fields and arguments are nats-server's (server/monitor.go, JSInfo); `scrub`, `compare`, `raft_groups` and `leads` exist
only here. Consumers are shown by the leader of their stream only: other replicas do not keep their counts up to date.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from jetraft.api.monitor.questions import JszQuestion, PageError, RaftzQuestion
from jetraft.api.monitor.steps import Rows, in_steps
from jetraft.cluster.peer_views import silence_ns
from jetraft.cluster.requests.usage import ApiCounts
from jetraft.raft.freshness import STALENESS_MAX_NS
from jetraft.store.model.config import StorageType
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.gotime import format_duration, format_time
from jetraft.store.model.limits import NO_LIMITS, ServerLimits
from jetraft.store.model.state import group_of_consumer
from jetraft.store.model.versioning import API_LEVEL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from jetraft.api.jetstream.gateway import JetStreamGateway
    from jetraft.api.monitor.steps import Steps
    from jetraft.api.options.options import ScrubOptions
    from jetraft.cluster.node import ClusterNode
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.raft.checkpointing import Unsaved
    from jetraft.raft.group import Group
    from jetraft.raft.group_spec import GroupStatistics
    from jetraft.raft.manager import Manager
    from jetraft.store.model.clock import Clock

META_NAME: Final = "_meta_"  # of the meta group, as nats-server calls it
NO_TIME: Final = "0001-01-01T00:00:00Z"  # Go's zero: no checkpoint since the start
ACCOUNTS_MAX: Final = 1024  # nats-server's default
CONSUMERS_MAX: Final = 1000  # of one stream


@attrs.define(kw_only=True, eq=False)
class AccountSums:
    """The replicas of an account here, or of all, and what they hold: bytes, and those that they may grow to."""

    replicas: list[StreamReplica] = attrs.field(factory=list)
    memory: int = 0
    storage: int = 0
    reserved_memory: int = 0
    reserved_storage: int = 0
    ha_assets: int = 0
    streams_led: int = 0
    consumers: int = 0
    consumers_led: int = 0
    messages: int = 0
    bytes: int = 0

    def take(self, replica: StreamReplica) -> None:
        """Add a replica."""
        row, store = replica.assignment.config, replica.machine.store
        self.replicas.append(replica)
        if row.storage is StorageType.MEMORY:
            self.memory += replica.stored_bytes
            self.reserved_memory += max(0, row.max_bytes)
        else:
            self.storage += replica.stored_bytes
            self.reserved_storage += max(0, row.max_bytes)
        self.ha_assets += row.num_replicas > 1
        self.streams_led += replica.is_leader
        self.consumers += replica.consumer_count
        self.consumers_led += replica.consumer_count if replica.is_leader else 0
        self.messages += store.messages
        self.bytes += store.message_bytes_total

    def add(self, other: AccountSums) -> None:
        """Add the sums of an account."""
        self.replicas += other.replicas
        for name in SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def held(self) -> dict[str, int]:
        """The part that the pages show first."""
        return {name: getattr(self, name) for name in ("memory", "storage", "reserved_memory", "reserved_storage")}


SUMMED: Final = tuple(field.name for field in attrs.fields(AccountSums) if field.name != "replicas")


@attrs.frozen(kw_only=True, eq=False)
class Jsz:
    """Makes the documents of one node from the statistics of its parts."""

    node: ClusterNode
    manager: Manager
    gateway: JetStreamGateway
    accounts: Collection[str]  # that have JetStream
    store_dir: str
    scrub: ScrubOptions
    capacity: Mapping[str, int]  # bytes, by kind of storage
    clock: Clock
    domain: str = ""
    limits: ServerLimits = NO_LIMITS
    strict: bool = True
    name_of: Callable[[str], str] = str  # of an account, for people

    def config(self) -> dict[str, Any]:
        """The configuration. Every acknowledgement waits for its fsync, so `sync_interval` is 0."""
        return {
            "max_memory": self.capacity["memory"],
            "max_storage": self.capacity["file"],
            "store_dir": self.store_dir,
            "sync_interval": 0,
            "sync_always": True,
            **({"domain": self.domain} if self.domain else {}),
            **({"strict": True} if self.strict else {}),
        }

    def sums(self) -> Steps[AccountSums]:
        """The bytes that this node holds and has promised, of all accounts."""
        whole = AccountSums()
        yield from in_steps([replica for _, replica in self.node.directory.replicas()], whole.take)
        return whole

    def stats_of(self, whole: AccountSums) -> dict[str, Any]:
        """The same in bytes, and what its API has answered."""
        api = self.gateway.statistics()
        return {
            **whole.held(),
            "accounts": len(self.accounts),
            "ha_assets": whole.ha_assets,
            "api": {
                "level": API_LEVEL,
                "total": api.requests,
                "errors": api.errors,
                **({"inflight": api.waiting} if api.waiting else {}),
            },
        }

    def varz(self) -> Steps[dict[str, Any]]:
        """The JetStream part of /varz."""
        stats = self.stats_of((yield from self.sums()))
        meta = self.node.meta_group if self.node.service.cluster.clustered else None
        shown = {"meta": self._meta_cluster(meta)} if meta is not None else {}
        return {"config": self.config(), "stats": stats, **shown, "limits": shown_limits(self.limits)}

    def jsz(self, question: JszQuestion) -> Steps[dict[str, Any]]:
        """The page without its head. Raises PageError."""
        meta = self.node.meta_group if self.node.service.cluster.clustered else None
        if question.leader_only and meta is not None and not meta.is_leader:
            raise PageError("filtered response: not leader")
        of_accounts = yield from self._sums()
        whole = AccountSums()
        yield from in_steps(of_accounts.values(), whole.add)
        stats, upkeep = self.stats_of(whole), self.node.supervisor.statistics()
        document: dict[str, Any] = {
            **stats,
            "config": self.config(),
            "limits": shown_limits(self.limits),
            "streams": len(whole.replicas),
            "streams_leader": whole.streams_led,
            "consumers": whole.consumers,
            "consumers_leader": whole.consumers_led,
            "messages": whole.messages,
            "bytes": whole.bytes,
            "scrub": {**attrs.asdict(self.scrub), **plain(upkeep.scrub)},
        }
        if self.node.parts.exclusion.is_removed:
            document["disabled"] = True  # as nats-server: JetStream is off until the server is started again
        if upkeep.compared is not None:
            document["compare"] = plain(upkeep.compared)
        if meta is not None:
            document["meta_cluster"] = self._meta_cluster(meta)
        if names := self._asked(question, of_accounts):
            rows = (self._account(name, of_accounts.get(name, AccountSums()), question) for name in names)
            document["account_details"] = Rows(rows)
        if question.raft:
            shown = document["raft_groups"] = {}
            for group_id, group in list(self.manager.groups.items()):
                shown[group_id] = plain(group.statistics())
                yield 0
        return document | {"total": len(self.accounts)}

    def _sums(self) -> Steps[dict[str, AccountSums]]:
        """The sums of each account with streams here, by name."""
        found: dict[str, AccountSums] = {}
        yield from in_steps(
            [replica for _, replica in self.node.directory.replicas()],
            lambda replica: found.setdefault(replica.assignment.account, AccountSums()).take(replica),
        )
        return found

    def _asked(self, question: JszQuestion, with_streams: Collection[str]) -> list[str]:
        """The accounts of a page: one, or the part of all that is asked for."""
        if not (question.account or question.accounts or question.streams or question.consumer):
            return []
        names = sorted({*self.accounts, *with_streams})
        if question.account:
            return [name for name in names if name == question.account]
        offset, limit = max(question.offset, 0), question.limit if question.limit > 0 else ACCOUNTS_MAX
        return names[offset : offset + limit]

    def account(self, name: str, question: JszQuestion) -> Steps[dict[str, Any]]:
        """One account alone. Raises PageError."""
        of_accounts = yield from self._sums()
        if name not in {*self.accounts, *of_accounts}:
            raise PageError(f"account {go_quote(name)} not found")
        return self._account(name, of_accounts.get(name, AccountSums()), question)

    def raftz(self, question: RaftzQuestion, system: str) -> Steps[dict[str, Any]]:
        """The Raft groups of an account, the system's without one. Raises PageError for a server without a cluster."""
        meta = self.node.meta_group
        if not self.node.service.cluster.clustered or meta is None:
            raise PageError("No Raft nodes registered", status=404)
        wanted = question.account or system
        groups = {}
        if wanted == system and question.group in ("", META_NAME):
            groups[META_NAME] = self._raft_group(meta, system)
        for row, replica in self.node.directory.replicas():
            name = str(replica.group.group_id)
            if row.account == wanted and question.group in ("", name):
                groups[name] = self._raft_group(replica.group, system)
            yield 0
        return {wanted: groups} if groups else {}

    def _raft_group(self, group: Group, system: str) -> dict[str, Any]:
        figures, log, voters = group.statistics(), group.log.statistics(), len(group.configuration.voters)
        vote, before = group.log.hard_state.vote, group.log.term_at(figures.last_index)
        now_ns, since = self.clock.mono_ns(), {}
        if figures.leader is not None:
            unix_ns = self.clock.unix_ns()
            since = {"leader_since": format_time(unix_ns - (now_ns - group.leader_since_ns))}
        return {
            "id": self.node.service.node_id,
            "state": figures.role.upper(),
            "size": len(figures.members),
            "quorum_needed": voters // 2 + 1,
            "committed": figures.commit_index,
            "applied": figures.applied_index,
            "leader": figures.leader or "",
            **since,
            "ever_had_leader": figures.term > 0,
            "term": figures.term,
            **({"voted_for": vote} if vote is not None else {}),
            **({} if before is None else {"pterm": before}),
            "pindex": figures.last_index,
            "system_account": True,
            "traffic_account": system,
            "ipq_proposal_len": figures.proposals_queued,
            "ipq_apply_len": figures.commit_index - figures.applied_index,
            "wal": {
                "messages": log.last_index - log.first_index + 1,
                "bytes": log.bytes_used,
                "first_seq": log.first_index,
                "last_seq": log.last_index,
            },
            "peers": self._raft_peers(group, figures, now_ns),
        }

    def _raft_peers(self, group: Group, figures: GroupStatistics, now_ns: int) -> dict[str, Any]:
        """The other members: the leader knows how much of the log each has."""
        has = {lag.node: figures.last_index - lag.lag_entries for lag in group.replica_lag()}
        found = {}
        for node in figures.members:
            heard_ns = self.node.view.link_heard_ns(node)
            if node != self.node.service.node_id:
                found[str(node)] = {
                    "name": self.node.view.name_of(node),
                    "known": True,
                    **({"last_replicated_index": has[node]} if node in has else {}),
                    **({} if heard_ns is None else {"last_seen": format_duration(max(0, now_ns - heard_ns))}),
                }
        return found

    def _meta_cluster(self, meta: Group) -> dict[str, Any]:
        leader = self.node.service.node_id if meta.is_leader else meta.leader
        name_of = self.node.view.name_of
        return {
            "name": self.node.service.cluster.name,
            "leader": "" if leader is None else name_of(leader),
            "peer": leader or "",
            "replicas": self._meta_replicas(meta),
            "cluster_size": len(meta.members),
            "quorum_needed": len(meta.configuration.voters) // 2 + 1,
            "pending": meta.commit_index - meta.applied_index,
            "pending_requests": self.gateway.statistics().waiting,
            "pending_infos": 0,  # infos have no line of their own: they wait among the requests
            "snapshot": self._snapshot(meta.unsaved()),
        }

    def _snapshot(self, unsaved: Unsaved) -> dict[str, Any]:
        """Entries that the meta group has applied since its newest checkpoint, and when this process took that one."""
        saved_at_ns, ago = unsaved.saved_at_ns, self.clock.mono_ns()
        return {
            "pending_entries": unsaved.entries,
            "pending_size": unsaved.applied_bytes,
            "last_time": NO_TIME if saved_at_ns is None else format_time(self.clock.unix_ns() - (ago - saved_at_ns)),
        }

    def _meta_replicas(self, meta: Group) -> list[dict[str, Any]]:
        """The other members: as the leader knows them, elsewhere as the links show them."""
        view, now_ns = self.node.view, self.clock.mono_ns()
        if meta.is_leader:
            return [
                {
                    "name": view.name_of(lag.node),
                    "current": lag.current,
                    **({"offline": True} if lag.offline else {}),
                    "active": silence_ns(lag, view.link_heard_ns(lag.node), now_ns),
                    **({"lag": lag.lag_entries} if lag.lag_entries else {}),
                    "peer": lag.node,
                }
                for lag in meta.replica_lag()
            ]
        return [
            {
                "name": view.name_of(node),
                "current": view.is_up(node),
                **({} if view.is_up(node) else {"offline": True}),
                "active": 0 if (heard_ns := view.link_heard_ns(node)) is None else max(0, now_ns - heard_ns),
                "peer": node,
            }
            for node in meta.members
            if node != self.node.service.node_id
        ]

    def _account(self, name: str, sums: AccountSums, question: JszQuestion) -> dict[str, Any]:
        counts = self.node.service.usages.api.get(name, ApiCounts())
        document: dict[str, Any] = {
            "name": self.name_of(name),
            "id": name,
            **sums.held(),
            "accounts": 0,
            "ha_assets": sums.ha_assets,
            "api": {"level": API_LEVEL, "total": counts.requests, "errors": counts.errors},
        }
        leading = question.stream_leader_only
        shown = [one for one in sums.replicas if one.is_leader or not leading]
        if shown and (question.streams or question.consumer):
            document["stream_detail"] = Rows(self._stream(replica, question) for replica in shown)
        return document

    def _is_here(self, replica: StreamReplica) -> bool:
        """Whether a replica that was found in an earlier step still runs."""
        return self.node.directory.get(replica.assignment.key) is replica

    def _stream(self, replica: StreamReplica, question: JszQuestion) -> dict[str, Any] | None:
        """A stream as it is now; None when it is gone, or when only what this node leads is shown and it does not."""
        if not self._is_here(replica) or (question.stream_leader_only and not replica.is_leader):
            return None
        document: dict[str, Any] = {
            "name": replica.config.name,
            "leads": replica.is_leader,
            "mandate": _mandate(replica),
            **replica.info().to_json_dict(),
        }
        if not question.config:
            del document["config"]
        if question.raft and replica.cluster().raft_group:
            document |= self._raft_groups(replica, replica.cluster().raft_group, question)
        if question.consumer:
            # Without a cluster there is nothing to say of the nodes of each.
            left_out = () if self.node.service.cluster.clustered else ("cluster",)
            document["consumer_detail"] = self._consumers(replica, replica.consumer_names(), question, left_out)
        if question.direct_consumer and replica.is_leader and (names := replica.direct_consumer_names()):
            document["direct_consumer_detail"] = self._consumers(replica, names, question, ("cluster",))
        return document

    @staticmethod
    def _raft_groups(replica: StreamReplica, group: str, question: JszQuestion) -> dict[str, Any]:
        """The stream's group, and of each consumer its part of that, by a name that no other consumer has."""
        names = replica.consumer_names()[:CONSUMERS_MAX] if question.consumer else []
        parts = [{"name": name, "raft_group": group_of_consumer(group, name)} for name in names]
        return {"stream_raft_group": group, **({"consumer_raft_groups": parts} if parts else {})}

    def _consumers(
        self, replica: StreamReplica, names: list[str], question: JszQuestion, left_out: tuple[str, ...]
    ) -> Rows:
        """The first consumers of these, without these parts of each."""
        if not question.config:
            left_out = ("config", *left_out)
        return Rows(self._consumer(replica, name, left_out) for name in names[:CONSUMERS_MAX])

    def _consumer(self, replica: StreamReplica, name: str, left_out: tuple[str, ...]) -> dict[str, Any] | None:
        """A consumer as this node knows it now; None when it is gone."""
        info = replica.consumer_view(name) if self._is_here(replica) else None
        if info is None:
            return None
        detail = info.to_json_dict()
        for part in left_out:
            del detail[part]
        return detail


def plain(figures: attrs.AttrsInstance) -> dict[str, Any]:
    """A statistics value as a dict of JSON values."""
    return attrs.asdict(figures, value_serializer=lambda _instance, _field, value: _jsonable(value))


def _jsonable(value: object) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str | list | tuple | dict) else str(value)


def shown_limits(limits: ServerLimits) -> dict[str, int]:
    """`jetstream { limits }`, without what is not configured."""
    batch, usual = limits.batch, NO_LIMITS.batch
    found = {
        "max_request_batch": limits.max_request_batch,
        "max_ack_pending": limits.max_ack_pending,
        "max_duplicate_window": limits.duplicate_window_ns,
        "max_batch_inflight_per_stream": 0 if batch.per_stream == usual.per_stream else batch.per_stream,
        "max_batch_inflight_total": 0 if batch.per_server == usual.per_server else batch.per_server,
        "max_batch_size": 0 if batch.messages == usual.messages else batch.messages,
        "max_batch_timeout": 0 if batch.idle_ns == usual.idle_ns else batch.idle_ns,
        "default_max_consumers": limits.default_max_consumers,
    }
    return {name: value for name, value in found.items() if value}


def _mandate(replica: StreamReplica) -> dict[str, Any]:
    """The rights of the replica, else why it has none, and how old what its gets answer can be, in nanoseconds."""
    found = replica.statistics().mandate
    return {**attrs.asdict(found), "staleness_max": STALENESS_MAX_NS}
