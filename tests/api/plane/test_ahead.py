"""Many subscriptions in use: what is fetched ahead changes nothing about who gets what."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.api.plane._plane import Plane
from tests.api.plane.test_plane import client, feed_all, make_plane

FAR = 2_100  # enough subscriptions for the plane to look ahead (FAR_SUBSCRIPTIONS of _ahead.pxd)
SEED = 7


def crowd(plane: Plane) -> int:
    """A client with subscriptions of its own to many subjects, their ids short and long."""
    cid = client(plane)
    feed_all(plane, cid, b"".join(b"SUB deep.er.s%d %s\r\n" % (i, sid(i)) for i in range(FAR)))
    plane.take(cid)
    return cid


def sid(i: int) -> bytes:
    return b"%d" % i if i % 3 else b"%d-%s" % (i, b"x" * (i % 40))


def publish(i: int, *, headers: bool = False, reply: bool = False) -> bytes:
    """A PUB or HPUB to subject i with i as its payload."""
    payload, to = b"%d" % i, b"deep.er.s%d" % i
    answer = b" answer.%d" % i if reply else b""
    if headers:
        hdr = b"NATS/1.0\r\nA: b\r\n\r\n"
        return b"HPUB %s%s %d %d\r\n%s%s\r\n" % (to, answer, len(hdr), len(hdr) + len(payload), hdr, payload)
    return b"PUB %s%s %d\r\n%s\r\n" % (to, answer, len(payload), payload)


def test_each_of_many_subscriptions_gets_its_own_message_in_order() -> None:
    plane = make_plane()
    receiver, publisher = crowd(plane), client(plane)
    rng = random.Random(SEED)
    wanted = [(rng.randrange(FAR), rng.random() < 0.3, rng.random() < 0.3) for _ in range(4_000)]
    plane.feed(publisher, b"".join(publish(i, headers=headers, reply=reply) for i, headers, reply in wanted))
    lines = [line for line in plane.take(receiver).split(b"\r\n") if line.startswith((b"MSG ", b"HMSG "))]
    assert [line.split(b" ")[2] for line in lines] == [sid(i) for i, _, _ in wanted]
    assert [line.startswith(b"HMSG ") for line in lines] == [headers for _, headers, _ in wanted]


def test_a_subscription_that_ends_among_the_messages_that_were_looked_at_gets_no_more() -> None:
    plane = make_plane()
    receiver, publisher = crowd(plane), client(plane)
    plane.feed(receiver, b"UNSUB %s 2\r\n" % sid(5))
    plane.feed(publisher, b"".join(publish(i) for i in (1, 5, 2, 5, 3, 5, 4, 5, 6)))
    lines = [line for line in plane.take(receiver).split(b"\r\n") if line.startswith(b"MSG ")]
    assert [line.split(b" ")[2] for line in lines] == [sid(i) for i in (1, 5, 2, 5, 3, 4, 6)]


@pytest.fixture(scope="module")
def busy() -> tuple[Plane, int]:
    plane = make_plane()
    return plane, crowd(plane)


@given(
    cuts=st.lists(st.integers(0, 1_000), max_size=4),
    noise=st.binary(max_size=24)
    | st.sampled_from([b"PUB ", b"HPUB deep.er.s1 ", b"PUB deep.er.s1 999999999\r\n", b"PUB \r\n"]),
    at=st.integers(0, 12),
)
@settings(deadline=None, max_examples=150)
def test_lines_that_break_off_or_make_no_sense_are_answered_as_without_looking_ahead(
    busy: tuple[Plane, int], cuts: list[int], noise: bytes, at: int
) -> None:
    crowded, receiver = busy
    messages = [publish(i, headers=i % 2 == 0) for i in range(12)]
    text = b"".join([*messages[:at], noise, *messages[at:]])
    small = make_plane()
    quiet = client(small)
    small.feed(quiet, b"".join(b"SUB deep.er.s%d %s\r\n" % (i, sid(i)) for i in range(12)))
    answers = []
    for plane, listener in ((crowded, receiver), (small, quiet)):
        publisher = client(plane)
        plane.take(publisher)
        places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
        for start, end in pairwise(places):
            plane.feed(publisher, text[start:end])
        answers.append((plane.take(listener), plane.take(publisher)))
        plane.close(publisher, 1)
        plane.flush()
    assert answers[0] == answers[1]
