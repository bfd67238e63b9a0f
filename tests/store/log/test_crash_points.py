"""A power cut at every write, fsync, rename and unlink of a store's life: it opens, and what was promised is there.

The life: appends, blocks that fill up, term and vote, checkpoints, a cut, a trim, an erasure, a reopening, an installed
snapshot, a mended block. It goes on after the cut too: every operation of the opening itself can be the last one.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypedDict, Unpack

import attrs
import pytest

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.format import BLOCK_HEAD_BYTES, FRAME_HEADER_BYTES, Identity, Kind
from jetraft.store.log.erasure import erased
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.mem_log import MemLog
from jetraft.store.log.opening import open_log, repair
from jetraft.store.log.preallocate import PieceSizes
from jetraft.store.log.recovery import RecoveryMode
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Checkpoint, Entry, HardState, StoreError
from tests.doubles.lossy_tree import LossyDirectory
from tests.store.crash_points import RecordingDisk, disk_of, outcomes
from tests.store.ledgers import ledger_of

pytestmark = pytest.mark.campaign

GROUP = Path("/store/groups/S-R3F-abcdefgh")
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R3F-abcdefgh"), incarnation=7)
PIECES = PieceSizes(after_batches=1, piece_bytes=256, piece_batches_min=1, step_bytes=64, aligned_bytes=32)
OPTIONS = LogOptions(block_bytes_first=1024, block_bytes_max=1024, pieces=PIECES)
SALVAGE = attrs.evolve(OPTIONS, mode=RecoveryMode.SALVAGE)
VOTES = (NodeId("AAAAAAAA"), NodeId("BBBBBBBB"))
PLAIN: HardState = HardState(term=0, vote=None)


def entry(index: int, *, term: int = 1) -> Entry:
    record = _frame.make_record(b"a", b"", b"%d." % index * 40, ts_ns=index)
    frame = _frame.seal(Kind.MESSAGES, index=index, term=term, incarnation=7, body=record, first_seq=index, count=1)
    return Entry(index=index, term=term, kind=Kind.MESSAGES, frame=frame)


@attrs.frozen(kw_only=True)
class State:
    """What a log holds. `entries` has every entry ever kept, trimmed ones too; `trimmed` may be missing."""

    entries: tuple[Entry, ...] = ()
    hard_state: HardState = PLAIN
    checkpoint_index: int = 0
    trimmed: int = 0
    rewritten: frozenset[int] = frozenset()  # whose payload may be gone


class Changes(TypedDict, total=False):
    """The fields of a state that a step changes."""

    entries: tuple[Entry, ...]
    hard_state: HardState
    checkpoint_index: int
    trimmed: int
    rewritten: frozenset[int]


@attrs.frozen(kw_only=True)
class Promise:
    """What held when a picture was taken: the durable state, and those that were on their way, in order."""

    durable: State
    on_the_way: tuple[State, ...]


class Life:
    """A log and what it has promised, one step after the other; every operation of each is recorded."""

    def __init__(self, disk_type: type[RecordingDisk[Promise]] = RecordingDisk) -> None:
        self.state = State()
        self.history: list[tuple[int, State]] = [(0, self.state)]
        self.log: FileLog | None = None
        self.disk = disk_type(self.promise)
        self.disk.make_directory(GROUP.parent.parent)
        self.disk.sync_names()
        self.log = open_log(ledger_of(self.disk, GROUP), GROUP, IDENTITY, BlockCache(bytes_max=2000), OPTIONS)

    def promise(self) -> Promise:
        durable = 0 if self.log is None else self.log.durable_token
        before = [state for token, state in self.history if token <= durable]
        return Promise(durable=before[-1], on_the_way=tuple(state for token, state in self.history if token > durable))

    def change(self, act: Callable[[FileLog], object], **changes: Unpack[Changes]) -> None:
        """Change the log; nothing is written yet."""
        assert self.log is not None
        act(self.log)
        self.state = attrs.evolve(self.state, **changes)
        self.history.append((self.log.token(), self.state))

    def settle(self) -> None:
        """Write everything; what has happened by then is durable."""
        assert self.log is not None
        self.log.submit()
        self.disk.finish()
        assert self.log.durable_token == self.log.token()
        self.history = [(self.log.token(), self.state)]
        self.disk.take("settled")

    def append(self, count: int, *, term: int = 1) -> None:
        first = len(self.state.entries) + 1
        if term > self.state.hard_state.term:  # a member knows a term before it takes an entry of it
            self.vote(term, VOTES[0])
        new = [entry(index, term=term) for index in range(first, first + count)]
        self.change(lambda log: log.append(new), entries=(*self.state.entries, *new))

    def cut(self, index: int) -> None:
        self.change(lambda log: log.cut_from(index), entries=self.state.entries[: index - 1])

    def vote(self, term: int, name: NodeId) -> None:
        hard_state = HardState(term=term, vote=name)
        self.change(lambda log: log.set_hard_state(hard_state), hard_state=hard_state)

    def checkpoint(self, index: int) -> None:
        term = self.state.entries[index - 1].term
        self.change(lambda log: log.save_checkpoint(index, term, b"m", b"s" * index), checkpoint_index=index)

    def trim(self, index: int) -> None:
        self.change(lambda log: log.trim(index + 1, index), trimmed=index)

    def erase(self, index: int) -> None:
        def act(log: FileLog) -> None:
            place = log.locate(index)
            assert place is not None
            log.erase_record(place.block, place.offset, FRAME_HEADER_BYTES)

        self.change(act, rewritten=self.state.rewritten | {index})

    def reopen(self) -> None:
        assert self.log is not None
        self.settle()
        self.log.close()
        self.log.place.ledger.close()
        self.history = [(0, self.state)]
        self.log = None
        self.log = open_log(ledger_of(self.disk, GROUP), GROUP, IDENTITY, BlockCache(), OPTIONS)

    def install(self, count: int) -> None:
        """Another member's log with `count` entries takes the place of this one."""
        assert self.log is not None
        other = MemLog(block_bytes=1000)
        new = [entry(index, term=9) for index in range(1, count + 1)]
        other.append(new)
        other.save_checkpoint(count, 9, b"m", b"s" * count)
        found = other.manifest(1)
        assert found is not None
        self.settle()
        staging = self.log.begin_install(*found)
        after = attrs.evolve(self.state, entries=tuple(new), checkpoint_index=count, rewritten=frozenset(), trimmed=0)
        self.history = [(0, self.state), (1 << 60, after)]  # until it has happened, either
        while (piece := staging.missing()) is not None:
            staging.put_chunk(piece[0], piece[1], other.read_chunk(*piece))
        self.log.close()
        self.log = None
        installed = staging.finish()
        assert isinstance(installed, FileLog)
        self.history = [(0, self.state), (installed.token(), after)]
        self.log, self.state = installed, after
        self.settle()
        self.disk.take("installed")


def grown() -> Life:
    """The life of a log that nobody damages."""
    life = Life()
    life.vote(1, VOTES[0])
    life.append(1)
    life.settle()
    for count in (3, 1, 6):
        life.append(count)
        life.settle()
    life.vote(2, VOTES[1])
    life.append(2, term=2)
    life.settle()
    life.checkpoint(8)
    life.settle()
    life.append(3, term=2)
    life.cut(13)
    life.append(4, term=3)
    life.settle()
    life.cut(12)
    life.append(9, term=4)
    life.checkpoint(16)
    life.settle()
    life.trim(8)
    life.append(1, term=4)
    life.settle()
    life.erase(14)
    life.settle()
    life.reopen()
    life.append(5, term=5)
    life.checkpoint(20)
    life.settle()
    life.trim(16)
    life.vote(9, VOTES[1])
    life.settle()
    life.install(30)
    life.append(4, term=9)
    life.settle()
    return life


@pytest.fixture(scope="module")
def life() -> Life:
    return grown()


def opened(root: LossyDirectory, options: LogOptions = OPTIONS) -> FileLog:
    return open_log(ledger_of(disk_of(root), GROUP), GROUP, IDENTITY, BlockCache(), options)


def check(log: FileLog, promise: Promise, what: str) -> None:
    """The log is a beginning of a state that was on its way, and has what all states from the durable one on have."""
    states = (promise.durable, *promise.on_the_way)
    assert log.hard_state in [state.hard_state for state in states], f"{what}: {log.hard_state} was never set"
    checkpoint = log.load_checkpoint()
    index = 0 if checkpoint is None else checkpoint.index
    assert index >= promise.durable.checkpoint_index or promise.on_the_way, (
        f"{what}: the checkpoint went back to {index}"
    )
    if checkpoint is not None:
        assert checkpoint == Checkpoint(index=index, term=checkpoint.term, members=b"m", state=b"s" * index), what
    must = len(promise.durable.entries)
    for state in states:
        must = min(must, _common(promise.durable.entries, state.entries))
        if must <= log.last_index <= len(state.entries) and _holds(log, state):
            return
    raise AssertionError(
        f"{what}: {log.first_index} to {log.last_index} is explained by no state, {must} must be there"
    )


def _holds(log: FileLog, state: State) -> bool:
    found = {item.index: item for _, item in log.frames(1, log.last_index)}
    for wanted in state.entries[: log.last_index]:
        frame = found.get(wanted.index)
        if frame is None and wanted.index > state.trimmed:
            return False
        if frame is not None and frame != wanted:
            gone = erased(wanted.frame, FRAME_HEADER_BYTES)
            if wanted.index not in state.rewritten or frame.frame != gone:
                return False
    return True


def _common(one: tuple[Entry, ...], other: tuple[Entry, ...]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))


def test_a_life_has_every_kind_of_operation(life: Life) -> None:
    kinds = {picture.operation for picture in life.disk.pictures}
    assert kinds == {"write", "sync", "allocate", "reserve", "truncate", "rename", "unlink", "settled", "installed"}
    assert len(life.disk.pictures) > 150


def test_what_was_promised_is_there_wherever_the_power_went(life: Life) -> None:
    tried = 0
    for number, picture in enumerate(life.disk.pictures):
        for name, root in outcomes(picture.root):
            what = f"after operation {number} ({picture.operation}), {name}"
            check(opened(root), picture.promised, what)
            tried += 1
    assert tried > 2000


def test_an_opening_that_is_cut_short_changes_nothing_for_the_next_one(life: Life) -> None:
    for number, picture in enumerate(life.disk.pictures[::11]):
        for name, root in list(outcomes(picture.root))[:4]:
            second: RecordingDisk[None] = RecordingDisk(lambda: None)
            second._root = disk_of(root)._root
            open_log(ledger_of(second, GROUP), GROUP, IDENTITY, BlockCache(), OPTIONS)
            for step, later in enumerate(second.pictures):
                for again, left in list(outcomes(later.root))[:4]:
                    what = f"picture {number}, {name}, operation {step} of the opening, {again}"
                    check(opened(left), picture.promised, what)


def test_the_check_sees_it_when_a_disk_only_says_that_it_has_fsynced() -> None:
    """The same life on a disk that lies breaks its promises at once: the tests above can fail."""

    class LyingDisk(RecordingDisk[Promise]):
        def _do_sync(self, fd: int) -> None:
            """Nothing."""

    life = Life(LyingDisk)
    life.append(3)
    life.settle()
    broken = 0
    for name, root in outcomes(life.disk.pictures[-1].root):
        try:
            check(opened(root), life.disk.pictures[-1].promised, name)
        except (AssertionError, StoreError):
            broken += 1
    assert broken


def test_a_block_that_is_being_mended_is_damaged_or_whole_wherever_the_power_goes() -> None:
    life = Life()
    life.append(20)
    life.settle()
    life.reopen()
    life.append(1)
    life.settle()
    assert life.log is not None
    life.log.close()
    block = GROUP / "log-00000001" / "00000000000000000001-00000001.blk"
    life.disk.flip_bit(block, BLOCK_HEAD_BYTES + FRAME_HEADER_BYTES + 30)
    damaged = open_log(ledger_of(life.disk, GROUP), GROUP, IDENTITY, BlockCache(), SALVAGE)
    assert damaged.damaged_entries == ((1, 1),)
    life.disk.pictures.clear()

    repair(damaged, {1: life.state.entries[0].frame})

    everything = {item.index: item for item in life.state.entries}
    seen = set()
    for picture in life.disk.pictures:
        for name, root in outcomes(picture.root):
            log = opened(root, SALVAGE)
            found = {item.index: item for _, item in log.frames(1, log.last_index)}
            assert found.keys() | {1} == everything.keys(), name
            assert all(everything[index] == item for index, item in found.items()), name
            assert log.damaged_entries == (() if 1 in found else ((1, 1),)), name
            seen.add(1 in found)
    assert seen == {False, True}
