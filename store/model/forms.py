"""Every form in which servers write what other servers read, and the feature level that it needs. Pure.

Forms are the commands in the logs of streams and of the meta group with their fields, kinds of entries, flags of
records, keys and values of configurations, rows and snapshots, messages of Raft, calls and their messages, what the
mesh says, and records of routes. A field that is added, removed or renamed makes another form. tests/releases/probe.py
lists the forms of the code. A test fails when one has no entry here, when the version before does not read what its own
level has, and when it knows something that has a higher level.

Each kind is kept below its level in one place:

- the meta leader raises the level before it proposes a command that needs it (cluster/meta/frontend.py);
- commands of a stream are refused by the encoder below their level (cluster/state/commands.py), and their
  proposers ask the site for the level in use;
- a call that a server does not know is answered with an error, which its caller takes as no answer; a message never
  changes, it gets a successor with a call of its own;
- keys of gossip are passed over by servers that do not know them.

A new kind of message of Raft, channel or record of routes ends the link to a server that does not know it; a new key of
a configuration is refused where it is applied. Nothing keeps those below a level yet, and a test says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# What existed before there were levels.
_FIRST: Final = """
stream 1 UpdateConfig: config
stream 2 Remove: seqs erase
stream 3 RemoveBelow: seq
stream 4 Purge: subject below_seq keep
stream 5 SkipTo: seq ts_ns
stream 6 Digest: first_seq last_seq after_name consumers
consumer 1 CreateConsumer: name config created_ns
consumer 2 UpdateConsumer: name config
consumer 3 DeleteConsumer: name
consumer 4 Delivered: name ts_ns consumer_seq seqs
consumer 5 Redelivered: name ts_ns consumer_seq counts
consumer 6 Acked: name seqs
consumer 7 AckedUpTo: name seq
consumer 8 ConsumerProgress: name ts_ns seqs
consumer 9 Dropped: name seqs
consumer 10 ResetConsumer: name seq
consumer 11 RestoreConsumer: name config state
meta AssignStream: account config group_id peers preferred created_ns
meta ReconfigureStream: account incarnation config peers based_on
meta SettleStream: account name incarnation revision
meta RemoveStream: account name incarnation
meta NameNode: node_id name
entry 1 NOOP
entry 2 RAFT_CONFIG
entry 3 MESSAGES
entry 4 STREAM_OP
entry 5 CONSUMER_OP
entry 6 META
record flag 1 HAS_MSG_ID
record flag 2 HAS_ROLLUP
config RetentionPolicy=limits
config RetentionPolicy=interest
config RetentionPolicy=workqueue
config DiscardPolicy=old
config DiscardPolicy=new
config StorageType=file
config StorageType=memory
config StoreCompression=none
config StoreCompression=s2
config PersistMode=default
config PersistMode=async
config DeliverPolicy=all
config DeliverPolicy=last
config DeliverPolicy=new
config DeliverPolicy=by_start_sequence
config DeliverPolicy=by_start_time
config DeliverPolicy=last_per_subject
config AckPolicy=none
config AckPolicy=all
config AckPolicy=explicit
config AckPolicy=flow_control
config ReplayPolicy=instant
config ReplayPolicy=original
config PriorityPolicy=none
config PriorityPolicy=overflow
config PriorityPolicy=pinned_client
config PriorityPolicy=prioritized
config Placement.cluster
config Placement.tags
config Placement.preferred
config SubjectTransform.src
config SubjectTransform.dest
config Republish.src
config Republish.dest
config Republish.headers_only
config ExternalStream.api
config ExternalStream.deliver
config StreamConsumerSource.name
config StreamConsumerSource.deliver_subject
config StreamSource.name
config StreamSource.opt_start_seq
config StreamSource.opt_start_time
config StreamSource.filter_subject
config StreamSource.subject_transforms
config StreamSource.external
config StreamSource.consumer
config ConsumerLimits.inactive_threshold
config ConsumerLimits.max_ack_pending
config StreamConfig.name
config StreamConfig.description
config StreamConfig.subjects
config StreamConfig.retention
config StreamConfig.max_consumers
config StreamConfig.max_msgs
config StreamConfig.max_bytes
config StreamConfig.max_age
config StreamConfig.max_msgs_per_subject
config StreamConfig.max_msg_size
config StreamConfig.discard
config StreamConfig.storage
config StreamConfig.num_replicas
config StreamConfig.no_ack
config StreamConfig.duplicate_window
config StreamConfig.placement
config StreamConfig.mirror
config StreamConfig.sources
config StreamConfig.compression
config StreamConfig.first_seq
config StreamConfig.subject_transform
config StreamConfig.republish
config StreamConfig.allow_direct
config StreamConfig.mirror_direct
config StreamConfig.discard_new_per_subject
config StreamConfig.sealed
config StreamConfig.deny_delete
config StreamConfig.deny_purge
config StreamConfig.allow_rollup_hdrs
config StreamConfig.consumer_limits
config StreamConfig.allow_msg_ttl
config StreamConfig.subject_delete_marker_ttl
config StreamConfig.allow_msg_counter
config StreamConfig.allow_atomic
config StreamConfig.allow_msg_schedules
config StreamConfig.persist_mode
config StreamConfig.allow_batched
config StreamConfig.metadata
config ConsumerConfig.durable_name
config ConsumerConfig.name
config ConsumerConfig.description
config ConsumerConfig.deliver_policy
config ConsumerConfig.opt_start_seq
config ConsumerConfig.opt_start_time
config ConsumerConfig.ack_policy
config ConsumerConfig.ack_wait
config ConsumerConfig.max_deliver
config ConsumerConfig.backoff
config ConsumerConfig.filter_subject
config ConsumerConfig.filter_subjects
config ConsumerConfig.replay_policy
config ConsumerConfig.rate_limit_bps
config ConsumerConfig.sample_freq
config ConsumerConfig.max_waiting
config ConsumerConfig.max_ack_pending
config ConsumerConfig.flow_control
config ConsumerConfig.headers_only
config ConsumerConfig.max_batch
config ConsumerConfig.max_expires
config ConsumerConfig.max_bytes
config ConsumerConfig.deliver_subject
config ConsumerConfig.deliver_group
config ConsumerConfig.idle_heartbeat
config ConsumerConfig.inactive_threshold
config ConsumerConfig.num_replicas
config ConsumerConfig.mem_storage
config ConsumerConfig.direct
config ConsumerConfig.sourcing
config ConsumerConfig.metadata
config ConsumerConfig.pause_until
config ConsumerConfig.priority_groups
config ConsumerConfig.priority_policy
config ConsumerConfig.priority_timeout
"""
# Version 0.1.0.
_SECOND: Final = """
stream 7 NoteForgotten: ts_ns by_all
stream 8 SetConfig: config revision
stream 9 NoteSource: key seq identity
consumer 12 AckedLate: name seqs
consumer 13 GaveUp: name ts_ns cause reason seqs
consumer 14 HandedOn: name letters
meta AdoptStream: row
meta AddTemplate: account name config max_streams
meta RemoveTemplate: account name incarnation
meta RaiseLevel: level
record flag 4 HAS_TTL
record flag 8 HAS_SCHEDULE
record flag 32 HAS_ACK
record flag 16 IS_SOURCED
raft 1 PreVoteRequest: last_index last_term
raft 2 PreVoteGrant:
raft 3 VoteRequest: last_index last_term
raft 4 VoteGrant:
raft 5 TermNotice:
raft 6 Append: prev_index prev_term commit_index
raft 7 AppendAccepted: prev_index verified_index
raft 8 AppendRejected: prev_index hint_index
raft 9 LeaderSeen:
raft 10 CommitNotice: commit_index
raft 11 Resigned:
raft 12 TransferNow:
raft 13 ReadProbe: round
raft 14 ReadProbeSeen: round
raft 15 SnapshotOffer: index index_term
raft 16 Removed:
channel 0 CONTROL
channel 1 RAFT
channel 2 RPC
channel 3 ROUTE
channel 4 BULK
channel 5 DETOUR
handshake 2 Hello: cluster node_id name boot session challenge purpose
gossip About.metadata
gossip About.address
gossip About.peers
gossip About.links
gossip About.age
gossip About.known_ages
gossip NodeProfile.tags
gossip NodeProfile.capacity
gossip NodeProfile.held
gossip NodeProfile.is_short
gossip NodeProfile.level
gossip NodeProfile.server_id
gossip NodeProfile.lost
route 1 MESSAGE
route 2 INTEREST
route 3 ACCOUNT
route 4 ACCOUNT_MESSAGE
route 5 ACCOUNT_INTEREST
call raft.snapshot
call raft.join
call raft.repair
call raft.recall
call backup.free
call backup.create
call backup.finish
call backup.remove
call backup.fill
call cluster.clock
call stream.digest
call stream.detail
call stream.mend
call stream.state
call js.api
call js.relay
call meta.view
call js.get
call stream.handover
call cluster.fence
call stream.info
call stream.settled
call meta.index
call stream.read
call meta.caught-up
call stream.in-force
call stream.infos
call template.stream
call template.publish
call template.followed
call js.usage
call js.usage.tiers
message BeginEmpty: what counted
message ClockAnswer: wall_ns steady_ns
message ConfigQuestion: account name incarnation revision
message CreatedAnswer: incarnation
message DetailAnswer: rows
message DetailQuestion: group_id incarnation first_seq last_seq
message DigestAnswer: messages consumers
message DigestQuestion: group_id incarnation index
message Elsewhere: what leader term configuration
message EndAnswer: last_index last_term term voters
message EndRequest: group_id incarnation what index_max term_max fence_term
message FinishQuestion: incarnation config
message Forgotten: what number members
message ForwardedGet: account stream incarnation term hdr payload
message ForwardedRequest: account owner stream repeatable subject hdr payload
message FoundersView: founders vouches
message FreeAnswer: config
message HandoverQuestion: group_id incarnation
message HeldMessages: batch
message InfoWanted: account name incarnation revision
message InfosAnswer: infos
message InfosQuestion: streams
message JoinAdmitted: what term configuration commit_index
message JoinRequest: group_id incarnation number
message JoinWaiting: what number members
message MendQuestion: group_id incarnation first_seq last_seq whom
message MessageDigest: seq digest
message MetaIndex: index
message NodeTiers: shares
message NodeUsage: memory storage consumers api_requests api_errors
message ReadIndex: index
message ReadIndexQuestion: incarnation
message RecallRequest: group_id incarnation
message Refusal: code err_code description
message RelayedRequest: place packed
message Remembered: what leader term last_term last_index configuration
message RemoveQuestion: name incarnation
message RepairAnswer: frames term_before term_behind commit_index first_index last_index is_thinned is_damaged term_bounds term is_voter
message RepairRequest: group_id incarnation first last fence_term
message RestoreStep: kind first_seq count body
message SettledReport: name incarnation revision
message SnapshotOpening: manifest members state_bytes state_crc
message SnapshotRequest: group_id incarnation index what block offset size
message StateAnswer: index term members state
message StateQuestion: group_id incarnation
message StepBatch: incarnation steps
message StreamInfoAnswer: info
message StreamRevision: incarnation revision
message TemplateStreamAnswer: code err_code description
message TierShare: replicas memory storage consumers
row StreamAssignment: account config group_id incarnation revision peers preferred created_ns founding leaving newcomers former
row Former: peers replicas placement
row StreamTemplate: account name config max_streams incarnation
table 2
table 3
snapshot 5: config store dedup ttl last_msg_id config_revision schedules sources chain consumers
consumer state 2
consumer state 3
"""  # noqa: E501  (a form is a line)
# Version 0.2.0.
_THIRD: Final = """
call accounts.places
call meta.look
message AccountPlaces: accounts
message MetaState: index is_member
message MetaStateQuestion: node_id
message PlacesTaken: account clients leafs
gossip NodeProfile.drained
"""

FORMS: Final[Mapping[str, int]] = {
    form: level for level, forms in enumerate((_FIRST, _SECOND, _THIRD), start=1) for form in forms.strip().splitlines()
}
