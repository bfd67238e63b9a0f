"""A server that was told how much to hold refuses more, and only then."""

from jetraft.cluster.quota import LOOK_NS, Quota
from jetraft.store.model.config import StorageType

FILE, MEMORY = StorageType.FILE, StorageType.MEMORY


def test_the_limit_itself_may_be_held_and_not_a_byte_more() -> None:
    held = {FILE: 1000, MEMORY: 0}
    quota = Quota({FILE: 1000}, lambda: held)
    assert not quota.is_full(FILE, 0)
    held[FILE] = 1001
    assert quota.is_full(FILE, 0), "near the limit every question counts again"
    held[FILE] = 500
    assert not quota.is_full(FILE, 0)


def test_what_has_no_limit_is_never_full() -> None:
    assert not Quota({FILE: 10}, lambda: {FILE: 0, MEMORY: 10**12}).is_full(MEMORY, 0)


def test_far_from_the_limit_the_replicas_are_not_counted_in_every_turn() -> None:
    counted: list[int] = []

    def count() -> dict[StorageType, int]:
        counted.append(1)
        return {FILE: 10}

    quota = Quota({FILE: 1 << 30}, count)
    for now_ns in (LOOK_NS, LOOK_NS + 1, 2 * LOOK_NS - 1):
        quota.is_full(FILE, now_ns)
    assert len(counted) == 1
    quota.is_full(FILE, 2 * LOOK_NS)
    assert len(counted) == 2
