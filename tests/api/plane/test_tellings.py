"""All interest is told to one that comes over several turns; what comes and goes meanwhile is told right."""

import pytest

from jetraft.api.plane._permissions import UserPermissions
from jetraft.api.plane._plane import Plane
from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.connect import ConnectOptions
from tests.api.plane.test_ends import MANY, SHARE, subscriber
from tests.api.plane.test_leafs import Lab
from tests.api.plane.test_plane import client, feed_all, make_plane, received


def step(plane: Plane, peer: Plane, back: int) -> int:
    """A turn of a node, whose records reach its peer; returns by how many subscriptions that has more."""
    before = peer.statistics()["subscriptions"]
    plane.turn()
    plane.flush()
    for _, records in plane.take_routes():
        peer.on_route(back, records)
    return peer.statistics()["subscriptions"] - before


def test_a_peer_is_told_of_all_interest_over_several_turns() -> None:
    plane, peer = make_plane(), make_plane()
    subscriber(plane)
    back = peer.open_route("n1")
    plane.open_route("n2")
    grown = [step(plane, peer, back)]
    assert plane.next_wake_ns() > 0
    while plane.turn():
        grown.append(step(plane, peer, back))
    assert sum(grown) == MANY
    assert max(grown) <= SHARE
    assert plane.next_wake_ns() == 0
    assert all(peer.has_interest(peer.account("$G"), b"many.%d" % number) for number in range(0, MANY, 97))


def test_interest_that_changes_while_it_is_told_is_known_as_it_is_in_the_end() -> None:
    plane, peer = make_plane(), make_plane()
    cid, first = subscriber(plane), client(plane)
    plane.feed(first, b"SUB late 1\r\n")
    back = peer.open_route("n1")
    plane.open_route("n2")
    step(plane, peer, back)
    plane.feed(client(plane), b"SUB late 1\r\nSUB many.0 2\r\n")  # beside one that is not told of yet, and then goes
    plane.close(first, Reason.CLIENT_CLOSED)
    plane.feed(cid, b"".join(b"UNSUB %d\r\n" % number for number in range(0, MANY, 2)))
    while plane.next_wake_ns():
        step(plane, peer, back)
    step(plane, peer, back)
    known = [number for number in range(MANY) if peer.has_interest(peer.account("$G"), b"many.%d" % number)]
    assert known == [0, *range(1, MANY, 2)]
    assert peer.has_interest(peer.account("$G"), b"late")


def test_a_peer_may_go_while_it_is_told() -> None:
    plane, peer = make_plane(), make_plane()
    subscriber(plane)
    back, gone, other = peer.open_route("n1"), plane.open_route("n2"), plane.open_route("n3")
    plane.close_route(gone)
    told = 0
    while plane.turn():
        plane.flush()
        for route, records in plane.take_routes():
            assert route == other
            peer.on_route(back, records)
            told += 1
    assert told > MANY // SHARE - 2
    assert peer.statistics()["subscriptions"] == MANY


def test_a_leaf_node_is_told_of_all_interest_over_several_turns() -> None:
    lab = Lab()
    plane, peer = lab.plane, make_plane()
    there, back = peer.open_route("n1"), plane.open_route("n2")
    feed_all(peer, client(peer), b"".join(b"SUB far.%d %d\r\n" % (number, number) for number in range(MANY)))
    while peer.turn():
        peer.flush()
    for route, records in peer.take_routes():
        assert route == there
        plane.on_route(back, records)
    subscriber(plane)
    leaf = lab.leaf()
    lines = [lab.sent(leaf).count(b"\r\n")]
    while plane.turn():
        plane.flush()
        lines.append(lab.sent(leaf).count(b"\r\n"))
    assert sum(lines) == 2 * MANY
    assert max(lines) <= SHARE + 1


def test_a_route_may_go_while_a_leaf_node_is_told_of_its_interest() -> None:
    lab = Lab()
    plane, peer = lab.plane, make_plane()
    back = plane.open_route("n2")
    peer.open_route("n1")
    subscriber(peer)
    for _, records in peer.take_routes():
        plane.on_route(back, records)
    leaf = lab.leaf()
    lab.sent(leaf)
    plane.turn()
    plane.flush()
    plane.close_route(back)
    while plane.turn():
        plane.flush()
    lab.sent(leaf)
    assert plane.statistics()["subscriptions"] == 0


def test_the_weight_of_a_large_group_is_told_once_a_turn() -> None:
    lab = Lab()
    leaf = lab.leaf()
    lab.sent(leaf)
    cid = client(lab.plane)
    feed_all(lab.plane, cid, b"".join(b"SUB work team %d\r\n" % number for number in range(1_000)))
    lab.plane.flush()
    told = lab.sent(leaf).splitlines()
    assert told[-1] == b"LS+ work team 1000"
    assert len(told) <= 70
    lab.plane.feed(cid, b"".join(b"UNSUB %d\r\n" % number for number in range(500)))
    lab.plane.flush()
    assert lab.sent(leaf) == b"LS+ work team 500\r\n"
    lab.plane.feed(cid, b"".join(b"UNSUB %d\r\n" % number for number in range(500, 1_000)))
    lab.plane.flush()
    assert lab.sent(leaf).splitlines()[-1] == b"LS- work team"


@pytest.mark.parametrize("count", [10, MANY])
def test_an_import_may_end_while_its_subscriptions_do(count: int) -> None:
    plane = make_plane()
    here, exporter = plane.account("$G"), plane.account("OTHER")
    number = plane.import_stream(here, b"far.*", exporter, b"far.*", shown=None, back=None)
    cid = client(plane)
    feed_all(plane, cid, b"".join(b"SUB far.%d %d\r\n" % (at, at) for at in range(count)))
    plane.close(cid, Reason.CLIENT_CLOSED)
    plane.flush()
    plane.end_import(here, number)
    assert not plane.has_interest(exporter, b"far.%d" % (count - 1))
    while plane.turn():
        plane.flush()
    assert plane.statistics()["subscriptions"] == 0


class Judged:
    """A plane whose clients have the permissions that are set here."""

    def __init__(self) -> None:
        self.permissions: UserPermissions | None = None
        self.plane = Plane(
            max_payload=1 << 20,
            max_control_line=4096,
            max_pending=64 << 20,
            max_subscriptions=0,
            connect_handler=lambda _cid, _text: self.options(),
            first_ping_handler=lambda _cid: b"",
            violation_handler=lambda *_: b"-ERR\r\n",
        )

    def options(self, account: str = "$G") -> ConnectOptions:
        return ConnectOptions(verbose=False, permissions=self.permissions, account=account)


def denying(subject: bytes) -> UserPermissions:
    return UserPermissions(publish_allow=None, publish_deny=[(subject, b"")], subscribe_allow=None, subscribe_deny=None)


@pytest.mark.parametrize("released", [False, True])
def test_what_was_decided_while_a_connect_waits_holds_after_it(released: bool) -> None:  # noqa: FBT001
    judged = Judged()
    plane = judged.plane
    cid, other = subscriber(plane), client(plane)
    plane.feed(other, b"SUB > 1\r\n")
    plane.feed(cid, b"CONNECT {}\r\nPUB secret 1\r\nx\r\n")
    judged.permissions = denying(b"secret")
    if released:
        assert plane.release(cid, judged.options())
        assert plane.release(cid, judged.options())
    else:
        plane.regrant(cid, judged.permissions, lambda _: None)
    while plane.turn():
        plane.flush()
    assert received(plane, other) == []
    assert plane.take(cid) == b"-ERR\r\n"
