"""A consumer in an archive: nats-server's JSON of configuration and state, and what this server knows beside it. Pure.

nats-server keeps what was delivered, the ack floor, what waits for an ack and how often it was delivered again. The
object `jetraft`, which nats-server passes over, holds the rest, so that a consumer comes back as it was. Everything
that is read is checked as what a stranger sends; the state that is made keeps ConsumerState's invariants whatever the
numbers are, and is made in steps, as a consumer may have 64 MiB.
"""

from __future__ import annotations

import heapq
from contextlib import contextmanager
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson

from jetraft.cluster.backup.sliced_json import SlicedJson
from jetraft.store.model import errors
from jetraft.store.model.config import ConsumerConfig, StreamConfig
from jetraft.store.model.extensions import DEAD_LETTER, check_consumer_extensions
from jetraft.store.model.validation.validate_consumer import normalise_consumer
from jetraft.store.s2.framing import CorruptArchiveError
from jetraft.store.stream._runs import Runs
from jetraft.store.stream._unacked import UnackedTable
from jetraft.store.stream.consumer_state import ConsumerState
from jetraft.store.stream.dead_letter import MAX_DELIVER, REASON_CHARS_MAX, TERM, DeadLetter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROWS_MAX: Final = (
    1_000_000  # of a kind, each some 150 bytes of memory; nats-server's default of max_ack_pending is 1,000
)
ROWS_PER_STEP: Final = 256  # about a millisecond
SORTED_AT_ONCE: Final = 2048  # the same
SEQ_MAX: Final = (1 << 62) - 1  # what the store counts to
COUNT_MAX: Final = (1 << 31) - 1
OURS: Final = "jetraft"
_TIMES: Final = ("Timestamp", "created", "delivered", "given_up_ns")
_OUR_NUMBERS: Final = ("created", "start_seq", "resume_seq", "delivered")
_OUR_LISTS: Final = ("initial", "acked_ahead")


def pack_consumer(state: ConsumerState) -> bytes:
    """The body of the consumer's entry."""
    floor_consumer, floor_stream = state.ack_floor
    rows = state.pending.rows()
    kept: dict[str, Any] = {
        "delivered": {"consumer_seq": state.delivered_consumer, "stream_seq": state.delivered_stream},
        "ack_floor": {"consumer_seq": floor_consumer, "stream_seq": floor_stream},
    }
    if rows:
        kept["pending"] = {str(seq): {"Sequence": number, "Timestamp": at_ns} for seq, number, at_ns, _ in rows}
    again = {str(seq): count - 1 for seq, _, _, count in rows if count > 1}
    if again:
        kept["redelivered"] = again
    ours = {
        "created": state.created_ns,
        "start_seq": state.start_seq,
        "initial": list(state.initial),
        "resume_seq": state.resume_seq,
        "delivered": state.delivered_ns,
        "acked_ahead": sorted(state.acked_ahead),
    }
    if state.dead:
        ours["dead"] = {str(seq): attrs.asdict(letter) for seq, letter in sorted(state.dead.items())}
    return orjson.dumps({"config": state.config.to_json_dict(), "state": kept, OURS: ours})


class _Sorted:
    """Items in any order, and then in order of their keys; sorted in parts, as a sort of all keeps the interpreter."""

    def __init__(self, key: Callable[[Any], int] | None = None, *, count_max: int) -> None:
        self._key = key
        self._parts: list[list[Any]] = [[]]
        self._left = count_max

    def add(self, item: Any) -> None:
        if len(self._parts[-1]) == SORTED_AT_ONCE:
            self._parts[-1].sort(key=self._key)
            self._parts.append([])
        self._parts[-1].append(item)
        self._left -= 1
        _check_room(self._left)

    def in_order(self) -> Iterator[Any]:
        """Of equal keys, the item that was added last counts."""
        self._parts[-1].sort(key=self._key)
        key = self._key or int
        waiting = None
        for item in heapq.merge(*self._parts, key=self._key):
            if waiting is not None and key(waiting) != key(item):
                yield waiting
            waiting = item
        if waiting is not None:
            yield waiting


@attrs.define(eq=False)
class ConsumerParts:
    """The description of a consumer in an archive, checked for itself.

    `parse` fills it from an entry of the second version.
    """

    config_json: bytes = b""
    delivered: tuple[int, int] | None = None  # consumer and stream sequence
    pending: _Sorted = attrs.Factory(
        lambda: _Sorted(itemgetter(0), count_max=ROWS_MAX)
    )  # (stream and consumer sequence, time)
    again: dict[int, int] = attrs.Factory(dict)  # stream sequence -> how often it was delivered, if more than once
    ours: dict[str, int] = attrs.Factory(dict)
    initial: _Sorted = attrs.Factory(lambda: _Sorted(count_max=SEQ_MAX))  # a stream may have more subjects
    acked_ahead: _Sorted = attrs.Factory(lambda: _Sorted(count_max=ROWS_MAX))
    dead: _Sorted = attrs.Factory(lambda: _Sorted(itemgetter(0), count_max=ROWS_MAX))  # (stream sequence, letter)

    def deliver(self, consumer_seq: int, stream_seq: int) -> None:
        """So much was delivered. Raises ValueError."""
        self.delivered = _checked(consumer_seq, "consumer_seq"), _checked(stream_seq, "stream_seq")

    def wait_for(self, seq: int, number: int, at_ns: int) -> None:
        """A message was delivered and not acknowledged. Raises ValueError."""
        number, at_ns = _checked(number, "Sequence"), _checked(at_ns, "Timestamp")
        if seq > 0 and number:  # others would never be found again, or have no place in the floor
            self.pending.add((seq, number, at_ns))

    def deliver_again(self, seq: int, times: int) -> None:
        """It was delivered so often after the first time. Raises ValueError."""
        if _checked(times, "redelivered"):
            self.again[seq] = min(1 + times, COUNT_MAX)
            _check_room(ROWS_MAX - len(self.again))

    def parse(self, body: bytes) -> Iterator[None]:
        """Read an entry; yield where others should have a turn. Raises ValueError, TypeError, KeyError."""
        text = SlicedJson(body)
        for key in text.members():
            if key == "config":
                self.config_json = orjson.dumps(_object(text.value(), key))
            elif key == "state":
                yield from self._parse_state(text)
            elif key == OURS:
                yield from self._parse_ours(text)
            else:
                yield from text.skip()
        text.finish()

    def _parse_state(self, text: SlicedJson) -> Iterator[None]:
        for key in text.members():
            if key == "delivered":
                value = _object(text.value(), key)
                self.deliver(_number(value, "consumer_seq"), _number(value, "stream_seq"))
            elif key == "pending":
                for seq in text.members():
                    row = _object(text.value(), seq)
                    self.wait_for(_seq(seq), _number(row, "Sequence"), _number(row, "Timestamp"))
                    if text.is_due():
                        yield
            elif key == "redelivered":
                for seq in text.members():
                    self.deliver_again(_seq(seq), _checked(text.value(), seq))
                    if text.is_due():
                        yield
            else:
                yield from text.skip()

    def _parse_ours(self, text: SlicedJson) -> Iterator[None]:
        for key in text.members():
            if key in _OUR_NUMBERS:
                self.ours[key] = _checked(text.value(), key)
            elif key in _OUR_LISTS:
                found = self.initial if key == "initial" else self.acked_ahead
                for _ in text.items():
                    seq = text.value()
                    if type(seq) is not int or not 0 < seq <= SEQ_MAX:
                        raise ValueError(f"{key} is not a list of sequences")
                    found.add(seq)
                    if text.is_due():
                        yield
            elif key == "dead":
                for seq in text.members():
                    self.dead.add((_seq(seq), _letter(_seq(seq), _object(text.value(), seq))))
                    if text.is_due():
                        yield
            else:
                yield from text.skip()


@attrs.define(eq=False)
class UnfinishedConsumer:
    """A consumer of an archive, to be made in three parts, in this order; each raises CorruptArchiveError.

    `parse` and `build` yield where others should have a turn, which is about once a millisecond; `configure` takes as
    long as that of a new consumer, which for a large `config_json` is too long for a turn.
    """

    name: str
    stream: StreamConfig  # as the server keeps it
    now_unix_ns: int  # one from another server counts as created now
    body: bytes  # of an entry of the second version; empty: the parts are there
    parts: ConsumerParts = attrs.Factory(ConsumerParts)
    _config: ConsumerConfig | None = None
    _state: ConsumerState | None = None

    @property
    def state(self) -> ConsumerState:
        """The consumer, when all is done."""
        assert self._state is not None
        return self._state

    def parse(self) -> Iterator[None]:
        """Read the entry."""
        body, self.body = self.body, b""
        with self._told():
            if body:
                yield from self.parts.parse(body)
            if not self.parts.config_json or self.parts.delivered is None:
                raise KeyError("config, or what was delivered, is missing")

    def configure(self) -> None:
        """Check the configuration like that of a new consumer."""
        with self._told():
            config = normalise_consumer(ConsumerConfig.from_json(self.parts.config_json), self.stream)
            check_consumer_extensions(config, self.stream)
            if (config.durable_name or config.name or self.name) != self.name:
                raise CorruptArchiveError(f"consumer {self.name!r:.80} has another name")
            self._config = config

    def build(self) -> Iterator[None]:
        """Make the state."""
        parts, config = self.parts, self._config
        assert config is not None
        assert parts.delivered is not None
        delivered_consumer, delivered_stream = parts.delivered
        initial = Runs()
        yield from _in_steps(initial.append, parts.initial.in_order())
        acked_ahead, pending, dead = set[int](), UnackedTable(), dict[int, DeadLetter]()

        def acknowledge(seq: int) -> None:
            if seq > delivered_stream:
                acked_ahead.add(seq)

        def wait_for(row: tuple[int, int, int]) -> None:
            seq, number, at_ns = row
            # A row above what was delivered would never be found again.
            if seq <= delivered_stream and number <= delivered_consumer:
                pending.put(seq, number, at_ns, parts.again.get(seq, 1))

        def give_up(row: tuple[int, DeadLetter]) -> None:
            if row[0] not in pending:
                dead[row[0]] = row[1]

        yield from _in_steps(acknowledge, parts.acked_ahead.in_order())
        yield from _in_steps(wait_for, parts.pending.in_order())
        letters = parts.dead.in_order() if DEAD_LETTER in config.metadata else ()
        # No more than the consumer could have.
        yield from _in_steps(give_up, islice(letters, max(0, config.max_ack_pending)))
        self._state = ConsumerState(
            name=self.name,
            config=config,
            created_ns=parts.ours.get("created") or self.now_unix_ns,
            start_seq=parts.ours.get("start_seq", 0),
            initial=initial,
            resume_seq=parts.ours.get("resume_seq", 0),
            delivered_consumer=delivered_consumer,
            delivered_stream=delivered_stream,
            delivered_ns=parts.ours.get("delivered", 0),
            pending=pending,
            acked_ahead=acked_ahead,
            dead=dead,
        )

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except CorruptArchiveError:
            raise
        except errors.ApiError as error:
            raise CorruptArchiveError(f"consumer {self.name!r:.80}: {error}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptArchiveError(f"failed to decode consumer {self.name!r:.80} state: {error!s:.80}") from error


def _in_steps(take: Callable[[Any], None], items: Iterable[Any]) -> Iterator[None]:
    """Have each taken; yield where others should have a turn."""
    for place, item in enumerate(items, 1):
        take(item)
        if place % ROWS_PER_STEP == 0:
            yield


def _letter(seq: int, row: dict[str, Any]) -> DeadLetter:
    """A dead letter that waits to be handed on."""
    cause, reason = row["cause"], row["reason"]
    if not 0 < seq <= SEQ_MAX or cause not in (MAX_DELIVER, TERM) or not isinstance(reason, str):
        raise ValueError(f"dead letter {seq} is {row!r:.80}")
    count = min(_number(row, "deliveries"), COUNT_MAX)
    return DeadLetter(count, _number(row, "given_up_ns"), cause, reason[:REASON_CHARS_MAX])


def _check_room(left: int) -> None:
    if left < 0:
        raise ValueError(f"more than {ROWS_MAX} messages")


def _object(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{key} is no object")
    return value


def _seq(key: str) -> int:
    """The sequence that is the key of a row."""
    seq = int(key)
    if str(seq) != key:
        raise ValueError(f"{key!r:.40} is no sequence")
    return seq


def _number(value: dict[str, Any], key: str) -> int:
    """A sequence, a count or a time; 0 when it is missing."""
    return _checked(value.get(key, 0), key)


def _checked(number: Any, key: str) -> int:
    if type(number) is not int or not 0 <= number < 1 << 63:
        raise ValueError(f"{key} is {number!r:.40}")
    return min(number, SEQ_MAX) if key not in _TIMES else number
