"""API answers: `{"type": ..., ...}` with the type names of nats-server, and their error form.

Each API has one type name, for answers and errors; clients decode by it. Paged APIs have `total`, `offset` and `limit`
in errors too. Source: server/jetstream_api.go.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from jetraft.store.model.api_error import ApiError
from jetraft.store.model.encoding.jsoncodec import WireObject, encode
from jetraft.store.model.gotime import ZERO_TIME_NS, format_time

TYPE_PREFIX: Final = "io.nats.jetstream.api.v1."
OWN_PREFIX: Final = "io.jetraft.api.v1."  # of what nats-server has not


class ResponseType(StrEnum):
    """The last part of each type name."""

    ACCOUNT_INFO = "account_info_response"
    ACCOUNT_PURGE = "account_purge_response"
    CHAIN_CONSISTENCY = "chain_consistency_response"
    CHAIN_HEAD = "chain_head_response"
    CHAIN_PROOF = "chain_proof_response"
    CONSUMER_CREATE = "consumer_create_response"
    CONSUMER_DELETE = "consumer_delete_response"
    CONSUMER_EVACUATE_PEER = "consumer_evacuate_peer_response"
    CONSUMER_INFO = "consumer_info_response"
    CONSUMER_LEADER_STEPDOWN = "consumer_leader_stepdown_response"
    CONSUMER_LIST = "consumer_list_response"
    CONSUMER_NAMES = "consumer_names_response"
    CONSUMER_PAUSE = "consumer_pause_response"
    CONSUMER_REMOVE_PEER = "consumer_remove_peer_response"
    CONSUMER_RESET = "consumer_reset_response"
    CONSUMER_UNPIN = "consumer_unpin_response"
    META_LEADER_STEPDOWN = "meta_leader_stepdown_response"
    META_SERVER_REMOVE = "meta_server_remove_response"
    STREAM_CANCEL_MOVE = "stream_cancel_move_response"
    STREAM_CREATE = "stream_create_response"
    STREAM_DELETE = "stream_delete_response"
    STREAM_EVACUATE_PEER = "stream_evacuate_peer_response"
    STREAM_INFO = "stream_info_response"
    STREAM_LEADER_STEPDOWN = "stream_leader_stepdown_response"
    STREAM_LIST = "stream_list_response"
    STREAM_MSG_DELETE = "stream_msg_delete_response"
    STREAM_MSG_GET = "stream_msg_get_response"
    STREAM_NAMES = "stream_names_response"
    STREAM_PURGE = "stream_purge_response"
    STREAM_REMOVE_PEER = "stream_remove_peer_response"
    STREAM_RESTORE = "stream_restore_response"
    STREAM_SNAPSHOT = "stream_snapshot_response"
    STREAM_TEMPLATE_CREATE = "stream_template_create_response"
    STREAM_TEMPLATE_DELETE = "stream_template_delete_response"
    STREAM_TEMPLATE_INFO = "stream_template_info_response"
    STREAM_TEMPLATE_NAMES = "stream_template_names_response"
    STREAM_UPDATE = "stream_update_response"
    SYSTEM_OVERLOADED = "system_overloaded"

    @property
    def type_name(self) -> str:
        """The full name, the value of `type`."""
        return (OWN_PREFIX if self.value.startswith("chain_") else TYPE_PREFIX) + self.value


# Fields that nats-server writes after `type` and `error` in error answers: those without omitempty.
_PAGE: Final[Mapping[str, object]] = {"total": 0, "offset": 0, "limit": 0}
_ERROR_TAIL: Final[Mapping[ResponseType, Mapping[str, object]]] = {
    ResponseType.STREAM_INFO: _PAGE,
    ResponseType.STREAM_NAMES: {**_PAGE, "streams": None},
    ResponseType.STREAM_LIST: {**_PAGE, "streams": []},
    ResponseType.CONSUMER_NAMES: {**_PAGE, "consumers": []},
    ResponseType.CONSUMER_LIST: {**_PAGE, "consumers": []},
    ResponseType.CONSUMER_PAUSE: {"paused": False, "pause_until": format_time(ZERO_TIME_NS)},
    ResponseType.CONSUMER_RESET: {"reset_seq": 0},
    ResponseType.STREAM_PURGE: {"purged": 0},
    ResponseType.STREAM_RESTORE: {"deliver_subject": ""},
}


def answer(kind: ResponseType, *parts: Mapping[str, object] | WireObject) -> bytes:
    """The JSON of a successful answer: the type, then the fields of each part in order."""
    merged: dict[str, object] = {"type": kind.type_name}
    for part in parts:
        merged.update(part.to_json_dict() if isinstance(part, WireObject) else part)
    return encode(merged)


def error_answer(kind: ResponseType, error: ApiError) -> bytes:
    """The JSON of an error answer."""
    tail = _ERROR_TAIL.get(kind, {})
    return encode({"type": kind.type_name, "error": error.to_json_dict(), **tail})


def page(*, total: int, offset: int, limit: int) -> dict[str, object]:
    """The paging fields of a list answer."""
    return {"total": total, "offset": offset, "limit": limit}


def success() -> dict[str, object]:
    """The field `success`, the only one of many answers."""
    return {"success": True}
