"""When a node calls itself healthy."""

import re
from typing import Any

import attrs
import pytest

from jetraft.cluster.meta.assignment import StreamKey
from jetraft.cluster.meta.health import HEALTHY, assess
from jetraft.store.model.ids import NodeId
from tests.cluster.meta.makers import ACCOUNT, N1


@attrs.frozen(kw_only=True)
class Group:
    leader: NodeId | None = N1
    commit_index: int = 10
    applied_index: int = 10
    failed: Exception | None = None
    is_starved: bool = False


S = StreamKey(ACCOUNT, "S")
T = StreamKey(ACCOUNT, "T")
FINE: dict[str, Any] = {"clustered": True, "outside": False, "meta": Group(), "failed": {}, "replicas": [(S, Group())]}


def test_a_node_that_has_applied_everything_is_healthy() -> None:
    assert assess(**FINE) == HEALTHY
    assert HEALTHY.status == "ok"


def test_a_server_that_stands_alone_is_healthy_before_its_first_election() -> None:
    assert assess(**{**FINE, "clustered": False, "meta": Group(leader=None)}) == HEALTHY


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"outside": True}, "not a member"),
        ({"meta": None}, "has not established contact with a meta leader"),
        ({"meta": Group(leader=None)}, "has not established contact with a meta leader"),
        ({"meta": Group(commit_index=5000)}, "is not current with the meta leader"),
        ({"meta": Group(leader=None, failed=OSError(5, "fsync"))}, r"stopped its replica of the meta group: .*fsync"),
        ({"replicas": [(S, Group(is_starved=True))]}, r"'\$G > S' waits until a file can be opened: Too many open"),
        ({"failed": {S: "disk full"}}, r"'\$G > S' could not be recovered: disk full"),
        ({"replicas": [(S, Group(leader=None))]}, r"'\$G > S' has no leader"),
        ({"replicas": [(S, Group(commit_index=5000))]}, r"'\$G > S' is not current"),
        (
            {"unclaimed": ("S-R1F-a", "S-R1F-b")},
            "data of 2 groups that belong to no known stream: S-R1F-a, S-R1F-b;",
        ),
        (
            {"lost": [(S, [(1, 4)]), (T, []), (StreamKey(ACCOUNT, "U"), [(7, 7), (9, 12)])]},
            r"stream '\$G > S' has damaged messages: 1-4; stream '\$G > U' has damaged messages: 7-7, 9-12$",
        ),
        ({"lost": [(S, [(1, 1)])] * 25}, "; and 5 more streams have some$"),
        ({"is_full": True}, "JetStream is out of storage: the disk is nearly full"),
        (
            {"replicas": [(S, Group()), (S, Group(leader=None, failed=OSError(5, "fsync")))]},
            r"'\$G > S' has stopped: .*fsync",
        ),
    ],
)
def test_says_what_is_wrong(change: dict[str, Any], words: str) -> None:
    health = assess(**{**FINE, **change})
    assert health.http_status == 503
    assert health.status == "unavailable"
    assert re.search(words, health.reason)
