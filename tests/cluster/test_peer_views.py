"""What infos say of a group's members."""

import pytest

from jetraft.cluster.peer_views import silence_ns
from jetraft.raft.group_spec import ReplicaLag
from jetraft.store.model.ids import NodeId

HOUR_NS = 3_600 * 10**9


@pytest.mark.parametrize(
    ("answered_ago_ns", "heard_ns", "shown_ns"),
    [
        (HOUR_NS, 2 * HOUR_NS - 5, 5),  # the group rests, the link does not
        (HOUR_NS, HOUR_NS // 2, HOUR_NS),  # an answer came later than what the link says
        (HOUR_NS, 3 * HOUR_NS, 0),
        (HOUR_NS, None, HOUR_NS),  # no link is known
    ],
)
def test_a_member_of_a_group_that_rests_is_as_active_as_its_link(
    answered_ago_ns: int, heard_ns: int | None, shown_ns: int
) -> None:
    lag = ReplicaLag(node=NodeId("N"), current=True, offline=False, active_ns=answered_ago_ns, lag_entries=0)
    assert silence_ns(lag, heard_ns, 2 * HOUR_NS) == shown_ns
