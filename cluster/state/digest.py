"""Digests of a slice of a stream: equal on all replicas at equal applied index, unless one of them has gone wrong.

A slice is a range of sequences and a range of consumers' names. Its digest is taken while a `Digest` command is
applied, so all replicas take it of the same moment, without stopping anything; the command bounds how much that is.
Pure but for reading messages: one that cannot be read makes the digest unknown, and is dealt with as damage.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Protocol

import attrs
import msgpack

from jetraft.store.port import StoreCorrupt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jetraft.cluster.state import commands
    from jetraft.cluster.state.schedules import ScheduleTable
    from jetraft.cluster.state.source_header import SourcePosition
    from jetraft.store.stream.chain import Chain
    from jetraft.store.stream.consumer_state import ConsumerState
    from jetraft.store.stream.stream_store import StoredMessage, StreamStore

DIGEST_BYTES: Final = 16
SLICE_MESSAGES: Final = 1000  # two milliseconds of every replica's turn
SLICE_BYTES: Final = 1 << 20
SLICE_CONSUMERS: Final = 100
KEPT: Final = 16  # digests that a replica remembers, by the index of their entry
UNKNOWN: Final = b""


@attrs.frozen(slots=True)
class Digests:
    """Of one slice: of its messages, and of its consumers, sources and chain. UNKNOWN when one could not be read."""

    messages: bytes
    consumers: bytes


class Replicated(Protocol):
    """The parts of a digest: a stream's replicated state (cluster/state/machine.py)."""

    store: StreamStore
    consumers: dict[str, ConsumerState]
    sources: dict[bytes, SourcePosition]
    schedules: ScheduleTable
    chain: Chain | None

    def is_live(self, seq: int) -> bool:
        """True while the stream has the message."""


def digests_of(replicated: Replicated, command: commands.Digest) -> Digests:
    """The digests of the slice that a command names, as of now."""
    names = consumer_names(replicated.consumers, command.after_name, command.consumers)
    consumers = blake2b(digest_size=DIGEST_BYTES)
    for name in names:
        consumers.update(digest_of_consumer(replicated.consumers[name]))
    if not command.after_name and replicated.sources:
        consumers.update(msgpack.packb(sorted((key, at.seq, at.identity) for key, at in replicated.sources.items())))
    if not command.after_name and replicated.chain is not None:
        consumers.update(msgpack.packb(replicated.chain.tree.pack()))
    try:
        messages = _digest_of_messages(replicated, command.first_seq, command.last_seq)
    except (StoreCorrupt, OSError):
        messages = UNKNOWN
    return Digests(messages, consumers.digest())


def consumer_names(consumers: Mapping[str, ConsumerState], after: str, count: int) -> list[str]:
    """The next names in order, after one."""
    return sorted(name for name in consumers if name > after)[:count]


def messages_between(replicated: Replicated, first_seq: int, last_seq: int) -> Iterable[StoredMessage]:
    """The live messages of a range. Raises StoreCorrupt."""
    runs = replicated.store.next_runs((), first_seq, SLICE_MESSAGES)
    return replicated.store.load_many(seq for seq in runs if seq <= last_seq)


def digest_of_message(message: StoredMessage) -> bytes:
    """Of everything that a reader sees of a message."""
    lengths = (message.seq, message.ts_ns, len(message.subject), len(message.hdr))
    parts = (b"%d %d %d %d " % lengths, message.subject, message.hdr, message.payload)
    return blake2b(b"".join(parts), digest_size=DIGEST_BYTES).digest()


def digest_of_consumer(state: ConsumerState) -> bytes:
    """Of a consumer's configuration and state."""
    packer = msgpack.Packer(default=str)
    body = (packer.pack_array_header(2), state.pack(), packer.pack(state.config.to_json_dict()))
    return blake2b(b"".join(body), digest_size=DIGEST_BYTES).digest()


def last_of_slice(replicated: Replicated, first_seq: int) -> int:
    """The last sequence of the slice that begins here: as many messages as one turn may read, or all that follow."""
    runs = replicated.store.next_runs((), first_seq, SLICE_MESSAGES)
    if not runs:
        return replicated.store.last_seq
    fitting, _, _ = replicated.store.records.measure(runs, SLICE_BYTES, 1, 0, 0)
    return runs[max(1, fitting) - 1]


def _digest_of_messages(replicated: Replicated, first_seq: int, last_seq: int) -> bytes:
    whole = blake2b(digest_size=DIGEST_BYTES)
    for message in messages_between(replicated, first_seq, last_seq):
        whole.update(digest_of_message(message))
    for row in replicated.schedules.between(first_seq, last_seq, replicated.is_live):
        whole.update(msgpack.packb(row))
    return whole.digest()
