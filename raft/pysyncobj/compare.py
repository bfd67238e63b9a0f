"""The part of a leader's append that is new to a follower, so that PySyncObj deletes nothing that it should keep.

PySyncObj deletes everything after the point before the entries of a message, also what is equal, acknowledged and
applied: a late duplicate cut a follower from index 5 to 3. So a message reaches it in one of two forms only: behind the
own last entry (nothing is deleted), or right before the first entry that conflicts (rules 9 to 11). Pure.
"""

from bisect import bisect_left
from collections.abc import Sequence

import attrs

from jetraft.raft.engine.acceptor import AppendRefused, LogDivergedError
from jetraft.raft.engine.messages import Append
from jetraft.store.port import Entry, GroupLog


@attrs.frozen(kw_only=True, slots=True)
class News:
    """The log equals the leader's up to `verified_index` once `entries` follow the point `prev_index`.

    `cuts` says that the log goes on differently there: what follows that point is deleted first.
    """

    verified_index: int
    prev_index: int
    entries: Sequence[Entry]
    cuts: bool


def news_of(log: GroupLog, commit_index: int, append: Append) -> News | AppendRefused:
    """Compare. Raises LogDivergedError when a committed entry would have to go."""
    first = append.prev_index
    verified_index = max(first + len(append.entries), log.boundary[0])
    if first > log.last_index:
        return AppendRefused(hint_index=log.last_index + 1)
    if first >= log.boundary[0] and log.term_at(first) != append.prev_term:
        return AppendRefused(hint_index=_before_term(log, first, max(commit_index, log.boundary[0])) + 1)
    for position, entry in enumerate(append.entries):
        if entry.index <= log.boundary[0] or log.term_at(entry.index) == entry.term:
            continue
        cuts = entry.index <= log.last_index
        if cuts and entry.index <= commit_index:
            raise LogDivergedError(f"index {entry.index} is committed, the leader of term {append.term} has another")
        new = append.entries[position:]
        return News(verified_index=verified_index, prev_index=entry.index - 1, entries=new, cuts=cuts)
    return nothing_new(log, verified_index)


def nothing_new(log: GroupLog, verified_index: int) -> News:
    """Nothing to append: the point before is the log's end, behind which nothing can be deleted."""
    return News(verified_index=verified_index, prev_index=log.last_index, entries=(), cuts=False)


def _before_term(log: GroupLog, index: int, floor_index: int) -> int:
    """The last index before the run of one term that ends at `index`, not below what is settled (rule 14)."""
    if index <= floor_index:
        return index
    run = range(floor_index + 1, index + 1)  # terms never go back along a log, so the run's start can be bisected
    return run[bisect_left(run, log.term_at(index) or 0, key=lambda each: log.term_at(each) or 0)] - 1
