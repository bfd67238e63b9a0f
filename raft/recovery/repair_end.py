"""How far a log went whose end is damaged: what its files and the ledger cannot say comes from the other members.

The ledger notes the end of a log a moment late (store/ledger/ledger_records.py). When the newest block is damaged up to
the last entry that is noted, later ones may have been in it, and this member may have acknowledged them: it must not
vote without them. So before anything of such a log is repaired, the others are asked how far theirs go. Enough have
answered

- when they could elect one of them without this member, and hear no leader of a term any more in which this one can
  have acknowledged anything: then the best log among them has whatever was committed with this member's help. It is
  asked for with a promise (a *fence*) only where they are still in such a term;
- or when all have answered: a leader of this member had what it has sent, and says so. That is all that can ever be
  known where most of the others are damaged, too.

The best log stands for the lost end, entry by entry, as far as this member can have had it: not beyond the term that it
has promised, nor beyond what its block had room for. Entries in it that were never here are like an append that comes
late. The finding is not stored: until the block is repaired its damage is found again, and others are asked again.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence

import attrs

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.recovery.repair_rules import electable
from jetraft.raft.recovery.repair_wire import EndAnswer, EndRequest, RepairRequest, unpack_answer, unpack_end_answer
from jetraft.store.log.file_log import FileLog
from jetraft.store.model.ids import NodeId

log_ = logging.getLogger(__name__)


@attrs.frozen(slots=True)
class End:
    """The last entry that a log can have had, and the member whose log stands for its lost end."""

    last_index: int
    best: NodeId


class EndInquiry:
    """One attempt. `call(node, payload)` returns a member's answer, None where there is none."""

    def __init__(
        self, log: FileLog, others: Sequence[NodeId], call: Callable[[NodeId, bytes], Awaitable[bytes | None]]
    ) -> None:
        self._log = log
        self._call = call
        self._wanted = list(others)  # whom the answers name, too
        self._answers: dict[NodeId, EndAnswer] = {}

    async def run(self) -> End | None:
        """None when too few have answered."""
        term = self._log.hard_state.term
        for node in self._wanted:
            await self._ask(node, fence_term=0)
        best = electable(self._answers, above_term=term)
        if best is None and self._answers.keys() >= set(self._wanted):
            best = max(self._answers, key=self._rank, default=None)
        if best is None and electable(self._answers, above_term=-1) is not None:
            for node in [node for node, answer in self._answers.items() if answer.voters]:
                await self._ask(node, fence_term=term + 1)
            best = electable(self._answers, above_term=term)
        if best is None:
            return None
        last_index = self._answers[best].last_index
        return End(await self._within_room(best, last_index), best)

    def _rank(self, node: NodeId) -> tuple[tuple[int, int], bool, NodeId]:
        """Of equal logs one that is whole comes first."""
        answer = self._answers[node]
        return answer.end, bool(answer.voters), node

    async def _ask(self, node: NodeId, *, fence_term: int) -> None:
        identity = self._log.identity
        request = EndRequest(
            group_id=identity.group_id,
            incarnation=identity.incarnation,
            index_max=self._log.repair.end_index_max,
            term_max=self._log.hard_state.term,
            fence_term=fence_term,
        )
        self._answers.pop(node, None)
        packed = await self._call(node, request.pack())
        if packed is None:
            return
        try:
            answer = self._answers[node] = unpack_end_answer(packed, request)
        except RemoteProtocolError as error:
            log_.info("%s: %s does not say how far its log goes: %s", self._log.place.group, node, error)
            return
        known = {*self._wanted, identity.node_id}
        self._wanted += [voter for voter in answer.voters if voter not in known]

    async def _within_room(self, node: NodeId, last_index: int) -> int:
        """The end, but not behind what fits into the newest block: this member can have been away for a long time."""
        identity, left_bytes = self._log.identity, self._log.repair.end_capacity_bytes
        index = self._log.repair.end_known + 1
        while index <= last_index:
            request = RepairRequest(
                group_id=identity.group_id, incarnation=identity.incarnation, first=index, last=last_index
            )
            packed = await self._call(node, request.pack())
            try:
                frames = () if packed is None else unpack_answer(packed, request).frames
            except RemoteProtocolError:
                frames = ()
            if not frames:
                break  # nothing smaller is known
            for frame in frames:
                left_bytes -= len(frame)
                if left_bytes < 0:
                    return index
                index += 1
        return last_index
