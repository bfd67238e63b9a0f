"""A sign-in ends by itself: without requests, at its age, and with its connection."""

import attrs
import trio
import trio.testing

from jetraft.api.monitor.ui.sign_in import IDLE_S, LIFE_S, SignIn
from jetraft.api.sessions.session import Session


@attrs.define
class Connection:
    """As much of a client as the time of a sign-in needs."""

    is_over: bool = False


def begun() -> SignIn:
    """A sign-in that begins now."""
    now_s = trio.current_time()
    client: object = Connection()
    return SignIn(client, Session(1, "192.0.2.1", 1, 0), "192.0.2.1", now_s + LIFE_S, now_s)  # type: ignore[arg-type]


async def test_it_ends_without_requests(autojump_clock: trio.testing.MockClock) -> None:
    found = begun()
    autojump_clock.jump(IDLE_S - 1)
    assert not found.is_over
    autojump_clock.jump(1)
    assert found.is_over


async def test_requests_keep_it_to_its_age_and_no_longer(autojump_clock: trio.testing.MockClock) -> None:
    found = begun()
    for _ in range(int(LIFE_S / IDLE_S * 2) - 1):
        autojump_clock.jump(IDLE_S / 2)
        found.used_s = trio.current_time()
        assert not found.is_over
    autojump_clock.jump(IDLE_S / 2)
    found.used_s = trio.current_time()
    assert found.is_over


async def test_it_ends_with_its_connection(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    found = begun()
    assert not found.is_over
    found.client.is_over = True
    assert found.is_over
