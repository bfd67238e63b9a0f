"""A backup is one consistent cut: whatever the stream does before, during and after it, each point comes back exactly.

The stream is the real state machine over a log in memory, the archive is made by the code that sends snapshots, and the
directory is a real one. Work is done at every place where a snapshot lets others have their turn. The oracle is the
stream itself, looked at in the moment in which the archive ends.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import attrs
import orjson
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jetraft.api.cli.backup_contents import BackupPoint
from jetraft.api.cli.backup_directory import BackupManifest
from jetraft.api.cli.backup_putting import Backup, RestoreWish
from jetraft.api.cli.backup_session import BackupError, BackupSession
from jetraft.api.cli.backup_taking import take
from jetraft.cluster.backup import sending
from jetraft.cluster.backup.archive import END, STATE_NAME, ArchiveEntry
from jetraft.cluster.backup.consumers import UnfinishedConsumer
from jetraft.cluster.backup.contents import Contents
from jetraft.cluster.backup.live_cut import CUT_NAME
from jetraft.cluster.backup.sending import ROUNDS_MAX, Manner, Sending, cut_of
from jetraft.store.model.config import RetentionPolicy
from jetraft.store.s2.framing import Compressor
from tests.cluster.lab import stream_config
from tests.cluster.state.test_machine import Bench, history, play

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jetraft.cluster.ports import Outbox

Steps = list[tuple[str, Any]]
Messages = list[tuple[int, bytes, bytes, bytes, int]]
NOW_NS = 1_800_000_000 * 10**9


class Killed(Exception):  # noqa: N818  (not an error: the test ends the backup so)
    """The backup's process is killed here."""


@attrs.define
class Work:
    """What the stream does beside one backup, by where it is done; and after how many pieces the backup is killed."""

    before: Steps
    between_info_and_archive: Steps
    during: Sequence[Steps]
    after: Steps
    killed_after: int | None
    whole: bool


WORK = st.builds(
    Work,
    before=history,
    between_info_and_archive=history,
    during=st.lists(history, max_size=4),
    after=history,
    killed_after=st.none() | st.none() | st.integers(0, 3),
    whole=st.sampled_from([False, False, False, True]),
)


class StreamAlone(BackupSession):
    """Answers what a backup asks, of a stream that works meanwhile. `knows_cuts` is not so for nats-server."""

    def __init__(self, bench: Bench, retention: RetentionPolicy, work: Work, *, knows_cuts: bool = True) -> None:
        self.bench = bench
        self.retention = retention
        self.work = work
        self.knows_cuts = knows_cuts
        self.end_seq = 0  # of the stream then
        self.at_end: Messages = []  # what was live when the archive ended
        self.asked = 0

    def api(self, subject: str, body: object = None) -> dict[str, Any]:
        assert subject == "STREAM.INFO.S"
        assert body is None
        state = self.bench.machine.store.state.to_json_dict()
        self.asked += 1
        if self.asked == 1:
            play(self.bench, self.work.between_info_and_archive, self.retention)
        return {"created": "2026-01-01T00:00:00Z", "state": state, "config": stream_config(name="S").to_json_dict()}

    def snapshot(self, stream: str, from_seq: int) -> Iterator[bytes]:
        assert stream == "S"
        manner = Manner(deliver_subject=b"inbox", from_seq=from_seq if self.knows_cuts else 0, with_cut=self.knows_cuts)
        pieces: list[bytes] = []
        trio.run(self._send, manner, pieces)
        compressor = Compressor()
        for number, piece in enumerate(pieces):
            if number == self.work.killed_after:
                raise Killed
            yield compressor.add(piece)
        yield compressor.flush()

    async def _send(self, manner: Manner, pieces: list[bytes]) -> None:
        machine = self.bench.machine
        cut = cut_of(machine, NOW_NS, with_consumers=True)
        made = Sending(
            outbox=cast("Outbox", None),
            machine=machine,
            manner=manner,
            cut=cut,
            ack_prefix=b"ack.",
            is_open=lambda: True,
            now_unix_ns=lambda: NOW_NS,
        )
        during = iter(self.work.during)
        async for piece in made._pieces():
            pieces.append(piece)
            if CUT_NAME in piece or not self.knows_cuts:
                self.at_end, self.end_seq = messages_of(self.bench), machine.store.last_seq
            if self.knows_cuts:  # the archive of nats-server is as of one moment
                play(self.bench, next(during, []), self.retention)


def messages_of(bench: Bench) -> Messages:
    store = bench.machine.store
    return [(one.seq, one.subject, one.hdr, one.payload, one.ts_ns) for one in store.load_many(bench.live())]


def restored(directory: Path, point: BackupPoint) -> Messages:
    """What a restore uploads for a point, if a server takes all of it."""
    backup = Backup(directory, RestoreWish(point=point))
    consumers = backup.consumers()
    contents = Contents(stream_config(name="S"), NOW_NS)
    state = orjson.dumps(backup.state(len(consumers)))
    entries = [ArchiveEntry(STATE_NAME, 0, 0, b"", state), *consumers, *backup.contents.messages()]
    for entry in (*entries, END):
        found = contents.take(entry)
        if isinstance(found, UnfinishedConsumer):
            assert not list(found.parse())
            found.configure()
            assert not list(found.build())
    contents.finish()
    return [(one.seq, one.name, one.hdr, one.body, one.ts_ns) for one in entries if one.seq]


@pytest.fixture(autouse=True)
def _two_messages_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "READ_MESSAGES", 2)
    monkeypatch.setattr(sending, "ROUNDS_MAX", ROUNDS_MAX)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    works=st.lists(WORK, min_size=1, max_size=4),
    retention=st.sampled_from(RetentionPolicy),
    knows_cuts=st.booleans(),
    rounds=st.sampled_from([0, 1, ROUNDS_MAX]),
)
def test_each_point_is_what_the_stream_had_then(
    works: list[Work], retention: RetentionPolicy, rounds: int, *, knows_cuts: bool
) -> None:
    sending.ROUNDS_MAX = rounds  # type: ignore[misc]  # put back by the fixture
    bench = Bench(retention=retention, duplicate_window=10**12)
    points: dict[int, Messages] = {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for work in works:
            play(bench, work.before, retention)
            stream = StreamAlone(bench, retention, work, knows_cuts=knows_cuts)
            try:
                _, segment, live = take(stream, "S", directory, whole=work.whole)
            except Killed:
                continue
            finally:
                play(bench, work.after, retention)
            is_exact = rounds == ROUNDS_MAX or not knows_cuts
            assert segment.last_seq == stream.end_seq if is_exact else segment.last_seq <= stream.end_seq
            points[segment.last_seq] = [one for one in stream.at_end if one[0] <= segment.last_seq]
            assert live == len(points[segment.last_seq])
        if not points:
            return
        assert restored(directory, BackupPoint()) == list(points.values())[-1]
        for last_seq, then in points.items():
            assert restored(directory, BackupPoint(to_seq=last_seq)) == then
        for seq in range(1, max(points)):
            before = max((point for point in points if point <= seq), default=0)
            found = restored(directory, BackupPoint(to_seq=seq))
            assert [one for one in found if one[0] <= before] == points.get(before, [])
            assert [one[0] for one in found] == sorted({one[0] for one in found})
            assert not found or found[-1][0] <= seq


@pytest.mark.parametrize("messages", [0, 1, 2, 3, 7])
def test_what_comes_and_goes_while_an_archive_is_read_is_in_the_backup_or_not(tmp_path: Path, messages: int) -> None:
    bench = Bench(max_msgs=3)
    for _ in range(messages):
        bench.messages(b"s.a")

    class Busy(StreamAlone):
        async def _send(self, manner: Manner, pieces: list[bytes]) -> None:
            await super()._send(manner, Growing(bench, pieces))

    class Growing(list[bytes]):
        """Each piece that is read makes two messages come, until there were ten."""

        def __init__(self, bench: Bench, pieces: list[bytes]) -> None:
            super().__init__()
            self.bench, self.pieces = bench, pieces

        def append(self, piece: bytes) -> None:
            self.pieces.append(piece)
            if CUT_NAME not in piece and self.bench.machine.store.last_seq < messages + 10:
                self.bench.messages(b"s.b", b"s.c")

    stream = Busy(bench, RetentionPolicy.LIMITS, Work([], [], [], [], killed_after=None, whole=False))
    _, segment, live = take(stream, "S", tmp_path, whole=False)
    assert (segment.last_seq, live) == (stream.end_seq, len(stream.at_end))
    assert segment.last_seq > messages
    assert restored(tmp_path, BackupPoint()) == stream.at_end


def test_a_message_that_the_server_has_left_out_is_found_before_the_backup_counts(tmp_path: Path) -> None:
    bench = Bench()
    bench.messages(b"s.a", b"s.a", b"s.a")
    work = Work([], [], [], [], killed_after=None, whole=False)

    class Lossy(StreamAlone):
        def snapshot(self, stream: str, from_seq: int) -> Iterator[bytes]:
            found = bench.machine.store.next_runs
            bench.machine.store.next_runs = lambda filters, from_seq, count: found(filters, max(from_seq, 2), count)  # type: ignore[method-assign]
            try:
                yield from super().snapshot(stream, from_seq)
            finally:
                bench.machine.store.next_runs = found  # type: ignore[method-assign]

    with pytest.raises(BackupError, match="it has 3 messages up to 3, of which 2 are in the backup"):
        take(Lossy(bench, RetentionPolicy.LIMITS, work), "S", tmp_path, whole=False)
    assert BackupManifest.load(tmp_path) is None


def test_consumers_through_which_other_streams_read_are_not_in_an_archive() -> None:
    bench = Bench()
    bench.consumer("own")
    bench.consumer("JS_SRC_x", direct=True)
    heads = cut_of(bench.machine, NOW_NS, with_consumers=True).heads
    assert [one.name for one in heads] == [STATE_NAME, b"consumers/own"]
