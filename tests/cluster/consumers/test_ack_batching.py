"""Folded commands mean what the single ones meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.consumers.ack_batching import AckBatch
from jetraft.cluster.state import commands
from jetraft.cluster.state.commands import Acked, Delivered, to_runs
from jetraft.cluster.state.consumer_transitions import TRANSITIONS
from jetraft.store.model.config import AckPolicy, ConsumerConfig
from jetraft.store.stream.consumer_state import ConsumerState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jetraft.cluster.state.commands import ConsumerCommand

NAMES = ("c", "d")
TS_NS = 7

steps = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.one_of(
            st.tuples(st.just("deliver"), st.lists(st.booleans(), min_size=1, max_size=6)),
            st.tuples(st.just("ack"), st.sets(st.integers(-12, 4), min_size=1, max_size=5)),
            st.tuples(st.sampled_from(["redeliver", "drop", "progress"]), st.integers(0, 12)),
        ),
    ),
    max_size=30,
)


class Leader:
    """Decides as a core does: sequences ascend, and acks may name what this leader has not delivered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stream_seq = self.consumer_seq = 0
        self.ahead: set[int] = set()

    def command(self, kind: str, what: object) -> commands.ConsumerCommand | None:
        if kind == "deliver":
            assert isinstance(what, list)
            span = range(self.stream_seq + 1, self.stream_seq + 1 + len(what))
            seqs = [seq for seq, wanted in zip(span, what, strict=True) if wanted and seq not in self.ahead]
            first, self.consumer_seq = self.consumer_seq + 1, self.consumer_seq + len(seqs)
            self.stream_seq = seqs[-1] if seqs else self.stream_seq
            return Delivered(self.name, TS_NS, first, to_runs(seqs)) if seqs else None
        if kind == "ack":
            assert isinstance(what, set)
            seqs = sorted(self.stream_seq + offset for offset in what if self.stream_seq + offset > 0)
            self.ahead.update(seq for seq in seqs if seq > self.stream_seq)
            return Acked(self.name, to_runs(seqs)) if seqs else None
        assert isinstance(what, int)
        seq = max(1, self.stream_seq - what)
        if kind == "redeliver":
            self.consumer_seq += 1
            return commands.Redelivered(self.name, TS_NS, self.consumer_seq, ((seq, 2),))
        if kind == "drop":
            return commands.Dropped(self.name, to_runs((seq,)))
        return commands.ConsumerProgress(self.name, TS_NS, to_runs((seq,)))


def outcome(batch: Iterable[commands.ConsumerCommand]) -> tuple[dict[str, ConsumerState], dict[str, set[int]]]:
    """The states that commands lead to, and what they were the last to be done with."""
    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT)
    states = {name: ConsumerState(name=name, config=config, created_ns=0, start_seq=1) for name in NAMES}
    done: dict[str, set[int]] = {name: set() for name in NAMES}
    for command in batch:
        done[command.name].update(TRANSITIONS[type(command)](states[command.name], command))
    return states, done


@given(steps)
def test_folding_changes_neither_states_nor_what_is_done_with(taken: Sequence[tuple[str, tuple[str, object]]]) -> None:
    leaders = {name: Leader(name) for name in NAMES}
    made = (leaders[name].command(kind, what) for name, (kind, what) in taken)
    batch = [command for command in made if command is not None]
    notes = AckBatch()
    for command in through_the_log(batch):
        notes.add([command])
    assert len(notes) == len(batch)
    assert outcome(notes.take()) == outcome(batch)
    assert len(notes) == 0


def through_the_log(batch: Sequence[commands.ConsumerCommand]) -> list[commands.ConsumerCommand]:
    """The same commands with runs of their own, by way of the log."""
    return commands.decode_consumer_commands(commands.encode_consumer_commands(batch))


def test_a_row_of_fetches_becomes_one_delivery_and_one_ack() -> None:
    notes = AckBatch()
    for first in range(1, 1001, 10):
        seqs = range(first, first + 10)
        notes.add([Delivered("c", first, first, to_runs(seqs))])
        notes.add([Acked("c", to_runs(seqs))])
    assert notes.take() == [Delivered("c", 991, 1, to_runs(range(1, 1001))), Acked("c", to_runs(range(1, 1001)))]


def test_an_ack_that_runs_ahead_of_its_delivery_keeps_its_place() -> None:
    notes = AckBatch()
    batch: list[ConsumerCommand] = [
        Delivered("c", 1, 1, to_runs((1, 2))),
        Acked("c", to_runs((4,))),
        Delivered("c", 1, 3, to_runs((3, 5))),
    ]
    notes.add(batch)
    assert notes.take() == batch


def test_what_was_noted_about_a_deleted_consumer_is_forgotten() -> None:
    notes = AckBatch()
    notes.add([Delivered("c", 1, 1, to_runs((1,))), Delivered("d", 1, 1, to_runs((1,)))])
    notes.forget("c")
    notes.add([Delivered("d", 1, 2, to_runs((2,)))])
    assert notes.take() == [Delivered("d", 1, 1, to_runs((1,))), Delivered("d", 1, 2, to_runs((2,)))]
