"""The judge finds what the faults program looks for, so that a clean run means something."""

import io

import pytest

from tests.faults.journal import Journal, judge

HELD = {1: b"w0-1", 2: b"w1-1", 3: b"w0-2"}


def journal(*acked: tuple[str, int, int, int]) -> Journal:
    """Of (payload, sequence, first sent at, acknowledged at)."""
    found = Journal(io.StringIO())
    for payload, seq, sent_ns, acked_ns in acked:
        found.sent(payload.encode(), sent_ns)
        if acked_ns:
            found.acked(payload.encode(), seq, acked_ns, duplicate=False)
    return found


@pytest.fixture
def three() -> Journal:
    return journal(("w0-1", 1, 10, 20), ("w1-1", 2, 15, 30), ("w0-2", 3, 25, 40))


def test_equal_replicas_with_every_acknowledged_message_are_clean(three: Journal) -> None:
    assert judge(three, {"n1": HELD, "n2": dict(HELD), "n3": dict(HELD)}).clean


def test_an_acknowledged_message_that_one_replica_lacks_is_lost(three: Journal) -> None:
    verdict = judge(three, {"n1": HELD, "n2": {1: b"w0-1", 2: b"w1-1"}})

    assert (verdict.lost, verdict.unequal, verdict.clean) == (1, 1, False)


def test_a_message_at_another_sequence_than_acknowledged_is_misplaced(three: Journal) -> None:
    assert judge(three, {"n1": {1: b"w0-1", 2: b"w0-2", 3: b"w1-1"}}).misplaced == 2


def test_a_message_that_is_there_twice_is_a_duplicate(three: Journal) -> None:
    assert judge(three, {"n1": HELD | {4: b"w0-1"}}).duplicates == 1


def test_a_message_that_was_never_sent_is_a_stranger(three: Journal) -> None:
    assert judge(three, {"n1": HELD | {4: b"w9-9"}}).strangers == 1


def test_a_message_before_one_that_was_acknowledged_before_it_was_sent_is_out_of_order() -> None:
    late = journal(("w0-1", 2, 10, 20), ("w1-1", 1, 25, 30))

    assert judge(late, {"n1": {1: b"w1-1", 2: b"w0-1"}}).disordered == 1


def test_messages_in_flight_at_the_same_time_may_come_in_any_order() -> None:
    together = journal(("w0-1", 2, 10, 30), ("w1-1", 1, 25, 40))

    assert judge(together, {"n1": {1: b"w1-1", 2: b"w0-1"}}).clean


def test_two_acknowledgements_of_one_message_must_name_one_sequence(three: Journal) -> None:
    three.acked(b"w0-1", 7, 50, duplicate=True)

    assert judge(three, {"n1": HELD}).contradictory == 1


def test_a_message_that_is_never_acknowledged_makes_a_run_unclean() -> None:
    verdict = judge(journal(("w0-1", 1, 10, 20), ("w0-2", 0, 30, 0)), {"n1": {1: b"w0-1"}})

    assert (verdict.unknown, verdict.clean) == (1, False)


def test_the_longest_gap_counts_from_the_fault_to_the_next_acknowledgement(three: Journal) -> None:
    assert three.longest_gap_ns(21, 40) == 10
    assert three.longest_gap_ns(0, 25) == 20


def test_the_pace_counts_what_was_acknowledged_in_between(three: Journal) -> None:
    first_s, last_s = three.ack_times_ns[0] / 1e9, three.ack_times_ns[-1] / 1e9

    assert three.pace(first_s - 1, first_s + 1) == pytest.approx(len(three.ack_times_ns) / 2)
    assert three.pace(last_s, last_s + 1) == 0
