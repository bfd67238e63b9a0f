"""When a batch is done at once instead of by a writer thread."""

from pathlib import Path

import pytest

from jetraft.store.disk.io import LocalDisk, Writer
from jetraft.store.disk.latency import FAST_NS, SLOW_NS, STALLED_NS, DiskLatency
from jetraft.store.model.histogram import BOUNDS_NS


def test_a_new_disk_proves_itself_before_it_is_waited_for() -> None:
    latency = DiskLatency()
    assert not latency.is_fast
    latency.note(FAST_NS // 10)
    assert latency.is_fast


def test_one_stall_sends_batches_to_the_threads_until_a_row_of_quick_ones() -> None:
    latency = DiskLatency()
    for _ in range(50):
        latency.note(FAST_NS // 10)
    latency.note(SLOW_NS * 1000)
    assert not latency.is_fast
    quick = 0
    while not latency.is_fast:
        latency.note(FAST_NS // 10)
        quick += 1
    assert 10 <= quick <= 60


def test_a_duration_is_counted_in_the_bucket_whose_upper_end_it_does_not_exceed() -> None:
    latency = DiskLatency()
    for elapsed_ns in (1, BOUNDS_NS[0], BOUNDS_NS[0] + 1, BOUNDS_NS[-1] + 1):
        latency.note(elapsed_ns)
    found = latency.statistics()
    assert found.counts == (2, 1, *[0] * (len(BOUNDS_NS) - 2), 1)
    assert found.sum_ns == 1 + 2 * BOUNDS_NS[0] + 1 + BOUNDS_NS[-1] + 1


def convince(disk: LocalDisk) -> None:
    while not disk.latency.is_fast:
        disk.latency.note(1)


def test_what_is_performed_here_is_done_on_return_counts_and_says_what_failed(tmp_path: Path) -> None:
    writer = Writer()
    disk = LocalDisk(writer)
    fd = disk.open_file(tmp_path / "a", create=True)
    batch = disk.batch()
    batch.write(fd, [b"abc"], 0)
    batch.sync_data(fd)
    assert disk.perform_here(batch) is None
    assert sum(disk.latency.statistics().counts) == 1
    assert (tmp_path / "a").read_bytes() == b"abc"
    disk.close_file(fd)
    failing = disk.batch()
    failing.write(fd, [b"abc"], 0)
    assert isinstance(disk.perform_here(failing), OSError)
    writer.stop()


def test_a_batch_that_takes_a_second_is_an_event_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    latency = DiskLatency()
    latency.note(STALLED_NS - 1)
    assert caplog.messages == []
    latency.note(2 * STALLED_NS)
    assert caplog.messages == ["slow disk: a batch of writes and its fsync took 2.0 s, expected less than 1 s"]
