"""The message that a STREAM.MSG.GET asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.store.model import errors
from jetraft.store.model.subject import is_literal
from jetraft.store.port import StoreCorrupt

if TYPE_CHECKING:
    from jetraft.cluster.site import Site
    from jetraft.store.model.requests import JSApiMsgGetRequest
    from jetraft.store.stream._search import LastSearch, NextSearch
    from jetraft.store.stream.stream_store import StoredMessage, StreamStore

VISITS: Final = 4_000  # subjects that a search looks at in one step: 0.2 ms


class TakesLongError(Exception):
    """The message has to be searched for among many subjects."""


async def message_asked_for(site: Site, store: StreamStore, request: JSApiMsgGetRequest) -> StoredMessage:
    """The message; raises ApiError 10037 when there is none, 10051 when it is damaged.

    A pattern is searched for in slices (cluster/turn_work.py); 10023 where too many wait for that.
    """
    found = _seq_or_search(store, request)
    if isinstance(found, int):
        return _loaded(store, found)
    try:
        if not await site.work.finish(message_asked_for, lambda: found.step(VISITS)):
            raise errors.INSUFFICIENT_RESOURCES.with_values()
    finally:
        found.close()
    return _loaded(store, found.found)


def message_found_at_once(store: StreamStore, request: JSApiMsgGetRequest) -> StoredMessage:
    """The same where no search is needed, or a short one; raises TakesLongError for others."""
    found = _seq_or_search(store, request)
    if isinstance(found, int):
        return _loaded(store, found)
    found.close()
    raise TakesLongError


def _loaded(store: StreamStore, seq: int) -> StoredMessage:
    try:
        message = store.load(seq) if seq else None
    except StoreCorrupt as error:
        raise errors.STREAM_GENERAL_ERROR.with_values(err=str(error)) from error
    if message is None:
        raise errors.NO_MESSAGE_FOUND.with_values()
    return message


def _seq_or_search(store: StreamStore, request: JSApiMsgGetRequest) -> int | LastSearch | NextSearch:
    """The sequence that is meant (0 for none), or the search for it that has taken its first step."""
    try:
        first = request.seq if request.start_time is None else store.seq_at_time(request.start_time)
    except StoreCorrupt as error:
        raise errors.STREAM_GENERAL_ERROR.with_values(err=str(error)) from error
    pattern, following = request.last_by_subj.encode(), request.next_by_subj.encode()
    if pattern and is_literal(pattern):
        return store.last_for(pattern) or 0
    if not pattern and not following:
        return first
    search = store.search_last((pattern,)) if pattern else store.search_next((following,), max(first, 1))
    if search.step(VISITS):
        return search
    search.close()
    return search.found


def message_at(store: StreamStore, seq: int) -> StoredMessage | None:
    """The message of a sequence; None when there is none or it is damaged: `message_asked_for` says which."""
    try:
        return store.load(seq)
    except StoreCorrupt:
        return None
