"""The infos of streams and consumers in answers.

Answers about one object (create, update, info) have the server's version in the config's metadata; lists do not. A
server without a cluster shows none, except that STREAM.INFO has the leader. Source: compared with nats-server 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetraft.store.model.ids import SYSTEM_ACCOUNT
from jetraft.store.model.versioning import API_LEVEL, LEVEL_KEY, SERVER_VERSION, VERSION_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jetraft.cluster.requests.service import ClusterService
    from jetraft.store.model.state import ConsumerInfo, StreamAlternate

Json = dict[str, Any]


def single_stream(service: ClusterService, info: Mapping[str, Any]) -> Json:
    """The info of a stream in the answer to update."""
    return _with_versions(listed_stream(service, info))


def created_stream(service: ClusterService, info: Mapping[str, Any]) -> Json:
    """The info of a stream in the answer to create, which does not name the domain, as with nats-server."""
    return {field: value for field, value in single_stream(service, info).items() if field != "domain"}


def listed_stream(service: ClusterService, info: Mapping[str, Any]) -> Json:
    """The info of a stream in a list."""
    return _with_traffic(info) if service.cluster.clustered else _without_cluster(info)


def inspected_stream(info: Mapping[str, Any], alternates: Sequence[StreamAlternate] = ()) -> Json:
    """The info of a stream in the answer to STREAM.INFO, with the streams that have the same messages."""
    shown = _with_versions(_with_traffic(info))
    return {**shown, "alternates": [one.to_json_dict() for one in alternates]} if alternates else shown


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
    """Add the account of the group's traffic and sort its replicas by name; a group of one has only the leader."""
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
