"""Infos as answers show them.

Single answers (create, update, info) name the serving version in the config's metadata; lists do not. A server that
stands alone shows no cluster, except that STREAM.INFO names the leader. Source: compared with nats-server 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jetraft.store.model.versioning import API_LEVEL, LEVEL_KEY, SERVER_VERSION, VERSION_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.cluster.service import ClusterService
    from jetraft.store.model.state import ConsumerInfo

Json = dict[str, Any]
SYSTEM_ACCOUNT: Final = "$SYS"


def single_stream(service: ClusterService, info: Mapping[str, Any]) -> Json:
    """The info of a stream in the answer to create and update."""
    return _with_versions(listed_stream(service, info))


def listed_stream(service: ClusterService, info: Mapping[str, Any]) -> Json:
    """The info of a stream in a list."""
    return _with_traffic(info) if service.cluster.clustered else _without_cluster(info)


def inspected_stream(info: Mapping[str, Any]) -> Json:
    """The info of a stream in the answer to STREAM.INFO."""
    return _with_versions(_with_traffic(info))


def single_consumer(service: ClusterService, info: ConsumerInfo) -> Json:
    """The info of a consumer in the answer to create and info."""
    return _with_versions(listed_consumer(service, info))


def listed_consumer(service: ClusterService, info: ConsumerInfo) -> Json:
    """The info of a consumer in a list."""
    shown: Json = info.to_json_dict()
    if not service.cluster.clustered:
        return _without_cluster(shown)
    return _with_traffic(shown, alone=shown["config"]["num_replicas"] == 1)


def _without_cluster(info: Mapping[str, Any]) -> Json:
    return {field: value for field, value in info.items() if field != "cluster"}


def _with_traffic(info: Mapping[str, Any], *, alone: bool = False) -> Json:
    """Show the group: who carries its traffic, its replicas by name; of a group of one (`alone`) only the leader."""
    cluster = info.get("cluster", {})
    if alone or not cluster.get("replicas"):
        return {**info, "cluster": {field: value for field, value in cluster.items() if field in ("name", "leader")}}
    replicas = sorted(cluster["replicas"], key=lambda replica: str(replica["name"]))
    traffic = {"system_account": True, "traffic_account": SYSTEM_ACCOUNT, "replicas": replicas}
    return {**info, "cluster": {**{field: value for field, value in cluster.items() if field != "replicas"}, **traffic}}


def _with_versions(info: Mapping[str, Any]) -> Json:
    config = info["config"]
    metadata = {**config.get("metadata", {}), VERSION_KEY: SERVER_VERSION, LEVEL_KEY: str(API_LEVEL)}
    return {**info, "config": {**config, "metadata": dict(sorted(metadata.items()))}}
