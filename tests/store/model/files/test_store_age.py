"""An older copy of a store, and what goes on from one, is told from a store that others have met."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.model.files.store_age import (
    FORMER_MAX,
    STARTS_MAX,
    KnownAge,
    LedgerPlace,
    StoreAge,
    StoreStart,
    pack_starts,
    unpack_age,
    unpack_known,
    unpack_starts,
)


def age(*starts: tuple[int, int], now: int, ledger: int = 1) -> StoreAge:
    """A store whose starts, by their numbers, found so many records, and which has `now` of them."""
    return StoreAge(
        ledger=ledger,
        starts=tuple(StoreStart(number, LedgerPlace(1, at)) for number, at in starts),
        place=LedgerPlace(1, now),
    )


FIRST = age((11, 1), now=9)
KNOWN = KnownAge.first(age((11, 1), (12, 9), now=20))


@pytest.mark.parametrize(
    ("told", "is_old"),
    [
        (age((11, 1), (12, 9), now=20), False),
        (age((11, 1), (12, 9), now=25), False),  # it has gone on
        (age((11, 1), (12, 9), (13, 25), now=26), False),  # and was started again
        (age((11, 1), (12, 9), (13, 20), now=21), False),  # with nothing in between
        (age((11, 1), now=9), True),  # the copy itself
        (age((11, 1), (99, 9), now=10), True),  # started
        (age((11, 1), (99, 9), now=2000), True),  # and gone on further than the other one
        (age((11, 1), (12, 9), (99, 15), now=2000), True),  # a copy of the store while the server ran
        (age((11, 1), (12, 9), (99, 15), (98, 2000), now=2001), True),
        (age((77, 1), now=2, ledger=5), False),  # another ledger: the store began empty
    ],
)
def test_a_store_fits_when_it_has_gone_through_what_is_known_of_it(told: StoreAge, *, is_old: bool) -> None:
    assert KNOWN.is_after(told) is is_old


def test_older_news_of_the_same_start_contradict_nothing() -> None:
    behind = age((11, 1), (12, 9), now=15)
    assert KNOWN.is_after(behind)
    assert not KNOWN.contradicts(behind)
    assert KNOWN.contradicts(age((11, 1), (12, 9), (13, 15), now=16))
    assert KNOWN.contradicts(FIRST)


def test_a_store_that_was_replaced_by_an_empty_one_does_not_come_back() -> None:
    known = KNOWN.with_heard(age((77, 1), now=2, ledger=5))
    assert not known.is_after(age((77, 1), now=3, ledger=5))
    assert known.is_after(age((11, 1), (12, 9), now=2000))
    for ledger in range(100, 100 + FORMER_MAX + 3):
        known = known.with_heard(age((ledger, 1), now=1, ledger=ledger))
    assert len(known.former) == FORMER_MAX


def test_a_store_that_was_given_up_does_not_come_back_and_an_empty_one_may() -> None:
    known = KNOWN.disowned()
    assert known.is_after(age((11, 1), (12, 9), now=2000))
    assert not known.is_after(age((77, 1), now=2, ledger=5))
    assert unpack_known(known.pack()) == known


def test_a_store_that_was_started_more_often_than_its_ledger_keeps_is_judged_by_its_places() -> None:
    starts = [(number, 10 * number) for number in range(13, 13 + STARTS_MAX)]
    assert not KNOWN.is_after(age(*starts, now=10_000))
    assert KNOWN.is_after(age(*[(number, 1) for number, _ in starts], now=10_000))
    assert KNOWN.is_after(age(*starts[1:], now=10_000)), "it keeps all of them, and never had the one that is known"


numbers = st.integers(0, (1 << 64) - 1)
places = st.builds(LedgerPlace, numbers, numbers)
ages = st.builds(
    StoreAge,
    ledger=numbers,
    starts=st.lists(st.builds(StoreStart, numbers, places), min_size=1, max_size=STARTS_MAX).map(tuple),
    place=places,
)
known_ages = st.builds(
    KnownAge, ledger=numbers, start=numbers, place=places, former=st.lists(numbers, max_size=FORMER_MAX).map(tuple)
)


@given(told=ages, known=known_ages)
def test_they_come_back_as_they_were_packed(told: StoreAge, known: KnownAge) -> None:
    assert unpack_age(told.pack()) == told
    assert unpack_starts(pack_starts(told.starts)) == told.starts
    assert unpack_known(known.pack()) == known


@pytest.mark.parametrize(
    "fields",
    [None, 7, [], [1], [1, [], 1, 1], [1, [[1, 1, -1]], 1, 1], [1, [[1, 1]], 1, 1], [1, [[1, 1, True]], 1, 1],
     [1, [[1, 1, 1]] * (STARTS_MAX + 1), 1, 1], [1 << 64, [[1, 1, 1]], 1, 1], ["1", [[1, 1, 1]], 1, 1]],
)  # fmt: skip
def test_anything_else_is_refused(fields: object) -> None:
    with pytest.raises(ValueError, match=r"store|number"):
        unpack_age(fields)
    with pytest.raises(ValueError, match=r"store|number"):
        unpack_known(fields)
