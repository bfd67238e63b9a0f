"""Other rights are in force at once; the subscriptions made under those before are asked again a share a turn."""

from functools import partial

import pytest

from jetraft.api.plane._permissions import UserPermissions
from jetraft.api.plane._plane import Plane
from jetraft.api.plane.reasons import Reason
from tests.api.plane.test_ends import MANY, SHARE, subscriber, turns_of
from tests.api.plane.test_hostile import figures_of
from tests.api.plane.test_plane import client, feed_all, make_plane, received

Row = tuple[bytes, bytes, bytes]


def only(*allowed: bytes) -> UserPermissions:
    subscribe = [(subject, b"") for subject in allowed]
    return UserPermissions(publish_allow=None, publish_deny=None, subscribe_allow=subscribe, subscribe_deny=None)


def regrant(plane: Plane, cid: int, permissions: UserPermissions | None) -> list[list[Row]]:
    """Let a connection have other rights; the list gets what is told of, a list each time."""
    told: list[list[Row]] = []
    plane.regrant(cid, permissions, told.append)
    return told


def finish(plane: Plane) -> None:
    while plane.turn():
        plane.flush()


def test_what_is_not_allowed_any_more_ends_and_is_told_by_sid() -> None:
    plane = make_plane()
    cid = client(plane)
    plane.feed(cid, b"SUB gone 2\r\nSUB gone team 1\r\nSUB kept 3\r\n")
    assert regrant(plane, cid, only(b"kept")) == [[(b"gone", b"team", b"1"), (b"gone", b"", b"2")]]
    assert plane.turn() == 0
    plane.feed(client(plane), b"PUB gone 1\r\nx\r\nPUB kept 1\r\ny\r\n")
    assert received(plane, cid) == [b"y"]


def test_the_rights_are_in_force_before_the_subscriptions_were_asked() -> None:
    plane = make_plane()
    cid = subscriber(plane)
    told = regrant(plane, cid, only(b"kept"))
    left = plane.statistics()["subscriptions"]
    assert 0 < MANY - left < SHARE
    other = client(plane)
    for start in range(0, MANY, 500):
        plane.feed(other, b"".join(b"PUB many.%d 1\r\nx\r\n" % number for number in range(start, start + 500)))
        plane.turn()  # without a flush: nothing is asked
    assert received(plane, cid) == []
    plane.feed(cid, b"SUB other other\r\nSUB kept kept\r\nPUB other 1\r\nx\r\nPUB kept 1\r\ny\r\n")
    assert received(plane, cid) == [b"y"]
    finish(plane)
    assert sum(map(len, told)) == MANY
    assert {row[2] for rows in told for row in rows} == {b"%d" % number for number in range(MANY)}
    assert figures_of(plane, cid)["subscriptions"] == 1


def test_a_queue_group_passes_over_a_member_that_waits_to_be_asked() -> None:
    plane = make_plane()
    cid, there = subscriber(plane), client(plane)
    plane.feed(there, b"SUB work team 1\r\n")
    feed_all(plane, cid, b"".join(b"SUB work team w%d\r\n" % number for number in range(5)))
    regrant(plane, cid, only(b"kept"))
    plane.feed(client(plane), b"PUB work 1\r\nx\r\n" * 50)
    assert received(plane, there) == [b"x"] * 50


def test_no_turn_asks_more_than_its_share() -> None:
    plane = make_plane()
    kept, gone = subscriber(plane), subscriber(plane)
    regrant(plane, kept, only(b"many.*"))
    told = regrant(plane, gone, only(b"kept"))
    assert max(turns_of(plane)) <= SHARE
    assert max(map(len, told)) <= SHARE // 10 + 1  # each is two lines of text
    assert len(told) >= MANY // (SHARE // 10)
    assert plane.statistics()["subscriptions"] == MANY


def test_what_is_subscribed_meanwhile_hides_nothing_from_the_review() -> None:
    plane = make_plane()
    cid = subscriber(plane)
    told = regrant(plane, cid, only(b"kept.*"))
    number = 0
    while plane.turn():
        plane.flush()
        plane.feed(cid, b"".join(b"SUB kept.%d k%d\r\n" % (one, one) for one in range(number, number + 100)))
        number += 100
    assert sum(map(len, told)) == MANY
    assert figures_of(plane, cid)["subscriptions"] == number


def test_other_rights_in_between_begin_again() -> None:
    plane = make_plane()
    cid = subscriber(plane)
    first = regrant(plane, cid, only(b"many.*"))
    finish(plane)
    assert first == []
    regrant(plane, cid, only(b"many.*"))
    second = regrant(plane, cid, only(b"kept"))
    finish(plane)
    assert sum(map(len, second)) == MANY


@pytest.mark.parametrize("line", [b'CONNECT {"verbose":false}\r\n', b""])
def test_a_connection_may_end_or_begin_again_during_the_review(line: bytes) -> None:
    plane = make_plane()
    cid = subscriber(plane)
    told = regrant(plane, cid, only(b"kept"))
    if line:
        plane.feed(cid, line)
    else:
        plane.close(cid, Reason.CLIENT_CLOSED)
    plane.flush()
    before = len(told)
    finish(plane)
    assert plane.statistics()["subscriptions"] == 0
    assert bool(line) or len(told) == before
    finish(plane)


def test_everything_is_allowed_again_and_comes() -> None:
    plane = make_plane()
    cid = subscriber(plane)
    told = regrant(plane, cid, only(b"many.*"))
    plane.feed(client(plane), b"PUB many.7 1\r\nx\r\n")
    assert received(plane, cid) == [b"x"]
    plane.regrant(cid, None, told.append)
    finish(plane)
    assert told == []
    assert plane.statistics()["subscriptions"] == MANY


def test_a_plane_may_end_in_the_middle_of_a_review() -> None:
    plane = make_plane()
    regrant(plane, subscriber(plane), only(b"kept"))
    del plane


def test_nobody_is_told_of_a_connection_that_is_gone() -> None:
    plane = make_plane()
    plane.regrant(12_345, only(b"kept"), partial(pytest.fail, "told"))
