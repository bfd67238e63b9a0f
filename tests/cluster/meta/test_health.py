"""When a node calls itself healthy."""

import re
from typing import Any

import attrs
import pytest

from jetraft.cluster.meta.health import (
    GRACE_NS,
    HEALTHY,
    LAG_MAX,
    ROWS_PER_STEP,
    Health,
    Judge,
    ReportedLoss,
    Seen,
    Steps,
)
from jetraft.cluster.state.assignment import StreamKey
from jetraft.store.model.ids import NodeId
from tests.cluster.meta.makers import ACCOUNT, N1

NOW_NS = 100 * GRACE_NS
N2 = NodeId("n2")


@attrs.define(kw_only=True)
class Group:
    leader: NodeId | None = N1
    leader_since_ns: int = 0
    applied_index: int = 10
    behind_entries: int | None = 0
    votes: bool = True
    failed: Exception | None = None
    is_starved: bool = False


S = StreamKey(ACCOUNT, "S")
T = StreamKey(ACCOUNT, "T")
U = StreamKey(ACCOUNT, "U")
FINE = Seen(clustered=True, outside=False, meta=Group(), replicas=[(S, Group())])
DAMAGED = ReportedLoss(runs=[(1, 1)])


def verdict_of(judge: Judge, seen: Seen, now_ns: int, *, confirmed: bool) -> Health:
    """The verdict, when all steps are run."""
    found: list[Health] = []

    def steps() -> Steps[None]:
        found.append((yield from judge.assess(seen, now_ns, confirmed=confirmed)))

    for _ in steps():
        pass
    return found[0]


def judged(seen: Seen, *, confirmed: bool = True) -> Health:
    return verdict_of(Judge(), seen, NOW_NS, confirmed=confirmed)


def test_a_node_that_has_applied_everything_is_healthy() -> None:
    assert judged(FINE) == HEALTHY
    assert HEALTHY.status == "ok"


def test_a_server_that_stands_alone_is_healthy_before_its_first_election() -> None:
    assert judged(attrs.evolve(FINE, clustered=False, meta=Group(leader=None, behind_entries=None))) == HEALTHY


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"outside": True}, "not a member"),
        ({"meta": None}, "has not established contact with a meta leader"),
        ({"meta": Group(leader=None)}, "has not established contact with a meta leader"),
        ({"meta": Group(behind_entries=1)}, "is not current with the meta leader"),
        ({"meta": Group(behind_entries=None)}, "is not current with the meta leader"),
        ({"meta": Group(votes=False)}, "is not current with the meta leader"),
        ({"meta": Group(leader=None, failed=OSError(5, "fsync"))}, r"stopped its replica of the meta group: .*fsync"),
        ({"unopened": [T]}, r"'\$G > T' is not current: it is not open yet"),
        ({"replicas": [(S, Group(is_starved=True))]}, r"'\$G > S' waits until a file can be opened: Too many open"),
        ({"failed": {S: "disk full"}}, r"'\$G > S' could not be recovered: disk full"),
        ({"replicas": [(S, Group(leader=None))]}, r"'\$G > S' has no leader"),
        ({"replicas": [(S, Group(behind_entries=1))]}, r"'\$G > S' is not current"),
        ({"replicas": [(S, Group(behind_entries=None))]}, r"'\$G > S' is not current: its leader has not said"),
        ({"replicas": [(S, Group(votes=False))]}, r"'\$G > S' is not current: its replica here is being filled"),
        (
            {"unclaimed": ("S-R1F-a", "S-R1F-b")},
            "data of 2 groups that belong to no known stream: S-R1F-a, S-R1F-b;",
        ),
        (
            {
                "lost": [
                    (S, ReportedLoss(runs=[(1, 4)])),
                    (T, ReportedLoss()),
                    (U, ReportedLoss(runs=[(7, 7), (9, 12)])),
                ]
            },
            r"stream '\$G > S' has damaged messages: 1-4; stream '\$G > U' has damaged messages: 7-7, 9-12$",
        ),
        ({"lost": [(S, DAMAGED)] * 25}, "; and 5 more streams have some$"),
        ({"is_full": True}, "JetStream is out of storage: the disk is nearly full"),
        (
            {"replicas": [(S, Group()), (T, Group(leader=None, failed=OSError(5, "fsync")))]},
            r"'\$G > T' has stopped: .*fsync",
        ),
    ],
)
def test_says_what_is_wrong(change: dict[str, Any], words: str) -> None:
    health = judged(attrs.evolve(FINE, **change))
    assert health.http_status == 503
    assert health.status == "unavailable"
    assert re.search(words, health.reason)


def test_what_all_members_of_a_stream_in_memory_have_forgotten_is_told_and_fails_no_probe() -> None:
    """A probe that fails for good would have the server restarted again and again, for what nobody can bring back."""
    health = judged(attrs.evolve(FINE, lost=[(S, ReportedLoss(is_forgotten=True)), (T, ReportedLoss())]))
    assert (health.http_status, health.reason) == (200, "")
    assert health.notice.endswith("have lost their messages, as all members were restarted: '$G > S'")


def test_a_table_that_the_meta_leader_has_not_confirmed_proves_nothing() -> None:
    assert judged(FINE, confirmed=False).reason == "JetStream is not current with the meta leader"


def test_a_replica_that_is_behind_a_little_is_current_only_once_it_has_been_at_what_its_leader_had() -> None:
    judge, group = Judge(), Group(applied_index=10, behind_entries=5)
    seen = attrs.evolve(FINE, replicas=[(S, group)])
    assert verdict_of(judge, seen, NOW_NS, confirmed=True) != HEALTHY

    group.applied_index, group.behind_entries = 14, 50
    assert verdict_of(judge, seen, NOW_NS, confirmed=True) != HEALTHY, "15 was asked for"
    group.applied_index, group.behind_entries = 15, 50
    assert verdict_of(judge, seen, NOW_NS, confirmed=True) == HEALTHY
    group.behind_entries = LAG_MAX + 1
    assert verdict_of(judge, seen, NOW_NS, confirmed=True) != HEALTHY
    group.behind_entries = 1
    assert verdict_of(judge, seen, NOW_NS, confirmed=True) == HEALTHY


def test_an_election_is_no_reason_for_a_node_that_was_current() -> None:
    judge, group, meta = Judge(), Group(), Group()
    seen = attrs.evolve(FINE, meta=meta, replicas=[(S, group)])
    assert verdict_of(judge, seen, NOW_NS, confirmed=True) == HEALTHY

    for each in (group, meta):
        each.leader, each.behind_entries, each.leader_since_ns = None, None, NOW_NS
    assert verdict_of(judge, seen, NOW_NS + GRACE_NS, confirmed=True) == HEALTHY
    assert verdict_of(judge, seen, NOW_NS + GRACE_NS + 1, confirmed=True) != HEALTHY
    for each in (group, meta):
        each.leader, each.behind_entries = N2, 3
    assert verdict_of(judge, seen, NOW_NS + GRACE_NS + 2, confirmed=True) != HEALTHY, "the proof is over"


def test_a_replica_that_was_never_current_has_no_grace() -> None:
    group = Group(leader=None, behind_entries=None, leader_since_ns=NOW_NS)
    assert judged(attrs.evolve(FINE, replicas=[(S, group)])) != HEALTHY


@pytest.mark.parametrize("change", [{"votes": False}, {"failed": OSError(5, "fsync")}, {"is_starved": True}])
def test_a_replica_that_stopped_or_was_demoted_has_no_grace(change: dict[str, Any]) -> None:
    judge, group = Judge(), Group()
    seen = attrs.evolve(FINE, replicas=[(S, group)])
    assert verdict_of(judge, seen, NOW_NS, confirmed=True) == HEALTHY

    for name, value in change.items():
        setattr(group, name, value)
    assert verdict_of(judge, seen, NOW_NS, confirmed=True) != HEALTHY


def test_a_log_that_was_opened_again_has_to_prove_it_again() -> None:
    judge = Judge()
    assert verdict_of(judge, FINE, NOW_NS, confirmed=True) == HEALTHY

    opened = Group(leader=None, behind_entries=None, leader_since_ns=NOW_NS)
    assert verdict_of(judge, attrs.evolve(FINE, replicas=[(S, opened)]), NOW_NS, confirmed=True) != HEALTHY


def test_a_look_at_many_replicas_gives_way() -> None:
    replicas = [(StreamKey(ACCOUNT, f"S{number}"), FINE.meta) for number in range(10 * ROWS_PER_STEP)]
    seen = attrs.evolve(FINE, replicas=[(key, group) for key, group in replicas if group is not None])
    assert len(list(Judge().assess(seen, NOW_NS, confirmed=True))) == 10
