"""Whether this node is ready, asked now: gathers what `meta/health.py` judges, and asks the meta leader.

The table here may be that of an old checkpoint, and nothing on this node can tell. So the meta leader is asked how far
it has committed, and the answer counts when that much is applied here, as for the lease of the table
(meta/table_lease.py): one answer serves all calls of a second, so that `/healthz` may be polled as often as one likes.
A verdict is worked out at most every VERDICT_NS, in slices: what it says of a replica was true in that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import attrs
import trio

from jetraft.cluster.meta.health import GRACE_NS, HTTP_OK, Judge, Seen
from jetraft.store.model.clock import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.cluster.meta.health import Health, Steps
    from jetraft.cluster.meta.table_lease import TableLease
    from jetraft.store.model.clock import Clock

VERDICT_NS: Final = 100 * NS_PER_MS  # looking at 10,000 replicas takes as long
SLICE_NS: Final = 2 * NS_PER_MS  # of that, between which others are served


T = TypeVar("T")


class Readiness:
    """Verdicts for `/healthz`. `see` gathers what there is; `lease` is None on a server that stands alone."""

    def __init__(self, *, clock: Clock, see: Callable[[], Steps[Seen]], lease: TableLease | None) -> None:
        self._clock = clock
        self._see = see
        self._lease = lease
        self._judge, self._meta_judge = Judge(), Judge()  # each remembers the groups that it is shown
        self._judging = trio.Lock()
        self._verdicts: dict[tuple[bool, bool], tuple[int, Health]] = {}  # by what is looked at: when, and what

    async def health(self, *, with_space: bool = True, meta_only: bool = False) -> Health:
        """Say whether this node is current. Without `with_space` a full disk is no reason.

        Who decides by it where clients go would shut them out of a node on which they can purge. With `meta_only` only
        the table of streams counts.
        """
        found = self._found(with_space, meta_only)
        if found is not None:
            return found
        verdict = await self._assess(with_space=with_space, meta_only=meta_only, confirmed=True)
        if verdict.http_status == HTTP_OK and self._lease is not None:
            confirmed = await self._lease.is_fresh(GRACE_NS)
            verdict = await self._assess(
                with_space=with_space, meta_only=meta_only, confirmed=confirmed
            )  # of a table that may be new
        self._verdicts[with_space, meta_only] = self._clock.mono_ns(), verdict
        return verdict

    def _found(self, with_space: bool, meta_only: bool) -> Health | None:  # noqa: FBT001  (a key)
        found = self._verdicts.get((with_space, meta_only))
        return found[1] if found is not None and self._clock.mono_ns() - found[0] <= VERDICT_NS else None

    async def _assess(self, *, with_space: bool, meta_only: bool, confirmed: bool) -> Health:
        """One verdict at a time; those who waited for another one may have that."""
        async with self._judging:
            found = self._found(with_space, meta_only)
            if found is not None:
                return found
            seen = await self._in_slices(self._see())
            if meta_only:
                only = Seen(clustered=seen.clustered, outside=seen.outside, is_removed=seen.is_removed, meta=seen.meta)
                return await self._in_slices(self._meta_judge.assess(only, self._clock.mono_ns(), confirmed=confirmed))
            if not with_space:
                seen = attrs.evolve(seen, is_full=False)
            return await self._in_slices(self._judge.assess(seen, self._clock.mono_ns(), confirmed=confirmed))

    async def _in_slices(self, steps: Steps[T]) -> T:
        """Run steps, SLICE_NS of them at a time."""
        until_ns = self._clock.mono_ns() + SLICE_NS
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: T = end.value
                return found
            if self._clock.mono_ns() >= until_ns:
                await trio.lowlevel.checkpoint()
                until_ns = self._clock.mono_ns() + SLICE_NS
