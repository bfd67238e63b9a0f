"""Handlers for templates of streams, which JetStream had until 2.14: served with `legacy_api` (decision 120)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetraft.api.jetstream.call import page_of
from jetraft.store.model import errors
from jetraft.store.model.requests import NAMES_PAGE, JSApiStreamTemplateNamesRequest, StreamTemplateConfig
from jetraft.store.model.responses import page, success

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.api.jetstream.call import Call
    from jetraft.cluster.meta.templates import StreamTemplate
    from jetraft.cluster.requests.service import ClusterService


async def create(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.TEMPLATE.CREATE.*: streams are made by it from now on."""
    request = call.required_body(StreamTemplateConfig)
    if request.name != call.stream:
        raise errors.TEMPLATE_NAME_NOT_MATCH_SUBJECT.with_values()
    if request.config.name:
        raise errors.STREAM_TEMPLATE_CREATE_FAILED.with_values(err="template config name should be empty")
    if not request.config.subjects:
        raise errors.STREAM_TEMPLATE_CREATE_FAILED.with_values(err="template config needs subjects")
    if not 0 < request.max_streams < 1 << 32:
        raise errors.STREAM_TEMPLATE_CREATE_FAILED.with_values(err="max_streams needs to be positive")
    made = await service.add_template(call.account, request.name, request.config, request.max_streams)
    return _shown(service, made)


async def names(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.TEMPLATE.NAMES: a page of names."""
    request = call.optional_body(JSApiStreamTemplateNamesRequest)
    rows = service.templates_of(call.account)
    start, end = page_of(len(rows), request.offset, NAMES_PAGE)
    return {
        **page(total=len(rows), offset=start, limit=NAMES_PAGE),
        "streams": [row.name for row in rows[start:end]],
    }


async def info(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.TEMPLATE.INFO.*: the template, and the streams that it has made."""
    call.require_empty_body()
    found = next((row for row in service.templates_of(call.account) if row.name == call.stream), None)
    if found is None:
        raise errors.STREAM_TEMPLATE_NOT_FOUND.with_values()
    return _shown(service, found)


async def delete(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.TEMPLATE.DELETE.*: the template goes, and all its streams with it."""
    call.require_empty_body()
    for row in await service.remove_template(call.account, call.stream):
        service.advisories.of(call.account).stream_action(row.config.name, "delete")
    return success()


def _shown(service: ClusterService, template: StreamTemplate) -> dict[str, Any]:
    config = {
        "name": template.name,
        "config": template.config.to_json_dict(),
        "max_streams": template.max_streams,
    }
    return {"config": config, "streams": list(service.streams_made_by(template))}
