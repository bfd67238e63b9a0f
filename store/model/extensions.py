"""The keys `jetraft.*` in the metadata of streams and consumers: what this server does beyond JetStream.

Metadata is what any client can set, is replicated with the configuration, and is shown as it was given. Every key that
begins with `jetraft.` is checked when a stream or a consumer is created or changed: one that is not known, or has a
value that cannot be, is refused. What is in force was checked, but may be older than that check (an earlier version
kept such keys and read none of them): reading it never fails, and such a key does nothing. docs/extensions.md
describes the keys.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NoReturn

import attrs

from jetraft.store.model import errors
from jetraft.store.model.config import AckPolicy, ConsumerConfig, PriorityPolicy, StreamConfig
from jetraft.store.model.schemas.rules import KEY as SCHEMA_KEY
from jetraft.store.model.schemas.rules import SCHEMA, BadSchemaError, read_rules
from jetraft.store.model.subject import overlaps, valid_publish_subject, valid_subject
from jetraft.store.model.validation.chaining import why_not_chained

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jetraft.store.model.schemas.rules import SchemaRule

PREFIX: Final = "jetraft."
DEAD_LETTER: Final = PREFIX + "dead_letter"
NAK_BACKOFF: Final = PREFIX + "nak_backoff"
STRICT_ACKS: Final = PREFIX + "strict_acks"
ACK_PUBLISH: Final = PREFIX + "ack_publish"
KEY_ORDER: Final = PREFIX + "key_order"
MAX_SUBJECTS: Final = PREFIX + "max_subjects"
MAX_BYTES_PER_SUBJECT: Final = PREFIX + "max_bytes_per_subject"
DELAYED: Final = PREFIX + "delayed"
RATE_MSGS: Final = PREFIX + "rate_msgs_per_s"
RATE_BYTES: Final = PREFIX + "rate_bytes_per_s"
LEGACY_ACK: Final = PREFIX + "legacy_ack"
LINEARIZABLE_READS: Final = PREFIX + "linearizable_reads"
CHAIN: Final = PREFIX + "chain"
SHA256: Final = "sha256"  # the only value of that key
TEMPLATE: Final = PREFIX + "template"

SUBJECT_BYTES_MAX: Final = 255  # of what dead letters' subjects begin with
WAITING: Final = b"$JETRAFT.DELAYED."  # what the subjects of messages begin with that are not due yet
NAME_CHARS_MAX: Final = 255
DIGITS_MAX: Final = 12  # of a number
TOKEN: Final = re.compile(r"token ([1-9][0-9]?)")
HEADER: Final = re.compile(r"header ([A-Za-z0-9][A-Za-z0-9_-]{0,63})")


@attrs.frozen(kw_only=True, slots=True)
class StreamExtensions:
    """The wishes of a stream's keys; 0 is no limit."""

    max_subjects: int = 0
    max_bytes_per_subject: int = 0
    delayed: bool = False  # messages may say when they are due
    rate_msgs_per_s: int = 0
    rate_bytes_per_s: int = 0
    linearizable_reads: bool = False  # direct gets have all that was acknowledged before, at any replica
    schemas: tuple[SchemaRule, ...] = ()  # which payloads are taken
    legacy_ack: bool = False  # publishes are answered with `+OK` or `-ERR`, as in 2020
    chain: bool = False  # the stream has a head that proves its messages
    template: str = ""  # by which it was made; only the server sets it


@attrs.frozen(kw_only=True, slots=True)
class KeyRule:
    """The place of a message's key: in a token of its subject, counted from 1, or in a header."""

    token: int = 0
    header: str = ""


@attrs.frozen(kw_only=True, slots=True)
class ConsumerExtensions:
    """The wishes of a consumer's keys."""

    dead_letter: str = ""  # what the subjects of dead letters begin with; empty: there are none
    nak_backoff: bool = False  # a negative ack without a delay waits as `backoff` says
    strict_acks: bool = False  # an ack counts only for the newest delivery of a message
    ack_publish: str = ""  # the subjects that an ack may publish to; empty: none
    key_order: KeyRule | None = None  # of the messages of one key, one is in flight at a time


NOTHING: Final = ConsumerExtensions()
NO_STREAM_EXTENSIONS: Final = StreamExtensions()


class BadExtensionError(ValueError):
    """A key is not known, or its value cannot be."""


def check_stream_extensions(config: StreamConfig) -> None:
    """Raise ApiError 10052 for a key that is not known or cannot be; `config` is normalised."""
    try:
        found = _parse_stream(config)
        if "schemas" in found:
            from jetraft.store.model.schemas.compiled import check_schema  # noqa: PLC0415  few streams have one

            for rule in found["schemas"]:
                check_schema(rule)
    except (BadExtensionError, BadSchemaError) as error:
        raise errors.STREAM_INVALID_CONFIG.with_values(err=error) from error
    of_origins = [key for key in config.metadata if key.startswith(PREFIX) and key != CHAIN]
    if of_origins and (config.mirror is not None or config.sources):
        key = of_origins[0]
        raise errors.STREAM_INVALID_CONFIG.with_values(err=f"{key} is for streams without origins")
    if found.get("schemas") and config.allow_msg_counter:
        raise errors.STREAM_INVALID_CONFIG.with_values(err=f"{SCHEMA} is not for streams with counters")
    refused = _why_not_delayed(config) if found.get("delayed") else ""
    if refused:
        raise errors.STREAM_INVALID_CONFIG.with_values(err=f"{DELAYED} {refused}")
    if found.get("chain"):
        delays, bytes_per_subject = found.get("delayed", False), found.get("max_bytes_per_subject", 0)
        refused = why_not_chained(config, delays=delays, bytes_per_subject=bytes_per_subject)
        if refused:
            raise errors.STREAM_INVALID_CONFIG.with_values(err=f"{CHAIN} {refused}")


def check_stream_extensions_update(old: StreamConfig, new: StreamConfig) -> None:
    """Raise ApiError 10052 for a change that cannot be; `new` was checked."""
    if stream_extensions(old).template != stream_extensions(new).template:
        raise errors.STREAM_INVALID_CONFIG.with_values(err=f"{TEMPLATE} can not be changed")
    if stream_extensions(old).delayed and not stream_extensions(new).delayed:
        raise errors.STREAM_INVALID_CONFIG.with_values(err=f"{DELAYED} can not be removed")
    if stream_extensions(old).chain != stream_extensions(new).chain:
        raise errors.STREAM_INVALID_CONFIG.with_values(err=f"{CHAIN} is set when a stream is created, and stays")


def hidden_by(config: StreamConfig | None) -> bytes | None:
    """The beginning of the subjects of messages that consumers of the stream are not given; None: of none."""
    return WAITING if config is not None and stream_extensions(config).delayed else None


def keeps_schedules(config: StreamConfig) -> bool:
    """Whether the stream has messages that are due at some time: schedules, or others that wait."""
    return config.allow_msg_schedules or stream_extensions(config).delayed


def stream_extensions(config: StreamConfig) -> StreamExtensions:
    """The wishes in force; none where that was not checked and cannot be."""
    try:
        found = _parse_stream(config)
    except (BadExtensionError, BadSchemaError):
        return NO_STREAM_EXTENSIONS
    return StreamExtensions(**found) if found else NO_STREAM_EXTENSIONS


def check_consumer_extensions(config: ConsumerConfig, stream: StreamConfig) -> None:
    """Raise ApiError 10012 for a key that is not known or cannot be; both configurations are normalised."""
    try:
        found = _parse(config.metadata, _CONSUMER_KEYS, "consumer")
        if found:
            _check_fits(ConsumerExtensions(**found), config, stream)
    except BadExtensionError as error:
        raise errors.CONSUMER_CREATE_FAILED.with_values(err=error) from error


def consumer_extensions(config: ConsumerConfig) -> ConsumerExtensions:
    """The same for a consumer."""
    try:
        found = _parse(config.metadata, _CONSUMER_KEYS, "consumer")
    except BadExtensionError:
        return NOTHING
    return ConsumerExtensions(**found) if found else NOTHING


def check_extensions_update(old: ConsumerConfig, new: ConsumerConfig) -> None:
    """Raise ApiError 10012 for a change that cannot be; `new` was checked."""
    if consumer_extensions(old).key_order != consumer_extensions(new).key_order:
        raise errors.CONSUMER_CREATE_FAILED.with_values(err=f"{KEY_ORDER} can not be updated")


def dead_letter_subject(prefix: str, stream: str, consumer: str) -> str:
    """The subject to which the dead letters of a consumer are published."""
    return f"{prefix}.{stream}.{consumer}"


def _parse_stream(config: StreamConfig) -> dict[str, Any]:
    """The values of a stream's keys, by field. Raises BadExtensionError and BadSchemaError."""
    if not any(key.startswith(SCHEMA) for key in config.metadata):
        return _parse(config.metadata, _STREAM_KEYS, "stream")
    others = {key: value for key, value in config.metadata.items() if not SCHEMA_KEY.fullmatch(key)}
    schemas = read_rules(config.metadata)
    return _parse(others, _STREAM_KEYS, "stream") | ({"schemas": schemas} if schemas else {})


def _parse(metadata: Mapping[str, str], readers: Mapping[str, Callable[[str, str], Any]], what: str) -> dict[str, Any]:
    """The values of our keys, by field. Raises BadExtensionError."""
    found: dict[str, Any] = {}
    for key, value in metadata.items():
        if not key.startswith(PREFIX):
            continue
        if key not in readers:
            _refuse(f"unknown key {key:.80} in the metadata of a {what}")
        found[key.removeprefix(PREFIX)] = readers[key](key, value)
    return found


def _why_not_delayed(config: StreamConfig) -> str:
    """The objection to messages that wait in the rest of a configuration; empty for none."""
    if config.allow_msg_counter:
        return "is not for streams with counters"
    if config.subject_transform is not None:
        return "is not for streams with a subject transform"
    if config.subject_delete_marker_ttl:
        return "is not for streams with delete markers"
    if any(overlaps(captured, WAITING + b">") for captured in config.subject_filters):
        return "is not for streams that capture $JETRAFT.DELAYED.>"
    return ""


def _check_fits(found: ConsumerExtensions, config: ConsumerConfig, stream: StreamConfig) -> None:
    """Check what the keys ask of the rest of the configuration."""
    for key, is_used in (
        (DEAD_LETTER, found.dead_letter),
        (STRICT_ACKS, found.strict_acks),
        (KEY_ORDER, found.key_order),
    ):
        if is_used and config.ack_policy is not AckPolicy.EXPLICIT:
            _refuse(f"{key} needs ack policy explicit")
        if is_used and key != STRICT_ACKS and config.max_ack_pending <= 0:
            _refuse(f"{key} needs a max ack pending")
    if found.key_order and (config.deliver_subject or config.priority_policy is not PriorityPolicy.NONE):
        _refuse(f"{KEY_ORDER} is for pull consumers without priority groups")
    if found.ack_publish and not found.strict_acks:
        _refuse(f"{ACK_PUBLISH} needs {STRICT_ACKS}")
    if found.ack_publish and not any(overlaps(one, found.ack_publish.encode()) for one in stream.subject_filters):
        _refuse(
            f"{ACK_PUBLISH}: stream {stream.name} captures nothing of {found.ack_publish}, "
            "and two streams are not one step"
        )
    if found.nak_backoff and not config.backoff:
        _refuse(f"{NAK_BACKOFF} needs a backoff")
    if found.dead_letter:
        _check_no_circle(found.dead_letter, config, stream)


def _check_no_circle(prefix: str, config: ConsumerConfig, stream: StreamConfig) -> None:
    """A consumer that is given its own dead letters gives them up again, without an end."""
    name = config.durable_name or config.name or "*"
    subject = dead_letter_subject(prefix, stream.name, name).encode()
    comes_back = any(overlaps(captured, subject) for captured in stream.subject_filters)
    if comes_back and (not config.filters or any(overlaps(wanted, subject) for wanted in config.filters)):
        _refuse(f"{DEAD_LETTER}: the consumer would be given its own dead letters")


def _flag(key: str, value: str) -> bool:
    if value not in ("true", "false"):
        _refuse(f"{key} is true or false, not {value[:40]!r}")
    return value == "true"


def _algorithm(key: str, value: str) -> bool:
    if value != SHA256:
        _refuse(f"{key} is {SHA256}, not {value[:40]!r}")
    return True


def _prefix(key: str, value: str) -> str:
    subject = value.encode()
    if not valid_publish_subject(subject) or len(subject) > SUBJECT_BYTES_MAX:
        _refuse(f"{key} is the beginning of a subject, not {value[:40]!r}")
    if value.startswith("$"):
        _refuse(f"{key} can not be a subject of servers")
    return value


def _pattern(key: str, value: str) -> str:
    if not valid_subject(value.encode()) or len(value) > SUBJECT_BYTES_MAX or value.startswith("$"):
        _refuse(f"{key} is a subject, with wildcards or without, not {value[:40]!r}")
    return value


def _name(key: str, value: str) -> str:
    if not value or len(value) > NAME_CHARS_MAX:
        _refuse(f"{key} is the name of a template")
    return value


def _number(key: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= DIGITS_MAX) or int(value) == 0:
        _refuse(f"{key} is a number from 1 to {'9' * DIGITS_MAX}, not {value[:40]!r}")
    return int(value)


def _key_rule(key: str, value: str) -> KeyRule:
    if found := TOKEN.fullmatch(value):
        return KeyRule(token=int(found[1]))
    if found := HEADER.fullmatch(value):
        return KeyRule(header=found[1])
    return _refuse(f"{key} is 'token N' or 'header NAME', not {value[:40]!r}")


_STREAM_KEYS: Final[dict[str, Callable[[str, str], Any]]] = {
    MAX_SUBJECTS: _number,
    MAX_BYTES_PER_SUBJECT: _number,
    DELAYED: _flag,
    RATE_MSGS: _number,
    RATE_BYTES: _number,
    LEGACY_ACK: _flag,
    TEMPLATE: _name,
    LINEARIZABLE_READS: _flag,
    CHAIN: _algorithm,
}
_CONSUMER_KEYS: Final[dict[str, Callable[[str, str], Any]]] = {
    DEAD_LETTER: _prefix,
    NAK_BACKOFF: _flag,
    STRICT_ACKS: _flag,
    ACK_PUBLISH: _pattern,
    KEY_ORDER: _key_rule,
}


def _refuse(reason: str) -> NoReturn:
    raise BadExtensionError(reason)
