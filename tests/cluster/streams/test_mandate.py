"""What a replica may do, on which evidence, and that all of it ends in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.streams.gets.direct import NO_RESPONDERS
from jetraft.cluster.streams.mandate import Evidence, Mandate
from jetraft.cluster.streams.replica.replica import StreamReplica
from jetraft.raft.freshness import ENDLESS_NS, Freshness
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.message import get
from tests.cluster.lab import Node, assignment_of, stream_config

if TYPE_CHECKING:
    from tests.cluster.lab import Sent


def fresh(until_ns: int) -> Freshness:
    freshness = Freshness()
    freshness.until_ns = until_ns
    return freshness


@pytest.mark.parametrize(
    ("is_row_current", "is_sound", "until_ns", "may_lead", "may_read", "why_not"),
    [
        (True, True, ENDLESS_NS, True, True, ""),
        (True, True, 10, True, True, ""),
        (True, True, 9, True, False, "it has been behind, or without a leader, for too long"),
        (True, True, 0, True, False, "it has not had all that its leader has committed yet"),
        (False, True, ENDLESS_NS, False, False, "the meta group has not confirmed that it is assigned here"),
        (True, False, ENDLESS_NS, False, False, "its log has failed"),
        (False, False, 0, False, False, "its log has failed"),
    ],
)
def test_rights_follow_from_the_evidence(  # noqa: PLR0913  (a table's columns)
    *, is_row_current: bool, is_sound: bool, until_ns: int, may_lead: bool, may_read: bool, why_not: str
) -> None:
    mandate = Mandate(fresh(until_ns), lapsed=lambda: None)
    mandate.weigh(Evidence(is_row_current=is_row_current, is_sound=is_sound))
    found = mandate.statistics(10)
    assert (mandate.may_lead, mandate.may_read(10)) == (found.may_lead, found.may_read) == (may_lead, may_read)
    assert found.why_not == why_not


def test_a_new_mandate_allows_nothing() -> None:
    mandate = Mandate(fresh(ENDLESS_NS), lapsed=lambda: None)
    assert not mandate.may_lead
    assert not mandate.may_read(0)


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from([0, 5, ENDLESS_NS]))), st.integers(1, 10))
def test_nothing_but_the_newest_evidence_counts(history: list[tuple[bool, bool, int]], now_ns: int) -> None:
    freshness = Freshness()
    mandate = Mandate(freshness, lapsed=lambda: None)
    for is_row_current, is_sound, until_ns in history:
        freshness.until_ns = until_ns
        had = mandate.may_lead
        changed = mandate.weigh(Evidence(is_row_current=is_row_current, is_sound=is_sound))
        assert changed is (had is not mandate.may_lead)
        assert mandate.may_lead is (is_row_current and is_sound)
        assert mandate.may_read(now_ns) is (mandate.may_lead and now_ns <= until_ns)


@attrs.define
class Stage:
    """A stream of one replica whose row a test confirms and withdraws."""

    node: Node = attrs.field(factory=Node)
    is_row_current: bool = True
    replica: StreamReplica = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.node.site = attrs.evolve(self.node.site, is_row_current=lambda _row: self.is_row_current)
        row = assignment_of(self.node, stream_config(allow_direct=True))
        self.replica = StreamReplica.start(assignment=row, log=MemLog(), site=self.node.site)
        self.node.sleep(2 * NS_PER_S)

    def weigh(self, *, is_row_current: bool) -> None:
        self.is_row_current = is_row_current
        self.replica.weigh()

    def publish(self, payload: bytes) -> list[bytes]:
        self.node.publish(b"s.a", payload, reply=b"_INBOX.p")
        return [sent.payload for sent in self.node.sleep(1000)]

    def get(self, seq: int) -> list[Sent]:
        self.node.publish(b"$JS.API.DIRECT.GET.S", b'{"seq":%d}' % seq, reply=b"_INBOX.g")
        return self.node.sleep(1000)


def test_everything_ends_with_the_row_and_begins_with_it() -> None:
    stage = Stage()
    assert stage.publish(b"one") == [b'{"stream":"S","seq":1}']
    sinks = set(stage.node.sinks)
    stage.weigh(is_row_current=False)
    assert stage.node.sinks == {}, "neither publishes, pulls and acks nor gets are captured"
    assert not stage.replica.is_leader
    assert not stage.publish(b"two")
    assert not stage.get(1)
    assert stage.replica.statistics().mandate.why_not
    stage.weigh(is_row_current=True)
    stage.node.turn()
    assert len(stage.node.sinks) == len(sinks)
    assert stage.publish(b"three") == [b'{"stream":"S","seq":2}']
    assert [sent.payload for sent in stage.get(2)] == [b"three"]


def test_without_a_row_nothing_begins() -> None:
    stage = Stage(is_row_current=False)
    assert not stage.publish(b"one")
    assert not stage.get(1)
    assert stage.replica.machine.config is None, "not even the configuration is proposed"
    stage.weigh(is_row_current=True)
    stage.node.turn()
    assert stage.publish(b"one") == [b'{"stream":"S","seq":1}']


def test_a_replica_leads_again_behind_what_it_has_proposed() -> None:
    stage = Stage()
    for number in range(3):
        stage.node.publish(b"s.a", b"%d" % number, reply=b"_INBOX.%d" % number)

    def flicker() -> None:
        stage.weigh(is_row_current=False)
        stage.weigh(is_row_current=True)
        stage.weigh(is_row_current=False)
        stage.weigh(is_row_current=True)

    stage.node.later(flicker)  # behind the captures, before what they have proposed is sealed
    assert stage.node.sleep(1000) == [], "an ack is not sent on a mandate that is over"
    assert stage.publish(b"next") == [b'{"stream":"S","seq":4}']
    assert [sent.payload for seq in range(1, 5) for sent in stage.get(seq)] == [b"0", b"1", b"2", b"next"]


def test_a_failed_log_ends_everything() -> None:
    stage = Stage()
    assert stage.publish(b"one") == [b'{"stream":"S","seq":1}']
    stage.replica.group.fail(OSError(28, "No space left on device"), stage.node.clock.mono_ns())
    assert stage.node.sinks == {}
    assert stage.get(1) == []
    assert stage.replica.statistics().mandate.why_not == "its log has failed"


def test_a_get_that_was_captured_when_the_mandate_ended_is_told_to_ask_elsewhere() -> None:
    stage = Stage()
    stage.publish(b"one")
    stage.replica._freshness.until_ns = stage.node.clock.mono_ns()
    stage.node.clock.now_ns += 1
    assert [sent.hdr for sent in stage.get(1)] == [NO_RESPONDERS]
    assert len(stage.node.sinks) < len(Stage().node.sinks), "it has left the queue group"


def test_a_batch_that_is_being_served_ends_with_the_mandate() -> None:
    stage = Stage()
    for number in range(1200):
        stage.node.publish(b"s.a", b"%d" % number)
    stage.node.turn()
    stage.node.publish(b"$JS.API.DIRECT.GET.S", b'{"seq":1,"batch":1200}', reply=b"_INBOX.g")
    begun = stage.node.turn()
    assert 0 < len(begun) < 1200
    stage.weigh(is_row_current=False)
    rest = stage.node.sleep(1000)
    assert [sent.hdr for sent in rest] == [NO_RESPONDERS]
    assert get(begun[-1].hdr, b"Nats-Sequence") is not None
