"""Too few members remember a group in memory: the one that remembers most goes on alone, and refills the others.

A majority of voters that remember elects a leader as usual, and admits the others (joining.py). Without one no member
can ever be elected: a member that has forgotten has no group, and grants no vote. All that those members held is gone,
and no rule brings it back; an entry that only they had acknowledged is lost. The others' memory is all that there is:

1. All that may be members are asked, now: those of the configurations that are remembered, and those that the
   forgetful ones wait for, which the meta group named a moment ago. If one does not answer, all wait: it may hold
   more.
2. Each has forgotten, or remembers and knows no leader; and none of those who remember can be elected, because the
   others of them that would vote for it, having no more than it has, are no majority of the configuration that it has.
3. The one with the last entry of the highest term, then index, then name is the survivor. It has every entry that any
   of them knows to be committed: terms up to now had one leader each, elected by those who remembered, so the argument
   of Raft's leader completeness holds among them (thesis 3.6.3).
4. It asks all again, and the same processes give the same answers. So there was a moment, between the two rounds, in
   which all of them had forgotten or knew no leader; since then only the survivor can have changed that, because a
   leader needs a majority that remembers, and beginning again (joining.py) needs that none does.

It then writes a configuration of itself alone, the others that remember as learners, in a term far above any that it
knows (TERMS_SKIPPED), as there may have been terms that no member knows now: index and term still name one entry.
From then on all is as usual: it leads, admits the members that ask, fills them, and makes them voters again.

When those who have forgotten could have been a majority without any survivor, messages may be gone: the caller is
told, and writes that into the group's log, so that every member says so (`Joining.on_forgotten`). With two voters of
which one remembers, as when the third had just been made a learner, nothing is gone: it took part in every commit.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.raft.engine.membership import BadConfigurationError, Configuration
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.messages import unpack_any
from jetraft.raft.mesh.rpc import CallTimeoutError, PeerUnavailableError, RemoteCallError
from jetraft.raft.recovery.bounds import TERMS_AHEAD_MAX
from jetraft.raft.recovery.joining_messages import TERMS_SKIPPED, Forgotten, RecallRequest, Remembered
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.ids import GroupId, NodeId

if TYPE_CHECKING:
    from jetraft.raft.group import Group
    from jetraft.raft.manager import Manager
    from jetraft.raft.recovery.call_links import CallLinks

log_ = logging.getLogger(__name__)

METHOD: Final = "raft.recall"
CALL_TIMEOUT_S: Final = 0.7  # two rounds are over before the node that asked to be admitted gives up (joining.py)
PAIR: Final = 2

GroupKey = tuple[GroupId, int]


@attrs.frozen(slots=True)
class Forgot:
    """This process waits to be admitted, by the number of this wait, and takes these for all members."""

    number: bytes
    members: tuple[NodeId, ...]


@attrs.frozen(kw_only=True, slots=True)
class Remembers:
    """A member that has a log: how far it goes, and the configuration in force there."""

    leader: NodeId | None
    term: int
    last_term: int
    last_index: int
    configuration: Configuration

    @property
    def end(self) -> tuple[int, int]:
        """The last term and index: what voters compare."""
        return self.last_term, self.last_index

    @classmethod
    def of(cls, group: "Group") -> "Remembers":
        """This node's memory of a group."""
        last_index = group.log.last_index
        return cls(
            leader=group.leader,
            term=group.term,
            last_term=group.log.term_at(last_index) or 0,
            last_index=last_index,
            configuration=group.configuration,
        )


Answer = Forgot | Remembers


@attrs.frozen(slots=True)
class Survival:
    """How the survivor goes on. `may_have_lost`: entries may have been acknowledged that it does not have."""

    configuration: Configuration
    term: int
    may_have_lost: bool


def members_of(own: NodeId, answers: Mapping[NodeId, Answer]) -> set[NodeId]:
    """All nodes that may be members, as far as these know."""
    found = {own}
    for answer in answers.values():
        found |= set(answer.members if isinstance(answer, Forgot) else answer.configuration.members)
    return found


def survival(own: NodeId, answers: Mapping[NodeId, Answer]) -> Survival | None:
    """How `own`, whose answer is among these, goes on; None when it must not. See the module (1 to 3)."""
    remembering = {node: answer for node, answer in answers.items() if isinstance(answer, Remembers)}
    forgetful = answers.keys() - remembering.keys()
    if not forgetful or own not in remembering or members_of(own, answers) - answers.keys():
        return None
    if remembering[own].configuration.voters == tuple(sorted(answers)) and len(answers) == PAIR:
        return None  # the other one comes back as a voter (joining.py)
    if any(each.leader is not None or _is_electable(each, remembering) for each in remembering.values()):
        return None
    if max(remembering, key=lambda node: (remembering[node].end, node)) != own:
        return None
    return Survival(
        Configuration(voters=(own,), learners=remembering.keys() - {own}),
        max(each.term for each in remembering.values()) + TERMS_SKIPPED,
        any(each.configuration.has_quorum(forgetful) for each in remembering.values()),
    )


def _is_electable(candidate: Remembers, remembering: Mapping[NodeId, Remembers]) -> bool:
    """Whether those that remember no more than a candidate are a majority of the configuration that it has."""
    return candidate.configuration.has_quorum(node for node, each in remembering.items() if each.end <= candidate.end)


class Survivors:
    """Asks what the members of a group remember, and answers that. `waiting` says what this node waits for itself."""

    def __init__(self, manager: "Manager", links: "CallLinks", *, waiting: Callable[[GroupKey], Forgot | None]) -> None:
        self._manager = manager
        self._links = links
        self._waiting = waiting
        self._busy: set[GroupKey] = set()
        links.serve(METHOD, self._serve)

    async def go_on(self, own: NodeId, key: GroupKey) -> Survival | None:
        """Let this node's member lead alone if it is the survivor; return how, None when it is not or not now."""
        group = self._manager.groups.get(key[0])
        if group is None or not isinstance(group.log, MemLog) or not group.members_may_change or key in self._busy:
            return None
        self._busy.add(key)
        try:
            first = await self._round(own, key)
            found = survival(own, first)
            if found is None or not same(first, await self._round(own, key)):
                return None
            if found.term > group.term + TERMS_AHEAD_MAX:
                return None
        finally:
            self._busy.discard(key)
        if self._manager.groups.get(key[0]) is not group or Remembers.of(group) != first[own]:
            return None
        forgetful = ", ".join(sorted(node for node, answer in first.items() if isinstance(answer, Forgot)))
        log_.warning(
            "%s: %s have forgotten it; this node goes on with what it has, in term %d", key[0], forgetful, found.term
        )
        group.outlive(found.configuration, found.term)
        return found

    async def still_forget(self, own: NodeId, key: GroupKey, numbers: Mapping[NodeId, bytes]) -> bool:
        """Say whether all these members, asked now, are the same processes as before, and still wait."""
        answers = await self._ask_all(key, numbers.keys() - {own})
        forgot = {node: answer.number for node, answer in answers.items() if isinstance(answer, Forgot)}
        return forgot == {node: number for node, number in numbers.items() if node != own}

    async def _round(self, own: NodeId, key: GroupKey) -> dict[NodeId, Answer]:
        """The memory of each member that answers."""
        group = self._manager.groups.get(key[0])
        if group is None or group.incarnation != key[1]:
            return {}
        answers: dict[NodeId, Answer] = {own: Remembers.of(group)}
        asked = {own}
        while unasked := members_of(own, answers) - asked:
            answers |= await self._ask_all(key, unasked)
            asked |= unasked
        return answers

    async def _ask_all(self, key: GroupKey, nodes: "set[NodeId]") -> dict[NodeId, Answer]:
        found: dict[NodeId, Answer] = {}

        async def ask(node: NodeId) -> None:
            answer = await self._ask(key, node)
            if answer is not None:
                found[node] = answer

        async with trio.open_nursery() as nursery:
            for node in sorted(nodes):
                nursery.start_soon(ask, node)
        return found

    async def _ask(self, key: GroupKey, node: NodeId) -> Answer | None:
        try:
            request = RecallRequest(group_id=key[0], incarnation=key[1]).pack()
            return _decoded(await self._links.call(node, METHOD, request, timeout_s=CALL_TIMEOUT_S))
        except (
            PeerUnavailableError,
            CallTimeoutError,
            RemoteCallError,
            RemoteProtocolError,
            BadConfigurationError,
        ) as error:
            log_.debug("%s does not say what it remembers of %s: %s", node, key[0], error)
            return None

    async def _serve(self, sender: NodeId, payload: bytes) -> bytes:
        """Raises RemoteCallError or RemoteProtocolError, which go to the node that asked."""
        await trio.lowlevel.checkpoint()
        del sender
        request = RecallRequest.unpack(payload)
        group = self._manager.groups.get(request.group_id)
        if group is not None and group.incarnation == request.incarnation:
            mine = Remembers.of(group)
            return Remembered(
                leader=mine.leader or "",
                term=mine.term,
                last_term=mine.last_term,
                last_index=mine.last_index,
                configuration=mine.configuration.encode(),
            ).pack()
        waits = self._waiting((request.group_id, request.incarnation))
        if waits is None:
            raise RemoteCallError(f"{request.group_id} is not here")
        return Forgotten(number=waits.number, members=waits.members).pack()


def same(first: Mapping[NodeId, Answer], second: Mapping[NodeId, Answer]) -> bool:
    """Whether no member has learnt or forgotten anything between two rounds."""
    return first == second


def _decoded(packed: bytes) -> Answer:
    """Raises RemoteProtocolError, BadConfigurationError."""
    answer = unpack_any(packed, Forgotten, Remembered)
    if isinstance(answer, Forgotten):
        return Forgot(answer.number, answer.members)
    assert isinstance(answer, Remembered)
    return Remembers(
        leader=NodeId(answer.leader) if answer.leader else None,
        term=answer.term,
        last_term=answer.last_term,
        last_index=answer.last_index,
        configuration=Configuration.decode(answer.configuration),
    )
