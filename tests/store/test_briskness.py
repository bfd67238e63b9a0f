"""When a batch is done at once instead of by a writer thread."""

from pathlib import Path

from jetraft.store.io import BRISK_NS, SLOW_NS, Briskness, LocalDisk, Writer


def test_a_new_disk_proves_itself_before_it_is_waited_for() -> None:
    briskness = Briskness()
    assert not briskness.is_brisk
    briskness.note(BRISK_NS // 10)
    assert briskness.is_brisk


def test_one_stall_sends_batches_to_the_threads_until_a_row_of_quick_ones() -> None:
    briskness = Briskness()
    for _ in range(50):
        briskness.note(BRISK_NS // 10)
    briskness.note(SLOW_NS * 1000)
    assert not briskness.is_brisk
    quick = 0
    while not briskness.is_brisk:
        briskness.note(BRISK_NS // 10)
        quick += 1
    assert 10 <= quick <= 60


def convince(disk: LocalDisk) -> None:
    while not disk.briskness.is_brisk:
        disk.briskness.note(1)


def test_a_brisk_disk_calls_back_before_submit_returns_and_reports_errors(tmp_path: Path) -> None:
    writer = Writer()
    disk = LocalDisk(writer)
    convince(disk)
    results: list[OSError | None] = []
    fd = disk.open_file(tmp_path / "a", create=True)
    batch = disk.batch()
    batch.write(fd, [b"abc"], 0)
    batch.sync_data(fd)
    disk.submit(batch, results.append, may_block=True)
    assert results == [None]
    assert (tmp_path / "a").read_bytes() == b"abc"
    disk.close_file(fd)
    convince(disk)
    failing = disk.batch()
    failing.write(fd, [b"abc"], 0)
    disk.submit(failing, results.append, may_block=True)
    assert isinstance(results[1], OSError)
    writer.stop()
