"""What /jsz and the JetStream part of /varz say: what this node holds, and the meta group as it sees it.

Fields and arguments are nats-server's (server/monitor.go, JSInfo); `scrub`, `compare`, `raft_groups` and `leads` are
ours. Consumers are shown by the leaders of their streams only: nobody else keeps their counts up to date.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from jetraft.api.session import API_LEVEL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.api.config.options import ScrubOptions
    from jetraft.api.jetstream.gateway import JetStreamGateway
    from jetraft.cluster.node import ClusterNode
    from jetraft.cluster.streams.shell import StreamShell
    from jetraft.raft.group import Group
    from jetraft.raft.manager import Manager

YES: Final = ("1", "true")
DETAILS: Final = ("accounts", "streams", "consumers", "config", "leader-only", "stream-leader-only")
CONSUMERS_MAX: Final = 1000  # shown of one stream: the page is made in one turn, and no turn may take long
LIMITS: Final[dict[str, Any]] = {}  # nats-server's `jetstream { limits }`, which is not served


@attrs.frozen(kw_only=True, eq=False)
class Jsz:
    """Makes the documents of one node from what its parts count."""

    node: ClusterNode
    manager: Manager
    gateway: JetStreamGateway
    account: str
    store_dir: str
    scrub: ScrubOptions
    capacity: Mapping[str, int]  # bytes, by kind of storage

    def config(self) -> dict[str, Any]:
        """What JetStream was told. Every acknowledgement waits for its fsync, which 0 stands for."""
        return {
            "max_memory": self.capacity["memory"],
            "max_storage": self.capacity["file"],
            "store_dir": self.store_dir,
            "sync_interval": 0,
            "sync_always": True,
            "strict": True,
        }

    def stats(self) -> dict[str, Any]:
        """What this node holds and has promised, in bytes, and what its API has answered."""
        replicas = list(self.node.backend.replicas())
        promised = {"memory": 0, "file": 0}
        for row, _ in replicas:
            promised[row.config.storage.value] += max(0, row.config.max_bytes)
        usage, api = self.node.service.usages.here(self.account), self.gateway.statistics()
        return {
            "memory": usage.memory,
            "storage": usage.storage,
            "reserved_memory": promised["memory"],
            "reserved_storage": promised["file"],
            "accounts": 1,
            "ha_assets": sum(row.config.num_replicas > 1 for row, _ in replicas),
            "api": {"level": API_LEVEL, "total": api.requests, "errors": api.errors},
        }

    def varz(self) -> dict[str, Any]:
        """The JetStream part of /varz."""
        return {"config": self.config(), "stats": self.stats(), "limits": LIMITS}

    def jsz(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        """The whole page, below its head."""
        asked = {name for name, value in arguments.items() if value in YES}
        shells = [shell for _, shell in self.node.backend.replicas()]
        states = [shell.info().state for shell in shells]
        stats, cared = self.stats(), self.node.caretakers.statistics()
        document: dict[str, Any] = {
            **stats,
            "config": self.config(),
            "limits": LIMITS,
            "streams": len(states),
            "streams_leader": sum(shell.is_leader for shell in shells),
            "consumers": sum(shell.consumer_count for shell in shells),
            "consumers_leader": sum(shell.consumer_count for shell in shells if shell.is_leader),
            "messages": sum(state.messages for state in states),
            "bytes": sum(state.bytes for state in states),
            "scrub": {**attrs.asdict(self.scrub), **plain(cared.scrub)},
        }
        if cared.compared is not None:
            document["compare"] = plain(cared.compared)
        if self.node.service.cluster.clustered and self.node.meta_group is not None:
            document["meta_cluster"] = self._meta_cluster(self.node.meta_group)
        if asked.intersection(DETAILS):
            document["account_details"] = [self._account(shells, stats, asked)]
        if "raft" in asked:
            groups = self.manager.groups.items()
            document["raft_groups"] = {group_id: plain(group.statistics()) for group_id, group in groups}
        return document | {"total": 1}

    def _meta_cluster(self, meta: Group) -> dict[str, Any]:
        leader = self.node.service.node_id if meta.is_leader else meta.leader
        name_of = self.node.view.name_of
        return {
            "name": self.node.service.cluster.name,
            "leader": "" if leader is None else name_of(leader),
            "peer": leader or "",
            "replicas": [
                {
                    "name": name_of(lag.node),
                    "current": lag.current,
                    "offline": lag.offline,
                    "active": lag.active_ns,
                    "lag": lag.lag_entries,
                    "peer": lag.node,
                }
                for lag in meta.replica_lag()
            ],
            "cluster_size": len(meta.members),
        }

    def _account(self, shells: list[StreamShell], stats: Mapping[str, Any], asked: set[str]) -> dict[str, Any]:
        if asked & {"leader-only", "stream-leader-only"}:
            shells = [shell for shell in shells if shell.is_leader]
        document: dict[str, Any] = {"name": self.account, "id": self.account, **stats, "accounts": 0}
        if asked & {"streams", "consumers", "config"}:
            document["stream_detail"] = [self._stream(shell, asked) for shell in shells]
        return document

    @staticmethod
    def _stream(shell: StreamShell, asked: set[str]) -> dict[str, Any]:
        document: dict[str, Any] = {"name": shell.config.name, "leads": shell.is_leader, **shell.info().to_json_dict()}
        if "config" not in asked:
            del document["config"]
        if "consumers" in asked and shell.is_leader:
            infos = [shell.consumer_info(name) for name in shell.consumer_names()[:CONSUMERS_MAX]]
            details = [info.to_json_dict() for info in infos if info is not None]
            if "config" not in asked:
                for detail in details:
                    del detail["config"]
            document["consumer_detail"] = details
        return document


def plain(figures: attrs.AttrsInstance) -> dict[str, Any]:
    """A frozen statistics value as a dict that JSON can carry."""
    return attrs.asdict(figures, value_serializer=lambda _instance, _field, value: _jsonable(value))


def _jsonable(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str | list | tuple | dict) else str(value)
