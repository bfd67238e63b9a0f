"""STREAM.MSG.GET without a task: what is answered in the turn, and what goes the way of all requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs
import orjson
import pytest

from jetraft.api.jetstream.dispatch import find
from jetraft.api.jetstream.lines import GETS_MAX, Captured, Job, Lines
from jetraft.api.jetstream.prompt_gets import PromptGets
from jetraft.cluster.calls.messages.forwarding import ForwardedAnswer, ForwardStatus
from jetraft.cluster.calls.messages.gets import GET, GET_BYTES_MAX, ForwardedGet
from jetraft.cluster.requests.locator import LeaderElsewhere
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.proposals import Done, Outcome
from jetraft.store.model.ids import NodeId
from jetraft.store.stream.stream_store import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.cluster.streams.replica.replica import StreamReplica


B = NodeId("b")
FOLLOWED = LeaderElsewhere(B, 7, 3)
GET_ONE = ForwardedGet(account="$G", stream="S", incarnation=7, term=3, hdr=b"", payload=b'{"seq":1}')


class LedReplica:
    """A replica that leads: reads are confirmed when the test says so. It is its own group and store."""

    incarnation = 7

    def __init__(self) -> None:
        self.machine = self.store = self
        self.config = None
        self.waiting: list[Done] = []
        self.words: list[tuple[NodeId, int] | None] = []
        self.fails: Exception | None = None

    @property
    def group(self) -> LedReplica:
        return self

    def read_barrier(self, done: Done, *, word: tuple[NodeId, int] | None = None) -> None:
        self.waiting.append(done)
        self.words.append(word)

    def load(self, seq: int) -> StoredMessage | None:
        """Of its store."""
        if self.fails is not None:
            raise self.fails
        return StoredMessage(seq=seq, ts_ns=0, subject=b"s", hdr=b"", payload=b"x") if seq <= 100 else None

    def confirm(self, outcome: Outcome = Outcome.OK) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(outcome, None)


@attrs.define(slots=False)
class Mesh:
    """Keeps what is asked until the test answers."""

    asked: list[tuple[NodeId, ForwardedGet, Callable[[bytes | None], None]]] = attrs.field(factory=list)
    is_linked: bool = True

    def serve_at_once(self, method: str, handler: Callable[..., None]) -> None:
        assert method == GET
        self.handler = handler

    def ask(self, to: NodeId, method: str, payload: bytes, done: Callable[[bytes | None], None]) -> bool:
        assert method == GET
        if self.is_linked:
            self.asked.append((to, ForwardedGet.unpack(payload), done))
        return self.is_linked

    def answer(self, packed: bytes | None) -> None:
        self.asked.pop(0)[2](packed)


@attrs.define
class Turn:
    """What is to be done later in the turn."""

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
        self.lines, self.turn, self.replica, self.mesh = Lines(), Turn(), LedReplica(), Mesh()
        self.leads = True
        self.leader: LeaderElsewhere | None = None
        self.answers: list[tuple[bytes, dict[str, object]]] = []
        self.resumed = 0
        self.asked_at_send: list[int] = []  # how many questions were on their way when the turn's messages were sent
        self.gets = PromptGets(
            self.lines,
            leaders=self,
            calls=self.mesh,
            later=self.turn.later,
            send_early=self._send_early,
            send=self._send,
            resume=self._resume,
        )

    def led_here(self, account: str, stream: str) -> StreamReplica | None:
        assert (account, stream) == ("$G", "S")
        return cast("StreamReplica", self.replica) if self.leads else None

    def followed(self, account: str, name: str) -> LeaderElsewhere | None:
        assert (account, name) == ("$G", "S")
        return self.leader

    def serve(self, asked: ForwardedGet) -> list[ForwardedAnswer]:
        """What another node is answered, as it comes."""
        answers: list[ForwardedAnswer] = []
        self.mesh.handler(B, asked.pack(), lambda packed: answers.append(ForwardedAnswer.unpack(packed)))
        return answers

    def _send(self, job: Job, body: bytes) -> None:
        self.lines.answered(job.found, job.captured)
        self.answers.append((job.captured.payload, orjson.loads(body)))

    def _send_early(self) -> None:
        self.asked_at_send.append(len(self.mesh.asked))

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


def following_bench() -> Bench:
    bench = Bench()
    bench.leads, bench.leader = False, FOLLOWED
    return bench


def test_a_get_at_a_follower_goes_to_the_leader_with_the_followers_word() -> None:
    bench = following_bench()
    assert bench.begin(b'{"seq":1}')
    ((to, asked, _),) = bench.mesh.asked
    assert (to, asked) == (B, GET_ONE)
    assert bench.asked_at_send == [0], "what the client has published in this turn goes before the question"
    bench.mesh.answer(ForwardedAnswer(status=ForwardStatus.DONE, body=b'{"message":1}').pack())
    assert bench.answers == [(b'{"seq":1}', {"message": 1})]
    assert bench.lines.waiting == 0


@pytest.mark.parametrize("answer", [None, b"", b"\x09", ForwardedAnswer(status=ForwardStatus.MOVED).pack(), b"\x02"])
def test_a_get_that_the_leader_does_not_answer_waits_in_its_line(answer: bytes | None) -> None:
    bench = following_bench()
    assert bench.begin(b'{"seq":1}')
    bench.mesh.answer(answer)
    assert bench.answers == []
    (line,) = bench.lines.ready[True]
    assert [job.captured.payload for job in line.jobs] == [b'{"seq":1}']
    assert bench.resumed == 1


def test_a_get_whose_leader_cannot_be_asked_waits_in_its_line_and_so_does_a_long_one() -> None:
    bench = following_bench()
    assert not bench.begin(b" " * GET_BYTES_MAX)
    bench = following_bench()
    bench.mesh.is_linked = False
    assert bench.begin(b'{"seq":1}')
    (line,) = bench.lines.ready[True]
    assert len(line.jobs) == 1


def test_the_leader_answers_another_node_and_counts_its_word() -> None:
    bench = Bench()
    answers = bench.serve(GET_ONE)
    assert bench.replica.words == [(B, 3)]
    bench.confirm()
    (answer,) = answers
    assert answer.status is ForwardStatus.DONE
    assert orjson.loads(answer.body)["message"]["seq"] == 1


def test_the_word_about_an_earlier_stream_of_this_name_does_not_count() -> None:
    bench = Bench()
    bench.serve(attrs.evolve(GET_ONE, incarnation=6))
    assert bench.replica.words == [None]


def test_who_does_not_lead_or_is_deposed_answers_that_it_does_not_lead() -> None:
    bench = Bench()
    answers = bench.serve(GET_ONE)
    bench.confirm(Outcome.REFUSED)
    assert [answer.status for answer in answers] == [ForwardStatus.MOVED]
    bench.leads = False
    assert [answer.status for answer in bench.serve(GET_ONE)] == [ForwardStatus.MOVED]
    with pytest.raises(RemoteProtocolError):
        bench.mesh.handler(B, b"garbage", lambda _packed: None)
