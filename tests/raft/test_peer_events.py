import attrs

from jetraft.raft.engine.messages import Role
from jetraft.raft.peer_events import GROUPS_PER_TURN, PeerEvents
from jetraft.store.model.ids import GroupId, NodeId
from tests.raft.lab import MS, Lab

A, B, C = (NodeId(name * 8) for name in "ABC")


@attrs.define(eq=False)
class Listener:
    group_id: GroupId
    heard: list[tuple[str, NodeId]] = attrs.Factory(list)

    def peer_up(self, node: NodeId, now_ns: int) -> None:
        del now_ns
        self.heard.append(("up", node))

    def peer_down(self, node: NodeId, now_ns: int) -> None:
        del now_ns
        self.heard.append(("down", node))


def listeners(count: int) -> list[Listener]:
    return [Listener(GroupId(f"S-R3F-{number:08d}")) for number in range(count)]


def test_a_turn_tells_a_bounded_number_of_groups() -> None:
    events, groups = PeerEvents(), listeners(GROUPS_PER_TURN + 1)
    events.add(A, groups, up=False)
    events.tell_some(0)
    assert sum(len(group.heard) for group in groups) == GROUPS_PER_TURN
    assert events.waiting
    events.tell_some(0)
    assert all(group.heard == [("down", A)] for group in groups)
    assert not events.waiting


def test_a_group_hears_of_the_sessions_of_a_peer_in_order() -> None:
    events, (group,) = PeerEvents(), listeners(1)
    events.add(A, [group], up=False)
    events.add(A, [group], up=True)
    events.tell_some(0)
    assert group.heard == [("down", A), ("up", A)]


def test_a_session_that_came_and_went_meanwhile_is_not_mentioned() -> None:
    events, (group,) = PeerEvents(), listeners(1)
    events.add(A, [group], up=True)
    events.add(A, [group], up=False)
    assert not events.waiting
    events.add(A, [group], up=False)
    events.add(A, [group], up=True)
    events.add(A, [group], up=False)
    events.tell_some(0)
    assert group.heard == [("down", A)]


def test_before_a_message_of_a_peer_the_group_hears_what_waits_of_that_peer() -> None:
    events, groups = PeerEvents(), listeners(3)
    events.add(A, groups, up=False)
    events.add(B, groups, up=False)
    events.settle(groups[2], A, 0)
    assert [group.heard for group in groups] == [[], [], [("down", A)]]
    events.settle(groups[2], C, 0)
    events.tell_some(0)
    assert groups[2].heard == [("down", A), ("down", B)]
    assert not events.waiting


def test_a_group_that_is_gone_hears_nothing() -> None:
    events, groups = PeerEvents(), listeners(2)
    events.add(A, groups, up=False)
    events.forget(groups[0].group_id)
    events.tell_some(0)
    assert [group.heard for group in groups] == [[], [("down", A)]]


def test_more_groups_than_a_turn_takes_all_elect_when_their_leader_is_gone() -> None:
    lab = Lab((A, B, C))
    names = [GroupId(f"S-R3F-{number:08d}") for number in range(2 * GROUPS_PER_TURN + 1)]
    for name in names:
        lab.create(str(name), preferred=A)
    lab.run(1000 * MS, 20 * MS)
    lab.unlink(A, B)
    lab.unlink(A, C)
    told = [lab.managers[B].groups[name].leader is None for name in names]
    assert sum(told) == GROUPS_PER_TURN, "the others hear of it in later turns"
    lab.run(1000 * MS, 20 * MS)
    for name in names:
        roles = [lab.managers[node].groups[name].core.role for node in (B, C)]
        assert roles.count(Role.LEADER) == 1, name


def test_a_link_that_comes_back_before_all_have_heard_that_it_broke_leaves_all_well() -> None:
    lab = Lab((A, B, C))
    names = [GroupId(f"S-R3F-{number:08d}") for number in range(2 * GROUPS_PER_TURN + 1)]
    for name in names:
        lab.create(str(name), preferred=A)
    lab.run(1000 * MS, 20 * MS)
    lab.unlink(A, B)
    lab.link(A, B)
    lab.run(1000 * MS, 20 * MS)
    for name in names:
        followers = {lab.managers[node].groups[name].leader for node in (A, B, C)}
        assert len(followers) == 1, name
        assert None not in followers, name
