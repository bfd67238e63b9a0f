"""Whether this node is ready, asked now: gathers what `meta/health.py` judges, and asks the meta leader.

The table here may be that of an old checkpoint, and nothing on this node can tell. So the meta leader is asked how far
it has committed, and the answer counts when that much is applied here, as for the lease of the table
(meta/table_lease.py): one answer serves all calls of a second, so that `/healthz` may be polled as often as one likes.
A verdict is worked out at most every VERDICT_NS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.meta.health import GRACE_NS, HTTP_OK, Judge, Seen
from jetraft.store.model.clock import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.cluster.meta.health import Health
    from jetraft.cluster.meta.table_lease import TableLease
    from jetraft.store.model.clock import Clock

VERDICT_NS: Final = 100 * NS_PER_MS  # looking at 10,000 replicas takes as long


class Readiness:
    """Verdicts for `/healthz`. `see` gathers what there is; `lease` is None on a server that stands alone."""

    def __init__(self, *, clock: Clock, see: Callable[[], Seen], lease: TableLease | None) -> None:
        self._clock = clock
        self._see = see
        self._lease = lease
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
        if verdict.http_status == HTTP_OK and self._lease is not None:
            confirmed = await self._lease.is_fresh(GRACE_NS)
            verdict = self._assess(
                with_space=with_space, meta_only=meta_only, confirmed=confirmed
            )  # of a table that may be new
        self._verdicts[with_space, meta_only] = self._clock.mono_ns(), verdict
        return verdict

    def _assess(self, *, with_space: bool, meta_only: bool, confirmed: bool) -> Health:
        seen = self._see()
        if meta_only:
            only = Seen(clustered=seen.clustered, outside=seen.outside, is_removed=seen.is_removed, meta=seen.meta)
            return self._meta_judge.assess(only, self._clock.mono_ns(), confirmed=confirmed)
        if not with_space:
            seen = attrs.evolve(seen, is_full=False)
        return self._judge.assess(seen, self._clock.mono_ns(), confirmed=confirmed)
