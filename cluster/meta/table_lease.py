"""Until when this node may act on its table of streams, and how it keeps that so: the lease of the table.

A node learns what the meta group commits from its leader. Where it does not hear of it any more, because a link is lost
or because it was removed from the group, its table stays as it was, and looks no different. So every RENEW_NS a node
asks the meta leader how far the group has committed. The leader answers when a majority has confirmed that it leads
(rule 21), over a third node where the two are not linked. When that much is applied here, the table was the present one
at the moment of the question, and the lease runs for LEASE_NS from that moment, on this node's own clock.

A meta leader that answers a deletion, a change or a removal waits for those that could act on the row of before: until
they have confirmed that they do not, or until no lease of theirs can run any more (lease_grants.py).

The answer says too whether this node is a member. One that is not has been removed: `on_excluded`
(members/exclusion.py).

What no clock covers: a machine that its hypervisor stops, with all its clocks, goes on with what is left of the lease.
The window is what it runs by its own clock, LEASE_NS at most (docs/reliability.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from jetraft.store.model.clock import NS_PER_MS, NS_PER_S
from jetraft.store.model.signal import Signal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from jetraft.cluster.calls.messages.inquiries import MetaState
    from jetraft.store.model.clock import Clock

# Longer than an election and a question take (2 s at p99, and RENEW_NS), so that a change of the meta leader ends no
# lease; shorter than clients wait for an answer (5 s by default in nats.go and nats.py): a deletion may take as long.
LEASE_NS: Final = 4 * NS_PER_S
RENEW_NS: Final = 1 * NS_PER_S
RETRY_NS: Final = 100 * NS_PER_MS
FRESH_NS: Final = 1 * NS_PER_S
ANSWER_S: Final = 2.0  # a far leader's answer still leaves time of the lease to ask again: RENEW_NS and this are 3 s
# What a page waits for: some monitoring clients wait one second; the leader answers within a round trip to a majority.
ASK_S: Final = 0.5


class TableLease:
    """See the module. `ask` gives the meta leader's answer, None without a leader.

    `wait_applied` returns when this node has applied the meta group's log up to an index. A server that stands alone
    asks no other (`ask` is None): its lease does not end.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        ask: Callable[[], Awaitable[MetaState | None]] | None,
        wait_applied: Callable[[int], Awaitable[None]],
    ) -> None:
        self._clock = clock
        self._ask = ask
        self._wait_applied = wait_applied
        self._asked_ns: int | None = None  # when the newest question was asked whose answer is applied here
        self._asking: trio.Event | None = None
        self._renewed = trio.Event()
        self.on_held: Signal[[]] = Signal()  # it runs, and did not before
        self.on_lapsed: Signal[[]] = Signal()  # it has run out
        self.on_excluded: Signal[[]] = Signal()  # the meta group does not count this node
        self._was_held = False

    @property
    def is_held(self) -> bool:
        """Whether the table may be acted on at this moment."""
        return self._ask is None or self.is_within(LEASE_NS)

    def is_within(self, age_ns: int) -> bool:
        """Whether the table was the present one less than so long ago."""
        return self._asked_ns is not None and self._clock.mono_ns() - self._asked_ns <= age_ns

    async def is_fresh(self, age_ns: int) -> bool:
        """The same, after asking, unless the answer to a question of the last FRESH_NS is here."""
        if self._ask is None:
            return True
        if not self.is_within(FRESH_NS):
            with trio.move_on_after(ASK_S):
                await self.renew()
        return self.is_within(age_ns)

    async def run(self) -> None:
        """Keep it, until cancelled."""
        if self._ask is None:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            while True:
                await self.renew()
                await trio.sleep((RENEW_NS if self.is_within(RENEW_NS) else RETRY_NS) / NS_PER_S)

    async def ask_again(self) -> None:
        """Ask after this call: a question that is on its way may be answered from before what it was called for."""
        if self._asking is not None:
            await self._asking.wait()
        await self.renew()

    async def renew(self) -> None:
        """Ask once, for ANSWER_S at most; a call that comes meanwhile waits for the same answer."""
        if self._asking is not None:
            await self._asking.wait()
            return
        asking = self._asking = trio.Event()
        try:
            with trio.move_on_after(ANSWER_S):
                await self._renew()
        finally:
            self._asking = None
            asking.set()

    async def _renew(self) -> None:
        assert self._ask is not None
        now_ns = self._clock.mono_ns()  # before the question: the leader's answer is younger than that
        state = await self._ask()
        if state is None:
            return
        if not state.is_member:
            self._asked_ns = None
            self.on_excluded.emit()
            return
        await self._wait_applied(state.index)
        self._asked_ns = now_ns
        self._renewed.set()
        if not self._was_held:
            self._was_held = True
            self.on_held.emit()

    async def _watch(self) -> None:
        """Tell when it has run out."""
        while True:
            await self._renewed.wait()
            self._renewed = trio.Event()
            while self.is_held:
                assert self._asked_ns is not None
                left_ns = self._asked_ns + LEASE_NS - self._clock.mono_ns()
                await trio.sleep(max(left_ns + NS_PER_MS, NS_PER_MS) / NS_PER_S)
            if self._was_held:
                self._was_held = False
                self.on_lapsed.emit()
