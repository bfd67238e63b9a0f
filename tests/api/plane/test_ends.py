"""Many subscriptions end a share a turn: their owner gets nothing meanwhile, and the others are served."""

import socket

import pytest

from jetraft.api.options.compression import MODES
from jetraft.api.plane._plane import Plane
from jetraft.api.plane.reasons import Reason
from jetraft.cluster.capture._capture import captures
from jetraft.store.s2.framing import Compressor
from tests.api.plane.test_hostile import figures_of
from tests.api.plane.test_leafs import Lab
from tests.api.plane.test_plane import client, feed_all, make_plane, received
from tests.api.plane.test_rest import MESSAGES_SHARE_MAX

MANY = 20_000
SHARE = 2_000  # ENDS_PER_TURN of api/plane/_ends.pxd


def subscriber(plane: Plane, count: int = MANY) -> int:
    cid = client(plane)
    feed_all(plane, cid, b"".join(b"SUB many.%d %d\r\n" % (number, number) for number in range(count)))
    return cid


def turns_of(plane: Plane) -> list[int]:
    """How many subscriptions ended in each turn until none had to."""
    ended, before = list[int](), plane.statistics()["subscriptions"]
    while plane.turn():
        plane.flush()
        now = plane.statistics()["subscriptions"]
        ended.append(before - now)
        before = now
    return ended


def test_the_subscriptions_of_a_closed_connection_end_over_several_turns() -> None:
    plane = make_plane()
    cid, other = subscriber(plane), client(plane)
    plane.feed(other, b"SUB many.* 1\r\n")
    plane.close(cid, Reason.CLIENT_CLOSED)
    assert [one[:2] for one in plane.flush()] == [(cid, Reason.CLIENT_CLOSED)]
    assert plane.connection(cid) is None
    assert plane.statistics()["subscriptions"] == MANY - SHARE + 1
    assert plane.next_wake_ns() > 0
    plane.feed(other, b"PUB many.7 1\r\nx\r\n")
    assert received(plane, other) == [b"x"]
    assert turns_of(plane) == [SHARE] * ((MANY - SHARE) // SHARE)
    assert plane.statistics()["subscriptions"] == 1
    assert plane.next_wake_ns() == 0


def test_few_subscriptions_end_with_their_connection() -> None:
    plane = make_plane()
    cid = subscriber(plane, 100)
    plane.close(cid, Reason.CLIENT_CLOSED)
    plane.flush()
    assert plane.statistics()["subscriptions"] == 0
    assert plane.turn() == 0


def test_many_connections_that_end_at_once_share_the_turns() -> None:
    plane = make_plane()
    for cid in [subscriber(plane, 1_000) for _ in range(20)]:
        plane.close(cid, Reason.CLIENT_CLOSED)
    assert len(plane.flush()) == 20
    assert max(turns_of(plane)) == SHARE
    assert plane.statistics()["subscriptions"] == 0


def test_a_queue_group_gives_nothing_to_a_member_that_is_gone() -> None:
    plane = make_plane()
    gone, there = subscriber(plane), client(plane)
    plane.feed(gone, b"SUB work team last\r\n")
    plane.feed(there, b"SUB work team 1\r\n")
    plane.close(gone, Reason.CLIENT_CLOSED)
    plane.flush()
    plane.feed(client(plane), b"PUB work 1\r\nx\r\n" * 50)
    assert received(plane, there) == [b"x"] * 50


def test_the_interest_of_a_peer_whose_link_is_down_ends_over_several_turns_and_gets_nothing() -> None:
    plane, peer = make_plane(), make_plane()
    back, there = plane.open_route("n2"), peer.open_route("n1")
    subscriber(peer)
    worker = client(peer)
    peer.feed(worker, b"SUB work team 1\r\n")
    for route, records in peer.take_routes():
        assert route == there
        plane.on_route(back, records)
    here = client(plane)
    plane.feed(here, b"SUB work team 1\r\n")
    plane.close_route(back)
    plane.feed(client(plane), b"PUB work 1\r\nx\r\n" * 50)
    assert received(plane, here) == [b"x"] * 50
    assert turns_of(plane)
    assert not plane.has_interest(plane.account("$G"), b"many.7")


def test_another_connect_waits_for_the_end_of_what_was_subscribed_before() -> None:
    plane = make_plane()
    cid, other = subscriber(plane), client(plane)
    plane.feed(cid, b'CONNECT {"verbose":false}\r\nSUB after 1\r\nPING\r\n')
    assert plane.take(cid) == b""
    plane.feed(other, b"PING\r\n")
    assert plane.take(other) == b"PONG\r\n"
    assert max(turns_of(plane)) <= SHARE
    assert plane.take(cid) == b"PONG\r\n"
    assert figures_of(plane, cid)["subscriptions"] == 1
    plane.feed(other, b"PUB many.7 1\r\nx\r\nPUB after 1\r\ny\r\n")
    assert received(plane, cid) == [b"y"]


def test_a_connection_may_go_while_another_connect_waits() -> None:
    plane = make_plane()
    cid = subscriber(plane)
    plane.feed(cid, b'CONNECT {"verbose":false}\r\nSUB after 1\r\n')
    plane.close(cid, Reason.CLIENT_CLOSED)
    assert [one[0] for one in plane.flush()] == [cid]
    turns_of(plane)
    assert plane.statistics()["subscriptions"] == 0


def test_a_plane_may_end_with_subscriptions_that_have_to() -> None:
    plane = make_plane()
    plane.close(subscriber(plane), Reason.CLIENT_CLOSED)
    plane.flush()
    del plane


@pytest.mark.parametrize("line", [b"LS+ some.%d\r\n", b"LMSG s 5\r\n%05d\r\n"])
def test_a_leaf_node_has_its_share_of_each_turn(line: bytes) -> None:
    lab = Lab()
    captured: list[bytes] = []
    lab.plane.add_sink(lab.plane.account("$G"), b"s", captured.append)
    leaf = lab.leaf()
    lab.sent(leaf)
    lab.feed(leaf, b"".join(line % number for number in range(MANY)) + b"PING\r\n")
    assert lab.sent(leaf) == b""
    turns = 0
    while lab.plane.turn():
        lab.plane.run_sinks()
        turns += 1
    assert turns >= 4
    assert lab.sent(leaf) == b"PONG\r\n"


def test_a_compressed_block_of_a_leaf_node_takes_several_turns() -> None:
    lab = Lab()
    plane, captured = lab.plane, list[bytes]()
    plane.add_sink(plane.account("$G"), b"s", captured.append)
    ours, theirs = socket.socketpair()
    theirs.settimeout(0)
    leaf = plane.open_leaf(theirs.detach(), solicited=False)
    plane.admit_leaf(leaf, account="$G", cluster=b"leaf", spoke=False, isolated=False, headers=True, permissions=None)
    assert plane.pack_leaf(leaf, MODES.index("s2_fast"))
    data = b"".join(b"LMSG s 5\r\n%05d\r\n" % number for number in range(MANY))
    compressor = Compressor()
    ours.sendall(compressor.add(data) + compressor.flush())
    found, turns = list[bytes](), list[int]()
    while len(found) < MANY:
        plane.turn()
        plane.run_sinks()
        batch = [one.payload for one in captures(b"".join(captured))]
        captured.clear()
        found += batch
        turns.append(len(batch))
    assert found == [b"%05d" % number for number in range(MANY)]
    assert max(turns) <= MESSAGES_SHARE_MAX
    ours.close()
