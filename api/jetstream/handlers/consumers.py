"""Handlers for consumers, executed by the leader of the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from jetraft.api.jetstream.call import Call, page_of
from jetraft.api.jetstream.handlers.asking import log_change
from jetraft.api.jetstream.handlers.views import listed_consumer, single_consumer
from jetraft.store.model import errors
from jetraft.store.model.config import CreateConsumerRequest
from jetraft.store.model.encoding.jsoncodec import unmarshal
from jetraft.store.model.events import CONSUMER_DELETED, EventKind
from jetraft.store.model.gotime import TIME_NS_END, ZERO_TIME_NS, format_time
from jetraft.store.model.requests import (
    LIST_PAGE,
    NAMES_PAGE,
    JSApiConsumerPauseRequest,
    JSApiConsumerResetRequest,
    JSApiConsumersRequest,
    JSApiConsumerUnpinRequest,
)
from jetraft.store.model.responses import page, success
from jetraft.store.model.validation.consumer_checks import GROUP_NAME
from jetraft.store.model.validation.validate import CreateForm, check_consumer_create_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.cluster.requests.service import ClusterService
    from jetraft.store.model.state import ConsumerInfo

T = TypeVar("T")

NO_SEQUENCE: Final = JSApiConsumerResetRequest()


async def create_ephemeral(service: ClusterService, call: Call) -> Mapping[str, object]:
    """CONSUMER.CREATE.<stream>: without a name in the subject; the server chooses one."""
    return await _create(service, call, CreateForm.EPHEMERAL)


async def create_named(service: ClusterService, call: Call) -> Mapping[str, object]:
    """CONSUMER.CREATE.<stream>.<consumer>[.<filter>]: the form of current clients, durable or not."""
    return await _create(service, call, CreateForm.NAMED)


async def create_durable(service: ClusterService, call: Call) -> Mapping[str, object]:
    """CONSUMER.DURABLE.CREATE.<stream>.<consumer>: the old form for durable consumers."""
    return await _create(service, call, CreateForm.DURABLE)


async def info(service: ClusterService, call: Call) -> Mapping[str, object]:
    """CONSUMER.INFO.*.*."""
    call.require_empty_body()
    replica = service.owners.leading(call.account, call.stream)
    await replica.settled()
    found = replica.consumer_info(call.consumer)
    if found is None:
        raise errors.CONSUMER_NOT_FOUND.with_values()
    return single_consumer(service, found)


async def names(service: ClusterService, call: Call) -> Mapping[str, object]:
    """CONSUMER.NAMES.*: a page of names."""
    request = call.optional_body(JSApiConsumersRequest)
    found = sorted(service.owners.leading(call.account, call.stream).consumer_names())
    start, end = page_of(len(found), request.offset, NAMES_PAGE)
    return {**page(total=len(found), offset=start, limit=NAMES_PAGE), "consumers": found[start:end]}


async def list_(service: ClusterService, call: Call) -> Mapping[str, object]:
    """CONSUMER.LIST.*: a page of infos."""
    request = call.optional_body(JSApiConsumersRequest)
    replica = service.owners.leading(call.account, call.stream)
    found = sorted(replica.consumer_names())
    start, end = page_of(len(found), request.offset, LIST_PAGE)
    infos: list[ConsumerInfo | None] = [replica.consumer_info(name) for name in found[start:end]]
    shown = [listed_consumer(service, one) for one in infos if one is not None]
    return {**page(total=len(found), offset=start, limit=LIST_PAGE), "consumers": shown}


async def delete(service: ClusterService, call: Call) -> Mapping[str, object]:
    """CONSUMER.DELETE.*.*."""
    call.require_empty_body()
    if not await service.owners.leading(call.account, call.stream).consumers.delete(call.consumer):
        raise errors.CONSUMER_NOT_FOUND.with_values()
    log_change(CONSUMER_DELETED, call.account, call.hdr, stream=call.stream, consumer=call.consumer)
    return success()


async def pause(service: ClusterService, call: Call) -> Mapping[str, object]:
    """CONSUMER.PAUSE.*.*: stops deliveries until a time; without one, or with one in the past, resumes them."""
    until_ns = call.optional_body(JSApiConsumerPauseRequest).pause_until
    if until_ns is not None and until_ns >= TIME_NS_END:  # Go's error text: its JSON has no years above 9999
        fault = "json: error calling MarshalJSON for type *time.Time: year outside of range [0,9999]"
        raise errors.CONSUMER_STORE_FAILED.with_values(err=fault)
    left_ns = await service.owners.leading(call.account, call.stream).consumers.pause(call.consumer, until_ns)
    if left_ns is None:
        raise errors.CONSUMER_NOT_FOUND.with_values()
    shown = format_time(ZERO_TIME_NS if until_ns is None else until_ns)
    if left_ns <= 0:
        return {"paused": False, "pause_until": shown}
    return {"paused": True, "pause_until": shown, "pause_remaining": left_ns}


async def unpin(service: ClusterService, call: Call) -> Mapping[str, object]:
    """CONSUMER.UNPIN.*.*: the pinned client of the group is pinned no longer."""
    group = unmarshal(JSApiConsumerUnpinRequest, call.body).group
    if not group:
        raise errors.INVALID_JSON.with_values(err="consumer group not specified")
    if not GROUP_NAME.fullmatch(group):
        raise errors.CONSUMER_INVALID_GROUP_NAME.with_values()
    if not service.owners.leading(call.account, call.stream).consumers.unpin(call.consumer, group):
        raise errors.CONSUMER_NOT_FOUND.with_values()
    return {}


async def reset(service: ClusterService, call: Call) -> Mapping[str, object] | None:
    """CONSUMER.RESET.*.*: as in nats-server a request for an unknown consumer gets no answer."""
    replica = service.owners.leading(call.account, call.stream)
    if replica.consumer_info(call.consumer) is None:
        return None
    request = unmarshal(JSApiConsumerResetRequest, call.body) if call.body else NO_SEQUENCE
    found = await replica.reset_consumer(call.consumer, request.seq)
    return None if found is None else {**single_consumer(service, found[0]), "reset_seq": found[1]}


async def _create(service: ClusterService, call: Call, form: CreateForm) -> Mapping[str, object]:
    request = call.decode(CreateConsumerRequest)
    name = call.consumer if form is not CreateForm.EPHEMERAL else ""
    filter_subject = call.names[2] if len(call.names) > 2 else ""  # noqa: PLR2004  (stream, consumer, filter)
    config = check_consumer_create_request(
        request, form=form, stream=call.stream, consumer=name, filter_subject=filter_subject
    )
    replica = service.owners.leading(call.account, call.stream)
    if config.num_replicas > 1 and not service.cluster.clustered:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED.with_values()

    def changed(kind: EventKind, consumer: str) -> None:
        log_change(kind, call.account, call.hdr, stream=call.stream, consumer=consumer)

    action, pedantic = request.action, request.pedantic
    created = await replica.create_consumer(config, action=action, pedantic=pedantic, changed=changed)
    return single_consumer(service, created)
