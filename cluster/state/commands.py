"""The commands of a stream's log besides messages: what the leader has decided, as facts.

A STREAM_OP entry holds one command about the stream; a CONSUMER_OP entry holds a list of commands about its consumers,
batched per turn. Bodies are msgpack: a command is its tag followed by its fields. Commands name sequences and times
explicitly, so that applying one needs neither a clock nor a decision, and never fails on a healthy log. Sets of
sequences are `Runs`, packed into a byte string: a thousand deliveries in a row take a few bytes.

A member that does not know a command stops at it, so a command has the feature level of its form (store/model/forms.py)
and is not encoded below it: what is above the level of the oldest version that takes part needs the level in use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import attrs
import msgpack
from attrs.validators import instance_of, optional

from jetraft.store.model.feature_level import BASE
from jetraft.store.model.forms import FORMS
from jetraft.store.stream._runs import Runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_T = TypeVar("_T")
Pairs = tuple[tuple[int, int], ...]
PAIR: Final = 2


class MalformedCommandError(ValueError):
    """A body that this version cannot read: a newer format, or a bug; never a client's mistake."""


class AboveLevelError(Exception):
    """A command that not all servers know was to be encoded: its proposer has not asked for the level in use."""


def _is_pairs(_instance: object, field: attrs.Attribute[object], value: object) -> None:
    """Validate a tuple of pairs of integers."""
    if not isinstance(value, tuple):
        raise MalformedCommandError(f"{field.name} is not an array")
    for pair in value:
        if not (isinstance(pair, tuple) and len(pair) == PAIR and all(isinstance(number, int) for number in pair)):
            raise MalformedCommandError(f"{field.name} holds {pair!r:.80}, not a pair of integers")


def _is_number(_instance: object, field: attrs.Attribute[int], value: int) -> None:
    """Validate a sequence or a time; one function, because these are made thousands of times a second."""
    if type(value) is not int or value < 0:
        raise MalformedCommandError(f"{field.name} is {value!r:.80}, not a number")


_TEXT: Final = instance_of(str)
_BYTES: Final = instance_of(bytes)
_RUNS: Final = instance_of(Runs)


@attrs.frozen
class UpdateConfig:
    """The stream's configuration from here on, of an unknown revision: logs of before `SetConfig` begin with one."""

    config: bytes = attrs.field(validator=_BYTES)  # JSON


@attrs.frozen
class SetConfig:
    """The stream's configuration as of a revision of its row; without effect where a later one is in force.

    The first entry of every stream is one. A leader whose table lags behind proposes an older row's configuration, and
    what its limits would remove cannot be brought back.
    """

    config: bytes = attrs.field(validator=_BYTES)  # JSON
    revision: int = attrs.field(validator=_is_number)  # StreamAssignment.revision


@attrs.frozen
class Remove:
    """Single messages go; with `erase` their bytes are overwritten too."""

    seqs: Runs = attrs.field(validator=_RUNS)
    erase: bool = attrs.field(validator=instance_of(bool))


@attrs.frozen
class RemoveBelow:
    """Every message below this sequence goes: age, or a purge of everything."""

    seq: int = attrs.field(validator=_is_number)


@attrs.frozen
class Purge:
    """Messages of a subject (or all) go: those below a sequence, or all but the newest `keep`."""

    subject: bytes | None = attrs.field(validator=optional(_BYTES))
    below_seq: int | None = attrs.field(validator=optional(_is_number))
    keep: int | None = attrs.field(validator=optional(_is_number))


@attrs.frozen
class SkipTo:
    """The next message gets this sequence; those that are passed over never have one. Restored streams have gaps.

    `ts_ns` becomes the time of the last message, which may be one that was removed; 0 leaves it as it is.
    """

    seq: int = attrs.field(validator=_is_number)
    ts_ns: int = attrs.field(validator=_is_number)


@attrs.frozen
class Digest:
    """Changes nothing: every replica notes digests of these messages and consumers as they are at this entry."""

    first_seq: int = attrs.field(validator=_is_number)
    last_seq: int = attrs.field(validator=_is_number)
    after_name: str = attrs.field(validator=_TEXT)
    consumers: int = attrs.field(validator=_is_number)


@attrs.frozen
class NoteForgotten:
    """So many members, or all, had forgotten this stream in memory that messages may be gone; a purge ends it."""

    ts_ns: int = attrs.field(validator=_is_number)
    by_all: bool = attrs.field(validator=instance_of(bool))


@attrs.frozen
class NoteSource:
    """An origin has been read up to this sequence (0: from its start), where its last messages are not stored here."""

    key: bytes = attrs.field(validator=_BYTES)  # source_header.key_of
    seq: int = attrs.field(validator=_is_number)
    identity: bytes = attrs.field(validator=_BYTES)


@attrs.frozen
class CreateConsumer:
    """A consumer exists from here on; it starts where its policy says, judged on the state at this entry.

    A start time is judged by reading messages, so the leader does that, and proposes `RestoreConsumer`.
    """

    name: str = attrs.field(validator=_TEXT)
    config: bytes = attrs.field(validator=_BYTES)  # JSON
    created_ns: int = attrs.field(validator=_is_number)


@attrs.frozen
class UpdateConsumer:
    """A consumer's configuration from here on."""

    name: str = attrs.field(validator=_TEXT)
    config: bytes = attrs.field(validator=_BYTES)  # JSON


@attrs.frozen
class DeleteConsumer:
    """A consumer is gone."""

    name: str = attrs.field(validator=_TEXT)


@attrs.frozen
class Delivered:
    """First deliveries: these stream sequences got consumer sequences from `consumer_seq` on, in this order.

    Like acks it is made thousands of times a second: `_read_delivered` does what validators do for the others.
    """

    name: str
    ts_ns: int
    consumer_seq: int
    seqs: Runs


@attrs.frozen
class Redelivered:
    """Repeated deliveries: (stream sequence, delivery count) pairs with consumer sequences from `consumer_seq` on."""

    name: str = attrs.field(validator=_TEXT)
    ts_ns: int = attrs.field(validator=_is_number)
    consumer_seq: int = attrs.field(validator=_is_number)
    counts: Pairs = attrs.field(validator=_is_pairs)


@attrs.frozen
class Acked:
    """These are done with: acknowledged or terminated."""

    name: str
    seqs: Runs


@attrs.frozen
class AckedUpTo:
    """Everything up to and including this sequence is acknowledged (ack policy `all`)."""

    name: str
    seq: int


@attrs.frozen
class ConsumerProgress:
    """Work on these goes on: their ack wait starts again at `ts_ns`."""

    name: str = attrs.field(validator=_TEXT)
    ts_ns: int = attrs.field(validator=_is_number)
    seqs: Runs = attrs.field(validator=_RUNS)


@attrs.frozen
class Dropped:
    """These have been delivered as often as allowed and are waited for no longer; the stream keeps them."""

    name: str = attrs.field(validator=_TEXT)
    seqs: Runs = attrs.field(validator=_RUNS)


@attrs.frozen
class GaveUp:
    """These are waited for no longer, and are to be handed on to another stream (store/stream/dead_letter.py)."""

    name: str = attrs.field(validator=_TEXT)
    ts_ns: int = attrs.field(validator=_is_number)
    cause: str = attrs.field(validator=_TEXT)
    reason: str = attrs.field(validator=_TEXT)
    seqs: Runs = attrs.field(validator=_RUNS)


@attrs.frozen
class HandedOn:
    """Another stream has these dead letters, or their messages are gone: (stream sequence, time of giving up) pairs."""

    name: str = attrs.field(validator=_TEXT)
    letters: Pairs = attrs.field(validator=_is_pairs)


@attrs.frozen
class ResetConsumer:
    """Delivery starts again at this stream sequence; what is unacknowledged is forgotten."""

    name: str = attrs.field(validator=_TEXT)
    seq: int = attrs.field(validator=_is_number)


@attrs.frozen
class AckedLate:
    """These were given up or acknowledged before, and are acknowledged now: retention by acks is done with them."""

    name: str = attrs.field(validator=_TEXT)
    seqs: Runs = attrs.field(validator=_RUNS)


@attrs.frozen
class RestoreConsumer:
    """A consumer exists from here on, in the state that a backup or its leader says: ConsumerState.to_tuple, packed."""

    name: str = attrs.field(validator=_TEXT)
    config: bytes = attrs.field(validator=_BYTES)  # JSON
    state: bytes = attrs.field(validator=_BYTES)  # msgpack


StreamCommand = UpdateConfig | SetConfig | Remove | RemoveBelow | Purge | SkipTo | Digest | NoteForgotten | NoteSource
ConsumerCommand = (
    CreateConsumer
    | UpdateConsumer
    | DeleteConsumer
    | Delivered
    | Redelivered
    | Acked
    | AckedUpTo
    | ConsumerProgress
    | Dropped
    | ResetConsumer
    | RestoreConsumer
    | AckedLate
    | GaveUp
    | HandedOn
)

# Tags are part of the log's format: never change the meaning of one, only add.
STREAM_TAGS: Final[dict[int, type[StreamCommand]]] = {
    1: UpdateConfig,
    2: Remove,
    3: RemoveBelow,
    4: Purge,
    5: SkipTo,
    6: Digest,
    7: NoteForgotten,
    8: SetConfig,
    9: NoteSource,
}
CONSUMER_TAGS: Final[dict[int, type[ConsumerCommand]]] = {
    1: CreateConsumer,
    2: UpdateConsumer,
    3: DeleteConsumer,
    4: Delivered,
    5: Redelivered,
    6: Acked,
    7: AckedUpTo,
    8: ConsumerProgress,
    9: Dropped,
    10: ResetConsumer,
    11: RestoreConsumer,
    12: AckedLate,
    13: GaveUp,
    14: HandedOn,
}
_TAG_OF: Final[dict[type, int]] = {cls: tag for table in (STREAM_TAGS, CONSUMER_TAGS) for tag, cls in table.items()}
_FIELDS: Final[dict[type, tuple[str, ...]]] = {cls: tuple(f.name for f in attrs.fields(cls)) for cls in _TAG_OF}
_RUNS_AT: Final[dict[type, int]] = {cls: names.index("seqs") for cls, names in _FIELDS.items() if "seqs" in names}
_LEVELS: Final[dict[type, int]] = {
    cls: FORMS[f"{kind} {tag} {cls.__name__}: {' '.join(_FIELDS[cls])}"]
    for kind, table in (("stream", STREAM_TAGS), ("consumer", CONSUMER_TAGS))
    for tag, cls in table.items()
}
_CONSUMER_LEVEL: Final = max(_LEVELS[cls] for cls in CONSUMER_TAGS.values())


def at_level(command: StreamCommand, level: int) -> StreamCommand | None:
    """The command itself if this level has it, or what stands for it below; None where nothing does."""
    if _LEVELS[type(command)] <= level:
        return command
    return UpdateConfig(command.config) if isinstance(command, SetConfig) else None


def encode_stream_command(command: StreamCommand, level: int = BASE) -> bytes:
    """The body of a STREAM_OP entry. `level` is the feature level in use; raises AboveLevelError below its own."""
    _require_level(command, level)
    packed: bytes = msgpack.packb(_to_tuple(command))
    return packed


def decode_stream_command(body: bytes | memoryview) -> StreamCommand:
    """The command of a STREAM_OP body; raises MalformedCommandError."""
    return _from_tuple(STREAM_TAGS, _unpack(body))


def encode_consumer_commands(commands: Sequence[ConsumerCommand], level: int = BASE) -> bytes:
    """The body of a CONSUMER_OP entry. `level` is the feature level in use.

    Below it, what was given up is dropped instead of handed on, and late acks are not noted, as older servers do it.
    Raises AboveLevelError for other commands.
    """
    if level < _CONSUMER_LEVEL:
        commands = [known for command in commands if (known := _consumer_command_at(command, level)) is not None]
    packed: bytes = msgpack.packb([_to_tuple(command) for command in commands])
    return packed


def decode_consumer_commands(body: bytes | memoryview) -> list[ConsumerCommand]:
    """The commands of a CONSUMER_OP body, in order; raises MalformedCommandError."""
    return [_from_tuple(CONSUMER_TAGS, item) for item in _unpack(body)]


def _consumer_command_at(command: ConsumerCommand, level: int) -> ConsumerCommand | None:
    if _LEVELS[type(command)] > level:
        if isinstance(command, GaveUp):
            return Dropped(command.name, command.seqs)
        if isinstance(command, AckedLate | HandedOn):
            return None
        _require_level(command, level)
    return command


def _require_level(command: StreamCommand | ConsumerCommand, level: int) -> None:
    if (needed := _LEVELS[type(command)]) > level:
        raise AboveLevelError(f"{type(command).__name__} needs feature level {needed}, {level} is in use")


def to_runs(seqs: Iterable[int]) -> Runs:
    """Ascending sequences as runs."""
    return Runs(seqs)


def _to_tuple(command: object) -> tuple[object, ...]:
    cls = type(command)
    if cls is Delivered:
        assert isinstance(command, Delivered)
        return (_TAG_OF[cls], command.name, command.ts_ns, command.consumer_seq, command.seqs.pack())
    values = [getattr(command, name) for name in _FIELDS[cls]]
    return (_TAG_OF[cls], *(value.pack() if type(value) is Runs else value for value in values))


def _unpack(body: bytes | memoryview) -> tuple[Any, ...]:
    try:
        value = msgpack.unpackb(body, use_list=False)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise MalformedCommandError(f"not msgpack: {error}") from error
    if not isinstance(value, tuple):
        raise MalformedCommandError("a body is an array")
    return value


def _from_tuple(tags: Mapping[int, type[_T]], item: object) -> _T:
    if not isinstance(item, tuple) or not item or type(item[0]) is not int or item[0] not in tags:
        raise MalformedCommandError(f"unknown command: {item!r:.80}")
    cls = tags[item[0]]
    if len(item) != len(_FIELDS[cls]) + 1:
        raise MalformedCommandError(f"{cls.__name__} has {len(_FIELDS[cls])} fields, not {len(item) - 1}")
    fields = list(item[1:])
    try:
        if cls in _READERS:
            return cast("_T", _READERS[cls](*fields))
        if cls in _RUNS_AT:
            fields[_RUNS_AT[cls]] = Runs.unpack(fields[_RUNS_AT[cls]])
        return cls(*fields)
    except (TypeError, ValueError) as error:
        raise MalformedCommandError(f"{cls.__name__}: {error}") from error


def _read_delivered(name: object, ts_ns: object, consumer_seq: object, seqs: object) -> Delivered:
    if type(name) is str and type(ts_ns) is int and type(consumer_seq) is int and ts_ns >= 0 <= consumer_seq:
        return Delivered(name, ts_ns, consumer_seq, Runs.unpack(cast("bytes", seqs)))
    raise MalformedCommandError(f"{(name, ts_ns, consumer_seq)!r:.80} is no delivery")


def _read_acked(name: object, seqs: object) -> Acked:
    if type(name) is str:
        return Acked(name, Runs.unpack(cast("bytes", seqs)))
    raise MalformedCommandError(f"{name!r:.80} is no consumer")


def _read_acked_up_to(name: object, seq: object) -> AckedUpTo:
    if type(name) is str and type(seq) is int and seq >= 0:
        return AckedUpTo(name, seq)
    raise MalformedCommandError(f"{(name, seq)!r:.80} is no ack")


_READERS: Final[dict[type, Callable[..., ConsumerCommand]]] = {
    Delivered: _read_delivered,
    Acked: _read_acked,
    AckedUpTo: _read_acked_up_to,
}
