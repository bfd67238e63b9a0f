"""STREAM.MSG.GET without a task: what is answered in the turn, and what goes the way of all requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs
import orjson

from jetraft.api.jetstream.dispatch import find
from jetraft.api.jetstream.lines import GETS_MAX, Captured, Job, Lines
from jetraft.api.jetstream.prompt_gets import PromptGets
from jetraft.raft.proposals import Done, Outcome
from jetraft.store.model import errors
from jetraft.store.stream.stream_store import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.cluster.ports import Outbox
    from jetraft.cluster.streams.replica import StreamReplica
    from jetraft.store.model.requests import JSApiMsgGetRequest


class LedReplica:
    """A replica that leads: reads are confirmed when the test says so. It is its own group."""

    def __init__(self) -> None:
        self.waiting: list[Done] = []
        self.fails: Exception | None = None

    @property
    def group(self) -> LedReplica:
        return self

    def read_barrier(self, done: Done) -> None:
        self.waiting.append(done)

    def message_asked_for(self, request: JSApiMsgGetRequest) -> StoredMessage:
        if self.fails is not None:
            raise self.fails
        if request.seq > 100:
            raise errors.NO_MESSAGE_FOUND.with_values()
        return StoredMessage(seq=request.seq, ts_ns=0, subject=b"s", hdr=b"", payload=b"x")

    def confirm(self, outcome: Outcome = Outcome.OK) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(outcome, None)


@attrs.define
class Turn:
    """The outbox: what is to be done later in the turn."""

    later_calls: list[Callable[[], None]] = attrs.field(factory=list)

    def later(self, callback: Callable[[], None]) -> None:
        self.later_calls.append(callback)

    def end(self) -> None:
        calls, self.later_calls = self.later_calls, []
        for call in calls:
            call()


class Bench:
    """Gets over a replica; `answers` are (body of the request, answer)."""

    def __init__(self) -> None:
        self.lines, self.turn, self.replica = Lines(), Turn(), LedReplica()
        self.leads = True
        self.answers: list[tuple[bytes, dict[str, object]]] = []
        self.resumed = 0
        self.gets = PromptGets(
            self.lines,
            leading=self,
            outbox_of=lambda _account: cast("Outbox", self.turn),
            send=self._send,
            resume=self._resume,
        )

    def led_here(self, account: str, stream: str) -> StreamReplica | None:
        assert (account, stream) == ("$G", "S")
        return cast("StreamReplica", self.replica) if self.leads else None

    def _send(self, job: Job, body: bytes) -> None:
        self.lines.answered(job.captured)
        self.answers.append((job.captured.payload, orjson.loads(body)))

    def _resume(self) -> None:
        self.resumed += 1

    def begin(self, body: bytes, subject: str = "STREAM.MSG.GET.S", hdr: bytes = b"") -> bool:
        captured = Captured(
            account="$G", subject=b"$JS.API." + subject.encode(), reply=b"r", hdr=hdr, payload=body, client=1
        )
        found = find(captured.subject)
        assert found is not None
        return self.gets.begin(found, captured, 1.0) or not self.lines.offer(found, captured, 1.0)

    def confirm(self, outcome: Outcome = Outcome.OK) -> None:
        self.replica.confirm(outcome)
        self.turn.end()


def test_a_get_is_answered_when_it_is_confirmed_that_the_replica_leads_and_later_in_that_turn() -> None:
    bench = Bench()
    assert bench.begin(b'{"seq":7}')
    assert len(bench.replica.waiting) == 1
    bench.replica.confirm()
    assert bench.answers == []  # nothing is read inside of a group's turn
    bench.turn.end()
    ((_, answer),) = bench.answers
    assert answer["type"] == "io.nats.jetstream.api.v1.stream_msg_get_response"
    assert cast("dict[str, object]", answer["message"])["seq"] == 7
    assert bench.lines.waiting == 0


def test_errors_are_answers_too() -> None:
    bench = Bench()
    for body in (b"", b"{", b"{}", b'{"seq":101}', b'{"seq":1,"last_by_subj":"s"}'):
        assert bench.begin(body)
    assert bench.begin(b'{"seq":1}', hdr=b"NATS/1.0\r\nNats-Required-Api-Level: 999\r\n\r\n")
    bench.confirm()
    codes = [cast("dict[str, int]", answer["error"])["err_code"] for _, answer in bench.answers]
    assert codes == [10003, 10025, 10003, 10037, 10003, 10185]


def test_a_bug_in_one_get_is_answered_with_an_error_and_no_other_get_notices() -> None:
    bench = Bench()
    bench.replica.fails = KeyError("bug")
    assert bench.begin(b'{"seq":1}')
    bench.confirm()
    bench.replica.fails = None
    assert bench.begin(b'{"seq":2}')
    bench.confirm()
    assert [("error" in answer) for _, answer in bench.answers] == [True, False]


def test_other_requests_and_streams_that_are_led_elsewhere_wait_in_lines() -> None:
    bench = Bench()
    assert not bench.begin(b"", "STREAM.INFO.S")
    bench = Bench()
    bench.leads = False
    assert not bench.begin(b'{"seq":1}')
    assert bench.replica.waiting == []


def test_gets_whose_leader_is_deposed_wait_for_the_next_one() -> None:
    bench = Bench()
    for seq in (1, 2):
        assert bench.begin(b'{"seq":%d}' % seq)
    bench.leads = False
    bench.confirm(Outcome.REFUSED)
    assert bench.answers == []
    assert (bench.lines.waiting, bench.resumed) == (2, 2)
    (line,) = bench.lines.ready[True]
    assert len(line.jobs) == 2


def test_gets_that_waited_for_a_place_are_confirmed_after_they_begin() -> None:
    bench = Bench()
    for seq in range(GETS_MAX):
        assert bench.begin(b'{"seq":%d}' % (seq + 1))
    assert not bench.begin(b'{"seq":50}')
    bench.confirm()
    assert len(bench.answers) == GETS_MAX
    assert len(bench.replica.waiting) == 1
    bench.confirm()
    assert bench.answers[-1][0] == b'{"seq":50}'
    assert bench.lines.waiting == 0


def test_a_get_that_waited_while_leadership_went_away_waits_in_its_line() -> None:
    bench = Bench()
    for seq in range(GETS_MAX):
        assert bench.begin(b'{"seq":%d}' % (seq + 1))
    assert not bench.begin(b'{"seq":50}')
    bench.replica.confirm()
    bench.leads = False
    bench.turn.end()
    assert len(bench.answers) == GETS_MAX
    (line,) = bench.lines.ready[True]
    assert [job.captured.payload for job in line.jobs] == [b'{"seq":50}']
