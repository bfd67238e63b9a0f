"""/jsz and the JetStream part of /varz: streams and consumers of this node, and the meta group as it sees it.

Fields and arguments are nats-server's (server/monitor.go, JSInfo); `scrub`, `compare`, `raft_groups` and `leads` exist
only here. Consumers are shown by the leader of their stream only: other replicas do not keep their counts up to date.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from jetraft.api.monitor.questions import JszQuestion, PageError, RaftzQuestion
from jetraft.cluster.peer_views import silence_ns
from jetraft.cluster.requests.usage import ApiCounts
from jetraft.raft.freshness import STALENESS_MAX_NS
from jetraft.store.model.config import StorageType
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.gotime import format_duration, format_time
from jetraft.store.model.limits import NO_LIMITS, ServerLimits
from jetraft.store.model.versioning import API_LEVEL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from jetraft.api.config.options import ScrubOptions
    from jetraft.api.jetstream.gateway import JetStreamGateway
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
CONSUMERS_MAX: Final = 1000  # of one stream: a page is made in one turn, which must be short


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

    def stats(self) -> dict[str, Any]:
        """What this node holds and has promised, in bytes, and what its API has answered, of all accounts."""
        api = self.gateway.statistics()
        names = {*self.accounts, *(row.account for row, _ in self.node.directory.replicas())}
        return {
            **self._held(names),
            "accounts": len(self.accounts),
            "ha_assets": self._ha_assets(names),
            "api": {
                "level": API_LEVEL,
                "total": api.requests,
                "errors": api.errors,
                **({"inflight": api.waiting} if api.waiting else {}),
            },
        }

    def _held(self, accounts: Collection[str]) -> dict[str, int]:
        """Bytes that replicas of these accounts' streams hold here, and those that they may grow to."""
        sums = {"memory": 0, "storage": 0, "reserved_memory": 0, "reserved_storage": 0}
        for row, replica in self.node.directory.replicas():
            if row.account in accounts:
                kind = "memory" if row.config.storage is StorageType.MEMORY else "storage"
                sums[kind] += replica.stored_bytes
                sums[f"reserved_{kind}"] += max(0, row.config.max_bytes)
        return sums

    def _ha_assets(self, accounts: Collection[str]) -> int:
        replicas = self.node.directory.replicas()
        return sum(row.account in accounts and row.config.num_replicas > 1 for row, _ in replicas)

    def varz(self) -> dict[str, Any]:
        """The JetStream part of /varz."""
        meta = self.node.meta_group if self.node.service.cluster.clustered else None
        shown = {"meta": self._meta_cluster(meta)} if meta is not None else {}
        return {"config": self.config(), "stats": self.stats(), **shown, "limits": shown_limits(self.limits)}

    def jsz(self, question: JszQuestion) -> dict[str, Any]:
        """The page without its head. Raises PageError."""
        meta = self.node.meta_group if self.node.service.cluster.clustered else None
        if question.leader_only and meta is not None and not meta.is_leader:
            raise PageError("filtered response: not leader")
        replicas = [replica for _, replica in self.node.directory.replicas()]
        states = [replica.info().state for replica in replicas]
        stats, upkeep = self.stats(), self.node.supervisor.statistics()
        document: dict[str, Any] = {
            **stats,
            "config": self.config(),
            "limits": shown_limits(self.limits),
            "streams": len(states),
            "streams_leader": sum(replica.is_leader for replica in replicas),
            "consumers": sum(replica.consumer_count for replica in replicas),
            "consumers_leader": sum(replica.consumer_count for replica in replicas if replica.is_leader),
            "messages": sum(state.messages for state in states),
            "bytes": sum(state.bytes for state in states),
            "scrub": {**attrs.asdict(self.scrub), **plain(upkeep.scrub)},
        }
        if upkeep.compared is not None:
            document["compare"] = plain(upkeep.compared)
        if meta is not None:
            document["meta_cluster"] = self._meta_cluster(meta)
        details = [self._account(name, replicas, question) for name in self._asked(question, replicas)]
        if details:
            document["account_details"] = details
        if question.raft:
            groups = self.manager.groups.items()
            document["raft_groups"] = {group_id: plain(group.statistics()) for group_id, group in groups}
        return document | {"total": len(self.accounts)}

    def _asked(self, question: JszQuestion, replicas: list[StreamReplica]) -> list[str]:
        """The accounts of a page: one, or the part of all that is asked for."""
        if not (question.account or question.accounts or question.streams or question.consumer):
            return []
        names = sorted({*self.accounts, *(replica.assignment.account for replica in replicas)})
        if question.account:
            return [name for name in names if name == question.account]
        offset, limit = max(question.offset, 0), question.limit if question.limit > 0 else ACCOUNTS_MAX
        return names[offset : offset + limit]

    def account(self, name: str, question: JszQuestion) -> dict[str, Any]:
        """One account alone. Raises PageError."""
        replicas = [replica for _, replica in self.node.directory.replicas()]
        if name not in {*self.accounts, *(replica.assignment.account for replica in replicas)}:
            raise PageError(f"account {go_quote(name)} not found")
        return self._account(name, replicas, question)

    def raftz(self, question: RaftzQuestion, system: str) -> dict[str, Any]:
        """The Raft groups of an account, the system's without one. Raises PageError for a server without a cluster."""
        meta = self.node.meta_group
        if not self.node.service.cluster.clustered or meta is None:
            raise PageError("No Raft nodes registered", status=404)
        found = [(system, META_NAME, meta)] + [
            (row.account, str(replica.group.group_id), replica.group) for row, replica in self.node.directory.replicas()
        ]
        wanted = question.account or system
        groups = {
            name: self._raft_group(group, system)
            for account, name, group in found
            if account == wanted and question.group in ("", name)
        }
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
        """What the meta group has applied since its newest checkpoint, and when this process took that one."""
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

    def _account(self, name: str, replicas: list[StreamReplica], question: JszQuestion) -> dict[str, Any]:
        counts = self.node.service.usages.api.get(name, ApiCounts())
        document: dict[str, Any] = {
            "name": self.name_of(name),
            "id": name,
            **self._held({name}),
            "accounts": 0,
            "ha_assets": self._ha_assets({name}),
            "api": {"level": API_LEVEL, "total": counts.requests, "errors": counts.errors},
        }
        leading = question.stream_leader_only
        shown = [one for one in replicas if one.assignment.account == name and (one.is_leader or not leading)]
        if shown and (question.streams or question.consumer):
            document["stream_detail"] = [self._stream(replica, question) for replica in shown]
        return document

    def _stream(self, replica: StreamReplica, question: JszQuestion) -> dict[str, Any]:
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
        if question.consumer and replica.is_leader:
            # Without a cluster there is nothing to say of the nodes of each.
            clustered, config = self.node.service.cluster.clustered, question.config
            document["consumer_detail"] = _consumers(
                replica, replica.consumer_names(), config=config, cluster=clustered
            )
        if question.direct_consumer and replica.is_leader and (names := replica.direct_consumer_names()):
            document["direct_consumer_detail"] = _consumers(replica, names, config=question.config, cluster=False)
        return document

    @staticmethod
    def _raft_groups(replica: StreamReplica, group: str, question: JszQuestion) -> dict[str, Any]:
        """The stream's group, and of each consumer its part of that, by a name that no other consumer has."""
        names = replica.consumer_names()[:CONSUMERS_MAX] if question.consumer else []
        parts = [{"name": name, "raft_group": f"{group}.{name}"} for name in names]
        return {"stream_raft_group": group, **({"consumer_raft_groups": parts} if parts else {})}


def _consumers(replica: StreamReplica, names: list[str], *, config: bool, cluster: bool) -> list[dict[str, Any]]:
    """The first consumers of these, as their leader sees them, with or without two parts."""
    infos = [replica.consumer_info(name) for name in names[:CONSUMERS_MAX]]
    details = [info.to_json_dict() for info in infos if info is not None]
    left_out = [name for name, shows in (("config", config), ("cluster", cluster)) if not shows]
    for detail in details:
        for name in left_out:
            del detail[name]
    return details


def plain(figures: attrs.AttrsInstance) -> dict[str, Any]:
    """A statistics value as a dict of JSON values."""
    return attrs.asdict(figures, value_serializer=lambda _instance, _field, value: _jsonable(value))


def _jsonable(value: Any) -> Any:
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
    """What the replica may do, else why not, and how old what its gets answer can be, in nanoseconds."""
    found = replica.statistics().mandate
    return {**attrs.asdict(found), "staleness_max": STALENESS_MAX_NS}
