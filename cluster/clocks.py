"""Compares the clocks of the nodes, and has this node's clock follow the majority's (store/model/steady.py).

Each peer is asked what time it is, when its link begins and every few seconds; what it answers belongs to the middle
of the question, and an answer that took long says nothing. A clock that is far from the others, or from what is stored,
is told to the operator once, and again when that is over.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from jetraft.cluster.calls.messages.clocks import METHOD, ClockAnswer
from jetraft.cluster.calls.waiting import ask_for
from jetraft.store.model.clock import NS_PER_MS, NS_PER_S
from jetraft.store.model.events import CLOCKS_AGREE, CLOCKS_DIFFER
from jetraft.store.model.steady import APART_NS, ClockReading

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.raft.mesh.peers import Mesh
    from jetraft.store.model.ids import NodeId
    from jetraft.store.model.steady import SteadyClock, SteadyStatistics

log = logging.getLogger(__name__)

LOOK_S: Final = 2.0  # a step of a wall clock is followed at 1 %: it matters little when that begins
ANSWER_S: Final = 1.0
ROUND_TRIP_NS_MAX: Final = 500 * NS_PER_MS  # half of it is the error: well below what counts as agreement


class ClockWatch:
    """See the module. `run` owns the questions."""

    def __init__(self, clock: SteadyClock, mesh: Mesh | None, *, nodes: Callable[[], int]) -> None:
        """`nodes` is how many the cluster has, this one and those that are away included."""
        self._clock = clock
        self._mesh = mesh
        self._nodes = nodes
        self._wake = trio.Event()
        self._is_apart = False
        if mesh is None:
            clock.adjust((), nodes=1)  # no other node to ask: stored times begin with this clock
        else:
            mesh.serve(METHOD, self._answer)
            mesh.on_peer_up.connect(lambda _node: self._wake.set())

    async def run(self) -> None:
        """Follow the clocks until cancelled."""
        while True:
            with trio.move_on_after(LOOK_S):
                await self._wake.wait()
            await self.look()

    async def look(self) -> None:
        """Ask the peers once and follow what they say; returns within ANSWER_S."""
        self._wake = trio.Event()
        self._clock.adjust(await self._ask(), nodes=self._nodes())
        self._tell(self._clock.statistics())

    def statistics(self) -> SteadyStatistics:
        """Return a snapshot."""
        return self._clock.statistics()

    async def _answer(self, _peer: NodeId, _payload: bytes) -> bytes:
        wall_ns, steady_ns = self._clock.reading()
        return ClockAnswer(wall_ns=wall_ns, steady_ns=steady_ns).pack()

    async def _ask(self) -> list[ClockReading]:
        """The clocks of all peers that answer soon."""
        found: list[ClockReading] = []
        mesh = self._mesh
        if mesh is None:
            return found

        async def ask(peer: NodeId) -> None:
            asked_ns = self._clock.elapsed_ns()
            answer = await ask_for(ClockAnswer, mesh, peer, METHOD, b"", timeout_s=ANSWER_S)
            reading = None if answer is None else read_answer(answer, asked_ns, self._clock.elapsed_ns())
            if reading is not None:
                found.append(reading)

        async with trio.open_nursery() as nursery:
            for node, peer in mesh.peers.items():
                if peer.up:
                    nursery.start_soon(ask, node)
        return found

    def _tell(self, found: SteadyStatistics) -> None:
        """Say that clocks are apart, and that they are not any more."""
        is_apart = abs(found.own_wall_ns) > APART_NS or abs(found.correction_ns) > APART_NS
        if is_apart and not self._is_apart:
            cure = f"{found.correction_ns / NS_PER_S:.1f} s are worked off at 1 %"
            CLOCKS_DIFFER.log(
                ahead_s=round(found.own_wall_ns / NS_PER_S, 1),
                cure=cure if found.has_majority else "no majority of the nodes agrees on the time",
            )
        elif self._is_apart and not is_apart:
            CLOCKS_AGREE.log()
        self._is_apart = is_apart


def read_answer(answer: ClockAnswer, asked_ns: int, answered_ns: int) -> ClockReading | None:
    """Return a peer's reading; None when it took too long to be of use."""
    if answered_ns - asked_ns > ROUND_TRIP_NS_MAX:
        return None
    wall_ns, steady_ns = answer.wall_ns, answer.steady_ns
    middle_ns = (asked_ns + answered_ns) // 2
    return ClockReading(wall_ns=wall_ns - middle_ns, steady_ns=None if steady_ns is None else steady_ns - middle_ns)
