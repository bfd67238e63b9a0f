"""The memory of a window of duplicates against a plain list, at sizes where chunks and the table grow and shrink."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.stream._idwindow import IdWindow

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 40), st.integers(1, 400)),
        st.tuples(st.just("forget"), st.integers(0, 2_000), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS)
def test_it_knows_what_a_plain_list_knows(steps: list[tuple[str, int, int]]) -> None:
    window, stored = IdWindow(), list[tuple[bytes, int, int]]()
    now_ns = seq = 0
    for what, value, count in steps:
        if what == "add":
            for number in range(count):
                now_ns, seq = now_ns + 1, seq + 1
                msg_id = b"%d" % ((value * 37 + number) % 900) * (1 + value % 3)
                window.add(msg_id, seq, now_ns)
                stored.append((msg_id, seq, now_ns))
        else:
            before = len({msg_id for msg_id, _, _ in stored})
            stored = [entry for entry in stored if entry[2] >= now_ns - value]
            assert window.forget_before(now_ns - value) == before - len({msg_id for msg_id, _, _ in stored})
        newest = {msg_id: (seq, ts_ns) for msg_id, seq, ts_ns in stored}
        assert window.known == len(newest)
        assert all(window.get(msg_id) == place for msg_id, place in newest.items())
        assert window.get(b"never") is None
        assert window.last_ts_ns() == (stored[-1][2] if stored else None)
        copy = IdWindow()
        copy.unpack(window.pack())
        assert copy.pack() == window.pack()
        assert copy.known == window.known
        assert all(copy.get(msg_id) == place for msg_id, place in newest.items())


def test_empty_and_long_ids_are_ids() -> None:
    window = IdWindow()
    for seq, msg_id in enumerate((b"", b"x" * 65_535, b"\0", b"\0\0"), start=1):
        window.add(msg_id, seq, seq)
    assert [window.get(msg_id) for msg_id in (b"", b"x" * 65_535, b"\0", b"\0\0")] == [(1, 1), (2, 2), (3, 3), (4, 4)]


@given(st.binary(max_size=60))
def test_packed_ids_that_end_early_are_refused(garbage: bytes) -> None:
    window = IdWindow()
    window.add(b"an id", 2**63, 2**62)
    packed = window.pack()
    with pytest.raises(ValueError, match="are damaged"):
        IdWindow().unpack(packed[:-1])
    with contextlib.suppress(ValueError):
        window.unpack(garbage)
    assert window.known >= 1


def test_an_id_costs_less_than_fifty_bytes_and_a_window_that_moved_on_nothing() -> None:
    window = IdWindow()
    for seq in range(300_000):
        window.add(b"flight-%d" % seq, seq, seq)
    assert window.memory_bytes < 300_000 * 50
    assert window.forget_before(300_000) == 300_000
    assert window.memory_bytes < 10_000


def test_a_window_that_moves_along_stays_small() -> None:
    window = IdWindow()
    for seq in range(200_000):
        window.add(b"%d" % seq, seq, seq)
        window.forget_before(seq - 1_000)
    assert window.known == 1_001
    assert window.memory_bytes < 200_000
