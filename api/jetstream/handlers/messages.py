"""Handlers for single messages: get and delete, executed by the stream's leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.cluster.streams.gets.asked import message_found_at_once
from jetraft.store.model import errors
from jetraft.store.model.config import StorageType
from jetraft.store.model.encoding.jsoncodec import encode_base64
from jetraft.store.model.requests import JSApiMsgDeleteRequest, JSApiMsgGetRequest
from jetraft.store.model.responses import success
from jetraft.store.model.state import StoredMessageView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.api.jetstream.call import Call
    from jetraft.cluster.requests.service import ClusterService
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.store.model.state import StreamState
    from jetraft.store.stream.stream_store import StoredMessage


async def get(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.MSG.GET.*: by sequence, the last of a subject, or the next of a subject or time. Linearizable."""
    request = _get_request(call)
    replica = service.owners.leading(call.account, call.stream)
    return _message_json(await replica.get_message(request), request)


def get_confirmed(replica: StreamReplica, call: Call) -> Mapping[str, object]:
    """The same when it is known that this replica still leads. Raises ApiError, and TakesLongError for a search."""
    request = _get_request(call)
    return _message_json(message_found_at_once(replica.machine.store, request), request)


async def delete(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.MSG.DELETE.*: overwrites the bytes unless `no_erase`. A lost message leaves the list of losses."""
    if call.is_empty:
        raise errors.BAD_REQUEST.with_values()
    request = call.required_body(JSApiMsgDeleteRequest)
    replica = service.owners.leading(call.account, call.stream)
    store = replica.machine.store
    state, was_lost = store.state, store.is_lost(request.seq)
    is_removed = await replica.delete_message(request.seq, erase=not request.no_erase)
    if not is_removed and not (was_lost and not store.is_lost(request.seq)):
        raise _not_there(request.seq, state, replica.config.storage)
    return success()


def _not_there(seq: int, state: StreamState, storage: StorageType) -> errors.ApiError:
    """The error for the delete of a message that does not exist: outside of the stream, or in a gap.

    A stream in memory tells no difference.
    """
    if storage is StorageType.MEMORY:
        return errors.SEQUENCE_NOT_FOUND.with_values(seq=seq)
    if seq > state.last_seq:
        return errors.STREAM_MSG_DELETE_FAILED.with_values(err="stream store EOF")
    if seq < state.first_seq:
        return errors.STREAM_MSG_DELETE_FAILED.with_values(err="no message found")
    return errors.SEQUENCE_NOT_FOUND.with_values(seq=seq)


def _get_request(call: Call) -> JSApiMsgGetRequest:
    """The body. Raises ApiError 10003 unless it has exactly one query, and asks for one message.

    As in nats-server what else only direct get serves is passed over.
    """
    request = call.required_body(JSApiMsgGetRequest)
    by_seq, by_last, by_next = request.seq > 0, bool(request.last_by_subj), bool(request.next_by_subj)
    by_time = request.start_time is not None
    nothing = not (by_seq or by_last or by_next or by_time)
    several = (by_last and (by_seq or by_next or by_time)) or (by_seq and by_time)
    if nothing or several or request.batch > 0 or request.max_bytes > 0:
        raise errors.BAD_REQUEST.with_values()
    return request


def _message_json(message: StoredMessage, request: JSApiMsgGetRequest) -> Mapping[str, object]:
    view = StoredMessageView(
        subject=message.subject.decode(errors="replace"),
        seq=message.seq,
        hdrs="" if request.no_hdr else encode_base64(message.hdr),
        data=encode_base64(message.payload),
        time_ns=message.ts_ns,
    )
    return {"message": view.to_json_dict()}
