"""A log that grows by what is compiled, and one that grows in Python: the same bytes, tables and queues."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames import _frame
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.log import durability, write_queue
from jetraft.store.log.opening import open_log
from jetraft.store.log.preallocate import PieceSizes
from jetraft.store.log.start import LogOptions
from jetraft.store.log.tail import LogTail
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, HardState
from tests.doubles.lossy_disk import LossyDisk
from tests.harness.forms import examples
from tests.store.ledgers import ledger_of
from tests.store.log.plain_growth import plainly

GROUP = Path("/store/groups/S-R3F-abcdefgh")
IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R3F-abcdefgh"), incarnation=7)
PIECES = PieceSizes(after_batches=2, piece_bytes=600, piece_batches_min=1, step_bytes=256, aligned_bytes=16)
OPTIONS = LogOptions(block_bytes_first=1024, block_bytes_max=4096, pieces=PIECES)

KINDS = (Kind.MESSAGES, Kind.CONSUMER_OP, Kind.STREAM_OP, Kind.NOOP)
SOME = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from([0, 40, 300, 1500, 5000])), min_size=0, max_size=4)
WORK = st.lists(
    st.one_of(
        st.tuples(st.just("append"), SOME, st.integers(0, 1)),
        st.tuples(st.just("cut"), st.integers(0, 6)),
        st.tuples(st.sampled_from(["publish", "publish_here"]), st.sampled_from([1, 100, 900])),
        st.tuples(st.sampled_from(["submit", "here", "step", "finish", "roll", "checkpoint", "fail"])),
    ),
    max_size=40,
)


class Growing:
    """One log, the work on it and all that is known of it afterwards."""

    def __init__(self) -> None:
        self.disk = LossyDisk()
        self.disk.make_directory(GROUP.parent.parent)
        self.disk.sync_names()
        self.cache = BlockCache(bytes_max=9000)
        self.log = open_log(ledger_of(self.disk, GROUP), GROUP, IDENTITY, self.cache, OPTIONS)
        self.term, self.seq, self.committed, self.told = 1, 1, 0, 0
        self.log.on_durable = self.tell
        self.log.set_hard_state(HardState(term=1, vote=None))
        self.publish(100)

    def tell(self) -> None:
        self.told += 1

    def do(self, name: str, *what: Any) -> None:
        try:
            getattr(self, name)(*what)
        except Exception as error:  # noqa: BLE001  (both logs must raise the same)
            self.told += len(f"{error!r}")

    def append(self, some: list[tuple[Kind, int]], newer: int) -> None:
        if newer:
            self.term += 1
            self.log.set_hard_state(HardState(term=self.term, vote=None))
        entries = []
        for index, (kind, size) in enumerate(some, self.log.last_index + 1):
            record = _frame.make_record(b"s", b"", b"p" * size, ts_ns=1)
            is_message = kind is Kind.MESSAGES
            body, count = (record, 1) if is_message else (b"x" * size, 0)
            frame = _frame.seal(
                kind, index=index, term=self.term, incarnation=7, body=body, first_seq=self.seq * count, count=count
            )
            self.seq += is_message
            entries.append(Entry(index=index, term=self.term, kind=kind, frame=frame))
        self.log.append(entries)

    def publish(self, size: int) -> None:
        self.append([(Kind.MESSAGES, size)], 0)
        self.submit()
        self.finish()

    def publish_here(self, size: int) -> None:
        self.append([(Kind.MESSAGES, size)], 0)
        self.here()

    def cut(self, back: int) -> None:
        index = max(self.committed, self.log.boundary[0]) + 1
        if index <= self.log.last_index:
            self.log.cut_from(max(index, self.log.last_index - back))

    def submit(self) -> None:
        self.log.submit()

    def here(self) -> None:
        self.log.submit(may_block=True)

    def step(self) -> None:
        self.disk.step()

    def finish(self) -> None:
        self.disk.finish()

    def roll(self) -> None:
        self.log.roll_early()

    def checkpoint(self) -> None:
        index = self.log.durable_index
        if index > self.committed and (term := self.log.term_at(index)) is not None:
            self.committed = index
            self.log.save_checkpoint(index, term, b"members", b"state")

    def fail(self) -> None:
        if self.log.last_index > 12:
            self.disk.fail_next("write", 5)

    def known(self) -> dict[str, Any]:
        """Each field that growing changes, and the bytes of the files."""
        log = self.log
        queue, reader = log._state.write_queue, log._reader
        blocks = list(log._blocks)
        names = self.disk.list_directory(log.place.log)
        return {
            "reached": (log.token(), log.durable_token, log.durable_index, repr(log.failed), log.is_starved),
            "told": (self.told, log.durability.batches, log.durability.bytes_written, log.durability._floor_index),
            "blocks": [(b.number, b.first_index, b.size, b.used, b.last_seq, [*b.offsets]) for b in blocks],
            "growing": log.growing,
            "terms": (log._blocks.terms._starts, log._blocks.terms._terms, log.last_index),
            "queue": [(s.block.number, s.create, s.offset, s.first_index, s.end, s.frames) for s in queue.segments],
            "retired": [block.number for block, _ in queue.retired],
            "files": [(number, file.fd, file.written) for number, file in reader.files.items()],
            "unwritten": list(reader._unwritten.items()),
            "cache": (list(self.cache._frames.items()), self.cache._bytes_held),
            "newest": log._state.newest,
            "places": [log.locate(index) for index in range(log.first_index - 2, log.last_index + 3)],
            "bytes": [(name, self.disk.read_whole(log.place.log / name)) for name in names],
        }


def outcome(work: list[tuple[Any, ...]], way: Callable[[], AbstractContextManager[None]]) -> list[dict[str, Any]]:
    serial = iter(range(1, 1 << 30))
    with pytest.MonkeyPatch.context() as patch, way():
        patch.setattr(os, "urandom", lambda count: next(serial).to_bytes(count, "little"))
        growing = Growing()
        found = []
        for name, *what in work:
            growing.do(name, *what)
            found.append(growing.known())
        return found


@settings(max_examples=examples(200, long=2000), deadline=None)
@given(WORK)
def test_a_log_grows_as_the_same_in_python(work: list[tuple[Any, ...]]) -> None:
    assert outcome(work, nullcontext) == outcome(work, plainly)


def test_what_is_compared_is_not_the_same_code() -> None:
    """Without the patch each step would be compared with itself."""
    compiled = steps()
    with plainly():
        assert not set(steps()) & set(compiled)
    assert steps() == compiled


def steps() -> list[Any]:
    """Those that are compared."""
    return [LogTail.append, vars(durability)["release_written"], vars(write_queue)["add_growing"]]
