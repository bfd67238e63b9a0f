"""What waits for its turn: bounds, order, and what is answered together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.api.jetstream import lines as lines_module
from jetraft.api.jetstream.dispatch import find
from jetraft.api.jetstream.lines import READ_WAIT_S, Captured, Job, Line, Lines, is_late
from jetraft.store.model.limits import QueueLimits

if TYPE_CHECKING:
    import pytest

NOW_S = 100.0


class Bench:
    """Lines that are offered requests by name."""

    def __init__(self, limits: QueueLimits | None = None) -> None:
        self.lines = Lines(limits or QueueLimits())

    def offer(self, subject: str, body: bytes = b"", *, client: int = 1, hdr: bytes = b"") -> bool:
        captured = Captured(
            account="$G", subject=b"$JS.API." + subject.encode(), reply=b"r", hdr=hdr, payload=body, client=client
        )
        found = find(captured.subject)
        assert found is not None
        return self.lines.offer(found, captured, NOW_S)

    def lines_ready(self) -> list[Line]:
        return [*self.lines.ready[True], *self.lines.ready[False]]

    def all_jobs(self) -> list[list[Job]]:
        """Take everything, line after line."""
        taken = []
        for reads in (True, False, True):
            while self.lines.ready[reads]:
                line = self.lines.ready[reads].popleft()
                taken.append(self.lines.take(line))
                for job in taken[-1]:
                    for captured in job.asked:
                        self.lines.answered(job.found, captured)
                self.lines.put_back(line)
        return taken


def words(jobs: list[list[Job]]) -> list[list[str]]:
    return [[job.captured.subject.decode().removeprefix("$JS.API.") for job in together] for together in jobs]


def test_equal_reads_that_wait_are_one_job_for_all_who_ask() -> None:
    bench = Bench()
    for _ in range(3):
        bench.offer("STREAM.LIST")
    bench.offer("STREAM.LIST", b'{"offset":1}')
    bench.offer("STREAM.LIST", hdr=b"NATS/1.0\r\nX: y\r\n\r\n")
    assert [len(job.asked) for (job,) in bench.all_jobs()] == [3, 1, 1]
    assert (bench.lines.waiting, bench.lines.waiting_bytes) == (0, 0)


def test_who_asks_when_the_answer_is_being_made_gets_the_next_one() -> None:
    bench = Bench()
    bench.offer("STREAM.LIST")
    (line,) = bench.lines_ready()
    (job,) = bench.lines.take(line)
    bench.offer("STREAM.LIST")
    assert len(job.asked) == 1
    assert [len(one.asked) for one in line.jobs] == [1]


def test_no_read_is_answered_with_what_was_before_a_change_that_stands_before_it() -> None:
    bench = Bench()
    for subject in ("STREAM.INFO.S", "STREAM.INFO.S", "STREAM.PURGE.S", "STREAM.INFO.S"):
        bench.offer(subject)
    taken = bench.all_jobs()
    assert words(taken) == [["STREAM.INFO.S"], ["STREAM.PURGE.S"], ["STREAM.INFO.S"]]
    assert [len(job.asked) for (job,) in taken] == [2, 1, 1]


def test_changes_are_never_answered_together() -> None:
    bench = Bench()
    for _ in range(2):
        bench.offer("STREAM.PURGE.S")
        bench.offer("STREAM.CREATE.S", b"{}")
    assert [len(job.asked) for (job,) in bench.all_jobs()] == [1, 1, 1, 1]


def test_creations_of_different_consumers_are_taken_together() -> None:
    bench = Bench()
    for name in ("a", "b", "a"):
        bench.offer(f"CONSUMER.CREATE.S.{name}", b"{}")
    assert words(bench.all_jobs()) == [["CONSUMER.CREATE.S.a", "CONSUMER.CREATE.S.b"], ["CONSUMER.CREATE.S.a"]]


def test_clients_and_streams_take_turns() -> None:
    bench = Bench()
    for number in range(3):
        bench.offer("STREAM.LIST", b"%d" % number, client=1)
    bench.offer("STREAM.LIST", client=2)
    bench.offer("STREAM.INFO.S", client=2)
    taken = bench.all_jobs()
    assert [(job.captured.client, job.captured.payload) for (job,) in taken] == [
        (1, b"0"),
        (2, b""),
        (2, b""),
        (1, b"1"),
        (1, b"2"),
    ]


def test_a_line_waits_among_the_reads_or_the_changes_as_its_next_job_is_one() -> None:
    bench = Bench()
    bench.offer("STREAM.INFO.S")
    bench.offer("STREAM.PURGE.S")
    line = bench.lines.ready[True].popleft()
    bench.lines.take(line)
    bench.lines.put_back(line)
    assert list(bench.lines.ready[False]) == [line]
    assert not bench.lines.ready[True]


def test_more_than_fits_is_refused_and_there_is_room_again_when_some_are_answered() -> None:
    bench = Bench(QueueLimits(infos=3))
    assert [bench.offer("STREAM.LIST", client=number) for number in range(1, 5)] == [True, True, True, False]
    bench.all_jobs()
    assert bench.offer("STREAM.LIST")


def test_information_and_changes_have_bounds_of_their_own() -> None:
    bench = Bench(QueueLimits(requests=1, infos=2))
    asked = ("STREAM.PURGE.S", "STREAM.MSG.GET.S", "STREAM.INFO.S", "CONSUMER.NAMES.S", "INFO")
    assert [bench.offer(subject, client=client) for client, subject in enumerate(asked)] == [
        True,
        False,
        True,
        True,
        False,
    ]
    bench.all_jobs()
    assert bench.lines.waiting == 0
    assert bench.offer("STREAM.MSG.GET.S")


def test_one_client_finds_no_more_room_where_others_do() -> None:
    bench = Bench(QueueLimits(infos=4))
    assert [bench.offer("STREAM.LIST", client=client) for client in (1, 1, 1, 2)] == [True, True, False, True]
    bench.all_jobs()
    assert bench.offer("STREAM.LIST", client=1)


def test_what_waits_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "WAITING_BYTES_MAX", 1000)
    bench = Bench()
    assert [bench.offer("STREAM.CREATE.S", b"x" * 400) for _ in range(3)] == [True, True, False]
    bench.all_jobs()
    assert bench.offer("STREAM.CREATE.S", b"x" * 400)


def test_reads_are_late_after_a_while_and_changes_never() -> None:
    bench = Bench()
    bench.offer("STREAM.LIST")
    bench.offer("STREAM.PURGE.S")
    ((read,), (change,)) = bench.all_jobs()
    assert not is_late(read, NOW_S + READ_WAIT_S)
    assert is_late(read, NOW_S + READ_WAIT_S + 0.1)
    assert not is_late(change, NOW_S + 1000)


def test_so_many_creations_are_taken_together_as_there_is_work_for() -> None:
    bench = Bench()
    for number in range(5):
        bench.offer(f"CONSUMER.CREATE.S.c{number}", b"{}")
    (line,) = bench.lines_ready()
    assert len(bench.lines.take(line, 2)) == 2
    assert len(bench.lines.take(line, 0)) == 1
    assert len(bench.lines.take(line)) == 2


class GetBench(Bench):
    """Lines with gets that are begun without a task."""

    def begin(self, seq: int, stream: str = "S") -> Job | None:
        captured = Captured(
            account="$G",
            subject=b"$JS.API.STREAM.MSG.GET." + stream.encode(),
            reply=b"r",
            hdr=b"",
            payload=b'{"seq":%d}' % seq,
            client=1,
        )
        found = find(captured.subject)
        assert found is not None
        return self.lines.begin_get(found, captured, NOW_S)

    def end(self, job: Job | None, *, is_to_wait: bool = False) -> list[bytes]:
        assert job is not None
        if not is_to_wait:
            self.lines.answered(job.found, job.captured)
        return [one.captured.payload for one in self.lines.end_get(job, is_to_wait=is_to_wait)]


def test_gets_of_a_stream_begin_together_and_are_counted_until_they_end() -> None:
    bench = GetBench()
    first, second = bench.begin(1), bench.begin(2)
    assert bench.lines.waiting == 2
    assert bench.end(first) == bench.end(second) == []
    assert (bench.lines.waiting, bench.lines.waiting_bytes) == (0, 0)
    assert bench.lines_ready() == []


def test_a_change_waits_for_the_gets_before_it_and_the_gets_behind_it_wait_for_the_change() -> None:
    bench = GetBench()
    first, second = bench.begin(1), bench.begin(2)
    assert bench.offer("STREAM.PURGE.S")
    assert bench.begin(3) is None
    assert bench.offer("STREAM.MSG.GET.S", b'{"seq":3}')
    assert bench.end(first) == []
    assert bench.lines_ready() == []
    assert bench.end(second) == []
    assert words(bench.all_jobs()) == [["STREAM.PURGE.S"], ["STREAM.MSG.GET.S"]]
    assert bench.begin(4) is not None


def test_a_get_does_not_pass_a_request_that_a_worker_executes() -> None:
    bench = GetBench()
    bench.offer("STREAM.PURGE.S")
    line = bench.lines.ready[False].popleft()
    bench.lines.take(line)
    assert bench.begin(1) is None
    assert bench.begin(1, "T") is not None


def test_gets_beyond_the_bound_wait_and_begin_when_those_before_them_have_ended() -> None:
    bench = GetBench()
    begun = [bench.begin(seq) for seq in range(lines_module.GETS_MAX)]
    assert None not in begun
    assert bench.begin(99) is None
    assert bench.begin(99, "T") is None
    assert bench.offer("STREAM.MSG.GET.S", b'{"seq":99}')
    assert [bench.end(job) for job in begun] == [[]] * (len(begun) - 1) + [[b'{"seq":99}']]


def test_a_get_that_has_to_wait_comes_before_what_came_after_it() -> None:
    bench = GetBench()
    job = bench.begin(1)
    bench.offer("STREAM.PURGE.S")
    assert bench.end(job, is_to_wait=True) == []
    assert words(bench.all_jobs()) == [["STREAM.MSG.GET.S"], ["STREAM.PURGE.S"]]
    assert bench.lines.waiting == 0
