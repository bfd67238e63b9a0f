"""Compares the replicas of a stream with each other, so that one that has silently gone wrong is found and repaired.

Checksums find bytes that have changed; they do not find a block that was put back from an old copy, or state that a bug
has bent. The leader writes a `Digest` entry for one slice after the other, asks every member for the digests that it
took when it applied that entry (digest.py), and believes what a majority says. A member that says otherwise, which may
be the leader itself, is told whom to believe and repairs itself:

- It asks that member for the digests of single messages. The frames of messages that differ are disowned, so that its
  log is opened again and they are fetched like damaged ones (raft/recovery/repair.py): there is one way to deal with
  damage.
- If no message differs, its derived state does: the other's newest checkpoint takes the place of its own, and it starts
  again from there, over its own log.
- A replica in memory has nothing that could be opened again: it gives itself up, hands over first if it leads, and is
  admitted as a learner and filled from the leader, as after a restart of its server (host.py).

The calls are in cluster/calls/messages/comparing.py.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.cluster.calls.messages.comparing import (
    DETAIL,
    DIGEST,
    MEND,
    MEND_ANSWER,
    STATE,
    DetailAnswer,
    DetailQuestion,
    DigestAnswer,
    DigestQuestion,
    MendQuestion,
    MessageDigest,
    StateAnswer,
    StateQuestion,
)
from jetraft.cluster.state.digest import (
    SLICE_CONSUMERS,
    UNKNOWN,
    Digests,
    consumer_names,
    digest_of_message,
    last_of_slice,
    messages_between,
)
from jetraft.raft.engine.port import Proposal
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.rpc import CallTimeoutError, PeerUnavailableError, RemoteCallError
from jetraft.raft.proposals import NotLeaderError, OutcomeUnknownError
from jetraft.store.frames.format import Kind
from jetraft.store.log.file_log import FileLog
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.events import REPLICA_DIFFERS, REPLICA_DISCARDED
from jetraft.store.port import StoreCorrupt, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jetraft.cluster.advisories import NodeAdvisories
    from jetraft.cluster.state import commands
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.raft.mesh.messages import Message
    from jetraft.raft.recovery.call_links import CallLinks
    from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

IDLE_S: Final = 60.0  # between rounds at most
REST_S_MIN: Final = 0.02  # between slices: 50,000 messages a second at most
ASK_S: Final = 2.0
STATE_S: Final = 10.0

_FAILURES: Final = (PeerUnavailableError, CallTimeoutError, RemoteCallError, RemoteProtocolError)


@attrs.frozen(kw_only=True, slots=True)
class ComparerStatistics:
    """A snapshot of the figures since the node started."""

    rounds: int
    slices: int
    undecided: int  # too few answers, or no majority among them
    differing: int  # members that a majority disagreed with
    frames_disowned: int
    states_replaced: int
    given_up: int  # replicas in memory, to be filled again


@attrs.define(slots=True)
class _Figures:
    rounds: int = 0
    slices: int = 0
    undecided: int = 0
    differing: int = 0
    frames_disowned: int = 0
    states_replaced: int = 0
    given_up: int = 0


class Comparer:
    """See the module. `replicas` gives this node's; those that it leads are compared, once in `period_ns`."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        mesh: CallLinks,
        advisories: NodeAdvisories,
        replicas: Callable[[], Sequence[StreamReplica]],
        period_ns: int,
    ) -> None:
        self._node_id = node_id
        self._mesh = mesh
        self._advisories = advisories
        self._replicas = replicas
        self._period_s = period_ns / NS_PER_S
        self._figures = _Figures()
        for method, serve in (
            (DIGEST, self._serve_digest),
            (DETAIL, self._serve_detail),
            (MEND, self._serve_repair),
            (STATE, self._serve_state),
        ):
            mesh.serve(method, serve)

    async def run(self) -> None:
        """Compare, round after round, until cancelled."""
        while True:
            started = trio.current_time()
            found_any = await self.compare_all()
            left_s = self._period_s - (trio.current_time() - started)
            await trio.sleep(max(REST_S_MIN, left_s if found_any else min(left_s, IDLE_S)))

    async def compare_all(self) -> bool:
        """Compare every stream that this node leads, once; say whether there was any."""
        led = [replica for replica in self._replicas() if replica.is_leader and len(replica.group.members) > 1]
        for replica in led:
            await self._compare(replica, rest_s=self._rest_s(led))
        self._figures.rounds += bool(led)
        return bool(led)

    def statistics(self) -> ComparerStatistics:
        """Figures for monitoring and tests."""
        return ComparerStatistics(**attrs.asdict(self._figures))

    def _rest_s(self, led: Sequence[StreamReplica]) -> float:
        """How long to rest between slices so that all of them together take half a period."""
        slices = sum(1 + replica.machine.messages // 500 + replica.consumer_count // SLICE_CONSUMERS for replica in led)
        return max(REST_S_MIN, min(1.0, self._period_s / 2 / slices))

    # --- the leader's part

    async def _compare(self, replica: StreamReplica, *, rest_s: float) -> None:
        """Go through a stream that this node leads, until the end or until it does not lead any more."""
        from jetraft.cluster.state import commands  # noqa: PLC0415  a server without streams needs none

        machine, seq, name = replica.machine, replica.machine.store.first_seq, ""
        while replica.is_leader:
            names = consumer_names(machine.consumers, name, SLICE_CONSUMERS)
            last_seq = last_of_slice(machine, seq)
            command = commands.Digest(seq, last_seq, name, SLICE_CONSUMERS)
            body = commands.encode_stream_command(command)
            try:
                index = await replica.group.propose_and_wait(Proposal(kind=Kind.STREAM_OP, body=body))
            except (NotLeaderError, OutcomeUnknownError):
                return  # the next leader compares from the beginning
            assert isinstance(index, int)
            await self._judge(replica, index, command)
            self._figures.slices += 1
            seq, name = last_seq + 1, names[-1] if names else name
            if seq > machine.last_seq and len(names) < SLICE_CONSUMERS:
                return
            await trio.sleep(rest_s)

    async def _judge(self, replica: StreamReplica, index: int, command: commands.Digest) -> None:
        """Ask all members for their digests of an entry; have those repaired that a majority disagrees with."""
        group = replica.group
        found: dict[NodeId, Digests] = {self._node_id: replica.machine.digests.get(index, Digests(UNKNOWN, UNKNOWN))}

        async def ask(node: NodeId) -> None:
            try:
                question = DigestQuestion(group_id=group.group_id, incarnation=group.incarnation, index=index)
                answer = DigestAnswer.unpack(await self._call(node, DIGEST, question))
                found[node] = Digests(answer.messages, answer.consumers)
            except _FAILURES as error:
                log.debug("%s: no digest of entry %d from %s: %s", group.group_id, index, node, error)

        async with trio.open_nursery() as nursery:
            for node in group.members:
                if node != self._node_id:
                    nursery.start_soon(ask, node)
        known = {node: digests for node, digests in found.items() if digests.messages != UNKNOWN}
        common, count = Counter(known.values()).most_common(1)[0] if known else (None, 0)
        if count <= len(group.members) // 2:
            self._figures.undecided += 1
            if len(set(known.values())) > 1:
                log.error("%s: replicas differ at entry %d and none has a majority", group.group_id, index)
            return
        believed = sorted(node for node, digests in known.items() if digests == common)
        for node, digests in sorted(known.items()):
            if digests != common:
                self._figures.differing += 1
                self._report(replica, node, command)
                await self._have_repaired(replica, node, believed[0], command)

    def _report(self, replica: StreamReplica, node: NodeId, command: commands.Digest) -> None:
        name, span = replica.config.name, (command.first_seq, command.last_seq)
        account = replica.assignment.account
        REPLICA_DIFFERS.log(account=account, stream=name, node=node, first=span[0], last=span[1])
        self._advisories.of(account).replica_differs(name, node, *span)

    async def _have_repaired(
        self, replica: StreamReplica, node: NodeId, whom: NodeId, command: commands.Digest
    ) -> None:
        group = replica.group
        try:
            if node == self._node_id:
                await self._repair(replica, command.first_seq, command.last_seq, whom)
            else:
                question = MendQuestion(
                    group_id=group.group_id,
                    incarnation=group.incarnation,
                    first_seq=command.first_seq,
                    last_seq=command.last_seq,
                    whom=whom,
                )
                await self._call(node, MEND, question, timeout_s=STATE_S)
        except (*_FAILURES, StoreError, OSError) as error:
            log.warning("%s: %s cannot repair its replica now: %s", group.group_id, node, error)

    # --- the part of a member that differs

    async def _repair(self, replica: StreamReplica, first_seq: int, last_seq: int, whom: NodeId) -> None:
        """Disown frames that conflict with those of `whom`; without any, take over its derived state."""
        group = replica.group
        if not isinstance(group.log, FileLog):
            await self._give_up(replica, whom)
            return
        question = DetailQuestion(
            group_id=group.group_id, incarnation=group.incarnation, first_seq=first_seq, last_seq=last_seq
        )
        answer = DetailAnswer.unpack(await self._call(whom, DETAIL, question))
        if group.failed is not None:
            raise StoreError(f"{group.group_id}: this replica has ended meanwhile")
        theirs = {row.seq: row.digest for row in answer.rows}
        differing = {
            message.seq
            for message in messages_between(replica.machine, first_seq, last_seq)
            if theirs.get(message.seq, mine := digest_of_message(message)) != mine
        }
        if differing:
            self._disown(replica, differing)
        else:
            await self._take_state(replica, whom)

    def _disown(self, replica: StreamReplica, seqs: set[int]) -> None:
        group_log = replica.group.log
        assert isinstance(group_log, FileLog)
        frames = {place[:2] for seq in sorted(seqs) if (place := replica.machine.store.place(seq)) is not None}
        for block, offset in sorted(frames):
            group_log.upkeep.invalidate(block, offset)
        self._figures.frames_disowned += len(frames)
        replica.machine.store.records.forget()
        log.warning(
            "%s: %d frames that conflict with those of the other members are disowned",
            replica.group.group_id,
            len(frames),
        )
        replica.group.distrust(StoreCorrupt(f"{len(seqs)} messages differ from what a majority has"))

    async def _take_state(self, replica: StreamReplica, whom: NodeId) -> None:
        group = replica.group
        question = StateQuestion(group_id=group.group_id, incarnation=group.incarnation)
        theirs = StateAnswer.unpack(await self._call(whom, STATE, question, timeout_s=STATE_S, bulk=True))
        index, term = theirs.index, theirs.term
        with trio.move_on_after(ASK_S):
            await group.wait_applied(index)
        own = group.log.load_checkpoint()
        if group.failed is not None or group.applied_index < index or group.log.term_at(index) != term:
            raise StoreError(f"{group.group_id}: not far enough for a state of entry {index}")
        if own is not None and own.index > index:
            raise StoreError(f"{group.group_id}: its own checkpoint is newer by now")
        group.log.save_checkpoint(
            index, term, group.configurations.members_at(index, term, theirs.members), theirs.state
        )
        self._figures.states_replaced += 1
        log.warning("%s: starts again from the state that %s had at entry %d", group.group_id, whom, index)
        group.distrust(StoreCorrupt("the state differs from what a majority has"))

    async def _give_up(self, replica: StreamReplica, whom: NodeId) -> None:
        """Stop a replica in memory: `Restarter` starts it again with nothing. A majority has what it had."""
        group = replica.group
        if not group.members_may_change:
            raise StoreError(f"{group.group_id}: the engine admits no member again")
        if group.is_leader:
            group.transfer_leadership(whom)
            with trio.move_on_after(ASK_S):
                await group.wait_follower()
        if group.is_leader:
            raise StoreError(f"{group.group_id}: no member has taken leadership over")
        self._figures.given_up += 1
        REPLICA_DISCARDED.log(group=group.group_id)
        group.distrust(StoreCorrupt("a replica in memory differs from what a majority has"))

    # --- between nodes

    async def _call(
        self, node: NodeId, method: str, question: Message, *, timeout_s: float = ASK_S, bulk: bool = False
    ) -> bytes:
        return await self._mesh.call(node, method, question.pack(), timeout_s=timeout_s, bulk=bulk)

    def _replica(self, group_id: str, incarnation: int) -> StreamReplica:
        """This node's replica of a group. Raises RemoteCallError."""
        for replica in self._replicas():
            group = replica.group
            if (group.group_id, group.incarnation) == (group_id, incarnation) and group.failed is None:
                return replica
        raise RemoteCallError("that group does not run here")

    async def _serve_digest(self, _sender: NodeId, payload: bytes) -> bytes:
        asked = DigestQuestion.unpack(payload)
        replica = self._replica(asked.group_id, asked.incarnation)
        with trio.move_on_after(ASK_S / 2):
            await replica.group.wait_applied(asked.index)
        found = replica.machine.digests.get(asked.index)
        if found is None:
            raise RemoteCallError(f"no digest of entry {asked.index}")
        return DigestAnswer(messages=found.messages, consumers=found.consumers).pack()

    async def _serve_detail(self, _sender: NodeId, payload: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        asked = DetailQuestion.unpack(payload)
        replica = self._replica(asked.group_id, asked.incarnation)
        try:
            found = messages_between(replica.machine, asked.first_seq, asked.last_seq)
        except StoreCorrupt as error:
            raise RemoteCallError(str(error)) from error
        rows = (MessageDigest(seq=message.seq, digest=digest_of_message(message)) for message in found)
        return DetailAnswer(rows=tuple(rows)).pack()

    async def _serve_repair(self, _sender: NodeId, payload: bytes) -> bytes:
        asked = MendQuestion.unpack(payload)
        replica = self._replica(asked.group_id, asked.incarnation)
        if asked.whom not in replica.group.members or asked.whom == self._node_id:
            raise RemoteCallError("that node is not another member of the group")
        try:
            await self._repair(replica, asked.first_seq, asked.last_seq, asked.whom)
        except (PeerUnavailableError, CallTimeoutError, RemoteProtocolError, StoreError, OSError) as error:
            raise RemoteCallError(str(error)) from error
        return MEND_ANSWER

    async def _serve_state(self, _sender: NodeId, payload: bytes) -> bytes:
        asked = StateQuestion.unpack(payload)
        group = self._replica(asked.group_id, asked.incarnation).group
        group.checkpoint()
        token = group.log.token()
        with trio.move_on_after(ASK_S):
            await group.wait_durable(token)
        found = group.snapshot()
        if found is None:
            raise RemoteCallError(f"{asked.group_id} has no checkpoint")
        checkpoint = found[1]
        return StateAnswer(
            index=checkpoint.index, term=checkpoint.term, members=checkpoint.members, state=checkpoint.state
        ).pack()
