"""Direct gets that wait until this replica has everything that was committed when they came.

They are confirmed in rounds: one question to the stream's leader serves all that came before it was asked. Those that
come while a round is on wait for the next one, for the answer may be older than they are. A round has an end; what it
does not confirm is refused. Bounded in number and bytes, also of one connection (get_places.py): beyond that a
request is refused at once.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from jetraft.cluster.streams.gets.get_places import GetPlaces

if TYPE_CHECKING:
    from collections.abc import Callable

    Confirm = Callable[[Callable[[bool], None]], None]  # calls back once, with whether it is confirmed


class ConfirmedGets:
    """The waiting requests of one replica. `serve` and `refuse` get captures, one after the other."""

    __slots__ = ("_asked", "_coming", "_confirm", "_places", "_refuse", "_round", "_serve")

    def __init__(self, confirm: Confirm, *, serve: Callable[[bytes], None], refuse: Callable[[bytes], None]) -> None:
        self._confirm = confirm
        self._serve = serve
        self._refuse = refuse
        self._coming: list[tuple[int, bytes]] = []  # the connection, what it asked
        self._asked: list[tuple[int, bytes]] = []
        self._round = 0  # of the question that is on, odd while one is
        self._places = GetPlaces()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._places)

    def hold(self, capture: bytes, client: int) -> bool:
        """Keep a request until it is confirmed; False when there is no room for it, or not for this connection."""
        if not self._places.take(client, len(capture)):
            return False
        self._coming.append((client, capture))
        return True

    def ask(self) -> None:
        """Begin a round, if requests wait and none is on. Called at the end of a turn's requests."""
        if self._coming and not self._round % 2:
            self._asked, self._coming = self._coming, []
            self._round += 1
            self._confirm(partial(self._answered, self._round))

    def drop(self) -> bytes:
        """Forget all of them; returns their captures."""
        dropped = b"".join(capture for _, capture in (*self._asked, *self._coming))
        self._coming, self._asked = [], []
        self._places.clear()
        self._round += self._round % 2
        return dropped

    def _answered(self, of_round: int, is_confirmed: bool) -> None:  # noqa: FBT001  (a callback's one word)
        if of_round != self._round:
            return
        asked, self._asked = self._asked, []
        self._round += 1
        for client, capture in asked:
            self._places.give_back(client, len(capture))
        (self._serve if is_confirmed else self._refuse)(b"".join(capture for _, capture in asked))
        self.ask()
