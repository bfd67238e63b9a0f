"""A snapshot waits for its receiver to subscribe, and begins in that moment."""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import pytest
import trio
import trio.testing

from jetraft.cluster.backup.sending import INTEREST_WAIT_S, Cut, Manner, Sending, StalledError

if TYPE_CHECKING:
    from jetraft.cluster.ports import Outbox
    from jetraft.cluster.state.machine import StreamMachine


class Watched:
    """The interest in one subject."""

    def __init__(self) -> None:
        self.is_there = False
        self.has_wildcard = False
        self.watches: dict[int, Callable[[], None]] = {}

    def has_interest(self, _subject: bytes) -> bool:
        return self.is_there or self.has_wildcard

    def is_subscribed(self, _subject: bytes) -> bool:
        return self.is_there

    def watch_interest(self, _subject: bytes, callback: Callable[[], None]) -> int:
        self.watches[1] = callback
        return 1

    def unwatch_interest(self, handle: int) -> None:
        del self.watches[handle]

    def subscribe(self) -> None:
        self.is_there = True
        for callback in self.watches.values():
            callback()


def sending_to(outbox: Watched) -> Sending:
    return Sending(
        outbox=cast("Outbox", outbox),
        machine=cast("StreamMachine", None),
        manner=Manner(deliver_subject=b"inbox"),
        cut=cast("Cut", None),
        ack_prefix=b"ack.",
        is_open=lambda: True,
        now_unix_ns=lambda: 0,
    )


@pytest.mark.parametrize("has_wildcard", [False, True])
async def test_a_receiver_that_subscribes_late_is_seen_when_it_does(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, *, has_wildcard: bool
) -> None:
    del autojump_clock
    outbox, began_s = Watched(), trio.current_time()
    outbox.has_wildcard = has_wildcard

    async def subscribe_later() -> None:
        await trio.sleep(INTEREST_WAIT_S / 2)
        outbox.subscribe()

    nursery.start_soon(subscribe_later)
    await sending_to(outbox)._wait_for_interest()
    assert trio.current_time() == began_s + INTEREST_WAIT_S / 2
    assert not outbox.watches


async def test_nobody_is_waited_for_longer_than_that(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    outbox = Watched()
    with pytest.raises(StalledError):
        await sending_to(outbox)._wait_for_interest()
    assert not outbox.watches


async def test_a_wildcard_is_enough_after_that_time(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    outbox, began_s = Watched(), trio.current_time()
    outbox.has_wildcard = True
    await sending_to(outbox)._wait_for_interest()
    assert trio.current_time() == began_s + INTEREST_WAIT_S
