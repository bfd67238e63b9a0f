"""Runs of fast batches: messages that are taken together have the outcome of the same messages one by one."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.cluster.capture._capture import captures
from jetraft.cluster.streams.admission.admit import PublishAdmission
from jetraft.cluster.streams.batches.fast import APPEND, COMMIT, COMMIT_BEFORE, PING, START
from tests.cluster.lab import stream_config
from tests.cluster.streams.admission.test_admit import NOW_NS, Applied, capture, headers
from tests.cluster.streams.batches.test_fast import reply

if TYPE_CHECKING:
    from jetraft.cluster.streams.publishing.publish import Publish

LARGE = b"x" * 200
HEADERS = (b"", b"", b"", b"NATS/1.0\r\nOwn: 1\r\n\r\n", headers(Msg_Id="1"), headers(Required_Api_Level="99"))


@attrs.frozen(kw_only=True)
class Step:
    """One message: of batch a or b, or of none, so far from the next number of its batch."""

    batch: str
    op: int = APPEND
    away: int = 0
    hdr: bytes = b""
    payload: bytes = b"x"


PLAIN = st.builds(Step, batch=st.sampled_from("ab"))
OTHERS = st.builds(
    Step,
    batch=st.sampled_from(["a", "b", ""]),
    op=st.sampled_from([APPEND, APPEND, COMMIT, COMMIT_BEFORE, PING]),
    away=st.sampled_from([0, 0, 0, -1, 1, 2]),
    hdr=st.sampled_from(HEADERS),
    payload=st.sampled_from([b"x", b"x", LARGE]),
)
# A run, mostly, and what may end it: another batch, a header, a gap, an end, a message that is too large.
TURNS = st.lists(
    st.lists(
        st.one_of(
            st.builds(lambda step, times: [step] * times, PLAIN, st.integers(1, 30)), OTHERS.map(lambda one: [one])
        ),
        max_size=6,
    ).map(lambda parts: [step for part in parts for step in part]),
    max_size=4,
)
CONFIGS = st.sampled_from(
    [
        {},
        {"max_msg_size": 100},
        {"max_msgs": 25, "discard": "new"},
        {"max_bytes": 1000, "discard": "new"},
        {"deny_delete": True, "no_ack": True},
    ]
)


class OneByOne(PublishAdmission):
    """An admission that knows no runs of fast batches."""

    def add_fast_run(self, publish: Publish, batch: bytes, start: int, head: bytes, seq: int) -> tuple[int, int]:
        del publish, batch, head, seq
        return start, 0


class Leader:
    """A leader's admission, whose publishes are committed when the test says so."""

    def __init__(self, config: dict[str, Any], *, takes_runs: bool) -> None:
        kind = PublishAdmission if takes_runs else OneByOne
        self.admission = kind(stream_config(allow_batched=True, **config), Applied())
        self.pending: list[Publish] = []
        self.records = b""
        self.answers: dict[str, list[tuple[bytes, Any]]] = defaultdict(list)

    def take(self, captured: bytes) -> None:
        admitted = self.admission.admit(captured, NOW_NS)
        self.pending += admitted.publishes
        self.hear("at once", b"".join(admitted.answers))

    def commit(self) -> None:
        for publish in self.pending:
            self.records += bytes(memoryview(publish.records))
            self.hear("behind it", publish.acks(b"S"))
            self.hear("committed", self.admission.batching.committed(publish))
        self.pending.clear()

    def hear(self, when: str, encoded: bytes) -> None:
        self.answers[when] += [(one.subject, json.loads(one.payload)) for one in captures(encoded)]

    def state(self) -> list[dict[str, Any]]:
        fields = ("batch_id", "flow", "last_seq", "stored_seq", "flow_seq", "stream_seq", "pending", "ends_at")
        return [
            {name: getattr(batch, name) for name in fields} for batch in self.admission.batching._fast._batches.values()
        ]


def encoded(turn: list[Step], sent: dict[str, int], gaps: str, flow: int) -> bytes:
    parts = []
    for step in turn:
        if not step.batch:
            parts.append(capture(hdr=step.hdr, payload=step.payload))
            continue
        seq = max(1, sent.get(step.batch, 0) + 1 + step.away)
        op = START if seq == 1 and step.op in (APPEND, COMMIT_BEFORE) else step.op
        sent[step.batch] = 0 if op in (COMMIT, COMMIT_BEFORE) else seq
        to = reply(seq, op, batch=step.batch, flow=flow, gaps=gaps)
        parts.append(capture(hdr=step.hdr, payload=step.payload, reply=to))
    return b"".join(parts)


def last_of_each_batch(answers: list[tuple[bytes, Any]]) -> dict[bytes, list[Any]]:
    """The answers to each batch, and of acks that follow each other the last one: it says what the others do."""
    found: dict[bytes, list[Any]] = defaultdict(list)
    for to, answer in answers:
        kept = found[to.rsplit(b".", 6)[1] if to.endswith(b".$FI") else to]
        if answer.get("type") == "ack" and kept and kept[-1].get("type") == "ack":
            kept.pop()
        kept.append(answer)
    return found


@settings(max_examples=300)
@given(
    TURNS, CONFIGS, st.sampled_from(["ok", "fail"]), st.sampled_from([1, 2, 10, 600]), st.sampled_from(["turn", "end"])
)
def test_a_run_has_the_outcome_of_its_messages_one_by_one(
    turns: list[list[Step]], config: dict[str, Any], gaps: str, flow: int, commits_at: str
) -> None:
    together, singly = Leader(config, takes_runs=True), Leader(config, takes_runs=False)
    sent: dict[str, int] = {}
    for turn in turns:
        captured = encoded(turn, sent, gaps, flow)
        for leader in (together, singly):
            leader.take(captured)
            if commits_at == "turn":
                leader.commit()
    for leader in (together, singly):
        leader.commit()
    assert together.records == singly.records
    assert together.state() == singly.state()
    assert together.answers["at once"] == singly.answers["at once"]
    assert together.answers["behind it"] == singly.answers["behind it"]
    assert last_of_each_batch(together.answers["committed"]) == last_of_each_batch(singly.answers["committed"])


def test_a_run_costs_one_note_and_one_ack() -> None:
    leader = Leader({}, takes_runs=True)
    leader.take(encoded([Step(batch="a")] * 1000, {}, "ok", 500))
    (publish,) = leader.pending
    assert [one.count for one in publish.in_fast] == [1, 999]
    leader.commit()
    assert [answer["seq"] for _, answer in leader.answers["committed"]] == [1000]
