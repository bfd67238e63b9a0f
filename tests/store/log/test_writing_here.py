"""A small batch that the thread of the caller writes: durable on return, and the same as by a writer thread."""

import errno
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.frames import _frame
from jetraft.store.frames.format import Kind
from jetraft.store.log.start import LogOptions
from jetraft.store.port import Entry, StoreFailed
from tests.doubles.lossy_disk import LossyDisk
from tests.store.replica import GROUP, Replica

OPTIONS = LogOptions(block_bytes_first=64 << 10, block_bytes_max=64 << 10)


def replica(*, fast: bool) -> Replica:
    """One that has a block already: the first entries of a log are the ledger's."""
    disk = LossyDisk()
    disk.make_directory(GROUP.parent)
    disk.sync_names()
    found = Replica(disk, OPTIONS)
    for number in range(3):
        found.publish([(b"s", b"", b"%d" % number)])
    found.settle()
    disk.fast = fast
    return found


def append(found: Replica, payload: bytes) -> int:
    """Append one message; its index."""
    index = found.log.last_index + 1
    frame = _frame.seal(
        Kind.MESSAGES,
        index=index,
        term=1,
        incarnation=7,
        body=[_frame.make_record(b"s", b"", payload, ts_ns=index)],
        first_seq=index,
        count=1,
    )
    found.log.append([Entry(index=index, term=1, kind=Kind.MESSAGES, frame=frame)])
    return index


def write_here(found: Replica, payload: bytes) -> int:
    """Append one message, and let this thread write it; its index."""
    index = append(found, payload)
    found.log.submit(may_block=True)
    return index


def test_what_is_written_here_is_durable_on_return_and_outlives_a_power_cut() -> None:
    found = replica(fast=True)
    for number in range(20):
        index = write_here(found, b"message %d" % number)
        assert (found.log.durable_index, found.log.durable_token) == (index, found.log.token())
    found.disk.crash(Random(0))
    found.log = found.opened()
    assert found.log.last_index == index
    assert b"message 19" in found.log.entries(index, index, 0)[0].frame


def test_a_disk_that_is_not_fast_is_not_waited_for() -> None:
    found = replica(fast=False)
    index = write_here(found, b"later")
    assert found.log.durable_index < index
    found.disk.finish()
    assert found.log.durable_index == index


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_an_error_is_final_and_nothing_of_the_batch_counts(operation: str) -> None:
    found = replica(fast=True)
    durable_index = found.log.durable_index
    told: list[Exception | None] = []
    found.log.on_durable = lambda: told.append(found.log.failed)
    found.disk.fail_next(operation, errno.EIO)
    write_here(found, b"lost")
    assert isinstance(found.log.failed, OSError)
    assert told == [found.log.failed]
    assert found.log.durable_index == durable_index
    with pytest.raises(StoreFailed):
        write_here(found, b"refused")


def test_a_change_of_another_kind_goes_to_the_writer_though_the_disk_is_fast() -> None:
    found = replica(fast=True)
    found.log.roll_early()
    index = write_here(found, b"the first of its block")
    assert found.log.durable_index < index
    found.disk.finish()
    assert found.log.durable_index == index


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3000)), max_size=40))
def test_a_log_is_the_same_whoever_writes_which_batch(batches: list[tuple[bool, int]]) -> None:
    """Blocks roll in between, and a batch that is being written is not overtaken."""
    here, there = replica(fast=True), replica(fast=False)
    for number, (is_awaited, repeats) in enumerate(batches):
        for found in (here, there):
            append(found, b"%03d" % number * repeats)
            found.log.submit(may_block=is_awaited)
        there.disk.finish()
    for found in (here, there):
        found.log.submit()
        found.disk.finish()
        assert found.log.durable_index == found.log.last_index
        found.disk.crash(Random(0))
        found.log = found.opened()
    assert everything_in(here) == everything_in(there)
    assert sizes_of(here) == sizes_of(there) or any(not is_awaited for is_awaited, _ in batches)


def everything_in(found: Replica) -> list[bytes]:
    return [found.log.entries(index, index, 0)[0].frame for index in range(1, found.log.last_index + 1)]


def sizes_of(found: Replica) -> list[int]:
    return [len(data) for data in found.block_files().values()]
