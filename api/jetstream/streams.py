"""Handlers for streams as a whole: create, update, delete, info, purge, names, list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from jetraft.api.jetstream.call import Call, page_of
from jetraft.store.model import errors
from jetraft.store.model.config import StreamConfigRequest
from jetraft.store.model.requests import (
    LIST_PAGE,
    NAMES_PAGE,
    SUBJECTS_PAGE,
    JSApiStreamInfoRequest,
    JSApiStreamListRequest,
    JSApiStreamNamesRequest,
    JSApiStreamPurgeRequest,
)
from jetraft.store.model.responses import page, success
from jetraft.store.model.validate import check_stream_create_request, check_stream_update_request
from jetraft.store.model.versioning import API_LEVEL, LEVEL_KEY, SERVER_VERSION, VERSION_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.cluster.service import ClusterService

NO_PAGE: Final = page(total=0, offset=0, limit=0)


async def create(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.CREATE.*: a repeated request with the same config is answered as the first."""
    request = StreamConfigRequest.from_json(call.body)
    check_stream_create_request(call.stream, request.config)
    info, fresh = await service.create_stream(call.account, request.config, pedantic=request.pedantic)
    did_create = fresh or not service.cluster.clustered  # a single nats-server says so every time
    return {**_shown(info), **({"did_create": True} if did_create else {})}


async def update(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.UPDATE.*: the config is checked before the name in the subject, as in nats-server."""
    request = StreamConfigRequest.from_json(call.body)
    service.check_config(request.config, pedantic=request.pedantic)
    check_stream_update_request(call.stream, request.config)
    return _shown(await service.update_stream(call.account, request.config, pedantic=request.pedantic))


async def delete(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.DELETE.*."""
    call.require_empty_body()
    await service.delete_stream(call.account, call.stream)
    return success()


async def info(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.INFO.*: with a subjects filter, the counts of a page of subjects."""
    request = call.optional_body(JSApiStreamInfoRequest)
    replica = service.leading(call.account, call.stream)
    paging: Mapping[str, object] = NO_PAGE
    stream = replica.info(deleted_details=request.deleted_details)
    if request.subjects_filter:
        subjects = replica.subjects(request.subjects_filter.encode())
        start, end = page_of(len(subjects), request.offset, SUBJECTS_PAGE)
        shown = dict(sorted(subjects.items())[start:end])
        stream = attrs.evolve(stream, state=attrs.evolve(stream.state, subjects=shown))
        if subjects:
            paging = page(total=len(subjects), offset=start, limit=SUBJECTS_PAGE)
    answer = stream.to_json_dict()
    if not service.cluster.clustered:
        ts = answer.pop("ts")
        answer.update(cluster={"leader": service.cluster.name_of(service.node_id)}, ts=ts)
    return {**paging, **_shown(answer)}


async def purge(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.PURGE.*: everything, or up to a sequence, or all but the newest few; of one subject or of all."""
    request = call.optional_body(JSApiStreamPurgeRequest)
    if request.seq and request.keep:
        raise errors.BAD_REQUEST.with_values()
    replica = service.leading(call.account, call.stream)
    purged = await replica.purge(request)
    return {**success(), "purged": purged}


async def names(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.NAMES: a page of names."""
    request = call.optional_body(JSApiStreamNamesRequest)
    rows = service.streams_of(call.account, request.subject)
    start, end = page_of(len(rows), request.offset, NAMES_PAGE)
    found = [row.config.name for row in rows[start:end]]
    nothing = [] if service.cluster.clustered else None
    return {**page(total=len(rows), offset=start, limit=NAMES_PAGE), "streams": found or nothing}


async def list_(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.LIST: a page of infos from the streams' leaders; those that do not answer in time are `missing`."""
    request = call.optional_body(JSApiStreamListRequest)
    rows = service.streams_of(call.account, request.subject)
    start, end = page_of(len(rows), request.offset, LIST_PAGE)
    found = await service.infos_of(rows[start:end])
    answer = {**page(total=len(rows), offset=start, limit=LIST_PAGE), "streams": list(found.infos.values())}
    return {**answer, "missing": list(found.missing)} if found.missing else answer


def _shown(info: Mapping[str, Any]) -> dict[str, Any]:
    """The info with the serving version in the config's metadata, as single answers have it and lists do not."""
    config = info["config"]
    metadata = {**config.get("metadata", {}), VERSION_KEY: SERVER_VERSION, LEVEL_KEY: str(API_LEVEL)}
    return {**info, "config": {**config, "metadata": dict(sorted(metadata.items()))}}


