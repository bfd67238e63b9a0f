"""Questions of a node that remembers nothing of a group, and the answers: frozen messages, checked on arrival. Pure.

`raft.join` (raft/recovery/joining.py):    JoinRequest -> JoinAdmitted | JoinWaiting | BeginEmpty | Elsewhere
`raft.recall` (raft/recovery/survivor.py): RecallRequest -> Forgotten | Remembered
"""

from collections.abc import Mapping
from typing import Final

import attrs

from jetraft.raft.engine.membership import MEMBERS_MAX
from jetraft.raft.mesh.messages import Message, map_of, member_of, octets, protocol, text
from jetraft.raft.recovery import bounds
from jetraft.raft.wire import TERM_MAX
from jetraft.store.model.ids import GroupId, NodeId

NUMBER_BYTES: Final = 8  # drawn for one wait
TERMS_SKIPPED: Final = 1 << 20  # an election a millisecond for a quarter of an hour, unheard of by who remembers

_NUMBER: Final = octets(NUMBER_BYTES)


@protocol("a request to join a group", bytes_max=bounds.CALL_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class JoinRequest(Message):
    """This node waits, by the number of this wait, to be admitted."""

    group_id: GroupId = attrs.field(metadata=bounds.group_name())
    incarnation: int = attrs.field(metadata=bounds.incarnation())
    number: bytes = attrs.field(metadata=_NUMBER)


@protocol("an admission to a group", bytes_max=bounds.CALL_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class JoinAdmitted(Message):
    """The leader has made the node a learner, in its term."""

    what: str = attrs.field(default="admitted", metadata=member_of({"admitted": "admitted"}))
    term: int = attrs.field(metadata=bounds.term())
    configuration: bytes = attrs.field(metadata=bounds.configuration())
    commit_index: int = attrs.field(metadata=bounds.log_index())


@protocol("the answer of a node that waits for a group, too", bytes_max=bounds.CALL_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class JoinWaiting(Message):
    """The node that was asked remembers nothing either, and takes these for all members."""

    what: str = attrs.field(default="waiting", metadata=member_of({"waiting": "waiting"}))
    number: bytes = attrs.field(metadata=_NUMBER)
    members: tuple[NodeId, ...] = attrs.field(metadata=bounds.nodes())


@protocol("the leave to begin a group empty", bytes_max=bounds.CALL_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class BeginEmpty(Message):
    """The group has begun empty, and counted on the node that asks, by the number of its wait."""

    what: str = attrs.field(default="anew", metadata=member_of({"anew": "anew"}))
    counted: Mapping[NodeId, bytes] = attrs.field(
        metadata=map_of(text(bounds.NODE_CHARS_MAX, chars_min=1), _NUMBER, MEMBERS_MAX)
    )


@protocol("the answer of a member that does not lead", bytes_max=bounds.CALL_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class Elsewhere(Message):
    """The leader, empty when none is known; the term and the configuration of the member that was asked."""

    what: str = attrs.field(default="elsewhere", metadata=member_of({"elsewhere": "elsewhere"}))
    leader: str = attrs.field(metadata=text(bounds.NODE_CHARS_MAX))
    term: int = attrs.field(metadata=bounds.term())
    configuration: bytes = attrs.field(metadata=bounds.configuration())


JoinAnswer = JoinAdmitted | JoinWaiting | BeginEmpty | Elsewhere


@protocol("a question about what is remembered of a group", bytes_max=bounds.CALL_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class RecallRequest(Message):
    """What does the node remember of this group?"""

    group_id: GroupId = attrs.field(metadata=bounds.group_name())
    incarnation: int = attrs.field(metadata=bounds.incarnation())


@protocol("the answer of a node that has forgotten a group", bytes_max=bounds.CALL_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class Forgotten(Message):
    """See `JoinWaiting`."""

    what: str = attrs.field(default="forgot", metadata=member_of({"forgot": "forgot"}))
    number: bytes = attrs.field(metadata=_NUMBER)
    members: tuple[NodeId, ...] = attrs.field(metadata=bounds.nodes())


@protocol("the answer of a member that remembers a group", bytes_max=bounds.CALL_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class Remembered(Message):
    """How far its log goes. The survivor goes on TERMS_SKIPPED above the highest of these terms."""

    what: str = attrs.field(default="remembers", metadata=member_of({"remembers": "remembers"}))
    leader: str = attrs.field(metadata=text(bounds.NODE_CHARS_MAX))
    term: int = attrs.field(metadata=bounds.term(TERM_MAX - TERMS_SKIPPED))
    last_term: int = attrs.field(metadata=bounds.term())
    last_index: int = attrs.field(metadata=bounds.log_index())
    configuration: bytes = attrs.field(metadata=bounds.configuration())
