"""What members say to each other while one recovers: the bytes that older nodes send and expect, and what is refused.

The bytes are given as the plain values that msgpack wrote before there were messages; they must never change.
"""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from typing import Any, Final

import attrs
import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.raft.engine.membership import MEMBERS_MAX, Configuration
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.gossip import About
from jetraft.raft.mesh.messages import PROTOCOLS, Message
from jetraft.raft.mesh.rpc import RemoteCallError
from jetraft.raft.recovery import bounds
from jetraft.raft.recovery.joining_messages import (
    TERMS_SKIPPED,
    BeginEmpty,
    Elsewhere,
    Forgotten,
    JoinAdmitted,
    JoinRequest,
    JoinWaiting,
    RecallRequest,
    Remembered,
)
from jetraft.raft.recovery.repair_wire import (
    FRAMES_MAX,
    EndAnswer,
    EndRequest,
    RepairAnswer,
    RepairRequest,
    unpack_answer,
    unpack_end_answer,
    unpack_request,
)
from jetraft.raft.recovery.snapshot import CHUNK, SnapshotOpening, SnapshotRequest
from jetraft.raft.wire import GROUP_NAME_BYTES_MAX, TERM_MAX
from jetraft.store.model.ids import GroupId, node_id_of
from tests.harness.garbage import mangled

A, B = node_id_of("a"), node_id_of("b")
GROUP: Final = GroupId("S-R3F-x")
NUMBER: Final = b"12345678"
PACKED: Final = Configuration(voters=(A, B)).encode()
REPAIR: Final = RepairRequest(group_id=GROUP, incarnation=7, first=3, last=9, fence_term=5)
END: Final = EndRequest(group_id=GROUP, incarnation=7, index_max=9, term_max=4, fence_term=5)
ANSWER: Final = RepairAnswer(
    frames=(b"frame",),
    term_before=None,
    term_behind=4,
    commit_index=8,
    first_index=1,
    last_index=9,
    is_thinned=False,
    is_damaged=True,
    term_bounds=(2, 3),
    term=5,
    is_voter=True,
)

GOLDEN: Final[list[tuple[Message, list[Any]]]] = [
    (JoinRequest(group_id=GROUP, incarnation=7, number=NUMBER), [GROUP, 7, NUMBER]),
    (JoinAdmitted(term=3, configuration=PACKED, commit_index=9), ["admitted", 3, PACKED, 9]),
    (JoinWaiting(number=NUMBER, members=(A, B)), ["waiting", NUMBER, [A, B]]),
    (BeginEmpty(counted={A: NUMBER, B: b"87654321"}), ["anew", {A: NUMBER, B: b"87654321"}]),
    (Elsewhere(leader=A, term=3, configuration=PACKED), ["elsewhere", A, 3, PACKED]),
    (Elsewhere(leader="", term=3, configuration=PACKED), ["elsewhere", "", 3, PACKED]),
    (RecallRequest(group_id=GROUP, incarnation=7), [GROUP, 7]),
    (Forgotten(number=NUMBER, members=(A,)), ["forgot", NUMBER, [A]]),
    (
        Remembered(leader=A, term=3, last_term=2, last_index=9, configuration=PACKED),
        ["remembers", A, 3, 2, 9, PACKED],
    ),
    (REPAIR, [GROUP, 7, 3, 9, 5]),
    (ANSWER, [[b"frame"], None, 4, 8, 1, 9, False, True, [2, 3], 5, True]),
    (attrs.evolve(ANSWER, frames=(), term_bounds=None), [[], None, 4, 8, 1, 9, False, True, None, 5, True]),
    (END, [GROUP, 7, "end", 9, 4, 5]),
    (EndAnswer(last_index=9, last_term=4, term=5, voters=(A, B)), [9, 4, 5, [A, B]]),
    (
        SnapshotRequest(group_id=GROUP, incarnation=7, index=90, what=CHUNK, block=2, offset=3, size=4),
        [GROUP, 7, 90, "chunk", 2, 3, 4],
    ),
    (SnapshotOpening(manifest=b"m", members=PACKED, state_bytes=5, state_crc=6), [b"m", PACKED, 5, 6]),
]
KINDS: Final = sorted({type(message) for message, _ in GOLDEN}, key=lambda kind: kind.__name__)
ALL: Final = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@pytest.mark.parametrize(("message", "values"), GOLDEN, ids=lambda value: type(value).__name__)
def test_the_bytes_are_those_of_every_version(message: Message, values: list[Any]) -> None:
    assert message.pack() == msgpack.packb(values)
    assert type(message).unpack(message.pack()) == message


def test_every_message_is_here() -> None:
    ours = {kind for kind in PROTOCOLS.values() if kind.__module__.startswith("jetraft.raft.recovery.")}
    assert ours == set(KINDS)


@pytest.mark.parametrize(
    ("message", "place", "value"),
    [
        (REPAIR, 0, "x" * (GROUP_NAME_BYTES_MAX + 1)),
        (REPAIR, 0, ""),
        (REPAIR, 4, TERM_MAX + 1),
        (REPAIR, 4, True),
        (END, 5, 1 << 63),
        (END, 3, -1),
        (ANSWER, 0, [7]),
        (ANSWER, 0, [[]]),
        (ANSWER, 0, {}),
        (ANSWER, 8, [1, 2, 3]),
        (ANSWER, 9, 1 << 63),
        (GOLDEN[1][0], 1, 1 << 70),
        (GOLDEN[1][0], 1, -1),
        (GOLDEN[2][0], 2, [A] * (MEMBERS_MAX + 1)),
        (GOLDEN[3][0], 1, {A: b"123456789"}),
        (GOLDEN[3][0], 1, {str(number): NUMBER for number in range(MEMBERS_MAX + 1)}),
        (GOLDEN[8][0], 2, TERM_MAX - TERMS_SKIPPED + 1),
        (GOLDEN[8][0], 5, b"x" * (bounds.CONFIGURATION_BYTES_MAX + 1)),
        (GOLDEN[14][0], 3, ["chunk"]),
        (GOLDEN[15][0], 2, 1 << 40),
    ],
)
def test_a_field_out_of_its_bounds_is_refused(message: Message, place: int, value: object) -> None:
    values = list(next(values for known, values in GOLDEN if known == message))
    values[place] = value
    try:
        packed = msgpack.packb(values)
    except OverflowError:
        return  # no number that could arrive
    with pytest.raises(RemoteProtocolError):
        type(message).unpack(packed)


WORDS: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=9) | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=11) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=14,
)


def judge(kind: type[Message], packed: bytes) -> None:
    """What is taken is taken whole: it can be written, and is the same then."""
    with suppress(RemoteProtocolError):
        taken = kind.unpack(packed)
        assert kind.unpack(taken.pack()) == taken
    with suppress(RemoteCallError):
        unpack_request(packed)
    with suppress(RemoteProtocolError):
        unpack_answer(packed, REPAIR)
    with suppress(RemoteProtocolError):
        unpack_end_answer(packed, END)
    with suppress(RemoteProtocolError):
        About.decode(packed, "h")


@ALL
@given(st.binary(max_size=60) | WORDS.map(msgpack.packb))
@settings(deadline=None)
def test_garbage_raises_one_exception_only(kind: type[Message], packed: bytes) -> None:
    judge(kind, packed)


@ALL
@given(data=st.data())
@settings(deadline=None)
def test_a_message_that_was_changed_raises_one_exception_only(kind: type[Message], data: st.DataObject) -> None:
    judge(kind, data.draw(mangled([message.pack() for message, _ in GOLDEN if type(message) is kind])))


@ALL
def test_arrays_and_maps_that_announce_much_cost_little(kind: type[Message]) -> None:
    """A list has a place for each item that it announces, and 1024 may stand in each other."""
    count = max(kind.layout.items_max, kind.layout.pairs_max)
    heads = b"\xdc" + count.to_bytes(2, "big"), b"\xdd\x00\x0f\xff\xff", b"\xdd" + FRAMES_MAX.to_bytes(4, "big")
    tracemalloc.start()
    try:
        for head in (*heads, b"\xdf\x00\x0f\xff\xff"):
            with pytest.raises(RemoteProtocolError):
                kind.unpack((head * 1100)[: kind.layout.bytes_max])
            with pytest.raises(RemoteProtocolError):
                About.decode(head * 1100, "h")
        fields = bytes([0x90 + len(kind.layout.fields)])
        with pytest.raises(RemoteProtocolError):
            kind.unpack((fields + heads[2] * 1100)[: kind.layout.bytes_max])
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()
