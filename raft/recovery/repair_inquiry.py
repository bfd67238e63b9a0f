"""One attempt to find out about the damaged entries of a log: asks the other members, and judges what they say.

The rules are in raft/recovery/repair_rules.py, the messages in raft/recovery/repair_wire.py. Findings are noted in
the log at once where it tells a term (`FileLog.know`), so that one entry that came back identifies its neighbours.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence

import attrs

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.recovery.repair_rules import Loss, judge, loss_of, term_of_lost
from jetraft.raft.recovery.repair_wire import RepairAnswer, RepairRequest, unpack_answer
from jetraft.store.frames._frame import parse_header
from jetraft.store.log.file_log import FileLog
from jetraft.store.model.events import ENTRIES_DAMAGED
from jetraft.store.model.files import index_ranges
from jetraft.store.model.ids import NodeId
from jetraft.store.port import StoreError

log_ = logging.getLogger(__name__)


class OvertakenError(StoreError):
    """The group has gone on without this log: nothing but a snapshot can bring the member up to date.

    Damaged entries that it has not applied are trimmed elsewhere; or they and what follows them here were never
    committed. Its owner has it admitted again.
    """


@attrs.define(slots=True)
class Findings:
    """The fate of damaged entries; what is in none of these may still be had later."""

    frames: dict[int, bytes]
    behind: list[int] = attrs.Factory(list)  # the log begins behind them
    unreadable: list[int] = attrs.Factory(list)  # of these, those that no member has
    denied: dict[int, list[RepairAnswer]] = attrs.Factory(dict)  # every member has said that it does not have them
    lost: list[int] = attrs.Factory(list)  # of these, those that are permanently lost

    def settled(self, damaged: index_ranges.Ranges) -> index_ranges.Ranges:
        """The damaged entries about which everything is known."""
        known = {*self.frames, *self.behind, *self.lost}
        indexes = [index for first, last in damaged for index in range(first, last + 1)]
        return index_ranges.merged((index, index) for index in indexes if index in known)


@attrs.frozen(slots=True)
class Fence:
    """A term that all members are to promise before these entries count as lost."""

    term: int
    indexes: frozenset[int]


class Inquiry:
    """See the module. `call(node, payload)` returns a member's answer, None where there is none."""

    def __init__(  # noqa: PLR0913  (what is known before any member is asked)
        self,
        log: FileLog,
        others: Sequence[NodeId],
        call: Callable[[NodeId, bytes], Awaitable[bytes | None]],
        *,
        covered_index: int,
        fence: Fence | None,
        best: NodeId | None = None,
    ) -> None:
        self._log = log
        self._others = sorted(others, key=lambda node: node != best)
        self._best = best  # whose log stands for the lost end of this one: raft/recovery/repair_end.py
        self._call = call
        self._covered_index = covered_index  # up to here this member's own checkpoint tells what the entries did
        self._fence = fence
        self._found = Findings(dict(log.repair.returned))
        self._silent: set[NodeId] = set()  # did not answer: each is waited for once, not once for every entry

    async def run(self) -> Findings:
        """Ask for every damaged entry. Raises OvertakenError."""
        for first, last in self._log.damaged_entries:
            ENTRIES_DAMAGED.log(group=self._log.identity.group_id, first=first, last=last)
            index = first
            while index <= last:
                index = await self._fetch(index, last)
        return self._found

    def decide(self) -> Fence | None:
        """Note in the findings which entries are permanently lost; returns the fence for the next attempt.

        An entry is lost when all members have denied to have it under the fence that was set after they all had denied
        it before. A member without others decides for itself.
        """
        found, fence, log = self._found, self._fence, self._log
        if not self._others:
            found.lost = sorted(found.denied)
        if not self._others or not found.denied:
            return None
        for index, denials in sorted(found.denied.items()):
            if fence is None or index not in fence.indexes or any(answer.term < fence.term for answer in denials):
                continue
            term = term_of_lost(log, index, denials)
            if term is not None:
                log.repair.set_term(index, term)
                found.lost.append(index)
        if fence is not None and not found.lost and found.denied.keys() <= fence.indexes:
            return fence  # a promise is not durable yet, or a term not known: no higher promise is needed
        terms = [answer.term for denials in found.denied.values() for answer in denials]
        return Fence(max(*terms, log.hard_state.term) + 1, frozenset(found.denied))

    async def _fetch(self, index: int, last: int) -> int:
        """Find out about an entry, and those that come with it; returns the next one. Raises OvertakenError."""
        denials: list[RepairAnswer] = []
        for node in self._others:
            if node in self._silent:
                continue
            answer = await self._chain(node, index, last)
            if answer is None:
                continue
            is_best = node == self._best
            verdict = judge(self._log, (index, last), answer, covered_index=self._covered_index, is_best=is_best)
            if verdict.is_overruled:
                raise OvertakenError(f"{self._log.place.group}: entries from {index} on were never committed")
            for frame in verdict.frames:
                self._found.frames[index] = frame
                self._log.repair.set_term(index, parse_header(frame).term)
                index += 1
            if verdict.frames:
                return index
            if not answer.frames:
                denials.append(answer)
                if self._loss(index, denials) is Loss.BEHIND:
                    break  # no further answer can change that
        self._note_loss(index, denials)
        return index + 1

    def _loss(self, index: int, denials: Sequence[RepairAnswer]) -> Loss:
        return loss_of(index, denials, others=len(self._others), covered_index=self._covered_index)

    def _note_loss(self, index: int, denials: list[RepairAnswer]) -> None:
        """No member has offered the entry. Raises OvertakenError."""
        group, loss = self._log.place.group, self._loss(index, denials)
        if loss is Loss.BEHIND:
            self._found.behind.append(index)
            if not any(index < answer.first_index for answer in denials):
                self._found.unreadable.append(index)
        elif loss is Loss.OVERTAKEN:
            raise OvertakenError(f"{group}: damaged entries from {index} on are not to be had any more")
        elif loss is Loss.UNCOMMITTED:
            raise OvertakenError(f"{group}: damaged entries from {index} on were never committed")
        elif loss is Loss.LOST:
            self._found.denied[index] = denials
        else:
            log_.warning("%s: entry %d is not to be had now", group, index)

    async def _chain(self, node: NodeId, first: int, last: int) -> RepairAnswer | None:
        """The node's entries from one on, in as many calls as it takes; None when it does not say."""
        answer = await self._ask(node, first, last)
        while answer is not None and answer.frames and first + len(answer.frames) <= last:
            more = await self._ask(node, first + len(answer.frames), last)
            if more is None or not more.frames:
                break
            answer = answer.followed_by(more)
        return answer

    async def _ask(self, node: NodeId, first: int, last: int) -> RepairAnswer | None:
        """The node's answer to one call; None when it does not."""
        identity, fence = self._log.identity, self._fence
        request = RepairRequest(
            group_id=identity.group_id,
            incarnation=identity.incarnation,
            first=first,
            last=last,
            fence_term=fence.term if fence is not None and first in fence.indexes else 0,
        )
        packed = await self._call(node, request.pack())
        if packed is None:
            self._silent.add(node)
            return None
        try:
            return unpack_answer(packed, request)
        except RemoteProtocolError as error:
            log_.info("%s: %s did not give entry %d: %s", self._log.place.group, node, first, error)
            return None
