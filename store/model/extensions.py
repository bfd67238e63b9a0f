"""The keys `jetraft.*` in the metadata of streams and consumers: what this server does beyond JetStream.

Metadata is what any client can set, is replicated with the configuration, and is shown as it was given. Every key that
begins with `jetraft.` is checked when a stream or a consumer is created or changed: one that is not known, or has a
value that cannot be, is refused. What is in force was checked, but may be older than that check (an earlier version
kept such keys and read none of them): reading it never fails, and such a key does nothing. docs/extensions.md
describes the keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import attrs

from jetraft.store.model import errors
from jetraft.store.model.config import AckPolicy, ConsumerConfig, StreamConfig
from jetraft.store.model.subject import overlaps, valid_publish_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PREFIX: Final = "jetraft."
DEAD_LETTER: Final = PREFIX + "dead_letter"
NAK_BACKOFF: Final = PREFIX + "nak_backoff"
STRICT_ACKS: Final = PREFIX + "strict_acks"

SUBJECT_BYTES_MAX: Final = 255  # of what dead letters' subjects begin with


@attrs.frozen(kw_only=True, slots=True)
class ConsumerExtensions:
    """What the keys of a consumer ask for."""

    dead_letter: str = ""  # what the subjects of dead letters begin with; empty: there are none
    nak_backoff: bool = False  # a negative ack without a delay waits as `backoff` says
    strict_acks: bool = False  # an ack counts only for the newest delivery of a message


NOTHING: Final = ConsumerExtensions()


class BadExtensionError(ValueError):
    """A key is not known, or its value cannot be."""


def check_stream_extensions(config: StreamConfig) -> None:
    """Raise ApiError 10052 for a key that is not known; `config` is normalised."""
    for key in config.metadata:
        if key.startswith(PREFIX):
            raise errors.STREAM_INVALID_CONFIG.with_values(err=f"unknown key {key:.80} in the metadata of a stream")


def check_consumer_extensions(config: ConsumerConfig, stream: StreamConfig) -> None:
    """Raise ApiError 10012 for a key that is not known or cannot be; both configurations are normalised."""
    try:
        found = _parse(config.metadata)
        if found is not NOTHING:
            _check_fits(found, config, stream)
    except BadExtensionError as error:
        raise errors.CONSUMER_CREATE_FAILED.with_values(err=error) from error


def consumer_extensions(config: ConsumerConfig) -> ConsumerExtensions:
    """What is in force; NOTHING for what was not checked and cannot be."""
    try:
        return _parse(config.metadata)
    except BadExtensionError:
        return NOTHING


def dead_letter_subject(prefix: str, stream: str, consumer: str) -> str:
    """Where the dead letters of a consumer are published."""
    return f"{prefix}.{stream}.{consumer}"


def _parse(metadata: Mapping[str, str]) -> ConsumerExtensions:
    given = {key: value for key, value in metadata.items() if key.startswith(PREFIX)}
    if not given:
        return NOTHING
    values: dict[str, object] = {}
    for key, value in given.items():
        if key not in _CONSUMER_KEYS:
            _refuse(f"unknown key {key:.80} in the metadata of a consumer")
        values[key.removeprefix(PREFIX)] = _CONSUMER_KEYS[key](key, value)
    return ConsumerExtensions(**values)  # type: ignore[arg-type]  # each key's reader gives its field's type


def _check_fits(found: ConsumerExtensions, config: ConsumerConfig, stream: StreamConfig) -> None:
    """Check what the keys ask of the rest of the configuration."""
    if (found.dead_letter or found.strict_acks) and config.ack_policy is not AckPolicy.EXPLICIT:
        _refuse(f"{DEAD_LETTER if found.dead_letter else STRICT_ACKS} needs ack policy explicit")
    if found.nak_backoff and not config.backoff:
        _refuse(f"{NAK_BACKOFF} needs a backoff")
    if found.dead_letter:
        if config.max_ack_pending <= 0:
            _refuse(f"{DEAD_LETTER} needs a max ack pending")
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


def _prefix(key: str, value: str) -> str:
    subject = value.encode()
    if not valid_publish_subject(subject) or len(subject) > SUBJECT_BYTES_MAX:
        _refuse(f"{key} is the beginning of a subject, not {value[:40]!r}")
    if value.startswith("$"):
        _refuse(f"{key} can not be a subject of servers")
    return value


_CONSUMER_KEYS: Final[dict[str, Callable[[str, str], object]]] = {
    DEAD_LETTER: _prefix,
    NAK_BACKOFF: _flag,
    STRICT_ACKS: _flag,
}


def _refuse(reason: str) -> NoReturn:
    raise BadExtensionError(reason)
