"""The request for the consumer through which an origin is read, and its answer. Pure.

The consumer is like that of a nats-server that reads the origin: unacknowledged, pushed, with flow control and
heartbeats, and it goes away by itself. The server of an origin that removes what is acknowledged makes it durable
(store/model/validation/sourcing.py): so its name is the same for each attempt and each leader. Where the configuration
names a durable consumer, that one is reset instead. The header asks which stream of this name it is (`source_header`).
Source: nats-server 2.15 stream.go (setupMirrorConsumer, trySetupSourceConsumer), ADR-60, observed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson

from jetraft.cluster.origins.deliveries import NUMBER_MAX
from jetraft.cluster.state.source_header import key_of, short_hash
from jetraft.store.model import message
from jetraft.store.model.api_error import ApiError
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.config import AckPolicy
from jetraft.store.model.gotime import format_time

if TYPE_CHECKING:
    from jetraft.store.model.config import StreamSource

API_PREFIX: Final = "$JS.API"
IDENTITY: Final = b"Nats-Stream-Identity"
ACK_WAIT_NS: Final = 22 * 3600 * NS_PER_S  # as nats-server; nothing waits for an acknowledgement
HEARTBEAT_NS: Final = NS_PER_S
INACTIVE_NS: Final = 10 * NS_PER_S
UNREADABLE: Final = "the origin's server gave an answer that cannot be read"
ASKING: Final = message.append(b"", IDENTITY, b"")


@attrs.frozen(kw_only=True, slots=True)
class Answer:
    """The outcome of the request: a consumer that starts behind `delivered_seq`, or an error."""

    consumer: str = ""
    delivered_seq: int = 0
    num_pending: int = 0
    identity: bytes = b""
    acks_by_flow: bool = False  # what is stored is acknowledged, by answers to flow control requests
    error: ApiError | None = None


def api_prefix(source: StreamSource) -> str:
    """The prefix of the API of the origin's server."""
    external = source.external
    return external.api if external is not None and external.api else API_PREFIX


def consumer_name(account: str, stream: str, source: StreamSource, *, letter: str) -> str:
    """The name of the consumer that is asked for: others that read the same stream have other names."""
    text = b"%s %s %s" % (account.encode(), stream.encode(), key_of(source))
    return f"JS_{'MIRROR' if letter == 'M' else 'SRC'}_{short_hash(text).decode()}"


def reset_subject(source: StreamSource, consumer: str) -> bytes:
    """The subject of the request that begins a named consumer again, behind what was acknowledged."""
    return f"{api_prefix(source)}.CONSUMER.RESET.{source.name}.{consumer}".encode()


def create_subject(source: StreamSource, consumer: str) -> bytes:
    """The subject of the request; as with nats-server it has the filter where there is just one."""
    subject = f"{api_prefix(source)}.CONSUMER.CREATE.{source.name}.{consumer}"
    return f"{subject}.{source.filter_subject}".encode() if source.filter_subject else subject.encode()


def delete_subject(source: StreamSource, consumer: str) -> bytes:
    """The subject of the request that ends the consumer."""
    return f"{api_prefix(source)}.CONSUMER.DELETE.{source.name}.{consumer}".encode()


def deliver_subject(source: StreamSource, stream: str, token: str, *, letter: str) -> bytes:
    """The subject for messages to come; `letter` is M for a mirror and S for a source."""
    external = source.external
    if external is not None and external.deliver:
        return f"{external.deliver}.{stream}.{token}".encode()
    return f"$JS.{letter}.{token}".encode()


def create_body(
    source: StreamSource, consumer: str, deliver: bytes, *, last_seq: int, metadata: dict[str, str]
) -> bytes:
    """The body of the request for what follows `last_seq`; 0 for all that the configuration wants."""
    config: dict[str, Any] = {"name": consumer, "deliver_policy": "all"}
    if last_seq or source.opt_start_seq:
        config |= {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": last_seq + 1 if last_seq else source.opt_start_seq,
        }
    elif source.opt_start_time is not None:
        config |= {"deliver_policy": "by_start_time", "opt_start_time": format_time(source.opt_start_time)}
    config |= {"ack_policy": "none", "ack_wait": ACK_WAIT_NS, "max_deliver": 1}
    filters = [transform.src for transform in source.subject_transforms]
    if source.filter_subject or len(filters) == 1:
        config["filter_subject"] = source.filter_subject or filters[0]
    elif filters:
        config["filter_subjects"] = filters
    config |= {
        "replay_policy": "instant",
        "flow_control": True,
        "deliver_subject": deliver.decode(),
        "idle_heartbeat": HEARTBEAT_NS,
        "inactive_threshold": INACTIVE_NS,
        "num_replicas": 0,
        "direct": True,
        "sourcing": True,
        "metadata": metadata,
    }
    return orjson.dumps({"stream_name": source.name, "config": config, "action": ""})


def read_answer(hdr: bytes, payload: bytes) -> Answer:
    """The answer of any server; one that makes no sense is an error."""
    try:
        body = orjson.loads(payload)
        if error := body.get("error"):
            code, number, text = _number(error["code"]), _number(error.get("err_code", 0)), error.get("description", "")
            return Answer(error=ApiError(code=code, err_code=number, description=_text(text)))
        return Answer(
            consumer=_name(body["name"]),
            delivered_seq=_number(body["delivered"]["stream_seq"]),
            num_pending=_number(body["num_pending"]),
            identity=_word(message.get(hdr, IDENTITY) or b""),
            acks_by_flow=(body.get("config") or {}).get("ack_policy") == AckPolicy.FLOW_CONTROL.value,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return Answer(error=ApiError(code=500, err_code=0, description=UNREADABLE))


# What is read here goes into subjects, headers and the log: what answers may be no server at all. Each raises
# ValueError for what is not what it should be.


def _number(found: object) -> int:
    if type(found) is not int or not 0 <= found <= NUMBER_MAX:
        raise ValueError(found)
    return found


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise ValueError(found)  # noqa: TRY004  (one kind of error for all that cannot be read)
    return found


def _name(found: object) -> str:
    name = _text(found)
    if not name.isascii() or not name.isprintable() or not name or set(name) & set(" .*>"):
        raise ValueError(name)
    return name


def _word(found: bytes) -> bytes:
    if found.split() not in ([], [found]):
        raise ValueError(found)
    return found
