"""The judge of the faults of writing, on streams that are wrong in one way each."""

import pytest

from tests.faults.spark.judgement import Stored, judge

EQUAL: dict[str, object] = {"n1": [4], "n2": [4]}


def batch(batch_id: str, first_seq: int, *numbers: int) -> list[Stored]:
    """Rows and the fence behind them."""
    messages: list[int | None] = [*numbers, None]
    return [
        Stored(seq=first_seq + at, number=number, batch_id=batch_id, place=at + 1, is_last=number is None)
        for at, number in enumerate(messages)
    ]


GOOD = [*batch("a", 1, 0, 1), *batch("b", 4, 2)]


def test_a_stream_with_each_row_once_in_whole_batches_is_clean() -> None:
    assert judge(GOOD, 3, EQUAL).clean
    assert judge(GOOD, 3, EQUAL).acked == 3


@pytest.mark.parametrize(
    ("stored", "rows", "field"),
    [
        (GOOD, 4, "lost"),
        ([*GOOD, *batch("c", 6, 2)], 3, "duplicates"),
        ([*GOOD, *batch("c", 6, 7)], 3, "strangers"),
        ([*batch("a", 1, 0, 1), *batch("b", 4, 2)[:1]], 3, "misplaced"),
        ([*batch("a", 1, 0, 1)[1:], *batch("b", 4, 0, 2)], 3, "misplaced"),
        ([*GOOD, *batch("", 6, 3)], 4, "misplaced"),
    ],
)
def test_what_is_wrong_is_counted(stored: list[Stored], rows: int, field: str) -> None:
    assert getattr(judge(stored, rows, EQUAL), field) > 0


def test_replicas_that_differ_are_counted() -> None:
    assert judge(GOOD, 3, {"n1": [4], "n2": [5]}).unequal == 1
