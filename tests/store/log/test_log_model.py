"""FileLog and MemLog against a list of entries, with crashes at every operation of a batch.

The model keeps, since the last durable token, every state that the log went through. After a crash the log must be a
prefix of one of them, and hold every durable entry that was not cut on the way to it.
"""

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.log.mem_log import MemLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.preallocate import PieceSizes
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Checkpoint, Entry, GroupLog, HardState
from tests.doubles.lossy_disk import LossyDisk
from tests.harness.forms import examples
from tests.store.ledgers import ledger_of

if TYPE_CHECKING:
    from jetraft.store.log.file_log import FileLog

GROUP = Path("/store/groups/S-R3F-abcdefgh")
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R3F-abcdefgh"), incarnation=7)
PIECES = PieceSizes(after_batches=1, piece_bytes=600, piece_batches_min=1, step_bytes=256, aligned_bytes=16)
OPTIONS = LogOptions(block_bytes_first=1024, block_bytes_max=4096, pieces=PIECES)
State = tuple[Entry, ...]


class LogModel(RuleBasedStateMachine):
    """The rules that both logs must keep."""

    log: GroupLog

    def __init__(self) -> None:
        super().__init__()
        self.state: State = ()  # entry i has index i + 1, trimmed ones included
        self.committed = 0  # never cut: checkpoints stand on it
        self.seq = 0
        self.live_from = 1
        self.serial = 0
        self.hard_state = HardState(term=0, vote=None)
        self.checkpoint: Checkpoint | None = None
        self.history: list[tuple[int, State, HardState]] = [(0, (), self.hard_state)]  # (token, after it)

    def note(self) -> None:
        self.history.append((self.log.token(), self.state, self.hard_state))

    def last_term(self) -> int:
        return self.state[-1].term if self.state else 0

    @rule(
        sizes=st.lists(st.sampled_from([0, 10, 100, 400, 900, 5000]), min_size=1, max_size=4), newer=st.integers(0, 2)
    )
    def append(self, sizes: list[int], newer: int) -> None:
        entries = []
        term = max(1, self.last_term() + newer)
        if term > self.hard_state.term:  # a member knows a term before it takes an entry of it
            self.set_hard_state(newer=term - self.hard_state.term, vote=None)
        for number, size in enumerate(sizes):
            self.serial += 1
            index = len(self.state) + number + 1
            record = _frame.make_record(b"s.%d" % self.serial, b"", b"p" * size, ts_ns=self.serial)
            frame = _frame.seal(
                Kind.MESSAGES, index=index, term=term, incarnation=7, body=record, first_seq=self.seq + 1, count=1
            )
            self.seq += 1
            entries.append(Entry(index=index, term=term, kind=Kind.MESSAGES, frame=frame))
        self.log.append(entries)
        self.state += tuple(entries)
        self.note()

    @precondition(lambda self: len(self.state) > max(self.committed, self.log.boundary[0]))
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(max(self.committed, self.log.boundary[0]) + 1, len(self.state)))
        self.log.cut_from(index)
        self.state = self.state[: index - 1]
        self.seq = index - 1
        self.note()

    @rule(newer=st.integers(0, 2), vote=st.sampled_from([None, "AAAAAAAA", "BBBBBBBB"]))
    def set_hard_state(self, newer: int, vote: str | None) -> None:
        self.hard_state = HardState(term=self.hard_state.term + newer, vote=NodeId(vote) if vote else None)
        self.log.set_hard_state(self.hard_state)
        assert self.log.hard_state_token == self.log.token()
        self.note()

    @rule()
    def submit(self) -> None:
        self.log.submit()

    @precondition(lambda self: len(self.state) > self.committed)
    @rule(data=st.data())
    def save_checkpoint(self, data: st.DataObject) -> None:
        self.committed = data.draw(st.integers(self.committed + 1, len(self.state)))
        index, term = self.committed, self.state[self.committed - 1].term
        self.checkpoint = Checkpoint(index=index, term=term, members=b"m%d" % index, state=b"s" * index)
        self.log.save_checkpoint(index, term, self.checkpoint.members, self.checkpoint.state)
        self.note()

    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        self.live_from = data.draw(st.integers(self.live_from, max(self.live_from, self.committed + 1)))
        before = self.log.first_index
        self.log.trim(self.live_from, len(self.state))
        assert self.log.first_index >= before
        assert self.log.first_index <= max(1, self.committed + 1)
        kept = {entry.index for _, entry in self.log.frames(1, len(self.state))}
        assert all(index in kept for index in range(self.live_from, len(self.state) + 1))  # here seq == index
        self.note()

    @invariant()
    def same_entries(self) -> None:
        if not hasattr(self, "log"):
            return
        first, last = self.log.first_index, self.log.last_index
        assert last == len(self.state)
        assert self.log.boundary[0] == first - 1
        assert self.log.hard_state == self.hard_state
        assert self.log.durable_index <= last
        for index in range(self.log.boundary[0], last + 1):
            assert self.log.term_at(index) == (self.state[index - 1].term if index else 0)
        assert self.log.term_at(self.log.boundary[0] - 1) is None
        assert self.log.term_at(last + 1) is None
        if first <= last:
            assert tuple(self.log.entries(first, last, 1 << 30)) == self.state[first - 1 :]
            assert self.log.entries(first, last, 0) == [self.state[first - 1]]
        for ref, entry in self.log.frames(1, last):
            assert entry == self.state[entry.index - 1]
            assert self.log.locate(entry.index) == ref
            assert self.log.frame_at(ref.block, ref.offset) == entry.frame
        assert self.log.load_checkpoint() == self.checkpoint


class MemLogModel(LogModel):
    @initialize()
    def start(self) -> None:
        self.log = MemLog(block_bytes=1024)


class FileLogModel(LogModel):
    """The same, with crashes."""

    options = OPTIONS

    @initialize()
    def start(self) -> None:
        self.disk = LossyDisk()
        self.disk.make_directory(GROUP.parent.parent)
        self.disk.sync_names()
        self.open()

    def open(self) -> None:
        self.log: FileLog = open_log(
            ledger_of(self.disk, GROUP), GROUP, IDENTITY, BlockCache(bytes_max=2000), self.options
        )
        assert self.log.durable_index == self.log.last_index

    @rule(count=st.integers(1, 12))
    def work(self, count: int) -> None:
        for _ in range(count):
            self.disk.step()

    @rule()
    def finish(self) -> None:
        self.log.submit()
        self.disk.finish()
        assert self.log.durable_token == self.log.token()
        assert self.log.durable_index == self.log.last_index

    @rule()
    def reopen(self) -> None:
        self.finish()
        self.log.close()
        self.log.place.ledger.close()
        assert self.disk.open_files == 0
        self.open()
        assert self.log.recovery_report is not None
        assert self.log.recovery_report.torn_bytes == 0
        self.history = [(0, self.state, self.hard_state)]

    @rule(count=st.integers(0, 12), seed=st.none() | st.integers(0, 1 << 32))
    def crash(self, count: int, seed: int | None) -> None:
        """Die in the middle of a batch: of the process alone, or with the power (then with a seed)."""
        self.log.submit()
        for _ in range(count):
            self.disk.step()
        durable = self.log.durable_token
        possible = [item for item in self.history if item[0] >= durable]
        before = [item for item in self.history if item[0] <= durable]
        if seed is None:
            self.disk.kill()
        else:
            self.disk.crash(Random(seed))
        self.open()
        self.check_hard_state(before[-1], possible)
        self.check_entries(before[-1], possible)
        self.history = [(0, self.state, self.hard_state)]

    def check_hard_state(
        self, durable: tuple[int, State, HardState], possible: list[tuple[int, State, HardState]]
    ) -> None:
        assert self.log.hard_state in [durable[2], *(hard_state for _, _, hard_state in possible)]
        self.hard_state = self.log.hard_state

    def check_entries(
        self, durable: tuple[int, State, HardState], possible: list[tuple[int, State, HardState]]
    ) -> None:
        first, last = self.log.first_index, self.log.last_index
        found = self.log.entries(first, last, 1 << 30) if first <= last else []
        must = len(durable[1])
        for _, state, _ in [durable, *possible]:
            must = min(must, len(state), _common(durable[1], state))
            if must <= last <= len(state) and tuple(found) == state[first - 1 : last]:
                self.state = state[:last]
                break
        else:
            raise AssertionError(f"the log holds {first}..{last}, which no history explains")
        self.seq = last
        self.checkpoint = self.log.load_checkpoint()
        self.committed = self.checkpoint.index if self.checkpoint else 0
        self.live_from = min(self.live_from, self.committed + 1)
        assert self.committed <= last


def _common(one: State, other: State) -> int:
    """How many first entries are the same."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine is not theirs:
            break
        count += 1
    return count


TestMemLog = MemLogModel.TestCase
TestFileLog = pytest.mark.long_form(FileLogModel.TestCase)
TestMemLog.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestFileLog.settings = settings(max_examples=examples(80, long=200), stateful_step_count=40, deadline=None)
