"""Which function a message is handed to: `(member, sender, message, now_ns)`."""

from collections.abc import Callable
from typing import Final

from jetraft.raft.engine import answers, elections, following
from jetraft.raft.engine.messages import (
    Append,
    AppendAccepted,
    AppendRejected,
    CommitNotice,
    LeaderSeen,
    Message,
    PreVoteGrant,
    PreVoteRequest,
    ReadProbe,
    ReadProbeSeen,
    Removed,
    Resigned,
    SnapshotOffer,
    TermNotice,
    TransferNow,
    VoteGrant,
    VoteRequest,
)

HANDLERS: Final[dict[type[Message], Callable[..., None]]] = {
    PreVoteRequest: elections.on_pre_vote_request,
    PreVoteGrant: elections.on_grant,
    VoteRequest: elections.on_vote_request,
    VoteGrant: elections.on_grant,
    TermNotice: elections.on_term_notice,
    TransferNow: elections.on_transfer_now,
    Append: following.on_append,
    CommitNotice: following.on_commit_notice,
    Resigned: following.on_resigned,
    Removed: elections.on_removed,
    ReadProbe: following.on_read_probe,
    SnapshotOffer: following.on_snapshot_offer,
    AppendAccepted: answers.on_append_accepted,
    AppendRejected: answers.on_append_rejected,
    LeaderSeen: answers.on_leader_seen,
    ReadProbeSeen: answers.on_read_probe_seen,
}
