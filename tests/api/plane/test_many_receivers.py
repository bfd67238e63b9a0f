"""Many subscriptions of one subject: those that end are found at once, and a message to all costs that once."""

import time
from collections.abc import Callable

import pytest

from tests.api.plane.test_plane import client, feed_all, make_plane, received

MANY = 40_000  # more than 32,768, where a count of 16 bits would have no room for twice as many
DEADLINE_S = 4.0  # of the processor; it took minutes when each end went through all
MESSAGES = 1_000
SHARE = 4_096  # WORK_PER_TURN of api/plane/_share.pxd
RECEIVERS_PER_WORK, MEMBERS_PER_WORK = 16, 64  # of api/plane/_deliver.pyx

LINES: dict[str, Callable[[int], bytes]] = {
    "groups": lambda number: b"SUB one q%d %d\r\n" % (number, number),
    "members": lambda number: b"SUB one team %d\r\n" % number,
    "plain": lambda number: b"SUB one %d\r\n" % number,
}


def test_a_message_reaches_one_member_of_each_of_many_groups() -> None:
    plane = make_plane()
    cid = client(plane)
    feed_all(plane, cid, b"".join(map(LINES["groups"], range(MANY))))
    plane.feed(client(plane), b"PUB one 1\r\nx\r\n")
    assert len(received(plane, cid)) == MANY


def test_groups_of_one_name_are_joined_however_many_others_there_are() -> None:
    plane = make_plane()
    cid = client(plane)
    feed_all(plane, cid, b"".join(b"SUB a.b g%d x%d\r\nSUB a.* g%d y%d\r\n" % (at, at, at, at) for at in range(100)))
    plane.feed(client(plane), b"PUB a.b 1\r\nx\r\n")
    assert len(received(plane, cid)) == 100


@pytest.mark.parametrize("kind", LINES)
def test_the_end_of_one_of_many_does_not_go_through_all(kind: str) -> None:
    plane = make_plane()
    cid = client(plane)
    began = time.thread_time()
    feed_all(plane, cid, b"".join(map(LINES[kind], range(MANY))))
    feed_all(plane, cid, b"".join(b"UNSUB %d\r\n" % number for number in range(MANY)))
    assert plane.statistics()["subscriptions"] == 0
    assert time.thread_time() - began < DEADLINE_S


@pytest.mark.parametrize(("kind", "per_work"), [("plain", RECEIVERS_PER_WORK), ("members", MEMBERS_PER_WORK)])
def test_messages_to_many_receivers_are_delivered_over_several_turns(kind: str, per_work: int) -> None:
    plane = make_plane()
    cid, sender = client(plane), client(plane)
    feed_all(plane, cid, b"".join(map(LINES[kind], range(SHARE))))
    plane.feed(sender, b"PUB one 1\r\nx\r\n" * MESSAGES)
    counts = [len(received(plane, cid))]
    while plane.turn():
        counts.append(len(received(plane, cid)))
    each = SHARE if kind == "plain" else 1
    assert sum(counts) == MESSAGES * each
    assert max(counts) <= (per_work + 1) * each


@pytest.mark.parametrize("count", [3, 64, 65, 66, 200])
def test_any_of_several_may_end(count: int) -> None:
    """Few stay in order, of many the last takes the place of the one that ends."""
    plane = make_plane()
    cid, sender = client(plane), client(plane)
    plane.feed(cid, b"".join(map(LINES["plain"], range(count))))
    left = set(range(count))
    for number in [*range(0, count, 3), *range(count - 1, -1, -7), *range(count)]:
        left.discard(number)
        plane.feed(cid, b"UNSUB %d\r\n" % number)
        plane.feed(sender, b"PUB one 1\r\nx\r\n")
        assert {int(line.split()[2]) for line in plane.take(cid).split(b"\r\n") if line.startswith(b"MSG")} == left
