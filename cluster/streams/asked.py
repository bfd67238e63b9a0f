"""The message that a STREAM.MSG.GET asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.store.model import errors
from jetraft.store.model.subject import is_literal
from jetraft.store.port import StoreCorrupt

if TYPE_CHECKING:
    from jetraft.store.model.requests import JSApiMsgGetRequest
    from jetraft.store.stream.stream_store import StoredMessage, StreamStore


def message_asked_for(store: StreamStore, request: JSApiMsgGetRequest) -> StoredMessage:
    """The message; raises ApiError 10037 when there is none, 10051 when it is damaged."""
    try:
        seq = seq_asked_for(store, request)
        message = None if seq is None else store.load(seq)
    except StoreCorrupt as error:
        raise errors.STREAM_GENERAL_ERROR.with_values(err=str(error)) from error
    if message is None:
        raise errors.NO_MESSAGE_FOUND.with_values()
    return message


def message_at(store: StreamStore, seq: int) -> StoredMessage | None:
    """The message of a sequence; None when there is none or it is damaged: `message_asked_for` says which."""
    try:
        return store.load(seq)
    except StoreCorrupt:
        return None


def seq_asked_for(store: StreamStore, request: JSApiMsgGetRequest) -> int | None:
    """The sequence that a get means: by number, by time, the last of a subject, or the next of a subject from there."""
    first = request.seq if request.start_time is None else store.seq_at_time(request.start_time)
    if request.last_by_subj:
        pattern = request.last_by_subj.encode()
        return store.last_for(pattern) if is_literal(pattern) else store.last_match((pattern,))
    if request.next_by_subj:
        return store.next_match((request.next_by_subj.encode(),), max(first, 1))
    return first or None
