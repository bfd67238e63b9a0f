"""Commands on their way into an entry, folded: a busy consumer's many small steps become one delivery and one ack.

A thousand steps a second would be two thousand commands to encode, to send to every replica and to apply. What folds
is what cannot make a difference: deliveries that go on where the last ones ended, and acks that go on upwards. A
delivery is moved in front of the acks noted meanwhile, which is harmless while they are acks of earlier deliveries; an
ack that runs ahead of them (an earlier leader decided its delivery) keeps its place, and so does every other command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.state.commands import Acked, ConsumerCommand, Delivered

if TYPE_CHECKING:
    from collections.abc import Iterable

NONE: Final = -1


@attrs.define(eq=False)
class _Open:
    """The places of one consumer's commands into which others may be folded."""

    delivered: int = NONE
    folded_ts_ns: int = 0  # of the last delivery that was folded into `delivered`, 0 for none
    acked: int = NONE  # only used when it stands behind `delivered`


class AckBatch:
    """Commands in the order in which they are to be applied."""

    def __init__(self) -> None:
        self._commands: list[ConsumerCommand] = []
        self._open: dict[str, _Open] = {}
        self._folded = 0  # since the last `take`

    def __len__(self) -> int:
        """How many commands came in, those that were folded into others too."""
        return len(self._commands) + self._folded

    def add(self, batch: Iterable[ConsumerCommand]) -> None:
        """Note commands. Their runs of sequences belong to this object from here on."""
        for command in batch:
            if isinstance(command, Delivered):
                self._add_delivered(command)
            elif isinstance(command, Acked):
                self._add_acked(command)
            else:
                self._close(command.name)
                self._commands.append(command)

    def take(self) -> list[ConsumerCommand]:
        """Everything that was noted; nothing is left."""
        self._close_all()
        taken, self._commands, self._folded = self._commands, [], 0
        return taken

    def forget(self, name: str) -> None:
        """Drop what was noted about a consumer."""
        self._close_all()
        self._commands = [command for command in self._commands if command.name != name]

    def _add_delivered(self, command: Delivered) -> None:
        place = self._open.get(command.name) or self._opened(command.name)
        if place.delivered != NONE:
            earlier = self._commands[place.delivered]
            assert isinstance(earlier, Delivered)
            goes_on = earlier.consumer_seq + len(earlier.seqs) == command.consumer_seq
            if goes_on and earlier.seqs.last < command.seqs.first:
                earlier.seqs.extend(command.seqs)
                place.folded_ts_ns = command.ts_ns
                self._folded += 1
                return
            self._close(command.name)
            place = self._opened(command.name)
        place.delivered, place.acked = len(self._commands), NONE
        self._commands.append(command)

    def _add_acked(self, command: Acked) -> None:
        place = self._open.get(command.name) or self._opened(command.name)
        if place.delivered != NONE:
            delivered = self._commands[place.delivered]
            assert isinstance(delivered, Delivered)
            if delivered.seqs.last < command.seqs.last:
                self._close(command.name)
                place = self._opened(command.name)
        if place.acked != NONE:
            earlier = self._commands[place.acked]
            assert isinstance(earlier, Acked)
            if earlier.seqs.last < command.seqs.first:
                earlier.seqs.extend(command.seqs)
                self._folded += 1
                return
        place.acked = len(self._commands)
        self._commands.append(command)

    def _opened(self, name: str) -> _Open:
        place = self._open[name] = _Open()
        return place

    def _close(self, name: str) -> None:
        """Fold nothing more into what is noted about a consumer; its deliveries get the time of the last of them."""
        place = self._open.pop(name, None)
        if place is not None and place.folded_ts_ns:
            self._finish(place)

    def _close_all(self) -> None:
        for place in self._open.values():
            if place.folded_ts_ns:
                self._finish(place)
        self._open.clear()

    def _finish(self, place: _Open) -> None:
        command = self._commands[place.delivered]
        assert isinstance(command, Delivered)
        finished = Delivered(command.name, place.folded_ts_ns, command.consumer_seq, command.seqs)
        self._commands[place.delivered] = finished
