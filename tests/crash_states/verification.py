"""Is what an opening found something that the promise allows?

Stands outside the code that it checks: it asks the log and the store as a server does, and compares with the history.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from jetraft.store.frames._frame import records
from jetraft.store.frames.format import Kind
from jetraft.store.stream.stream_store import StreamStore
from tests.crash_states.histories import Applied, History, agreement, apply
from tests.crash_states.product import has_failure
from tests.crash_states.promises import NO_CHECKPOINT, Promise, View

if TYPE_CHECKING:
    from jetraft.store.log.file_log import FileLog
    from jetraft.store.port import Checkpoint, Entry
    from jetraft.store.stream.retention import StoreLimits

READ_BYTES: Final = 1 << 30
MEMBERS: Final = b"members"


class ViolationError(Exception):
    """A crash left what no promise allows."""


class Opens(Protocol):
    """A node that has just started."""

    def open(self, group: int) -> "FileLog":
        """The log of a group."""
        ...


@attrs.frozen(kw_only=True)
class Found:
    """A group after a crash, found right; `promise` is what holds from there on."""

    log: "FileLog"
    view: View
    checkpoint: "Checkpoint | None"
    promise: Promise


def verify(node: Opens, promises: Sequence[Promise], limits: "StoreLimits") -> list[Found]:
    """Open all groups of a node and compare. Raises ViolationError; an error of an opening is one."""
    return [_verified(node.open(group), promise, limits) for group, promise in enumerate(promises)]


def _verified(log: "FileLog", promise: Promise, limits: "StoreLimits") -> Found:
    failure = has_failure(log)
    if failure is not None:
        raise ViolationError(failure)
    checkpoint = log.load_checkpoint()
    checkpoint_index = checkpoint.index if checkpoint else NO_CHECKPOINT
    _check_hard_state(log, promise)
    if checkpoint_index < promise.checkpoint:
        raise ViolationError(f"the checkpoint at {promise.checkpoint} was durable, the newest is at {checkpoint_index}")
    if checkpoint is not None and checkpoint.members != MEMBERS:
        raise ViolationError(f"the members are {checkpoint.members!r}")
    entries = {entry.index: entry for _, entry in log.frames(1, log.last_index)}
    history = _explained(log, entries, checkpoint_index, promise)
    _check_erased(entries, promise.erased)
    _check_stream(log, history, checkpoint, limits)
    if history and history[-1].entry.term > log.hard_state.term:
        raise ViolationError(f"an entry of term {history[-1].entry.term}, and the term is {log.hard_state.term}")
    view = View(history, log.hard_state)
    commit = max(promise.commit, checkpoint_index)  # a checkpoint that was on its way, or was installed
    found = attrs.evolve(promise, durable=view, on_their_way=(), checkpoint=checkpoint_index, commit=commit)
    return Found(log=log, view=view, checkpoint=checkpoint, promise=found)


def _check_hard_state(log: "FileLog", promise: Promise) -> None:
    """Term and vote are those of one of the views."""
    allowed = [view.hard_state for view in promise.views]
    if log.hard_state not in allowed:
        raise ViolationError(f"{log.hard_state}, and promised was one of {allowed}")


def _explained(
    log: "FileLog", entries: "dict[int, Entry]", checkpoint_index: int, promise: Promise
) -> tuple[Applied, ...]:
    """The history that the log holds: one of the views, or what all views up to it have and a part of its rest."""
    least, reasons = len(promise.durable.history), []
    for view in promise.views:
        least = min(least, agreement(promise.durable.history, view.history))
        assert least >= promise.commit, "what is committed is never cut"
        if not least <= log.last_index <= len(view.history):
            reasons.append(f"the end {log.last_index} is not in {least}..{len(view.history)}")
            continue
        history = view.history[: log.last_index]
        reason = _difference(history, entries, checkpoint_index, promise.erasing)
        if reason is None:
            return history
        reasons.append(reason)
    bounds = f"{log.first_index}..{log.last_index}, checkpoint at {checkpoint_index}, commit {promise.commit}"
    raise ViolationError(f"the log {bounds}: {'; '.join(dict.fromkeys(reasons))}")


def _difference(
    history: History, entries: "dict[int, Entry]", checkpoint_index: int, erasing: frozenset[int]
) -> str | None:
    """Why the entries are not this history; None when they are. Up to the checkpoint they may be missing or thin."""
    for index, applied in enumerate(history, start=1):
        found, expected = entries.get(index), applied.entry
        if found is None:
            if index > checkpoint_index:
                return f"entry {index} is missing above the checkpoint"
        elif (found.term, found.kind) != (expected.term, expected.kind):
            return f"entry {index} is of term {found.term} and kind {found.kind}, not {expected.term}, {expected.kind}"
        elif index > checkpoint_index and found.frame != expected.frame and not _is_erased(expected, found, erasing):
            return f"entry {index} has another content"
    return None


def _is_erased(expected: "Entry", found: "Entry", erasing: frozenset[int]) -> bool:
    """Whether only payloads that are being erased differ."""
    if expected.kind != Kind.MESSAGES:
        return False
    pairs = zip(records(expected.frame), records(found.frame), strict=True)
    return all(
        one[:4] == other[:4] and (one[4] == other[4] or (one[0] in erasing and not any(other[4])))
        for one, other in pairs
    )


def _check_erased(entries: "dict[int, Entry]", erased: frozenset[int]) -> None:
    """What was erased durably is nowhere in the log."""
    for entry in entries.values() if erased else ():
        if entry.kind == Kind.MESSAGES:
            for seq, _, _, _, payload in records(entry.frame):
                if seq in erased and any(payload):
                    raise ViolationError(f"the message {seq} in entry {entry.index} was erased and is back")


def _check_stream(log: "FileLog", history: History, checkpoint: "Checkpoint | None", limits: "StoreLimits") -> None:
    """The stream that a start makes of checkpoint and log is the one of the history, and every message can be read."""
    store = rebuilt(log, checkpoint, limits, log.last_index)
    expected = history[-1].live if history else {}
    loaded = {one.seq: (one.subject, one.payload) for one in store.load_many(range(1, store.last_seq + 1))}
    if loaded.keys() != expected.keys():
        extra, missing = sorted(loaded.keys() - expected.keys()), sorted(expected.keys() - loaded.keys())
        raise ViolationError(f"messages {extra} too many and {missing} missing, at entry {log.last_index}")
    if loaded != expected:
        wrong = [seq for seq, message in expected.items() if loaded[seq] != message]
        raise ViolationError(f"messages {wrong} read as something else")
    if history and store.last_seq != history[-1].last_seq:
        raise ViolationError(f"the last sequence is {store.last_seq}, not {history[-1].last_seq}")


def rebuilt(log: "FileLog", checkpoint: "Checkpoint | None", limits: "StoreLimits", index: int) -> StreamStore:
    """The store as a start makes it, up to an index at or above the checkpoint's. Nothing is erased again."""
    store = StreamStore(log, limits)
    if checkpoint is not None and checkpoint.index:
        store.restore(checkpoint.state)
    first = (checkpoint.index if checkpoint else 0) + 1
    for entry in log.entries(first, index, READ_BYTES) if first <= index else ():
        apply(store, entry, may_erase=False)
    return store
