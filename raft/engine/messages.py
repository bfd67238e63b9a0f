"""The messages between members of a group, and the roles of a member. raft/wire.py encodes it.

The promise of a message (a vote, an acceptance) is durable at its sender before it leaves. A message of a lower term
than the receiver's is answered with a `TermNotice`, or dropped.
"""

import enum
from collections.abc import Sequence
from typing import TypeAlias

import attrs

from jetraft.store.port import Entry


class Role(enum.Enum):
    """The role of a member in the current term. A learner is a follower that the configuration does not let vote."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


@attrs.frozen(kw_only=True, slots=True)
class PreVoteRequest:
    """Would you vote for me in `term`? Changes nothing at the receiver (rule 18)."""

    term: int
    last_index: int
    last_term: int


@attrs.frozen(kw_only=True, slots=True)
class PreVoteGrant:
    """Yes, in `term`."""

    term: int


@attrs.frozen(kw_only=True, slots=True)
class VoteRequest:
    """Vote for me in `term`; `transfer` says that the leader asked for this election."""

    term: int
    last_index: int
    last_term: int
    transfer: bool


@attrs.frozen(kw_only=True, slots=True)
class VoteGrant:
    """My one vote of `term`; durable before it leaves."""

    term: int


@attrs.frozen(kw_only=True, slots=True)
class TermNotice:
    """Your term is over: mine is `term`."""

    term: int


@attrs.define(kw_only=True, unsafe_hash=True)
class Append:
    """The leader's entries after (`prev_index`, `prev_term`); without entries it asks whether that point matches."""

    term: int
    prev_index: int
    prev_term: int
    commit_index: int
    entries: Sequence[Entry]


@attrs.define(kw_only=True, unsafe_hash=True)
class AppendAccepted:
    """My log equals the leader's up to `verified_index`, durably. Never just my last index (rule 10)."""

    term: int
    prev_index: int
    verified_index: int


@attrs.frozen(kw_only=True, slots=True)
class AppendRejected:
    """My log does not contain the point `prev_index` of the request; try `hint_index` as the next index (rule 14).

    A point behind the end of your log, which you did not ask for: mine goes on to there, in a term that is over.
    """

    term: int
    prev_index: int
    hint_index: int


@attrs.frozen(kw_only=True, slots=True)
class LeaderSeen:
    """I follow you in `term`. Sent once per claim, before anything is durable: only the quorum check uses it."""

    term: int


@attrs.define(kw_only=True, unsafe_hash=True)
class CommitNotice:
    """The commit index moved and no append carries the news."""

    term: int
    commit_index: int


@attrs.frozen(kw_only=True, slots=True)
class Resigned:
    """I do not lead (or take part in) this group any more: the claim or contact of `term` is over."""

    term: int


@attrs.frozen(kw_only=True, slots=True)
class Removed:
    """You are no member: a committed configuration does not have you. The answer to a pre-vote's request."""

    term: int


@attrs.frozen(kw_only=True, slots=True)
class TransferNow:
    """Start an election at once; accepted from the current leader only (rule 20)."""

    term: int


@attrs.frozen(kw_only=True, slots=True)
class ReadProbe:
    """Do you still follow me? Contact after this request makes reads of its round linearizable (rule 21)."""

    term: int
    round: int


@attrs.frozen(kw_only=True, slots=True)
class ReadProbeSeen:
    """I do."""

    term: int
    round: int


@attrs.frozen(kw_only=True, slots=True)
class SnapshotOffer:
    """You are behind my log: fetch my state as of (`index`, `index_term`); `members` is the configuration there."""

    term: int
    index: int
    index_term: int
    members: bytes


Message: TypeAlias = (
    PreVoteRequest
    | PreVoteGrant
    | VoteRequest
    | VoteGrant
    | TermNotice
    | Append
    | AppendAccepted
    | AppendRejected
    | LeaderSeen
    | CommitNotice
    | Resigned
    | Removed
    | TransferNow
    | ReadProbe
    | ReadProbeSeen
    | SnapshotOffer
)
