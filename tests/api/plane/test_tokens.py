"""The table of tokens while it grows: nodes move to the next one by parts, and are found in either."""

import random
import time
from collections import Counter

import pytest

from tests.api.plane.test_plane import client, feed_all, make_plane, received

PIECE = 500  # subscriptions of one send
MANY = 400_000
TRIES = 3
STEPS_MAX = 8  # 5 to 6 are measured


def subscribed(numbers: range) -> bytes:
    return b"".join(b"SUB t.%d.x %d\r\n" % (number, number) for number in numbers)


@pytest.mark.parametrize("count", [360, 500, 720, 900, 1_500])
def test_every_subscription_is_found_at_any_moment_of_the_growth(count: int) -> None:
    """The first table has 1,024 places, of which 716 are taken when it grows: two tokens for each subscription."""
    plane = make_plane()
    cid, sender = client(plane), client(plane)
    feed_all(plane, cid, subscribed(range(count)))
    chance = random.Random(count)
    held = set(range(count))
    for step in range(2_000):
        number = chance.randrange(count)
        if number in held:
            plane.feed(cid, b"UNSUB %d\r\n" % number)
            held.discard(number)
        else:
            plane.feed(cid, b"SUB t.%d.x %d\r\n" % (number, number))
            held.add(number)
        if step % 100 == 0:
            feed_all(plane, sender, b"".join(b"PUB t.%d.x 4\r\n%4d\r\n" % (one, one) for one in range(count)))
            assert Counter(map(int, received(plane, cid))) == Counter(held), step
    feed_all(plane, cid, b"".join(b"UNSUB %d\r\n" % one for one in held))
    assert plane.statistics()["subscriptions"] == 0


def test_no_subscription_waits_for_the_whole_table_to_grow() -> None:
    """A move of the whole table took 14 times as long as a step without one, and 45 times with a million of them.

    Other work on the machine makes a step longer, and none shorter.
    """
    assert min(map(longest_step, range(TRIES))) < STEPS_MAX


def longest_step(_attempt: int) -> float:
    """How many usual steps the third longest takes: a move of a quarter of the last table was among these."""
    steps = sorted(steps_of_growth())
    return steps[-3] / steps[len(steps) // 2]


def steps_of_growth() -> list[int]:
    """The processor time of each send, in nanoseconds."""
    plane = make_plane()
    cid = client(plane)
    took = []
    for first in range(0, MANY, PIECE):
        lines = subscribed(range(first, first + PIECE))
        began_ns = time.thread_time_ns()
        feed_all(plane, cid, lines)
        took.append(time.thread_time_ns() - began_ns)
    assert plane.statistics()["subscriptions"] == MANY
    return took
