"""A follower's side of replication: compare, cut what conflicts, append what is new.

Rules 9 to 11 and 14. Only the first *conflicting* entry and what follows it is cut, so a late duplicate of an append
cuts nothing; what is acknowledged is what was verified against this leader, never just the last index; a hint jumps
over the whole conflicting term, so a diverged follower is found in as many steps as there are terms in its tail.
"""

from bisect import bisect_left

import attrs

from jetraft.raft.engine.messages import Append
from jetraft.store.port import GroupLog


class LogDivergedError(Exception):
    """A leader's entry differs from a committed one. Raft forbids it: a damaged log or a bug. The group halts."""


@attrs.define(kw_only=True, unsafe_hash=True)
class Verified:
    """This member's log equals the leader's up to `index`.

    `cut_index` is where the tail was cut, `appended_from` the position of the first new entry in the append.
    """

    index: int
    cut_index: int | None
    appended_from: int | None


@attrs.frozen(kw_only=True, slots=True)
class AppendRefused:
    """This member's log lacks the point before the entries; `hint_index` is the next index worth trying."""

    hint_index: int


def accept(log: GroupLog, commit_index: int, append: Append) -> Verified | AppendRefused:
    """Bring the log in line with one append of the current leader. Raises LogDivergedError."""
    prev_index, prev_term, entries = append.prev_index, append.prev_term, append.entries
    end_index = prev_index + len(entries)
    boundary_index, boundary_term = log.boundary
    if prev_index < boundary_index:
        # Everything up to the boundary was committed, so a leader of this term has it too.
        if end_index <= boundary_index:
            return Verified(index=boundary_index, cut_index=None, appended_from=None)
        entries = entries[boundary_index - prev_index :]
        prev_index, prev_term = boundary_index, boundary_term
    last_index = log.last_index
    if prev_index > max(last_index, boundary_index):
        return AppendRefused(hint_index=max(last_index, boundary_index) + 1)
    own_term = log.term_at(prev_index)
    assert own_term is not None, "indexes from the boundary to the last have a term"
    # The hint skips the whole run of the conflicting term (rule 14), down to what cannot conflict.
    if own_term != prev_term:
        return AppendRefused(
            hint_index=_first_index_of_term(log, own_term, max(commit_index, boundary_index), prev_index) + 1
        )
    return _take(log, commit_index, append, skip=len(append.entries) - len(entries))


def _take(log: GroupLog, commit_index: int, append: Append, *, skip: int) -> Verified:
    """Append what the log lacks of `append.entries[skip:]`, after a cut if the log holds something else there."""
    end_index = append.prev_index + len(append.entries)
    last_index, cut_index = log.last_index, None
    for position in range(skip, len(append.entries)):
        entry = append.entries[position]
        if entry.index <= last_index:
            # The same entry: a late append must not cut what a newer one has brought (rule 9).
            if log.term_at(entry.index) == entry.term:
                continue
            if entry.index <= commit_index:
                raise LogDivergedError(f"index {entry.index} is committed and the leader of {append.term} has another")
            cut_index = entry.index
            log.cut_from(cut_index)
        log.append(append.entries[position:] if position else append.entries)
        return Verified(index=end_index, cut_index=cut_index, appended_from=position)
    return Verified(index=end_index, cut_index=None, appended_from=None)


def _first_index_of_term(log: GroupLog, term: int, low_index: int, high_index: int) -> int:
    """The last index before the run of `term` that ends at `high_index`; never below `low_index`, which is settled."""

    def term_at(index: int) -> int:
        found = log.term_at(index)
        assert found is not None
        return found

    first = bisect_left(range(high_index + 1), term, low_index + 1, high_index, key=term_at)
    return first - 1
