"""Handlers for streams as a whole: create, update, delete, info, purge, names, list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.api.jetstream.call import Call, page_of
from jetraft.api.jetstream.handlers.asking import log_change
from jetraft.api.jetstream.handlers.views import created_stream, inspected_stream, listed_stream, single_stream
from jetraft.cluster.backup.mark import is_marked
from jetraft.store.model import errors
from jetraft.store.model.config import StorageType, StreamConfigRequest
from jetraft.store.model.events import STREAM_CHANGED, STREAM_CREATED, STREAM_DELETED
from jetraft.store.model.extensions import TEMPLATE
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
from jetraft.store.model.validation.validate import check_stream_create_request, check_stream_update_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.cluster.requests.service import ClusterService
    from jetraft.store.model.config import StreamConfig

CHANGES: Final = {"create": STREAM_CREATED, "modify": STREAM_CHANGED, "delete": STREAM_DELETED}
NO_PAGE: Final = page(total=0, offset=0, limit=0)


async def create(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.CREATE.*: a repeated request with the same config gets the same answer."""
    request = call.decode(StreamConfigRequest)
    check_stream_create_request(call.stream, request.config)
    _refuse_mark(request.config, is_new=True)
    info, fresh = await service.create_stream(call.account, request.config, pedantic=request.pedantic)
    if fresh:
        _tell(service, call, call.stream, "create")
    did_create = fresh or not service.cluster.clustered  # a single nats-server says so every time
    return {**created_stream(service, info), **({"did_create": True} if did_create else {})}


async def update(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.UPDATE.*: the config is checked before the name in the subject, as in nats-server."""
    request = call.decode(StreamConfigRequest)
    service.check_config(request.config, pedantic=request.pedantic)
    check_stream_update_request(call.stream, request.config)
    _refuse_mark(request.config, is_new=False)
    updated = await service.update_stream(call.account, request.config, pedantic=request.pedantic)
    _tell(service, call, call.stream, "modify")
    return single_stream(service, updated)


async def delete(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.DELETE.*."""
    call.require_empty_body()
    await service.delete_stream(call.account, call.stream)
    _tell(service, call, call.stream, "delete")
    return success()


async def info(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.INFO.*: with a subjects filter also the message counts of a page of subjects."""
    request = call.optional_body(JSApiStreamInfoRequest)
    replica = service.owners.leading(call.account, call.stream)
    await replica.settled()
    replica = service.owners.leading(call.account, call.stream)  # it may have moved meanwhile
    store, stream = replica.machine.store, replica.info()
    paging: Mapping[str, object] = NO_PAGE
    state = stream.state
    if request.deleted_details:
        state = attrs.evolve(state, deleted=tuple(store.deleted()))
        if not (state.first_seq or state.last_seq) and stream.config.storage is StorageType.FILE:
            state = attrs.evolve(state, deleted=(0,), num_deleted=1)  # as nats-server: the sequences from 0 to 0
    if request.subjects_filter:
        offset, wanted = max(request.offset, 0), request.subjects_filter.encode()
        total, counts = store.page_of_subjects(wanted, offset=offset, limit=SUBJECTS_PAGE)
        subjects = {subject.decode(errors="replace"): count for subject, count in counts.items()}
        state = attrs.evolve(state, subjects=subjects)
        if total:
            paging = page(total=total, offset=offset, limit=SUBJECTS_PAGE)
    alternates = service.alternates_of(call.account, call.stream)
    return {**paging, **inspected_stream(attrs.evolve(stream, state=state).to_json_dict(), alternates)}


async def purge(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.PURGE.*: all messages, those below a sequence, or all but the newest; of one subject or of all."""
    request = call.optional_body(JSApiStreamPurgeRequest)
    if request.seq and request.keep:
        raise errors.BAD_REQUEST.with_values()
    replica = service.owners.leading(call.account, call.stream)
    purged = await replica.purge(request)
    return {**success(), "purged": purged}


async def names(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.NAMES: a page of names."""
    request = call.optional_body(JSApiStreamNamesRequest)
    rows = service.streams_of(call.account, request.subject)
    start, end = page_of(len(rows), request.offset, NAMES_PAGE)
    found = [row.config.name for row in rows[start:end]]
    nothing: list[str] | None = [] if service.cluster.clustered else None
    return {**page(total=len(rows), offset=start, limit=NAMES_PAGE), "streams": found or nothing}


async def list_(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.LIST: a page of infos from the streams' leaders; those that do not answer in time are `missing`."""
    request = call.optional_body(JSApiStreamListRequest)
    rows = service.streams_of(call.account, request.subject)
    start, end = page_of(len(rows), request.offset, LIST_PAGE)
    found = await service.infos_of(rows[start:end])
    answer = {
        **page(total=len(rows), offset=start, limit=LIST_PAGE),
        "streams": [listed_stream(service, info) for info in found.infos.values()],
    }
    return {**answer, "missing": list(found.missing)} if found.missing else answer


def _tell(service: ClusterService, call: Call, stream: str, action: str) -> None:
    log_change(CHANGES[action], call.account, call.hdr, stream=stream)
    service.advisories.of(call.account).stream_action(stream, action)


def _refuse_mark(config: StreamConfig, *, is_new: bool) -> None:
    """Raise ApiError 10052 when a client sets the key that marks a running restore, or names a stream's template."""
    if is_marked(config):
        raise errors.STREAM_INVALID_CONFIG.with_values(err="metadata key is reserved")
    if is_new and TEMPLATE in (config.metadata or {}):
        raise errors.STREAM_INVALID_CONFIG.with_values(err=f"{TEMPLATE} is set by the server")
