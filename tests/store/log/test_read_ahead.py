"""What is read ahead is the log's: whatever changes a block, a reader gets what one without memory gets."""

import errno
from typing import TYPE_CHECKING

import hypothesis.strategies as st
import msgpack
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.cipher import CipherKind
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.frames.keyring import Secrets
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.frame_reader import FrameReader
from jetraft.store.log.opening import open_log, repair
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId
from jetraft.store.port import Entry, StoreCorrupt
from tests.doubles.lossy_disk import LossyDisk
from tests.harness.forms import examples
from tests.store.ledgers import ledger_of
from tests.store.replica import GROUP, IDENTITY, Replica

if TYPE_CHECKING:
    from jetraft.store.port import FrameRef

BLOCK_BYTES = 8192
SMALL_BLOCKS = LogOptions(block_bytes_first=BLOCK_BYTES, block_bytes_max=BLOCK_BYTES)
ONE_BLOCK = LogOptions(block_bytes_first=1 << 20, block_bytes_max=1 << 20)
Message = tuple[bytes, bytes, bytes]


class NoFrames(BlockCache):
    """Windows and no frames: every read that a window does not serve goes to the disk."""

    def put(self, key: tuple[int, int, int], frame: bytes) -> None:
        """Keep nothing."""


class ReadDisk(LossyDisk):
    """Counts reads, and says how far they went."""

    reads = 0
    end = 0

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """See Disk."""
        self.reads += 1
        self.end = max(self.end, offset + size)
        return super().read(fd, size, offset)


class ScannedReplica(Replica):
    """A replica whose reads come from windows or from the disk."""

    def __init__(self, disk: LossyDisk, options: LogOptions, cache: BlockCache | None = None) -> None:
        self.cache = cache or NoFrames(1 << 20)
        super().__init__(disk, options)

    def opened(self) -> FileLog:
        return open_log(ledger_of(self.disk, GROUP), GROUP, IDENTITY, self.cache, self.options)

    def refs(self) -> list["FrameRef"]:
        """The places of all frames that the log can be asked for, in order."""
        indexes = range(1, self.log.last_index + 1)
        found = [self.log.locate(index) for index in indexes if self.log._blocks.find(index) is not None]
        return [ref for ref in found if ref is not None]

    def scan(self, refs: list["FrameRef"]) -> list[bytes]:
        return [self.log.frame_at(ref.block, ref.offset) for ref in refs]


def plainly(log: FileLog, refs: list["FrameRef"]) -> list[bytes]:
    """The same frames by a reader that remembers nothing, not even a descriptor."""
    known = log._reader
    plain = FrameReader(log.place.disk, BlockCache(0), IDENTITY.incarnation, log.place.cipher)
    plain.files, plain._rewriting, plain._unwritten = known.files, known._rewriting, known._unwritten
    frames = [plain.frame(log._blocks.numbered(ref.block), ref.offset) for ref in refs]
    for fd in plain._open.values():
        log.place.disk.close_file(fd)
    return frames


def entries(first: int, count: int, body: bytes = msgpack.packb(("remove", [], False, b"-" * 60))) -> list[Entry]:
    """Entries that remove nothing."""
    made = []
    for index in range(first, first + count):
        frame = _frame.seal(Kind.STREAM_OP, index=index, term=1, incarnation=7, body=body)
        made.append(Entry(index=index, term=1, kind=Kind.STREAM_OP, frame=frame))
    return made


def messages(count: int, size: int = 150) -> list[Message]:
    return [(b"k.%d" % (number % 5), b"", bytes([number % 251]) * size) for number in range(count)]


def filled(disk: LossyDisk, options: LogOptions = ONE_BLOCK, *, frames: int = 40) -> ScannedReplica:
    replica = ScannedReplica(disk, options)
    for number in range(frames):
        replica.publish([(b"s", b"", b"%d-" % number * 50), (b"t", b"", b"t" * 30)])
    return replica


def scanned(replica: ScannedReplica) -> list["FrameRef"]:
    """Read every frame in order, so that windows have them; their places."""
    refs = replica.refs()
    assert replica.scan(refs) == plainly(replica.log, refs)
    assert replica.cache.statistics().windows > 0
    return refs


# What it is for.


def test_a_scan_of_small_frames_takes_few_reads() -> None:
    disk = ReadDisk()
    replica = filled(disk, frames=600)
    refs = replica.refs()
    disk.reads = 0
    replica.scan(refs)
    size = replica.log.statistics().bytes_used
    assert size > 200_000
    assert disk.reads <= 2 + 4, "the first frame, then 32, 64, 128, 256 KiB"
    assert replica.cache.statistics().window_hits >= len(refs) - disk.reads


def test_readers_who_take_turns_get_a_window_each() -> None:
    disk = ReadDisk()
    replica = filled(disk, frames=600)
    refs = replica.refs()
    disk.reads = 0
    for low, high in zip(refs[:200], refs[300:500], strict=True):
        replica.scan([low, high])
    assert disk.reads <= 2 * 5


def test_a_scan_leaves_the_frames_that_others_use_in_the_cache() -> None:
    cache = BlockCache(bytes_max=200_000)
    replica = ScannedReplica(LossyDisk(), ONE_BLOCK, cache)
    for number in range(1000):
        replica.publish([(b"s", b"", b"%d-" % number * 100)])
    refs = replica.refs()
    hot = refs[-50:]
    replica.scan(refs[:600])
    misses = cache.statistics().misses
    replica.scan(hot)
    found = cache.statistics()
    assert found.misses == misses
    assert found.frames < 500 < found.window_hits, "most were read ahead"
    assert found.bytes_held <= 200_000


def test_thousands_of_logs_share_one_bound() -> None:
    disk = LossyDisk()
    cache = NoFrames(1 << 18)
    logs = []
    for number in range(30):
        group = GROUP.with_name(f"g{number}")
        identity = Identity(node_id=IDENTITY.node_id, group_id=GroupId(f"g{number}"), incarnation=7)
        log = open_log(ledger_of(disk, group), group, identity, cache, ONE_BLOCK)
        logs.append(log)
        log.append(entries(1, 100, body=bytes(200)))
        log.submit()
        disk.finish()
        for index in range(1, 101):
            ref = log.locate(index)
            assert ref is not None
            log.frame_at(ref.block, ref.offset)
        found = cache.statistics()
        assert found.window_bytes == found.bytes_held <= 1 << 16
    assert cache.statistics().windows > 1
    for log in logs:
        log.close()
    assert cache.statistics().windows == 0, "of logs that are closed"


# What changes a block.


def test_an_erased_message_is_gone_from_windows_at_once_and_when_it_is_durable() -> None:
    replica = filled(LossyDisk())
    refs = scanned(replica)
    replica.store.remove([41], erase=True)
    assert b"20-20-" not in b"".join(replica.scan(refs)), "while the erasure waits; windows are made meanwhile"
    replica.settle()
    found = replica.scan(refs)
    assert b"20-20-" not in b"".join(found)
    assert found == plainly(replica.log, refs)


def test_a_window_does_not_reach_into_a_frame_that_is_being_rewritten() -> None:
    replica = filled(LossyDisk())
    refs = replica.refs()
    replica.store.remove([41], erase=True)
    replica.scan(refs)
    replica.settle()
    assert b"20-20-" not in b"".join(replica.scan(refs))


def test_an_invalidated_frame_is_damaged_for_a_reader_who_had_a_window() -> None:
    replica = filled(LossyDisk())
    refs = scanned(replica)
    replica.log.upkeep.invalidate(refs[20].block, refs[20].offset)
    replica.settle()
    with pytest.raises(StoreCorrupt, match="entry 21"):
        replica.scan([refs[20]])


def test_frames_of_a_compacted_block_are_read_from_its_new_file() -> None:
    replica = filled(LossyDisk(), SMALL_BLOCKS, frames=60)
    replica.command("remove", list(range(1, 60, 2)), 0)
    scanned(replica)
    replica.checkpoint()
    replica.plan()
    replica.publish([(b"s", b"", b"later")])
    replica.checkpoint()
    replica.publish([(b"s", b"", b"last")])
    replica.checkpoint()
    before = replica.found()
    assert replica.carry_out() > 0
    refs = replica.refs()
    found = replica.scan(refs)
    assert found == plainly(replica.log, refs)
    assert b"3-3-3-" not in b"".join(found[:5]), "its message was removed"
    assert replica.found() == before


def test_frames_that_were_cut_are_not_served() -> None:
    replica = filled(LossyDisk())
    refs = scanned(replica)
    replica.log.cut_from(31)
    with pytest.raises(KeyError):
        replica.log.frame_at(refs[30].block, refs[30].offset)
    assert replica.scan(refs[:30]) == plainly(replica.log, refs[:30])
    replica.settle()
    with pytest.raises(KeyError):
        replica.log.frame_at(refs[30].block, refs[30].offset)


def test_windows_of_a_block_that_is_dropped_give_their_memory_back() -> None:
    replica = filled(LossyDisk(), SMALL_BLOCKS, frames=60)
    scanned(replica)
    before = replica.cache.statistics()
    replica.command("below", 100)
    replica.checkpoint()
    replica.publish([(b"s", b"", b"later")])
    replica.checkpoint()
    blocks = {ref.block for ref in replica.refs()}
    after = replica.cache.statistics()
    assert after.windows < before.windows
    assert {place[1] for place in replica.cache.ahead._windows} <= blocks


def test_memory_that_is_short_takes_the_windows() -> None:
    replica = filled(LossyDisk())
    refs = scanned(replica)
    replica.cache.clear()
    assert replica.cache.statistics().bytes_held == 0
    assert replica.scan(refs) == plainly(replica.log, refs)


def test_frames_that_are_not_written_yet_are_in_no_window() -> None:
    disk = ReadDisk()
    replica = filled(disk)
    refs = replica.refs()
    replica.scan(refs[:2])
    replica.log.append(entries(replica.log.last_index + 1, 5))
    replica.log.submit()
    more, written = replica.refs(), replica.log._reader.files[refs[0].block].written
    disk.end = 0
    assert replica.scan(more) == plainly(replica.log, more)
    assert disk.end == written, "what follows may be there in part"
    replica.settle()
    assert replica.scan(more) == plainly(replica.log, more)


# Damage.


def test_a_damaged_frame_is_an_error_of_its_own_and_not_of_its_neighbours() -> None:
    disk = LossyDisk()
    replica = filled(disk)
    refs = replica.refs()
    sound = plainly(replica.log, refs)
    path = replica.log._reader.files[refs[20].block].path
    disk.flip_bit(path, refs[20].offset + 70)
    assert replica.scan(refs[:20]) == sound[:20]
    with pytest.raises(StoreCorrupt, match="entry 21"):
        replica.scan([refs[20]])
    assert replica.scan(refs[21:]) == sound[21:]
    disk.flip_bit(path, refs[20].offset + 70)
    assert replica.scan([refs[20]]) == sound[20:21], "the window had the damaged bytes; the file is asked again"


def test_a_place_that_the_device_cannot_read_costs_its_neighbours_one_attempt() -> None:
    disk = ReadDisk()
    replica = filled(disk)
    refs = replica.refs()
    sound = plainly(replica.log, refs)
    replica.scan(refs[:1])
    disk.fail_next("read", errno.EIO)  # of the window
    disk.reads = 0
    assert replica.scan(refs[1:]) == sound[1:]
    assert replica.cache.statistics().windows == 0
    assert disk.reads == 1 + len(refs[1:])


def test_an_error_of_the_machine_is_not_taken_for_damage() -> None:
    disk = LossyDisk()
    replica = filled(disk)
    refs = replica.refs()
    replica.scan(refs[:1])
    disk.fail_next("read", errno.ENOMEM)
    with pytest.raises(OSError, match="ordered to fail"):
        replica.scan(refs[1:])
    assert replica.scan(refs) == plainly(replica.log, refs)


def test_a_repaired_block_is_read_anew() -> None:
    disk = LossyDisk()
    replica = filled(disk)
    refs = replica.refs()
    sound = plainly(replica.log, refs)
    path = replica.log._reader.files[refs[20].block].path
    replica.log.close()
    replica.log.place.ledger.close()
    disk.flip_bit(path, refs[20].offset + 70)
    cache = NoFrames(1 << 20)
    options = LogOptions(mode=RecoveryMode.SALVAGE)
    damaged = open_log(ledger_of(disk, GROUP), GROUP, IDENTITY, cache, options)
    replica.log = damaged
    assert replica.scan(refs[:20]) == sound[:20]
    assert replica.scan(refs[21:]) == sound[21:]
    with pytest.raises(StoreCorrupt):
        replica.scan([refs[20]])
    replica.log = repair(damaged, {21: sound[20]})
    assert replica.scan(replica.refs()) == sound


# All of it together.


class ReadAheadModel(RuleBasedStateMachine):
    """Appends, cuts, erasures, compaction, restarts and reads in any order, beside a reader without memory."""

    secrets: Secrets | None = None

    @initialize(compressed=st.booleans())
    def start(self, compressed: bool) -> None:  # noqa: FBT001  (drawn)
        self.disk = LossyDisk()
        self.disk.make_directory(GROUP.parent)
        options = LogOptions(block_bytes_first=2048, block_bytes_max=4096, secrets=self.secrets)
        self.replica = ScannedReplica(self.disk, options)
        self.replica.compressed = compressed
        self.replica.publish(messages(3))

    @rule(count=st.integers(1, 6), size=st.sampled_from([10, 150, 900]), frames=st.integers(1, 8))
    def publish(self, count: int, size: int, frames: int) -> None:
        self.apply_all()
        for _ in range(frames):
            self.replica.publish(messages(count, size))

    @rule(count=st.integers(1, 6), steps=st.integers(0, 12))
    def append(self, count: int, steps: int) -> None:
        """Entries that are not committed, and written in part."""
        self.replica.log.append(entries(self.replica.log.last_index + 1, count))
        self.replica.log.submit()
        self.work(steps)

    @rule(steps=st.integers(1, 12))
    def work(self, steps: int) -> None:
        for _ in range(steps):
            self.disk.step()

    @precondition(lambda self: self.replica.applied < self.replica.log.last_index)
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        self.replica.log.cut_from(data.draw(st.integers(self.replica.applied + 1, self.replica.log.last_index)))
        self.replica.log.submit()

    @rule(data=st.data(), is_settled=st.booleans())
    def erase(self, data: st.DataObject, is_settled: bool) -> None:  # noqa: FBT001  (drawn)
        store = self.replica.store
        if store.messages:
            seqs = data.draw(st.lists(st.integers(store.first_seq, store.last_seq), min_size=1, max_size=3))
            store.remove(seqs, erase=True)
            self.replica.log.submit()
        if is_settled:
            self.replica.settle()

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        store = self.replica.store
        if store.messages:
            self.apply_all()
            low = data.draw(st.integers(store.first_seq, store.last_seq))
            self.replica.command("remove", list(range(low, store.last_seq, 2)), 0)

    @rule()
    def compact(self) -> None:
        self.apply_all()
        self.replica.checkpoint()
        self.replica.plan()
        for _ in range(2):
            self.replica.command("remove", [], 0)
            self.replica.checkpoint()
        self.replica.carry_out()

    @rule()
    def restart(self) -> None:
        self.apply_all()
        self.replica.restart()

    @rule()
    def forget(self) -> None:
        self.replica.cache.clear()

    @rule(data=st.data())
    def read_in_order(self, data: st.DataObject) -> None:
        refs = self.replica.refs()
        low = data.draw(st.integers(0, len(refs) - 1))
        high = data.draw(st.integers(low, len(refs) - 1))
        self.check(refs[low : high + 1])

    @rule(data=st.data())
    def read_anywhere(self, data: st.DataObject) -> None:
        refs = self.replica.refs()
        self.check(data.draw(st.lists(st.sampled_from(refs), max_size=8)))

    def check(self, refs: list["FrameRef"]) -> None:
        assert self.replica.scan(refs) == plainly(self.replica.log, refs)
        found = self.replica.cache.statistics()
        assert found.window_bytes <= found.bytes_max // 4

    def apply_all(self) -> None:
        replica = self.replica
        replica.settle()
        while replica.applied < replica.log.last_index:
            replica.apply(replica.log.entries(replica.applied + 1, replica.applied + 1, 0)[0])


class SealedReadAheadModel(ReadAheadModel):
    """The same with a key."""

    secrets = Secrets(key=b"k", cipher=CipherKind.AES)


TestReadAhead = pytest.mark.long_form(ReadAheadModel.TestCase)
TestReadAhead.settings = settings(max_examples=examples(50, long=400), stateful_step_count=40, deadline=None)
TestSealedReadAhead = pytest.mark.long_form(SealedReadAheadModel.TestCase)
TestSealedReadAhead.settings = settings(max_examples=examples(15, long=100), stateful_step_count=30, deadline=None)
