"""Answers members that ask for entries, or for the end of a log, from the group that runs here or a log that waits.

A no under a fence leaves with the term that is durable: where the promise is still on its way to the disk, the asker
sees that, and asks again.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import attrs

from jetraft.raft.mesh.rpc import RemoteCallError
from jetraft.raft.recovery.bounds import TERMS_AHEAD_MAX
from jetraft.raft.recovery.repair_wire import (
    NOTHING_LEFT,
    EndAnswer,
    EndRequest,
    RepairAnswer,
    RepairRequest,
    answer_of,
    end_answer_of,
)
from jetraft.store.log.file_log import FileLog
from jetraft.store.model.ids import GroupId
from jetraft.store.port import HardState, StoreCorrupt

if TYPE_CHECKING:
    from jetraft.raft.manager import Manager


class RepairServing:
    """See the module. `waiting` are the logs that are damaged themselves, and open without a group."""

    def __init__(
        self,
        manager: "Manager",
        waiting: Mapping[tuple[GroupId, int], FileLog],
        *,
        has_forgotten: Callable[[tuple[GroupId, int]], bool],
    ) -> None:
        self._manager = manager
        self._waiting = waiting
        self._has_forgotten = has_forgotten
        self.frames_served = 0

    def answer(self, request: RepairRequest | EndRequest) -> RepairAnswer | EndAnswer:
        """This node's knowledge. Raises RemoteCallError."""
        return self._about_end(request) if isinstance(request, EndRequest) else self._about_entries(request)

    def _about_entries(self, request: RepairRequest) -> RepairAnswer:
        group = self._manager.groups.get(request.group_id)
        if group is not None and group.incarnation == request.incarnation:
            try:
                found = answer_of(group.log, request, commit_index=group.commit_index, is_voter=group.is_voter)
            except (StoreCorrupt, OSError) as error:
                group.distrust(error)
                raise RemoteCallError(f"{request.group_id}: {error}") from error
            if not found.frames and group.failed is not None:
                raise RemoteCallError(f"{request.group_id} has failed here: {group.failed}")
            term = group.promise(0 if found.frames else _sane(request.fence_term, group.term))
        else:
            log = self._waiting.get((request.group_id, request.incarnation))
            if log is None:
                raise RemoteCallError(f"{request.group_id} is not open here")
            try:
                commit_index = log.statistics().checkpoint_index
                found = answer_of(log, request, commit_index=commit_index, is_voter=False)
            except (StoreCorrupt, OSError) as error:
                raise RemoteCallError(f"{request.group_id}: {error}") from error
            term = _promise(log, 0 if found.frames else _sane(request.fence_term, log.hard_state.term))
        self.frames_served += len(found.frames)
        return attrs.evolve(found, term=term)

    def _about_end(self, request: EndRequest) -> EndAnswer:
        key = request.group_id, request.incarnation
        group, log = self._manager.groups.get(request.group_id), self._waiting.get(key)
        if group is not None and group.incarnation == request.incarnation:
            if group.failed is not None:
                raise RemoteCallError(f"{request.group_id} has failed here: {group.failed}")
            term = group.promise(_sane(request.fence_term, group.term))
            voters = group.configuration.voters if group.is_voter else ()
            return end_answer_of(group.log, request, term=term, voters=voters)
        if log is not None:
            if log.repair.is_end_unknown:  # what others say of it is no news to them
                request = attrs.evolve(request, index_max=min(request.index_max, log.repair.end_known))
            term = _promise(log, _sane(request.fence_term, log.hard_state.term))
            return end_answer_of(log, request, term=term, voters=())
        if self._has_forgotten(key):
            return NOTHING_LEFT
        raise RemoteCallError(f"{request.group_id} is not open here")


def _sane(fence_term: int, own_term: int) -> int:
    """The term that a member is asked to promise. Raises RemoteCallError when no group can have come that far."""
    if fence_term > own_term + TERMS_AHEAD_MAX:
        raise RemoteCallError(f"a promise of term {fence_term} is too much to ask for in term {own_term}")
    return fence_term


def _promise(log: FileLog, term: int) -> int:
    """Let a log that waits hear no leader below a term; returns the term that is durable, 0 while that is not sure."""
    if log.failed is not None:
        return 0
    if term > log.hard_state.term:
        log.set_hard_state(HardState(term=term, vote=None))
    log.submit()
    return log.hard_state.term if log.durable_token >= log.hard_state_token else 0
