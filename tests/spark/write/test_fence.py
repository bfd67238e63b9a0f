"""The protocol of exactly once against a model of the stream: attempts that crash, repeat, race and come late.

The model stores an atomic batch if its condition holds, loses acks, loses batches, delivers batches later, and answers
reads with what was true some time ago. Whatever happens, a partition is in the stream at most once, row by row, and
once an attempt has ended well, exactly once.
"""

from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_jetstream.errors import NotReproducibleError, SupersededError
from pyspark_jetstream.write.fence import (
    NO_ROOM,
    Effect,
    Fence,
    Publish,
    ReadBack,
    ReadFence,
    RemoveFences,
    StoredRows,
    parse_fence,
    publish_partition,
)
from pyspark_jetstream.write.rows import Rows, cut

Key = tuple[bytes, bytes, bytes]
PIECE = 3


def rows(numbers: list[int]) -> Rows:
    """A row for each number; equal numbers make equal rows."""
    payloads = pa.array([b"%d" % number for number in numbers], pa.binary())
    same = [pa.array([text] * len(numbers), pa.binary()) for text in (b"s", b"")]
    return Rows(same[0], same[1], payloads)


def pieces(numbers: list[int], rows_max: int = PIECE) -> Iterator[Rows]:
    return cut([rows(numbers)], rows_max=rows_max, bytes_max=1 << 20)


@attrs.define
class Model:
    """The part of a stream that one partition of a query writes: rows and fences by sequence; None: removed."""

    stored: list[Key | Fence | None] = attrs.Factory(list)
    late: list[Publish] = attrs.Factory(list)  # batches that are still on their way
    rows_max: int = 1 << 20  # of a batch that the stream takes
    keeps_newest_fence: bool = False  # only, when it is full

    @property
    def fences(self) -> list[Fence]:
        return [one for one in self.stored if isinstance(one, Fence)]

    def numbers(self) -> Counter[int]:
        return Counter(int(one[2]) for one in self.stored if isinstance(one, tuple))

    def commit(self, batch: Publish) -> int | None:
        """Store all of the batch, or nothing."""
        last = self.fences[-1].seq if self.fences else 0
        if batch.expected != last:
            return None
        self.stored += batch.rows.keys()
        seq = len(self.stored) + 1
        self.stored.append(parse_fence(batch.fence.payload(), seq))
        return seq

    def rows_up_to(self, fence: Fence) -> StoredRows:
        found: list[Key] = []
        at = fence
        while True:
            found[:0] = [one for one in self.stored[at.seq - 1 - at.last_rows : at.seq - 1] if isinstance(one, tuple)]
            before = self.stored[at.previous - 1] if at.previous else None
            if before is None:
                return StoredRows(found, len(found) == fence.rows)
            assert isinstance(before, Fence)
            at = before

    def remove_fences(self) -> None:
        """Make room, if that is what the stream lacks."""
        for fence in self.fences[:-1] if self.keeps_newest_fence else ():
            self.stored[fence.seq - 1] = None

    def perform(self, effect: Effect, fate: str) -> Any:
        """The outcome of an effect, as the fate of its messages has it."""
        if isinstance(effect, ReadBack):
            return self.rows_up_to(effect.fence)
        if isinstance(effect, ReadFence):
            known = self.fences
            if fate == "lost" and len(known) > 1:
                return known[-2]  # of a leader that is no longer one
            return known[-1] if known else None
        if isinstance(effect, RemoveFences):
            return self.remove_fences()
        if len(effect.rows) > self.rows_max:
            return NO_ROOM
        if fate == "late":
            self.late.append(effect)
        seq = self.commit(effect) if fate in {"stored", "unheard"} else None
        return seq if fate == "stored" else None

    def let_the_late_come(self, running: "list[Attempt]") -> None:
        """Batches that are on their way arrive, and attempts that still run go on."""
        for batch in self.late:
            self.commit(batch)
        for attempt in running:
            for _ in range(50):
                if not attempt.ended:
                    attempt.step(self, "stored")


@attrs.define(eq=False)
class Attempt:
    """A running attempt, at its next effect."""

    steps: Generator[Effect, Any, int]
    epoch: int
    effect: Effect | None = None
    ended: bool = False
    is_cut: bool = False  # it fails, and does not know: Spark ends its rows early, as if there were no more

    def step(self, model: Model, fate: str) -> bool:
        """Do one effect; true when the attempt has ended well with it."""
        try:
            outcome = None if self.effect is None else model.perform(self.effect, fate)
            self.effect = self.steps.send(outcome)
        except StopIteration:
            self.ended = True
            return True
        except (NotReproducibleError, SupersededError):
            self.ended = True
        return False


def alone(model: Model, numbers: list[int], epoch: int, *, rows_max: int = PIECE, **how: bool) -> int:
    """An attempt without disturbance; raises what it raises. Returns how many rows it published."""
    steps = publish_partition(pieces(numbers, rows_max), epoch, **how)
    outcome: Any = None
    for _ in range(1000):
        try:
            outcome = model.perform(steps.send(outcome), "stored")
        except StopIteration as ended:
            return int(ended.value)
    raise AssertionError("the attempt does not end")


FATES = st.sampled_from(["stored", "stored", "stored", "unheard", "lost", "late"])
DECISIONS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), FATES), max_size=60)


@pytest.mark.parametrize("keeps_newest_fence", [False, True])
@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(numbers=st.lists(st.integers(0, 6), max_size=11), decisions=DECISIONS, order=st.randoms(use_true_random=False))
def test_rows_are_stored_once_whatever_attempts_do(
    numbers: list[int], decisions: list[tuple[int, int, str]], order: Any, *, keeps_newest_fence: bool
) -> None:
    model, epoch = Model(keeps_newest_fence=keeps_newest_fence), 0
    expected: Counter[int] = Counter()  # of finished micro-batches
    running: list[Attempt] = []
    for choice, which, fate in decisions:
        if choice == 0 or not running:
            mine = list(numbers)
            if which % 2:
                order.shuffle(mine)
            is_cut = which > 3
            if is_cut:
                del mine[len(mine) // 2 :]
            steps = publish_partition(pieces(mine, 1 + order.randrange(4)), epoch)  # each attempt cuts as it likes
            model.rows_max = 1 + order.randrange(4)  # and the stream has room for less at times
            running.append(Attempt(steps, epoch, is_cut=is_cut))
        elif choice == 1:
            running.pop(which % len(running))  # a crash
        elif choice == 2 and model.late:
            model.commit(model.late.pop(which % len(model.late)))
        else:
            attempt = running[which % len(running)]
            if attempt.step(model, fate) and attempt.epoch == epoch and not attempt.is_cut:
                expected += Counter(numbers)
                assert model.numbers() == expected
                epoch += 1  # Spark begins the next micro-batch; attempts of this one may still run
            running = [one for one in running if not one.ended]
        assert model.numbers() <= expected + Counter(numbers)
    shuffled = list(numbers)
    order.shuffle(shuffled)
    try:
        alone(model, shuffled, epoch)
    except NotReproducibleError:  # stored rows cannot be read back without the fences between them
        assert keeps_newest_fence
        assert model.numbers() <= expected + Counter(numbers)
        return
    expected += Counter(numbers)
    assert model.numbers() == expected
    model.let_the_late_come(running)
    assert model.numbers() == expected


@settings(deadline=None, max_examples=60)
@given(
    first=st.lists(st.integers(0, 4), max_size=9),
    second=st.lists(st.integers(0, 4), max_size=9),
    crash=st.integers(1, 8),
)
def test_other_rows_stop_the_task_before_it_publishes(first: list[int], second: list[int], crash: int) -> None:
    model = Model()
    attempt = Attempt(publish_partition(pieces(first), 7), 7)
    for _ in range(crash):
        if not attempt.ended:
            attempt.step(model, "stored")
    before = model.numbers()
    if before <= Counter(second):
        alone(model, second, 7)
        assert model.numbers() == Counter(second)
    else:
        with pytest.raises(NotReproducibleError):
            alone(model, second, 7)
        assert model.numbers() == before


def test_a_micro_batch_that_was_followed_by_another_is_not_written() -> None:
    model = Model()
    alone(model, [1, 2], 4)
    alone(model, [], 5)
    with pytest.raises(SupersededError, match="micro-batch 4 was written, and so was 5"):
        alone(model, [1, 2], 4)
    assert model.numbers() == Counter([1, 2])
    assert [fence.rows for fence in model.fences] == [2, 0]


def test_a_second_attempt_publishes_only_what_is_missing() -> None:
    model = Model()
    attempt = Attempt(publish_partition(pieces(list(range(10))), 0), 0)
    while sum(model.numbers().values()) < 6:
        attempt.step(model, "stored")
    assert alone(model, list(range(10)), 0) == 4
    assert alone(model, list(range(10)), 0) == 0
    assert alone(model, list(range(9, -1, -1)), 0) == 0
    assert model.numbers() == Counter(range(10))


@pytest.mark.parametrize("cut_at", range(11))
def test_an_attempt_whose_rows_ended_early_is_completed(cut_at: int) -> None:
    model = Model()
    alone(model, list(range(cut_at)), 0)
    assert alone(model, list(range(10)), 0) == 10 - min(cut_at, 10)
    assert model.numbers() == Counter(range(10))


@pytest.mark.parametrize("rows_max", range(1, 12))
def test_an_attempt_with_other_pieces_passes_over_the_same_rows(rows_max: int) -> None:
    model = Model()
    alone(model, list(range(7)), 0)
    assert alone(model, list(range(10)), 0, rows_max=rows_max) == 3
    assert model.numbers() == Counter(range(10))
    assert not any(isinstance(effect, ReadBack) for effect in effects(model, list(range(10)), rows_max))


def effects(model: Model, numbers: list[int], rows_max: int) -> list[Effect]:
    """What an attempt does."""
    steps = publish_partition(pieces(numbers, rows_max), 0)
    done: list[Effect] = []
    try:
        while True:
            done.append(steps.send(model.perform(done[-1], "stored") if done else None))
    except StopIteration:
        return done


def test_a_piece_that_the_stream_refuses_becomes_smaller_and_leaves_one_fence() -> None:
    model = Model(rows_max=3)
    assert alone(model, list(range(40)), 0, rows_max=16, replaces_fences=True) == 40
    assert model.numbers() == Counter(range(40))
    assert {fence.previous for fence in model.fences} == {0}  # a stream that is full keeps one only
    kept = Model(rows_max=3)
    alone(kept, list(range(40)), 0, rows_max=16)
    assert all(fence.previous for fence in kept.fences[1:])


def test_changed_rows_are_accepted_for_the_attempt_that_says_so() -> None:
    model = Model()
    alone(model, list(range(10)), 3)
    with pytest.raises(NotReproducibleError, match="acceptChangedRows=3 continues once"):
        alone(model, list(range(5, 15)), 3)
    for _ in range(2):
        alone(model, list(range(5, 15)), 3, accepts_changes=True)
        assert model.numbers() == Counter(range(15))
    alone(model, [20], 4)
    assert model.numbers() == Counter([*range(15), 20])


def test_rows_behind_a_fence_of_the_first_form_are_compared_one_by_one() -> None:
    model = Model()
    alone(model, list(range(6)), 0)
    old = (
        b'{"form": 1, "epoch": 0, "pieces": 2, "rows": 6, "last_rows": 3, "previous": 4, "digest": "ab", "done": false}'
    )
    assert model.fences[-1].previous == 4
    model.stored[-1] = parse_fence(old, len(model.stored))
    assert alone(model, list(range(10)), 0) == 4
    assert model.numbers() == Counter(range(10))


def test_a_fence_that_is_gone_stops_the_attempt() -> None:
    model = Model()
    steps = publish_partition(pieces(list(range(10))), 0)
    outcome = model.perform(next(steps), "stored")
    outcome = model.perform(steps.send(outcome), "stored")
    steps.send(outcome)
    assert isinstance(steps.send(None), ReadFence)
    with pytest.raises(NotReproducibleError, match="purged or created again"):
        steps.send(None)


def test_a_message_of_another_origin_on_a_fence_subject_is_named() -> None:
    for payload in (b"", b"{}", b"[1]", b'{"form": 1}'):
        with pytest.raises(NotReproducibleError, match="message 12 is on a fence subject"):
            parse_fence(payload, 12)
