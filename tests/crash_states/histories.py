"""Entries and what they mean: a stream as a dictionary, beside the product's, entry by entry.

An `Applied` is an entry with all that lives after it. Histories are sequences of them from index 1 on, and share
them: two histories agree up to an index when they hold the same objects up to there.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

import attrs
import msgpack

from jetraft.store.frames._frame import make_record, records, seal
from jetraft.store.frames.format import FRAME_HEADER_BYTES, Kind
from jetraft.store.port import Entry
from tests.crash_states.product import INCARNATION

if TYPE_CHECKING:
    from jetraft.store.stream.retention import StoreLimits
    from jetraft.store.stream.stream_store import StreamStore

KEYS: Final = tuple(b"k%d" % number for number in range(9))
COLD_KEYS: Final = 30
REACH: Final = 30  # sequences that an operation looks back


@attrs.frozen(eq=False)
class Applied:
    """An entry, and what lives after it: (subject, payload) by sequence."""

    entry: Entry
    live: Mapping[int, tuple[bytes, bytes]]
    last_seq: int


@attrs.frozen
class Operation:
    """The content of an entry that removes messages: these sequences, and all below one."""

    seqs: tuple[int, ...]
    below: int
    is_erasing: bool


History = Sequence[Applied]


def last_seq(history: History) -> int:
    """Of the stream, after all of it."""
    return history[-1].last_seq if history else 0


def messages(history: History, term: int, random: Random) -> Entry:
    """An entry of one to five messages that continues a history."""
    index, seq = len(history) + 1, last_seq(history) + 1
    salt = bytes([random.randint(65, 90)]) * random.randint(0, 40)
    body = []
    for number in range(random.randint(1, 5)):
        subject = random.choice(KEYS) if random.random() < 0.8 else b"cold.%d" % random.randint(0, COLD_KEYS)
        payload = b"%d.%d.%d|" % (index, number, term) * (5 + (index * 7 + number) % 23) + salt
        body.append(make_record(subject, b"", payload, ts_ns=index * 10 + number))
    frame = seal(
        Kind.MESSAGES, index=index, term=term, incarnation=INCARNATION, body=body, first_seq=seq, count=len(body)
    )
    return Entry(index=index, term=term, kind=Kind.MESSAGES, frame=frame)


def removal(history: History, term: int, random: Random) -> Entry:
    """An entry that removes some of the newest messages, erases them, or purges all up to one of them."""
    index, last = len(history) + 1, last_seq(history)
    seqs = sorted({random.randint(max(1, last - REACH), last) for _ in range(random.randint(1, 4))})
    below = random.randint(max(1, last - REACH), last + 1) if random.random() < 0.1 else 0
    body = msgpack.packb((seqs, below, random.random() < 0.5))
    frame = seal(Kind.STREAM_OP, index=index, term=term, incarnation=INCARNATION, body=body)
    return Entry(index=index, term=term, kind=Kind.STREAM_OP, frame=frame)


def beginning(history: History, term: int, _random: Random) -> Entry:
    """An entry that does nothing: an operation, as a stream begins with its configuration, then no-ops."""
    kind = Kind.NOOP if history else Kind.STREAM_OP
    frame = seal(
        kind,
        index=len(history) + 1,
        term=term,
        incarnation=INCARNATION,
        body=msgpack.packb(((), 0, False)),
    )
    return Entry(index=len(history) + 1, term=term, kind=kind, frame=frame)


def operation(entry: Entry) -> Operation:
    """What an entry of `removal` says."""
    seqs, below, is_erasing = msgpack.unpackb(entry.frame[FRAME_HEADER_BYTES:])
    return Operation(tuple(seqs), below, is_erasing)


def continued(history: History, entry: Entry, limits: "StoreLimits") -> Applied:
    """What an entry makes of the stream that a history leaves."""
    live = dict(history[-1].live) if history else {}
    seq = last_seq(history)
    if entry.kind == Kind.MESSAGES:
        for _, _, subject, _, payload in records(entry.frame):
            seq += 1
            live[seq] = (subject, payload)
            _enforce(live, subject, limits)
        return Applied(entry, live, seq)
    done = operation(entry)
    live = {seq: message for seq, message in live.items() if seq not in done.seqs and seq >= done.below}
    return Applied(entry, live, seq)


def _enforce(live: dict[int, tuple[bytes, bytes]], subject: bytes, limits: "StoreLimits") -> None:
    if limits.max_msgs_per_subject >= 0:
        mine = [seq for seq, message in live.items() if message[0] == subject]
        for seq in mine[: max(0, len(mine) - limits.max_msgs_per_subject)]:
            del live[seq]
    while 0 <= limits.max_msgs < len(live):
        del live[next(iter(live))]


def apply(store: "StreamStore", entry: Entry, *, may_erase: bool) -> list[int]:
    """Have the product's store apply an entry; returns the sequences whose content it overwrites."""
    if entry.kind == Kind.MESSAGES:
        store.apply_messages(entry)
        return []
    done = operation(entry)
    erases = done.is_erasing and may_erase
    removed = store.remove(done.seqs, erase=erases)
    store.remove_below(done.below)
    return removed if erases else []


def agreement(one: History, other: History) -> int:
    """The last index up to which two histories are the same."""
    size = min(len(one), len(other))
    return next((index for index in range(size) if one[index] is not other[index]), size)
