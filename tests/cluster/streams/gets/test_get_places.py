"""Places of direct gets that wait: compared with a plain count of who has how many."""

from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.streams.gets.get_places import BYTES_MAX, CLIENT_SHARE, ELSEWHERE, PLACES_MAX, GetPlaces

CLIENTS = st.integers(0, 3)
SIZES = st.sampled_from([1, 1000, BYTES_MAX // 8, BYTES_MAX // 4])


@given(st.lists(st.tuples(CLIENTS, SIZES), max_size=100))
def test_no_connection_has_more_than_its_share(asked: list[tuple[int, int]]) -> None:
    places, taken = GetPlaces(), list[tuple[int, int]]()
    for client, size in asked:
        if places.take(client, size):
            taken.append((client, size))
    assert len(places) == len(taken)
    assert sum(size for _, size in taken) <= BYTES_MAX
    for client in range(4):
        shares = 3 if client == ELSEWHERE else 1
        assert sum(size for of, size in taken if of == client) <= shares * BYTES_MAX // CLIENT_SHARE
    for client, size in taken:
        places.give_back(client, size)
    assert len(places) == 0
    assert places.take(1, BYTES_MAX // CLIENT_SHARE)


def test_the_others_have_places_when_one_has_all_of_its_own() -> None:
    places = GetPlaces()
    assert sum(places.take(1, 1) for _ in range(PLACES_MAX)) == PLACES_MAX // CLIENT_SHARE
    assert places.take(2, 1)
    assert sum(places.take(ELSEWHERE, 1) for _ in range(PLACES_MAX)) == PLACES_MAX // CLIENT_SHARE * 3 - 1
    assert not places.take(3, 1)
    places.give_back(1, 1)
    assert places.take(3, 1)
