"""How a node without memory of a group becomes a member: it asks, and the leader makes sure that it does not vote.

A member promises things: to vote once in a term, to refuse leaders of earlier terms, to hold what it acknowledged. One
that has lost its log (its disk was wiped, or the log was in memory) has forgotten its promises, but others still count
on its name: with its old vote it could elect a second leader in a term, or let a candidate win that lacks what only it
and a dead member had; with its acknowledgements it could let a deposed leader, whose deposing it has forgotten, commit.
So such a node has no group at all: it grants no votes, does not stand, acknowledges nothing (rule 30). It asks.

The leader makes it a learner (a voter is demoted, a stranger added) and waits until that is committed; then a round of
contact with a majority proves that it still leads (rule 21). Only then it answers, with its term.

Why the node may take part as a learner from then on: the demotion is committed by a majority of voters without it, and
every majority of the configuration before has a member in common with that one (one voter at a time, rule 28). So a
candidate that counts on its old vote with that configuration needs the vote of a member that holds the demotion and
refuses an older log. For terms up to the leader's it starts with its vote given to that leader; in later terms it never
was. It votes again when a leader has promoted it, which needs its log to have caught up.

Majorities of configurations further back need have no member in common with the present one, and may be made of nodes
that have left since, and forgotten it: what would have refused them is gone. The log with which such a node is filled
has those configurations, perhaps with itself as the only voter. So none of them is ever in force there: its
configuration is the one that has admitted it (raft/engine/membership.py), and until its log has come to that it does
not stand, and gives no vote (decision 125).

Two voters are a special case: no leader can be elected without the one that remembers, so that one has seen every term
and holds every committed entry. When it cannot lead alone, the other may come back as a voter in its term, by its
configuration: what the forgetful one promised, the other knows. The caller vouches that there are no more than these
two (`others`).

With more voters, those that have forgotten may be a majority by count. Entries that they alone held are gone then, and
the one that remembers most goes on alone, in memory only, once all the others were asked: that rule is
raft/recovery/survivor.py. It covers two voters beside a learner as well, where nothing is lost. A majority that
remembers needs no rule.

When none of the members remembers (a memory stream after all its servers were restarted) there is nothing left to
protect: once all of them say so, and mean the same members, and say it again, all begin empty. They are asked twice, as
the first may have been filled by the last one while that was still to be asked; what all say twice was so for all at
the moment between. Who begins remembers whom it counted on, by a number that each draws when it begins to wait: one of
those that asks later may begin too, but not if it was restarted or has begun since, and may have promised something.

Questions and answers are in raft/recovery/joining_messages.py.
"""

import enum
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.raft.engine.leadership import MembershipChangeRefusedError
from jetraft.raft.engine.membership import BadConfigurationError, Configuration, SettledUpTo, settled_of
from jetraft.raft.group import Group
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.messages import Message, unpack_any
from jetraft.raft.mesh.rpc import CallTimeoutError, PeerUnavailableError, RemoteCallError
from jetraft.raft.proposals import Outcome
from jetraft.raft.recovery.joining_messages import (
    NUMBER_BYTES,
    BeginEmpty,
    Elsewhere,
    JoinAdmitted,
    JoinAnswer,
    JoinRequest,
    JoinWaiting,
)
from jetraft.raft.recovery.survivor import Forgot, Survivors
from jetraft.store.model.events import REPLICA_EMPTY, REPLICA_REFILLED
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import GroupLog, HardState, StoreError

if TYPE_CHECKING:
    from jetraft.raft.manager import Manager
    from jetraft.raft.recovery.call_links import CallLinks

log_ = logging.getLogger(__name__)

METHOD: Final = "raft.join"
CALL_TIMEOUT_S: Final = 2.0  # a configuration is committed meanwhile

GroupKey = tuple[GroupId, int]


class Begins(enum.Enum):
    """The facts that the caller vouches for, so that a group need not wait for a leader that cannot be."""

    NEVER = "never"
    AS_PAIR = "as pair"  # `others` are all that may be members: one other voter may be enough
    WITH_ALL = "with all"  # and when none of them remembers anything, nothing is left to wait for


class JoinPendingError(StoreError):
    """No member could admit this node now; ask again later."""


@attrs.frozen(kw_only=True, slots=True)
class MemberAdmission:
    """How a new log begins."""

    configuration: Configuration
    term: int = 0
    vote: NodeId | None = None
    commit_index: int = 0
    settled: SettledUpTo | None = None  # no entry up to this one changes the configuration (raft/engine/membership.py)

    def begin(self, log: GroupLog) -> None:
        """Write it into a new log; the group may start when that is durable (`until_durable`)."""
        log.set_hard_state(HardState(term=self.term, vote=self.vote))
        log.save_checkpoint(0, 0, self.configuration.encode(settled=self.settled), b"")


@attrs.frozen(kw_only=True, slots=True)
class JoiningStatistics:
    """A snapshot of the figures."""

    waiting: int
    admitted: int


class Joining:
    """Asks for this node, and answers others for the groups that it leads. `may_join` says who is wanted in a group."""

    def __init__(
        self,
        manager: "Manager",
        links: "CallLinks",
        *,
        may_join: Callable[[GroupId, NodeId], bool] = lambda *_: True,
        on_admitted: Callable[[GroupId], None] = lambda _group_id: None,
        on_forgotten: Callable[[GroupId], None] = lambda _group_id: None,
    ) -> None:
        """`on_admitted`: a group that is led here has another learner.

        `on_forgotten`: a group that goes on here may have lost entries that others had.
        """
        self._manager = manager
        self._links = links
        self._may_join = may_join
        self._waiting: dict[GroupKey, Forgot] = {}  # asked for, not begun
        self._begun: dict[GroupKey, dict[NodeId, bytes]] = {}  # begun empty, and on whom that counted
        self._admitted = 0
        self._on_admitted = on_admitted
        self._on_forgotten = on_forgotten
        self._survivors = Survivors(manager, links, waiting=self._waiting.get)
        links.serve(METHOD, self._serve)

    def statistics(self) -> JoiningStatistics:
        """Figures for monitoring and tests."""
        return JoiningStatistics(waiting=len(self._waiting), admitted=self._admitted)

    def is_waiting(self, key: GroupKey) -> bool:
        """Whether this node has nothing of a group any more that counts, and asks to be admitted."""
        return key in self._waiting

    def has_begun_empty(self, group_id: GroupId) -> bool:
        """Whether a group began again in this process, as none of its members remembered it."""
        return any(key[0] == group_id for key in self._begun)

    def forget(self, group_id: GroupId) -> None:
        """The group has left this node: it waits for it no longer, and others must not count on that."""
        for known in (self._waiting, self._begun):
            for key in [key for key in known if key[0] == group_id]:
                del known[key]

    # Asking.

    async def ask(
        self, group_id: GroupId, incarnation: int, *, own: NodeId, others: Sequence[NodeId], begins: Begins
    ) -> MemberAdmission:
        """How this node may take part. `others` are all that may be members besides it. Raises JoinPendingError."""
        key = group_id, incarnation
        members = sorted({own, *others})
        before = self._waiting.get(key)
        own_number = secrets.token_bytes(NUMBER_BYTES) if before is None else before.number
        self._waiting[key] = Forgot(own_number, tuple(members))
        forgetful: dict[NodeId, bytes] = {}
        hints = list(others)
        asked: set[NodeId] = set()
        refusals: list[str] = []
        while hints:
            node = hints.pop(0)
            if node in asked or node == own:
                continue
            asked.add(node)
            match await self._call(node, key, own_number, refusals):
                case JoinAdmitted(term=term, configuration=packed, commit_index=commit_index):
                    self._waiting.pop(key, None)
                    return _admission(packed, term, node, commit_index)
                # Only one that names the same members counts: both are to begin the same group.
                case JoinWaiting(number=number, members=same) if list(same) == members:
                    forgetful[node] = number
                case BeginEmpty(counted=by_member) if by_member and begins is Begins.WITH_ALL:
                    return self._begin(key, dict(by_member))
                case Elsewhere(leader=leader, term=term, configuration=packed):
                    if leader:
                        # Ask the leader next; `asked` ends the chain when two nodes name each other.
                        hints.insert(0, NodeId(leader))
                    elif begins is not Begins.NEVER and len(others) == 1 and _is_pair(packed, own, node):
                        self._waiting.pop(key, None)
                        return attrs.evolve(_admission(packed, term, node, 0), vote=None)
        counted = {**forgetful, own: own_number}
        if (
            begins is Begins.WITH_ALL
            and others
            and sorted(counted) == members
            and await self._survivors.still_forget(own, key, counted)
        ):
            return self._begin(key, counted)
        why = "".join(f"; {refusal}" for refusal in refusals)
        raise JoinPendingError(f"{group_id}: no leader admits this node, which has no memory of the group{why}")

    def _begin(self, key: GroupKey, counted: dict[NodeId, bytes]) -> MemberAdmission:
        """All members have forgotten the group: begin empty, now."""
        # Checked again after the questions: `forget` may have been called meanwhile.
        if self._waiting.pop(key, None) is None:
            raise JoinPendingError(f"{key[0]}: the group was deleted while this node asked")
        REPLICA_EMPTY.log(group=key[0])
        self._begun[key] = counted
        return MemberAdmission(configuration=Configuration(voters=counted))

    async def _call(self, node: NodeId, key: GroupKey, number: bytes, refusals: list[str]) -> Message | None:
        """The answer of the node, None when it does not; its reason goes to the others' refusals."""
        request = JoinRequest(group_id=key[0], incarnation=key[1], number=number).pack()
        try:
            answer = await self._links.call(node, METHOD, request, timeout_s=CALL_TIMEOUT_S)
            return unpack_any(answer, JoinAdmitted, JoinWaiting, BeginEmpty, Elsewhere)
        except (PeerUnavailableError, CallTimeoutError, RemoteCallError, RemoteProtocolError) as error:
            if isinstance(error, RemoteCallError):
                refusals.append(str(error))
            log_.debug("%s did not say whether this node may join %s: %s", node, key[0], error)
            return None

    # Answering.

    async def _serve(self, sender: NodeId, payload: bytes) -> bytes:
        """Raises RemoteCallError or RemoteProtocolError, which go to the node that asked."""
        request = JoinRequest.unpack(payload)
        return (await self._answer(sender, (request.group_id, request.incarnation), request.number)).pack()

    async def _answer(self, sender: NodeId, key: GroupKey, number: bytes) -> JoinAnswer:
        group = self._manager.groups.get(key[0])
        if group is None or group.incarnation != key[1]:
            waits = self._waiting.get(key)
            if waits is not None:
                return JoinWaiting(number=waits.number, members=waits.members)
            raise RemoteCallError(f"{key[0]} is not here")
        group.has_no_replica(sender)
        if not group.is_leader:
            counted = self._begun.get(key, {})
            if counted.get(sender) == number:
                return BeginEmpty(counted=counted)
            survival = None if group.leader else await self._survivors.go_on(group.node_id, key)
            if survival is not None and survival.may_have_lost:
                self._on_forgotten(key[0])
            settled = SettledUpTo(group.log.last_index, group.term)  # for a pair: all that there is
            packed = group.configuration.encode(settled=settled)
            return Elsewhere(leader=group.leader or "", term=group.term, configuration=packed)
        if not self._may_join(key[0], sender):
            raise RemoteCallError(f"{sender} is not wanted in {key[0]}")
        admission = await _admitted(group, sender)
        self._admitted += 1
        self._on_admitted(key[0])
        return JoinAdmitted(
            term=admission.term,
            configuration=admission.configuration.encode(settled=admission.settled),
            commit_index=admission.commit_index,
        )


def admit(group: Group, node: NodeId, done: Callable[[MemberAdmission | str], None]) -> None:
    """Make a node that remembers nothing a learner of a group that is led here.

    `done` is called when that is committed and a majority has confirmed that this node still leads, with how the node's
    log begins; or else with what stands in the way.
    """

    def confirmed(outcome: Outcome, _result: object) -> None:
        if outcome is not Outcome.OK:
            done("leadership was lost")
        elif node not in group.configuration.learners or not group.configuration_is_committed:
            done("another change is not committed yet")
        else:
            group.forget_member(node)
            done(
                MemberAdmission(
                    configuration=group.configuration,
                    term=group.term,
                    vote=group.node_id,
                    commit_index=group.commit_index,
                    settled=SettledUpTo(group.configurations.current_index, group.term),
                )
            )

    def changed(outcome: Outcome, _result: object) -> None:
        if outcome is Outcome.OK:
            group.read_barrier(confirmed)
        else:
            done("leadership was lost")

    now = group.configuration
    if node in now.learners:
        group.read_barrier(confirmed)
        return
    in_contact = {peer.node for peer in group.core.peer_progress() if peer.up and peer.responded} - {node}
    wanted = Configuration(voters=[voter for voter in now.voters if voter != node], learners=(*now.learners, node))
    # With no majority in contact under the new configuration nothing could be committed any more.
    if not wanted.has_quorum({group.node_id, *in_contact}):
        done("without it there is no majority in contact")
        return
    try:
        group.change_members(wanted, changed)
    except MembershipChangeRefusedError as error:
        done(str(error))
    else:
        REPLICA_REFILLED.log(group=group.group_id, node=node)


async def _admitted(group: Group, node: NodeId) -> MemberAdmission:
    """Raises RemoteCallError, which goes to the node that asked; it does not wait longer than that node does."""
    finished = trio.Event()
    ended: list[MemberAdmission | str] = []

    def done(result: MemberAdmission | str) -> None:
        ended.append(result)
        finished.set()

    admit(group, node, done)
    with trio.move_on_after(CALL_TIMEOUT_S):
        await finished.wait()
    result = ended[0] if ended else "no majority in time"
    if isinstance(result, str):
        raise RemoteCallError(result)
    return result


async def until_durable(log: GroupLog) -> None:
    """Wait until everything written to a log that no group owns is on disk. Raises its error."""
    while log.durable_token < log.token():
        if log.failed is not None:
            raise log.failed
        moved = trio.Event()
        log.on_durable = moved.set
        log.submit()
        if log.durable_token < log.token() and log.failed is None:
            await moved.wait()
    log.on_durable = None


def _admission(packed: bytes, term: int, leader: NodeId, commit_index: int) -> MemberAdmission:
    try:
        # A leader of an earlier version says no index; what it calls committed is settled too.
        configuration, settled = Configuration.decode(packed), settled_of(packed) or SettledUpTo(commit_index, term)
    except BadConfigurationError as error:
        raise JoinPendingError(str(error)) from error
    return MemberAdmission(
        configuration=configuration,
        term=term,
        vote=leader,
        commit_index=commit_index,
        settled=settled,
    )


def _is_pair(packed: bytes, own: NodeId, other: NodeId) -> bool:
    try:
        configuration = Configuration.decode(packed)
    except BadConfigurationError:
        return False
    return set(configuration.voters) == {own, other}
