"""Sending one snapshot: a stream as an archive, in chunks that the receiver acknowledges. Runs on the stream's leader.

State and consumers are taken at one moment, which is exact because they belong to one group; messages are read while
the stream goes on, from the first to the last of that moment, so what is removed meanwhile may be missing. A client
that asks for it gets what comes meanwhile too, and learns in the turn in which there is no more which sequences are
removed by then (live_cut.py): it has all that the stream had in that turn. The consumers by which other streams read
this one are left out: these streams make them again, and nats-server refuses them. Chunks are acknowledged one by one;
as many as fit into the window are under way. A receiver that stops acknowledging, or whose subscription is gone, ends
it. Source: jetstream_api.go (streamSnapshot), ADR "JetStream Stream Backup and Restore V2".
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs
import orjson
import trio

from jetraft.cluster.backup.archive import CONSUMER_PREFIX, END, MAGIC, STATE_NAME, ArchiveEntry, pack_entry
from jetraft.cluster.backup.consumers import pack_consumer
from jetraft.cluster.backup.live_cut import CUT_NAME, LiveCut, pack_cut
from jetraft.cluster.capture._capture import captures
from jetraft.cluster.capture.reach import SinkKind
from jetraft.raft.changes import Change
from jetraft.store.model.message import status
from jetraft.store.port import StoreError
from jetraft.store.s2.framing import Compressor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from jetraft.cluster.ports import Outbox
    from jetraft.cluster.state.machine import StreamMachine
    from jetraft.store.model.state import StreamState

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 128 << 10  # nats-server's default and its bounds, as are those of the window
CHUNK_BYTES_MIN: Final = 1 << 10
CHUNK_BYTES_MAX: Final = 1 << 20
WINDOW_BYTES: Final = 8 << 20
WINDOW_BYTES_MAX: Final = 32 << 20
INTEREST_WAIT_S: Final = 2.0
ACK_WAIT_S: Final = 5.0
READ_BYTES: Final = 1 << 20  # of messages read in one go, between which others have their turn
READ_MESSAGES: Final = 512
ROUNDS_MAX: Final = 20  # readings of what came meanwhile; after them the stream is cut where it is read

NO_INTEREST: Final = status(408, b"No Interest")
NO_FLOW: Final = status(408, b"No Flow Response")


class StalledError(Exception):
    """The receiver does not take any more."""

    def __init__(self, reason: str, hdr: bytes) -> None:
        super().__init__(reason)
        self.hdr = hdr


@attrs.frozen(kw_only=True, slots=True)
class Manner:
    """How a client wants its snapshot: sizes are what was asked for, 0 for the default."""

    deliver_subject: bytes
    chunk_bytes: int = 0
    window_bytes: int = 0
    with_consumers: bool = True
    client: Mapping[str, object] = attrs.field(factory=dict)  # what events tell of who asked
    from_seq: int = 0  # messages before it are left out; the state is that of the whole stream
    with_cut: bool = False  # the archive ends with what is removed by then

    @property
    def chunk(self) -> int:
        """Bytes in a chunk."""
        return min(max(self.chunk_bytes, CHUNK_BYTES_MIN), CHUNK_BYTES_MAX) if self.chunk_bytes else CHUNK_BYTES

    @property
    def chunks_under_way_max(self) -> int:
        """Chunks that may wait for an acknowledgement."""
        window = min(max(self.window_bytes, CHUNK_BYTES_MIN), WINDOW_BYTES_MAX) if self.window_bytes else WINDOW_BYTES
        return max(window, self.chunk) // self.chunk


@attrs.frozen(kw_only=True, slots=True)
class Cut:
    """The facts of the moment when a snapshot begins: the state, and the entries that precede messages."""

    state: StreamState
    heads: Sequence[ArchiveEntry]


def cut_of(machine: StreamMachine, now_unix_ns: int, *, with_consumers: bool) -> Cut:
    """Take state and consumers as they are now."""
    consumers = [one for one in machine.consumers.values() if not one.config.direct] if with_consumers else []
    state = attrs.evolve(machine.store.state, consumer_count=len(consumers))
    shown = {key: value for key, value in state.to_json_dict().items() if key not in ("num_deleted", "lost")}
    heads = [ArchiveEntry(STATE_NAME, now_unix_ns, 0, b"", orjson.dumps(shown))]
    heads += [
        ArchiveEntry(CONSUMER_PREFIX + one.name.encode(), now_unix_ns, 0, b"", pack_consumer(one)) for one in consumers
    ]
    return Cut(state=state, heads=heads)


class Sending:
    """One snapshot on its way. `ack_prefix` is `$JS.SNAPSHOT.ACK.<stream>.<id>.` with its last dot."""

    def __init__(  # noqa: PLR0913  (what it reads, where it goes, and how)
        self,
        *,
        outbox: Outbox,
        machine: StreamMachine,
        manner: Manner,
        cut: Cut,
        ack_prefix: bytes,
        is_open: Callable[[], bool],
        now_unix_ns: Callable[[], int],
    ) -> None:
        self._outbox = outbox
        self._now_unix_ns = now_unix_ns
        self._is_open = is_open  # whether the replica still has its log
        self._machine = machine
        self._manner = manner
        self._cut = cut
        self._ack_prefix = ack_prefix
        self._sent = self._acked = 0
        self._woken = trio.Event()
        self.bytes_sent = 0

    async def run(self) -> str:
        """Send everything; return what went wrong, nothing when all is well. The receiver has been told."""
        sink = self._outbox.add_sink(self._ack_prefix + b">", self._on_acks, kind=SinkKind.ACK)
        try:
            await self._wait_for_interest()
            await self._send_archive()
            end, failure = (status(204) if self._sent else b""), ""
        except StalledError as stalled:
            end, failure = stalled.hdr, str(stalled)
        except (StoreError, OSError) as error:
            log.warning("snapshot of %s: %s", self._ack_prefix.decode(), error)
            end, failure = status(500, str(error).replace("\r", " ").replace("\n", " ").encode()[:200]), str(error)
        finally:
            self._outbox.remove_sink(sink)
        self._outbox.send(self._manner.deliver_subject, hdr=end)
        return failure

    async def _wait_for_interest(self) -> None:
        """Wait for a subscription to the very subject, as nats-server does; after that time a wildcard will do.

        A client has a wildcard for its answers before it asks: chunks that arrive there are not read.
        """
        interest = Change()
        watch = self._outbox.watch_interest(self._manner.deliver_subject, interest.notify)
        try:
            with trio.move_on_after(INTEREST_WAIT_S):
                await interest.until(self._is_expected)
        finally:
            self._outbox.unwatch_interest(watch)
        if not self._has_interest():
            raise StalledError("no interest", NO_INTEREST)

    async def _send_archive(self) -> None:
        compressor, waiting, chunk = Compressor(), bytearray(), self._manner.chunk
        async for piece in self._pieces():
            waiting += compressor.add(piece)
            while len(waiting) >= chunk:
                await self._send_chunk(bytes(waiting[:chunk]))
                del waiting[:chunk]
        waiting += compressor.flush()
        while len(waiting) >= chunk:
            await self._send_chunk(bytes(waiting[:chunk]))
            del waiting[:chunk]
        if waiting:  # nats-server has the rest not acknowledged
            self._outbox.send(self._manner.deliver_subject, payload=bytes(waiting))
            self.bytes_sent += len(waiting)

    async def _pieces(self) -> AsyncIterator[bytes]:
        yield MAGIC + b"".join(map(pack_entry, self._cut.heads))
        machine, state = self._machine, self._cut.state
        seq, last_seq, rounds = max(state.first_seq, self._manner.from_seq), state.last_seq, 0
        while True:
            if not self._is_open():
                raise StoreError("the replica has stopped")
            runs = machine.store.next_runs((), seq, READ_MESSAGES)
            if not runs or (runs[0] > last_seq and (not self._manner.with_cut or rounds == ROUNDS_MAX)):
                break  # in the turn in which the cut is made
            if runs[0] > last_seq:
                rounds, last_seq = rounds + 1, machine.store.last_seq
            fitting, _, _ = machine.measure(runs, READ_BYTES, consumer_seq=1, num_pending=0, prefix_bytes=0)
            found = machine.store.load_many(runs.part(0, max(1, fitting)))
            yield b"".join(
                pack_entry(ArchiveEntry(one.subject, one.ts_ns, one.seq, one.hdr, one.payload))
                for one in found
                if one.seq <= last_seq or self._manner.with_cut
            )
            seq = runs[max(1, fitting) - 1] + 1
            await trio.lowlevel.checkpoint()
        if self._manner.with_cut:
            store = machine.store
            body = pack_cut(store.first_seq, store.last_seq, store.packed_deleted())
            if runs:  # it grows faster than it is read
                body = LiveCut.parse(body).until(max(last_seq, seq - 1)).pack()
            yield pack_entry(ArchiveEntry(CUT_NAME, self._now_unix_ns(), 0, b"", body))
        yield pack_entry(END)

    async def _send_chunk(self, chunk: bytes) -> None:
        """Send one chunk when there is room in the window. Raises StalledError."""
        deadline = trio.current_time() + ACK_WAIT_S
        while self._sent - self._acked >= self._manner.chunks_under_way_max:
            self._woken = trio.Event()
            acked = self._acked
            with trio.move_on_at(deadline):
                await self._woken.wait()
            if self._acked == acked:
                raise StalledError("no flow response", NO_FLOW)
            deadline = trio.current_time() + ACK_WAIT_S
        if not self._has_interest():
            raise StalledError("no interest", NO_INTEREST)
        self._sent += 1
        self.bytes_sent += len(chunk)
        reply = b"%s%d.%d" % (self._ack_prefix, len(chunk), self._sent)
        self._outbox.send(self._manner.deliver_subject, reply=reply, payload=chunk)

    def _has_interest(self) -> bool:
        return self._outbox.has_interest(self._manner.deliver_subject)

    def _is_expected(self) -> bool:
        return self._outbox.is_subscribed(self._manner.deliver_subject)

    def _on_acks(self, batch: bytes) -> None:
        self._acked = min(self._sent, self._acked + sum(1 for _ in captures(batch)))
        self._woken.set()
