"""Staging of atomic batches: against a naive model, and the limits of stream and server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.batch_room import BatchRoom
from jetraft.cluster.streams.batches import atomic
from jetraft.cluster.streams.batches.atomic import AtomicBatches, Declined, Kept, Whole
from jetraft.store.model.limits import (
    ATOMIC_BYTES_MAX,
    ATOMIC_MESSAGES_MAX,
    ATOMIC_PER_SERVER_MAX,
    ATOMIC_PER_STREAM_MAX,
    BATCH_IDLE_NS_MAX,
    STAGED_BYTES_MAX,
)

if TYPE_CHECKING:
    from jetraft.cluster.streams.batches.atomic import StagedRun, Step

INCOMPLETE, TOO_LARGE, TOO_MANY, BAD_COMMIT, LEVEL = 10176, 10199, 10210, 10200, 10185


def member(batch_id: str, seq: object, commit: str | None = None, level: str | None = None) -> dict[bytes, bytes]:
    fields = {"Batch-Id": batch_id, "Batch-Sequence": seq, "Batch-Commit": commit, "Required-Api-Level": level}
    return {f"Nats-{name}".encode(): str(value).encode() for name, value in fields.items() if value is not None}


def refusal(step: Step) -> tuple[int, str]:
    assert isinstance(step, Declined)
    return step.error.err_code, step.abandoned


def test_a_batch_is_whole_with_its_commit_and_known_no_more() -> None:
    batches = AtomicBatches(BatchRoom())
    assert isinstance(batches.take(member("b", 1), b"one", 0), Kept)
    assert isinstance(batches.take(member("b", 2), b"two", 0), Kept)
    assert batches.take(member("b", 3, "1"), b"three", 0) == Whole(b"b", [b"one", b"two", b"three"], ends_before=False)
    assert not len(batches)
    assert refusal(batches.take(member("b", 4), b"four", 0)) == (INCOMPLETE, "")


def test_a_batch_that_ends_before_its_commit_does_not_have_that_message() -> None:
    batches = AtomicBatches(BatchRoom())
    batches.take(member("b", 1), b"one", 0)
    assert batches.take(member("b", 2, "eob"), b"two", 0) == Whole(b"b", [b"one"], ends_before=True)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (member("b", 3), (INCOMPLETE, "incomplete")),
        (member("b", 1), (INCOMPLETE, "incomplete")),
        (member("b", 3, "1"), (INCOMPLETE, "incomplete")),
        (member("b", 2, "2"), (BAD_COMMIT, "")),
        (member("b", 2, ""), (BAD_COMMIT, "")),
        (member("b", 2, level="99"), (LEVEL, "unsupported")),
    ],
)
def test_what_ends_a_batch_makes_all_of_it_unknown(headers: dict[bytes, bytes], expected: tuple[int, str]) -> None:
    room = BatchRoom()
    batches = AtomicBatches(room)
    batches.take(member("b", 1), b"one", 0)
    assert refusal(batches.take(headers, b"two", 0)) == expected
    assert (len(batches), room.atomic, room.staged_bytes) == (0, 0, 0)
    assert refusal(batches.take(member("b", 2, "1"), b"two", 0)) == (INCOMPLETE, "")


def test_a_batch_takes_as_many_messages_as_it_may_and_no_more() -> None:
    batches = AtomicBatches(BatchRoom())
    for seq in range(1, ATOMIC_MESSAGES_MAX + 1):
        assert isinstance(batches.take(member("b", seq), b"x", 0), Kept)
    whole = batches.take(member("b", ATOMIC_MESSAGES_MAX + 1, "eob"), b"x", 0)
    assert isinstance(whole, Whole)
    assert len(whole.records) == ATOMIC_MESSAGES_MAX
    for seq in range(1, ATOMIC_MESSAGES_MAX + 1):
        batches.take(member("c", seq), b"x", 0)
    assert refusal(batches.take(member("c", ATOMIC_MESSAGES_MAX + 1, "1"), b"x", 0)) == (TOO_LARGE, "large")


def test_a_batch_holds_no_more_bytes_than_an_entry_may() -> None:
    batches, half = AtomicBatches(BatchRoom()), bytes(ATOMIC_BYTES_MAX // 2)
    batches.take(member("b", 1), half, 0)
    batches.take(member("b", 2), half, 0)
    assert refusal(batches.take(member("b", 3, "1"), b"x", 0)) == (TOO_LARGE, "large")


def test_stream_and_server_have_so_many_batches_and_bytes_in_flight() -> None:
    room = BatchRoom()
    batches = AtomicBatches(room)
    for number in range(ATOMIC_PER_STREAM_MAX):
        batches.take(member(f"b{number}", 1), b"x", 0)
    assert refusal(batches.take(member("more", 1), b"x", 0)) == (TOO_MANY, "")
    assert isinstance(batches.take(member("b0", 2, "1"), b"x", 0), Whole)
    assert isinstance(batches.take(member("more", 1), b"x", 0), Kept)
    batches.end()
    assert (room.atomic, room.staged_bytes) == (0, 0)
    room.atomic = ATOMIC_PER_SERVER_MAX
    assert refusal(batches.take(member("more", 1), b"x", 0)) == (TOO_MANY, "")
    room.atomic, room.staged_bytes = 0, STAGED_BYTES_MAX
    assert refusal(batches.take(member("more", 1), b"x", 0)) == (TOO_MANY, "")


def test_a_batch_is_abandoned_when_no_message_came_for_too_long() -> None:
    room = BatchRoom()
    batches = AtomicBatches(room)
    batches.take(member("early", 1), b"x", 0)
    batches.take(member("late", 1), b"x", 5)
    batches.take(member("early", 2), b"x", 7)  # it waits since then
    assert batches.deadline_ns == 5 + BATCH_IDLE_NS_MAX
    assert batches.expire(4 + BATCH_IDLE_NS_MAX) == []
    assert batches.expire(5 + BATCH_IDLE_NS_MAX) == [b"late"]
    assert batches.expire(7 + BATCH_IDLE_NS_MAX) == [b"early"]
    assert (len(batches), room.atomic, room.staged_bytes) == (0, 0, 0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 5),
        st.sampled_from([None, None, None, "1", "eob", "no"]),
        st.integers(0, 4 * 10**9),
    ),
    max_size=60,
)


@given(STEPS)
def test_only_messages_one_to_n_in_order_ever_become_whole(
    steps: list[tuple[str, int, str | None, int]],
) -> None:
    """The model keeps a list per id, and starts again at each refusal."""
    room, now_ns = BatchRoom(), 0
    batches = AtomicBatches(room)
    model: dict[str, tuple[int, list[bytes]]] = {}
    for number, (name, seq, commit, pause_ns) in enumerate(steps):
        now_ns += pause_ns
        due = [other for other, (touched_ns, _) in model.items() if touched_ns + BATCH_IDLE_NS_MAX <= now_ns]
        assert sorted(batches.expire(now_ns)) == sorted(other.encode() for other in due)
        for other in due:
            del model[other]
        record = b"%d" % number
        step = batches.take(member(name, seq, commit), record, now_ns)
        _, held = model.pop(name, (0, []))
        fits = seq == len(held) + 1 and commit != "no" and not (commit == "eob" and not held)
        if not fits:
            assert isinstance(step, Declined)
        elif commit is None:
            assert isinstance(step, Kept)
            model[name] = (now_ns, [*held, record])
        else:
            stored: list[bytes | StagedRun] = [*held] if commit == "eob" else [*held, record]
            assert step == Whole(name.encode(), stored, ends_before=commit == "eob")
        assert len(batches) == len(model) == room.atomic
        assert room.staged_bytes == sum(len(one) for _, kept in model.values() for one in kept)


def test_the_reasons_of_advisories_are_those_of_the_reference() -> None:
    reasons = {atomic.INCOMPLETE, atomic.TOO_LARGE, atomic.TIMED_OUT, atomic.UNSUPPORTED}
    assert reasons == {"incomplete", "large", "timeout", "unsupported"}
