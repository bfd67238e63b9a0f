"""Direct gets that wait until this replica has everything that was committed when they came.

They are confirmed in rounds: one question to the stream's leader serves all that came before it was asked. Those that
come while a round is on wait for the next one, for the answer may be older than they are. A round has an end; what it
does not confirm is refused. Bounded in number and bytes: beyond that a request is refused at once.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    Confirm = Callable[[Callable[[bool], None]], None]  # calls back once, with whether it is confirmed

WAITING_MAX: Final = 1024  # requests, of one replica
WAITING_BYTES_MAX: Final = 1 << 20  # of all their bytes


class ConfirmedGets:
    """The waiting requests of one replica. `serve` and `refuse` get captures, one after the other."""

    __slots__ = ("_asked", "_bytes", "_coming", "_confirm", "_count", "_refuse", "_round", "_serve")

    def __init__(self, confirm: Confirm, *, serve: Callable[[bytes], None], refuse: Callable[[bytes], None]) -> None:
        self._confirm = confirm
        self._serve = serve
        self._refuse = refuse
        self._coming: list[bytes] = []
        self._asked: list[bytes] = []
        self._round = 0  # of the question that is on, odd while one is
        self._count = 0
        self._bytes = 0

    def __len__(self) -> int:
        """How many wait."""
        return self._count

    def hold(self, capture: bytes) -> bool:
        """Keep a request until it is confirmed; False when there is no room for it."""
        if self._count >= WAITING_MAX or self._bytes + len(capture) > WAITING_BYTES_MAX:
            return False
        self._count += 1
        self._bytes += len(capture)
        self._coming.append(capture)
        return True

    def ask(self) -> None:
        """Begin a round, if requests wait and none is on. Called at the end of a turn's requests."""
        if self._coming and not self._round % 2:
            self._asked, self._coming = self._coming, []
            self._round += 1
            self._confirm(partial(self._answered, self._round))

    def drop(self) -> None:
        """Forget all of them."""
        self._coming, self._asked = [], []
        self._count = self._bytes = 0
        self._round += self._round % 2

    def _answered(self, of_round: int, is_confirmed: bool) -> None:  # noqa: FBT001  (a callback's one word)
        if of_round != self._round:
            return
        asked, self._asked = self._asked, []
        self._round += 1
        self._count -= len(asked)
        self._bytes -= sum(map(len, asked))
        (self._serve if is_confirmed else self._refuse)(b"".join(asked))
        self.ask()
