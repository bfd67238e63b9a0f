"""Resets of a consumer: what is at or above the sequence is delivered again, and acknowledged again.

The log tells: behind a reset the consumer's numbers begin at 1, and nothing counts as acknowledged at or above its
sequence that was not delivered behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetraft.cluster.state import commands
from tests.simulator.features.coroutines import drive, proposals_of_the_world
from tests.simulator.features.feature import Feature
from tests.simulator.world import ViolationError, World

if TYPE_CHECKING:
    import contextlib

    from jetraft.cluster.state.commands import ConsumerCommand

CONSUMER = "C"


class Resets(Feature):
    """See the module."""

    keeps_acks = False

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._delivered: set[int] = set()  # since the last reset
        self._next_seq = 1  # what the consumer's next new message is at least
        self._next_number = 1
        self._reset_seq = 0

    def patches(self) -> contextlib.AbstractContextManager[object]:
        return proposals_of_the_world()

    def start(self) -> None:
        self.often(1.5, self._reset)

    def before_fault(self) -> None:
        self._reset()

    def _reset(self) -> None:
        host = self.some_leader()
        if host is None or host.replica is None or CONSUMER not in host.replica.machine.consumers:
            return
        replica, seq = host.replica, self.world.rng.randint(0, host.replica.machine.last_seq + 1)
        self.world.counts["resets asked"] += 1
        host.do(lambda: drive(replica.reset_consumer(CONSUMER, seq), self._done))

    def _done(self, result: object) -> None:
        self.world.counts["resets refused" if isinstance(result, Exception) or result is None else "resets"] += 1

    def on_consumer(self, index: int, command: ConsumerCommand) -> None:
        match command:
            case commands.ResetConsumer():
                self._next_seq, self._next_number = max(command.seq, 1), 1
                self._reset_seq = command.seq
                self._delivered.clear()
                self.checker.forget_acks(command.seq)
            case commands.Delivered():
                if command.consumer_seq != self._next_number:
                    raise ViolationError(
                        f"entry {index} delivers {command.consumer_seq}, not {self._next_number}, after a reset"
                    )
                seqs = list(command.seqs)
                skipped = [seq for seq in range(self._next_seq, seqs[-1]) if seq not in seqs]
                if seqs[0] < self._next_seq or skipped:
                    raise ViolationError(f"entry {index} delivers {seqs}, and not {skipped}")
                self._next_number += len(seqs)
                self._next_seq = seqs[-1] + 1
                self._delivered.update(seqs)
            case commands.Redelivered():
                self._next_number = command.consumer_seq + len(command.counts)
            case commands.Acked():
                early = [seq for seq in command.seqs if seq >= self._reset_seq and seq not in self._delivered]
                if early:
                    raise ViolationError(f"entry {index} acknowledges {early}, which were not delivered again")
