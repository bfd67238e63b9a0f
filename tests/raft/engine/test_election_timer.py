import random

from jetraft.raft.engine.election_timer import DOUBLINGS_MAX, WAIT_NS_MAX, ElectionTimer
from jetraft.raft.engine.port import CoreSetup, Timing
from jetraft.store.frames._frame import seal
from jetraft.store.model.ids import NodeId

MS = 1_000_000


def new_timer() -> ElectionTimer:
    return ElectionTimer(CoreSetup(node_id=NodeId("A"), incarnation=7, seal=seal, rng=random.Random(1)))


def waits_ns(timer: ElectionTimer, now_ns: int = 0) -> list[int]:
    """Fifty waits from `now_ns` on."""
    found = []
    for _ in range(50):
        timer.wait(now_ns, is_reluctant=False)
        assert timer.deadline_ns is not None
        found.append(timer.deadline_ns - now_ns)
    return found


def test_no_timer_runs_while_the_vote_is_on_its_way_to_disk() -> None:
    timer = new_timer()
    timer.wait(0, is_reluctant=False)
    timer.promise(0)
    assert timer.deadline_ns is None
    timer.kept(5_000 * MS)
    timer.wait(5_000 * MS, is_reluctant=False)
    assert timer.deadline_ns is not None
    assert timer.deadline_ns > 5_000 * MS


def test_waits_follow_the_slowest_disk_seen_lately() -> None:
    timer, timing = new_timer(), Timing()
    assert max(waits_ns(timer)) <= timing.election_max_ns
    timer.promise(0)
    timer.kept(700 * MS)
    assert min(waits_ns(timer, 700 * MS)) >= 700 * MS


def test_waits_follow_the_round_trip() -> None:
    """Between continents, or with a processor that is busy with a thousand elections."""
    timer = new_timer()
    timer.tempo.round_trip.note(0, 900 * MS)
    assert min(waits_ns(timer)) >= 900 * MS
    assert timer.precedence_ns(0, preliminary=True) >= 900 * MS
    assert timer.retry_ns(0, preliminary=True, asked=1) >= 900 * MS


def test_each_lost_ballot_doubles_the_wait_up_to_a_bound() -> None:
    timer, timing = new_timer(), Timing()
    for ballots, factor in ((1, 1), (2, 2), (3, 4), (4, 8), (9, 1 << DOUBLINGS_MAX)):
        timer.ballots = ballots
        assert factor * timing.election_min_ns <= min(waits_ns(timer))
        assert max(waits_ns(timer)) <= factor * timing.election_max_ns
    timer.tempo.disk.note(0, 10_000 * MS)
    assert max(waits_ns(timer)) <= 2 * WAIT_NS_MAX


def test_a_leader_ends_the_doubling() -> None:
    timer, timing = new_timer(), Timing()
    timer.ballots = 5
    timer.claimed(0)
    assert max(waits_ns(timer)) <= timing.election_max_ns


def test_who_stays_silent_is_asked_less_and_less_often() -> None:
    timer = new_timer()
    pauses = [timer.retry_ns(0, preliminary=True, asked=asked) for asked in (1, 2, 3, 4, 5, 6)]
    assert pauses == [75 * MS, 150 * MS, 300 * MS, 600 * MS, 600 * MS, 600 * MS]


def test_a_claim_is_a_lease_that_each_word_prolongs() -> None:
    timer, timing = new_timer(), Timing()
    timer.claimed(0)
    due_ns = timer.deadline_ns
    assert due_ns is not None
    assert timing.lease_min_ns <= due_ns <= timing.lease_max_ns
    timer.heard_ns = due_ns - 1
    assert timer.may_rest(due_ns)
    assert timer.deadline_ns is not None
    assert timer.deadline_ns >= due_ns - 1 + timing.lease_min_ns
    assert not timer.may_rest(timer.deadline_ns)
