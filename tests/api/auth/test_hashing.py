from collections.abc import Callable

import bcrypt
import pytest
import trio

from jetraft.api.auth import hashing
from jetraft.api.auth.hashing import PasswordChecks, matches

HASH = bcrypt.hashpw(b"secret", b"$2b$04$" + b"a" * 21 + b"u")


@pytest.mark.parametrize(
    ("offered", "same"),
    [
        (b"secret", True),
        (b"", False),
        (b"secretx", False),
        (b"secret\0", False),
        (b"secret" + b"x" * 80, False),
        (HASH, False),
    ],
)
def test_a_password_is_compared_with_its_hash(offered: bytes, same: object) -> None:
    assert matches(offered, HASH) is same
    assert matches(offered, HASH.replace(b"$2b", b"$2a")) is same


def test_a_password_of_72_bytes_counts_and_a_longer_one_with_the_same_beginning_does_not() -> None:
    hashed = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4))
    assert matches(b"x" * 72, hashed)
    assert not matches(b"x" * 73, hashed)


def test_a_hash_that_is_none_matches_nothing() -> None:
    assert not matches(b"secret", b"$2a$04$short")


def always() -> bool:
    return True


def noting() -> tuple[list[bytes], Callable[[bytes, bytes], bool]]:
    """What was compared, and the comparison."""
    seen: list[bytes] = []

    def check(offered: bytes, _hashed: bytes) -> bool:
        seen.append(offered)
        return True

    return seen, check


async def served(checks: PasswordChecks, submit: Callable[[PasswordChecks], int]) -> None:
    """Submit, and run until as many were done."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(checks.run)
        wanted = submit(checks)
        while checks.checked < wanted:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def test_addresses_take_turns() -> None:
    order, check = noting()
    checks = PasswordChecks(check=check, threads=1)

    def submit(checks: PasswordChecks) -> int:
        for name in (b"1", b"2", b"3"):
            assert checks.submit("attacker", name, HASH, always, lambda _same: None)
        assert checks.submit("other", b"other", HASH, always, lambda _same: None)
        return 4

    await served(checks, submit)
    assert order == [b"1", b"other", b"2", b"3"]


async def test_a_connection_that_has_gone_costs_no_hashing() -> None:
    looked, check = noting()
    checks = PasswordChecks(check=check, threads=1)

    def submit(checks: PasswordChecks) -> int:
        assert checks.submit("a", b"gone", HASH, lambda: False, lambda _same: None)
        assert checks.submit("a", b"here", HASH, always, lambda _same: None)
        return 1

    await served(checks, submit)
    assert looked == [b"here"]


def test_the_queue_is_bounded_in_all_and_for_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "QUEUE_MAX", 5)
    monkeypatch.setattr(hashing, "ADDRESS_MAX", 3)
    checks = PasswordChecks()
    taken = [checks.submit(address, b"x", HASH, always, lambda _same: None) for address in "aaaabbb"]
    assert taken == [True, True, True, False, True, True, False]
    assert checks.statistics() == {"checked": 0, "refused": 2, "waiting": 5}


async def test_no_more_than_so_many_run_at_a_time() -> None:
    running, most = 0, 0
    begun, may_end = trio.Event(), trio.Event()

    def check(_offered: bytes, _hashed: bytes) -> bool:
        async def inside() -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            begun.set()
            await may_end.wait()
            running -= 1

        trio.from_thread.run(inside)
        return True

    checks = PasswordChecks(check=check, threads=2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(checks.run)
        for _ in range(6):
            checks.submit("a", b"x", HASH, always, lambda _same: None)
        await begun.wait()
        may_end.set()
        while checks.checked < 6:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert most <= 2
