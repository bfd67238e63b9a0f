"""The writer threads and the local disk, on real files."""

import errno
import os
import select
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk._writer import Batch as FileBatch
from jetraft.store.disk.io import LocalDisk, Writer, run_blocking
from jetraft.store.frames import _frame
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, HardState
from tests.harness.patience import PATIENCE_S
from tests.store.ledgers import ledger_of

IDENTITY = Identity(node_id=NodeId("N1234567"), group_id=GroupId("S-R1F-abcdefgh"), incarnation=7)


@pytest.fixture
def writer() -> Iterator[Writer]:
    writer = Writer(threads=2)
    yield writer
    if writer.fileno() >= 0:
        writer.stop()


@pytest.fixture
def disk(writer: Writer) -> LocalDisk:
    return LocalDisk(writer)


def wait_for(writer: Writer, done: list[OSError | None], count: int) -> None:
    while len(done) < count:
        assert select.select([writer], [], [], 10)[0]
        writer.drain()


def test_operations_are_done_in_order(tmp_path: Path, writer: Writer, disk: LocalDisk) -> None:
    fd = disk.open_file(tmp_path / "a.tmp", create=True)
    directory = disk.open_directory(tmp_path)
    batch = disk.batch()
    batch.allocate(fd, 8192)
    batch.write(fd, [b"one", b"", b"two"] + [b"x"] * 3000, 100)
    batch.sync_data(fd)
    batch.truncate(fd, 3106)
    batch.rename(bytes(tmp_path / "a.tmp"), bytes(tmp_path / "a"))
    batch.sync(directory)
    done: list[OSError | None] = []

    disk.submit(batch, done.append)
    wait_for(writer, done, 1)

    assert done == [None]
    assert (tmp_path / "a").read_bytes() == bytes(100) + b"onetwo" + b"x" * 3000
    assert disk.read(fd, 10, 3100) == b"x" * 6
    disk.close_file(fd)
    disk.close_file(directory)


def test_a_thread_is_started_when_a_batch_comes_and_none_is_idle(tmp_path: Path) -> None:
    writer = Writer(threads=4)
    disk = LocalDisk(writer)
    done: list[OSError | None] = []
    fds = [disk.open_file(tmp_path / str(number), create=True) for number in range(24)]

    def submit(fd: int) -> None:
        batch = disk.batch()
        batch.write(fd, [b"x" * 5000], 0)
        batch.sync(fd)
        disk.submit(batch, done.append)

    for number, fd in enumerate(fds[:5], start=1):
        submit(fd)
        wait_for(writer, done, number)
    assert writer.statistics().threads == 1
    for fd in fds:
        submit(fd)
    wait_for(writer, done, 5 + len(fds))
    assert 2 <= writer.statistics().threads <= 4
    assert done == [None] * 29
    writer.stop()
    for fd in fds:
        disk.close_file(fd)


def test_batches_that_are_submitted_at_once_are_performed_by_all_idle_threads(tmp_path: Path) -> None:
    """One thread is woken for all of them; it wakes the next before it begins."""
    writer = Writer(threads=3)
    disk = LocalDisk(writer)
    done: list[str] = []
    fds = [disk.open_file(tmp_path / str(number), create=True) for number in range(3)]

    def submit(fd: int, name: str, *, writes: int) -> None:
        batch = disk.batch()
        for number in range(writes):
            batch.write(fd, [b"x" * 100_000], number * 100_000)
            batch.sync(fd)
        disk.submit(batch, lambda error: done.append(f"{name} {error}"))

    def wait(count: int) -> None:
        while len(done) < count:
            assert select.select([writer], [], [], PATIENCE_S)[0]
            writer.drain()

    for fd in fds:
        submit(fd, "first", writes=20)
    wait(3)
    assert writer.statistics().threads == 3
    for turn in range(10):  # a thread that comes between two submissions hides what this is about
        done.clear()
        submit(fds[0], "long", writes=50)
        submit(fds[1], "long", writes=50)
        submit(fds[2], "short", writes=1)
        wait(3)
        assert done[0] == "short None", turn
    writer.stop()
    for fd in fds:
        disk.close_file(fd)


def test_a_batch_for_many_logs_goes_ahead_of_those_that_wait(tmp_path: Path) -> None:
    """The ledger's has the votes of a thousand groups: it must not wait for a thousand logs."""
    writer = Writer(threads=1)
    disk = LocalDisk(writer)
    done: list[str] = []
    fds = [disk.open_file(tmp_path / str(number), create=True) for number in range(200)]

    def submit(fd: int, name: str, *, ahead: bool) -> None:
        batch = disk.batch()
        batch.write(fd, [b"x" * 20_000], 0)
        batch.sync(fd)

        def called(error: OSError | None) -> None:
            assert error is None
            done.append(name)

        disk.submit(batch, called, ahead=ahead)

    for fd in fds:
        submit(fd, "a log", ahead=False)
    submit(fds[0], "the ledger", ahead=True)
    writer.stop()
    for fd in fds:
        disk.close_file(fd)
    assert len(done) == 201
    assert done.index("the ledger") < 150, "at the place that the thread had come to"


def test_what_a_callback_submits_while_the_writer_stops_is_dropped(tmp_path: Path) -> None:
    writer = Writer(threads=2)
    disk = LocalDisk(writer)
    fd = disk.open_file(tmp_path / "a", create=True)
    done: list[str] = []

    def submit(text: str, then: str | None) -> None:
        batch = disk.batch()
        batch.write(fd, [text.encode()], 0)
        batch.sync_data(fd)

        def called(error: OSError | None) -> None:
            assert error is None
            done.append(text)
            if then is not None:
                submit(then, None)

        disk.submit(batch, called)

    submit("one", "two")
    writer.stop()

    assert done == ["one"]
    assert (tmp_path / "a").read_bytes() == b"one"
    disk.close_file(fd)


def test_batch_stops_at_the_first_failure(tmp_path: Path, writer: Writer, disk: LocalDisk) -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    batch = disk.batch()
    batch.write(fd, [b"x"], 0)
    batch.unlink(bytes(tmp_path))
    done: list[OSError | None] = []
    disk.submit(batch, done.append)
    wait_for(writer, done, 1)
    os.close(fd)
    assert done[0] is not None
    assert (done[0].errno, done[0].strerror) == (errno.ENOSPC, "write: No space left on device")
    assert tmp_path.exists()
    assert writer.statistics().batches_failed == 1


def test_performed_batch_raises(tmp_path: Path, disk: LocalDisk) -> None:
    batch = disk.batch()
    batch.rename(bytes(tmp_path / "missing"), bytes(tmp_path / "other"))
    with pytest.raises(FileNotFoundError, match="rename"):
        disk.perform(batch)


def test_a_file_that_is_gone_already_is_removed_without_an_error(tmp_path: Path, disk: LocalDisk) -> None:
    batch = disk.batch()
    batch.unlink(bytes(tmp_path / "missing"))
    disk.perform(batch)
    batch = disk.batch()
    batch.unlink(bytes(tmp_path))
    with pytest.raises(OSError, match="unlink"):
        disk.perform(batch)


def test_stop_finishes_what_is_queued(tmp_path: Path, writer: Writer, disk: LocalDisk) -> None:
    fd = disk.open_file(tmp_path / "a", create=True)
    done: list[OSError | None] = []
    for number in range(50):
        batch = disk.batch()
        batch.write(fd, [b"%02d" % number], number * 2)
        batch.sync_data(fd)
        disk.submit(batch, done.append)
    writer.stop()
    assert done == [None] * 50
    assert len((tmp_path / "a").read_bytes()) == 100
    disk.close_file(fd)


def test_callback_may_submit(tmp_path: Path, writer: Writer, disk: LocalDisk) -> None:
    fd = disk.open_file(tmp_path / "a", create=True)
    done: list[OSError | None] = []

    def again(error: OSError | None) -> None:
        done.append(error)
        if len(done) < 3:
            batch = disk.batch()
            batch.sync(fd)
            disk.submit(batch, again)

    disk.submit(disk.batch(), again)
    wait_for(writer, done, 3)
    assert done == [None, None, None]
    disk.close_file(fd)


def test_a_follower_is_done_after_its_predecessor_by_whichever_thread(
    tmp_path: Path, writer: Writer, disk: LocalDisk
) -> None:
    done: list[OSError | None] = []
    fd = disk.open_file(tmp_path / "a", create=True)
    for round_number in range(200):
        first, second = disk.batch(), disk.batch()
        first.write(fd, [b"1" * 4096], 0)
        second.write(fd, [b"2" * 4096], 0)
        disk.submit(first, done.append)
        if round_number % 2:
            select.select([writer], [], [], 10)  # finished, not drained
        disk.follow(second, done.append, first)
        wait_for(writer, done, 2 * round_number + 2)
        assert disk.read(fd, 1, 0) == b"2"
    assert not any(done)
    disk.close_file(fd)


def test_gathered_batches_are_queued_at_the_end_but_for_one_that_goes_ahead(
    tmp_path: Path, writer: Writer, disk: LocalDisk
) -> None:
    done: list[str] = []
    fds = [disk.open_file(tmp_path / str(number), create=True) for number in range(20)]

    def batch_of(fd: int, data: bytes) -> FileBatch:
        batch = disk.batch()
        batch.write(fd, [data], 0)
        batch.sync(fd)
        return batch

    def wait(count: int) -> None:
        while len(done) < count:
            assert select.select([writer], [], [], PATIENCE_S)[0]
            writer.drain()

    with writer.gathering():
        for fd in fds:
            disk.submit(batch_of(fd, b"kept"), lambda error: done.append(f"kept {error}"))
        first = batch_of(fds[0], b"first")
        disk.submit(first, lambda error: done.append(f"first {error}"))
        disk.follow(batch_of(fds[0], b"second"), lambda error: done.append(f"second {error}"), first)
        disk.submit(batch_of(fds[1], b"ahead"), lambda error: done.append(f"ahead {error}"), ahead=True)
        wait(1)
        assert done == ["ahead None"]
        assert all(not disk.read(fd, 4, 0) for fd in fds[2:])
    wait(len(fds) + 3)
    assert done.count("kept None") == len(fds)
    assert done.index("first None") < done.index("second None")
    assert disk.read(fds[0], 6, 0) == b"second"
    for fd in fds:
        disk.close_file(fd)


def test_a_follower_of_a_failure_does_nothing_and_fails_alike(tmp_path: Path, writer: Writer, disk: LocalDisk) -> None:
    for waits in (False, True):
        done: list[OSError | None] = []
        fd = disk.open_file(tmp_path / "a", create=True)
        first, second = disk.batch(), disk.batch()
        first.rename(bytes(tmp_path / "missing"), bytes(tmp_path / "other"))
        second.write(fd, [b"2"], 0)
        disk.submit(first, done.append)
        if waits:
            select.select([writer], [], [], 10)
        disk.follow(second, done.append, first)
        wait_for(writer, done, 2)
        assert [error.errno for error in done if error] == [errno.ENOENT, errno.ENOENT]
        assert disk.size(fd) == 0
        disk.close_file(fd)


def test_one_background_batch_at_a_time(tmp_path: Path, writer: Writer, disk: LocalDisk) -> None:
    done: list[OSError | None] = []
    fd = disk.open_file(tmp_path / "a", create=True)
    for offset in range(10):
        batch = disk.batch()
        batch.write(fd, [b"x"], offset)
        disk.submit(batch, done.append, background=True)
        assert writer.statistics().batches_in_flight == 1
    wait_for(writer, done, 10)
    assert disk.read(fd, 20, 0) == b"x" * 10
    disk.close_file(fd)


def test_symbolic_link_is_not_followed(tmp_path: Path, disk: LocalDisk) -> None:
    (tmp_path / "target").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic"):
        disk.open_file(tmp_path / "link")


def test_made_directories_are_named_for_syncing(tmp_path: Path, disk: LocalDisk) -> None:
    assert disk.make_directory(tmp_path / "a" / "b") == [tmp_path / "a", tmp_path]
    assert disk.make_directory(tmp_path / "a" / "b") == []
    assert disk.list_directory(tmp_path / "none") == []


async def test_blocking_calls_run_in_a_thread() -> None:
    assert await run_blocking(lambda: 5) == 5


async def test_log_on_real_files_comes_back(tmp_path: Path, writer: Writer, disk: LocalDisk) -> None:
    def opened() -> FileLog:
        return open_log(
            ledger_of(disk, tmp_path / "groups" / "g"),
            tmp_path / "groups" / "g",
            IDENTITY,
            BlockCache(bytes_max=1 << 16),
        )

    async def durable(log: FileLog) -> None:
        log.submit()
        with trio.fail_after(PATIENCE_S):
            while log.durable_token < log.token():
                await trio.lowlevel.wait_readable(writer.fileno())
                writer.drain()

    entries = []
    for index in range(1, 200):
        frame = _frame.seal(Kind.NOOP, index=index, term=1, incarnation=7, body=bytes(5000))
        entries.append(Entry(index=index, term=1, kind=Kind.NOOP, frame=frame))
    log = opened()
    for start in range(0, 199, 20):
        log.append(entries[start : start + 20])
        log.set_hard_state(HardState(term=start, vote=NodeId("AAAAAAAA")))
        await durable(log)
    log.save_checkpoint(150, 1, b"m", b"s")
    await durable(log)
    assert log.entries(1, 199, 1 << 30) == entries
    log.close()

    log = await run_blocking(opened)

    assert log.entries(1, 199, 1 << 30) == entries
    assert log.hard_state == HardState(term=180, vote=NodeId("AAAAAAAA"))
    assert log.trim(1 << 62, 150) > 0
    await durable(log)
    assert [entry for _, entry in log.frames(1, 199)] == entries[log.first_index - 1 :]
    log.close()


def test_what_is_written_may_be_made_in_the_thread_that_writes_it(
    tmp_path: Path, writer: Writer, disk: LocalDisk
) -> None:
    threads: list[int] = []

    def made() -> bytes:
        threads.append(threading.get_ident())
        return b"made" * 1000

    fd = disk.open_file(tmp_path / "a", create=True)
    batch, done = disk.batch(), list[OSError | None]()
    batch.write(fd, [b"before"], 0)
    batch.write_made(fd, made, 6)
    disk.submit(batch, done.append)
    wait_for(writer, done, 1)

    assert done == [None]
    assert (tmp_path / "a").read_bytes() == b"before" + b"made" * 1000
    assert threads != [threading.get_ident()]
    assert len(threads) == 1
    disk.close_file(fd)


@pytest.mark.parametrize(("failure", "code"), [(MemoryError(), errno.ENOMEM), (ValueError("no"), errno.EIO)])
def test_what_cannot_be_made_is_a_failed_write(
    tmp_path: Path, writer: Writer, disk: LocalDisk, failure: Exception, code: int
) -> None:
    def made() -> bytes:
        raise failure

    fd = disk.open_file(tmp_path / "a", create=True)
    batch, done = disk.batch(), list[OSError | None]()
    batch.write_made(fd, made, 0)
    batch.write(fd, [b"after"], 0)
    disk.submit(batch, done.append)
    wait_for(writer, done, 1)

    assert done[0] is not None
    assert done[0].errno == code
    assert (tmp_path / "a").read_bytes() == b""
    disk.close_file(fd)


def test_what_files_take_is_counted_at_any_depth_and_through_no_link(tmp_path: Path, disk: LocalDisk) -> None:
    deep = tmp_path / "store" / "a" / "b"
    deep.mkdir(parents=True)
    files = [tmp_path / "store" / "top", deep / "one", deep / "two"]
    for number, path in enumerate(files, 1):
        path.write_bytes(b"x" * 10_000 * number)
    (deep / "round").symlink_to(tmp_path / "store")
    (deep / "nowhere").symlink_to(tmp_path / "gone")
    expected = sum(path.stat().st_blocks * 512 for path in files)
    assert expected >= 60_000
    assert disk.used_bytes(tmp_path / "store") == expected
    assert disk.used_bytes(files[0]) == files[0].stat().st_blocks * 512
    assert disk.used_bytes(tmp_path / "gone") == 0
