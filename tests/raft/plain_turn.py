"""The end of a group's turn in Python, which raft/_turn.pyx is compared with: `plainly` puts it in its place."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from jetraft.raft._turn import DISK_ERRORS
from jetraft.raft.changes import Change
from jetraft.raft.checkpointing import Checkpointer
from jetraft.raft.engine.port import Proposal
from jetraft.raft.engine.ready import NOTHING
from jetraft.raft.freshness import ENDLESS_NS
from jetraft.raft.machine import apply_entries
from jetraft.raft.proposals import Committed, Done, Outcome, Proposals
from jetraft.raft.turns import Turns
from jetraft.store.port import Entry

APPLY_BYTES_MAX = 1 << 20
APPLY_ENTRIES_MAX = 250


@contextmanager
def plainly() -> Iterator[None]:
    """Let the turns of groups end by the functions below."""
    parts: tuple[tuple[type, Callable[..., object]], ...] = (
        (Turns, learn),
        (Turns, advance),
        (Proposals, add),
        (Proposals, seal),
        (Proposals, tell_committed),
        (Proposals, tell_applied),
        (Checkpointer, note_applied),
        (Checkpointer, save_if_due),
        (Change, notify),
    )
    with pytest.MonkeyPatch.context() as patch:
        for owner, function in parts:
            patch.setattr(owner, function.__name__, function)
        yield


def learn(turns: Turns, now_ns: int) -> bool:
    """Count what became durable, tell of what is committed."""
    turns._committed = ()
    reached, applied_index = turns._reached, turns.applied_index
    if turns.failed is not None or reached.failed is not None or turns._damage is not None:
        return False
    try:
        if reached.durable_token != turns._persisted_token:
            turns._persisted_token = reached.durable_token
            turns.progress.notify()
            turns.outbox.release(reached.durable_token)
            turns._core.persisted(now_ns)
            if (ready := turns._core.take_ready()) is not NOTHING:
                turns._put(ready, now_ns)
            if turns._checkpointer.trim_token is not None:
                turns._checkpointer.trim_if_durable(now_ns)
        last_index = turns._core.applicable_index
        if applied_index >= last_index:
            return False
        last_index = min(last_index, applied_index + APPLY_ENTRIES_MAX)
        turns._committed = turns._log.entries(applied_index + 1, last_index, APPLY_BYTES_MAX)
    except DISK_ERRORS as error:
        turns.fail(error, now_ns)
        return False
    committed_index, sealed = turns._committed[-1].index, turns._sealed
    while sealed and sealed[0][0] <= committed_index:
        turns._commit_times.note(now_ns - sealed.popleft()[1])
    return turns.proposals.tell_committed(committed_index)


def advance(turns: Turns, now_ns: int) -> None:
    """Apply what is committed, append what is queued, let the engine send."""
    if not turns.takes_part(now_ns):
        return
    tenure, proposals, freshness = turns.tenure, turns.proposals, turns._freshness
    try:
        if turns._committed and turns._damage is None:
            apply(turns, turns._committed, now_ns)
        if turns._damage is not None:
            turns.fail(turns._damage, now_ns)
            return
        if tenure.term_led and not tenure.is_leader and turns.applied_index >= turns._core.term_start_index:
            tenure.begin()
        if proposals.queue:
            seal_queue(turns, now_ns)
        if tenure.term_led and (
            proposals.new_reads or proposals.reads or proposals.new_confirmed_reads or proposals.confirmed_reads
        ):
            turns._answer_reads(now_ns)
        turns._core.flush(now_ns)
        if (ready := turns._core.take_ready()) is not NOTHING:
            turns._put(ready, now_ns)
    except DISK_ERRORS as error:
        turns.fail(error, now_ns)
    if turns.failed is None and not (tenure.is_leader and freshness.until_ns == ENDLESS_NS):
        freshness.note(
            is_leader=tenure.is_leader,
            told_index=turns._core.told_commit_index,
            applied_index=turns.applied_index,
            now_ns=now_ns,
        )


def apply(turns: Turns, entries: Sequence[Entry], now_ns: int) -> None:
    """Apply these entries."""
    try:
        results = apply_entries(turns._machine, entries)
    except Exception as error:  # noqa: BLE001  (rule 26)
        turns.fail(error, now_ns)
        return
    turns._committed = ()
    turns.applied_index = entries[-1].index
    turns._checkpointer.note_applied(entries)
    turns.proposals.tell_applied(entries[0].index, results)
    turns.progress.notify()
    if turns.applied_index < turns._core.applicable_index:
        turns._mark_dirty()
    if turns._damage is None:
        turns._checkpointer.save_if_due(turns.applied_index, now_ns)


def seal_queue(turns: Turns, now_ns: int) -> None:
    """Append what is queued."""
    if not turns.tenure.is_leader:
        turns.proposals.refuse_queued()
    elif turns._core.accepts_proposals:
        turns.proposals.seal(turns._core.propose)
        turns._sealed.append((turns._log.last_index, now_ns))


def add(proposals: Proposals, proposal: Proposal, done: Done | None, committed: Committed | None) -> None:
    """Keep one for the end of the turn."""
    proposals.queue.append((proposal, done, committed))


def seal(proposals: Proposals, propose: Callable[[list[Proposal]], int]) -> None:
    """Let the leader append what is queued."""
    queue, proposals.queue = proposals.queue, []
    for index, (_, done, committed) in enumerate(queue, propose([proposal for proposal, _, _ in queue])):
        if done is not None:
            proposals._waiting.append((index, done))
        if committed is not None:
            proposals._announced.append((index, committed))


def tell_committed(proposals: Proposals, index: int) -> bool:
    """Call those that asked for the commit."""
    announced, told = proposals._announced, False
    while announced and announced[0][0] <= index:
        announced.popleft()[1]()
        told = True
    return told


def tell_applied(proposals: Proposals, first_index: int, results: Sequence[object]) -> None:
    """Call those that wait for the result."""
    waiting, end = proposals._waiting, first_index + len(results)
    while waiting and waiting[0][0] < end:
        index, done = waiting.popleft()
        done(Outcome.OK, results[index - first_index])


def note_applied(checkpointer: Checkpointer, entries: Sequence[Entry]) -> None:
    """Count them."""
    checkpointer._entries += len(entries)
    checkpointer._bytes += sum(len(entry.frame) for entry in entries)


def save_if_due(checkpointer: Checkpointer, applied_index: int, now_ns: int) -> None:
    """Checkpoint if enough was applied."""
    enough = checkpointer._bytes >= checkpointer._bytes_min or checkpointer._entries >= checkpointer._entries_min
    is_worth = checkpointer._bytes >= checkpointer._state_factor * checkpointer._state_bytes
    if enough and is_worth and not checkpointer.is_held(now_ns):
        checkpointer.save(applied_index, now_ns)


def notify(change: Change) -> None:
    """Wake all tasks that wait."""
    if change._event is not None:
        change._event.set()
        change._event = None
