"""What nodes say of themselves is believed as far as its types go."""

import msgpack
import pytest

from jetraft.cluster.meta.profile import KEY, TOLD_STEP_BYTES, UNKNOWN, NodeProfile, lower, unpack_profile
from jetraft.store.model.config import StorageType

FILE, MEMORY = StorageType.FILE, StorageType.MEMORY
FULL = NodeProfile(tags=lower(["AZ:a", "ssd"]), capacity={FILE: 1000, MEMORY: 10}, held={FILE: 300})


def test_a_profile_comes_back_from_the_wire() -> None:
    told = msgpack.unpackb(msgpack.packb({KEY: FULL.pack()}))
    assert unpack_profile(told) == FULL
    assert FULL.tags == {"az:a", "ssd"}


@pytest.mark.parametrize(
    "told",
    [
        {},
        {KEY: "x"},
        {KEY: {"tags": "ssd", "capacity": {}, "held": {}}},
        {KEY: {"tags": [1], "capacity": {}, "held": {}}},
        {KEY: {"tags": ["x"] * 65, "capacity": {}, "held": {}}},
        {KEY: {"tags": ["x" * 300], "capacity": {}, "held": {}}},
        {KEY: {"tags": [], "capacity": {"file": -1}, "held": {}}},
        {KEY: {"tags": [], "capacity": {"file": True}, "held": {}}},
        {KEY: {"tags": [], "capacity": {"tape": 1}, "held": {}}},
        {KEY: {"tags": [], "capacity": {}, "held": {"file": 1 << 63}}},
        {KEY: {"tags": [], "capacity": {}}},
    ],
)
def test_nonsense_is_as_good_as_silence(told: dict[str, object]) -> None:
    assert unpack_profile(told) == UNKNOWN


def test_room_is_what_is_neither_promised_nor_held() -> None:
    assert FULL.room(FILE, 100) == 700, "more is held than was promised"
    assert FULL.room(FILE, 900) == 100
    assert FULL.room(MEMORY, 11) == 0
    assert UNKNOWN.room(FILE, 10**18) is None


def test_small_changes_are_not_told() -> None:
    slightly = NodeProfile(tags=FULL.tags, capacity=FULL.capacity, held={FILE: 300 + TOLD_STEP_BYTES - 1})
    clearly = NodeProfile(tags=FULL.tags, capacity=FULL.capacity, held={FILE: 300, MEMORY: TOLD_STEP_BYTES})
    assert not slightly.differs_from(FULL)
    assert clearly.differs_from(FULL)
    assert UNKNOWN.differs_from(FULL)
