"""Whether this node is ready, asked now: gathers what `meta/health.py` judges, and asks the meta leader.

The table here may be that of an old checkpoint, and nothing on this node can tell. So the meta leader is asked how far
it has committed, and the answer counts when that much is applied here. One answer serves all calls within
FRESH_NS, so that `/healthz` may be polled as often as one likes; a verdict is worked out at most every VERDICT_NS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.cluster.meta.health import GRACE_NS, HTTP_OK, Judge, Seen
from jetraft.store.model.clock import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from jetraft.cluster.meta.health import Health
    from jetraft.store.model.clock import Clock

FRESH_NS: Final = 1 * NS_PER_S
ASK_S: Final = 0.5  # some monitoring clients wait one second; the leader answers within a round trip to a majority
VERDICT_NS: Final = 100 * NS_PER_MS  # looking at 10,000 replicas takes as long


class Confirmation:
    """The meta leader's word on how far the table has to be. `ask` returns its commit index, None without a leader.

    `wait_applied` returns when this node has applied the meta group's log up to an index.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        ask: Callable[[], Awaitable[int | None]],
        wait_applied: Callable[[int], Awaitable[None]],
    ) -> None:
        self._clock = clock
        self._ask = ask
        self._wait_applied = wait_applied
        self._asked_ns: int | None = None  # when the newest question was asked whose answer is applied here
        self._asking: trio.Event | None = None

    async def is_fresh(self) -> bool:
        """Whether the table was the leader's less than GRACE_NS ago; asks unless another call just has."""
        if not self._is_within(FRESH_NS):
            if self._asking is None:
                await self._confirm()
            else:
                await self._asking.wait()
        return self._is_within(GRACE_NS)

    def _is_within(self, age_ns: int) -> bool:
        return self._asked_ns is not None and self._clock.mono_ns() - self._asked_ns <= age_ns

    async def _confirm(self) -> None:
        asking = self._asking = trio.Event()
        now_ns = self._clock.mono_ns()
        try:
            with trio.move_on_after(ASK_S):
                index = await self._ask()
                if index is not None:
                    await self._wait_applied(index)
                    self._asked_ns = now_ns
        finally:
            self._asking = None
            asking.set()


class Readiness:
    """Verdicts for `/healthz`. `see` gathers what there is; `confirmation` is None on a server that stands alone."""

    def __init__(self, *, clock: Clock, see: Callable[[], Seen], confirmation: Confirmation | None) -> None:
        self._clock = clock
        self._see = see
        self._confirmation = confirmation
        self._judge, self._meta_judge = Judge(), Judge()  # each remembers the groups that it is shown
        self._verdicts: dict[tuple[bool, bool], tuple[int, Health]] = {}  # by what is looked at: when, and what

    async def health(self, *, with_space: bool = True, meta_only: bool = False) -> Health:
        """Say whether this node is current. Without `with_space` a full disk is no reason.

        Who decides by it where clients go would shut them out of a node on which they can purge. With `meta_only` only
        the table of streams counts.
        """
        found = self._verdicts.get((with_space, meta_only))
        if found is not None and self._clock.mono_ns() - found[0] <= VERDICT_NS:
            return found[1]
        verdict = self._assess(with_space=with_space, meta_only=meta_only, confirmed=True)
        if verdict.http_status == HTTP_OK and self._confirmation is not None:
            confirmed = await self._confirmation.is_fresh()
            verdict = self._assess(
                with_space=with_space, meta_only=meta_only, confirmed=confirmed
            )  # of a table that may be new
        self._verdicts[with_space, meta_only] = self._clock.mono_ns(), verdict
        return verdict

    def _assess(self, *, with_space: bool, meta_only: bool, confirmed: bool) -> Health:
        seen = self._see()
        if meta_only:
            only = Seen(clustered=seen.clustered, outside=seen.outside, meta=seen.meta)
            return self._meta_judge.assess(only, self._clock.mono_ns(), confirmed=confirmed)
        if not with_space:
            seen = attrs.evolve(seen, is_full=False)
        return self._judge.assess(seen, self._clock.mono_ns(), confirmed=confirmed)
