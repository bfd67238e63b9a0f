"""The consensus engine's interface: what it is built from, and the events that it is stepped with.

An engine is a pure core. It receives events (a message, a proposal, "the log is durable up to here", a deadline, a link
that came up or went down) together with `now_ns`, writes to the group's log through the log port, which buffers and
never blocks. Its wishes come out as one value, the `Ready` of `take_ready`: messages that may leave now,
messages that may leave when the log is durable up to a token (rules 2 and 3), a change of role, a snapshot to fetch.

Liveness rests on the links. A follower that heard from a leader in the current link session keeps no election timer:
the leader *claimed* the group on this link, and a claim ends with the link, with a `Resigned`, or with a higher term.
So an idle group costs next to nothing on any node, and a dead node's groups elect as soon as the link layer reports the
silence. Because a word can be missed, a claim is a lease all the same: a leader renews it after some ten seconds
without a word to that member, and a follower that hears nothing for twice as long asks (raft/engine/election_timer.py).
Safety never depends on that: it stays in terms and votes.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

import attrs

from jetraft.raft.engine.membership import Configuration, ConfigurationHistory
from jetraft.raft.engine.messages import Message, Role, SnapshotOffer
from jetraft.raft.engine.ready import Ready
from jetraft.raft.engine.tempo import Tempo
from jetraft.store.model.clock import NS_PER_MS
from jetraft.store.model.ids import NodeId
from jetraft.store.port import GroupLog


@attrs.frozen(kw_only=True, slots=True)
class Timing:
    """All waits of an engine. Measured with these: first commit of a new leader 0.6 s median, 1.2 s at most."""

    election_min_ns: int = 400 * NS_PER_MS
    election_max_ns: int = 800 * NS_PER_MS
    failover_spread_ns: int = 300 * NS_PER_MS  # after the leader's link went down: pre-votes start within this
    precedence_ns: int = 150 * NS_PER_MS  # of two that ask at the same time, one stands back this long
    reluctance_ns: int = 600 * NS_PER_MS  # longer than others who would rather not lead: they have been elected by then
    vote_retry_ns: int = 75 * NS_PER_MS  # a peer may create the group a little later than the first request
    lease_min_ns: int = 20_000 * NS_PER_MS  # a claim without a word of its leader: then the leader is asked
    lease_max_ns: int = 30_000 * NS_PER_MS
    renewal_min_ns: int = 10_000 * NS_PER_MS  # after that much silence a leader renews its claim: twice in a lease
    renewal_max_ns: int = 15_000 * NS_PER_MS
    contact_lease_ns: int = 30_000 * NS_PER_MS  # a member that has not answered for so long is not in contact
    probe_retry_ns: int = 100 * NS_PER_MS
    probe_retry_max_ns: int = 1000 * NS_PER_MS
    quorum_check_ns: int = 1000 * NS_PER_MS
    ack_timeout_ns: int = 2000 * NS_PER_MS  # unacknowledged entries: verify the peer's position again
    transfer_ns: int = 1000 * NS_PER_MS
    commit_notice_ns: int = 5 * NS_PER_MS  # at most one notice per peer in this time when no append carries the news
    snapshot_retry_ns: int = 1000 * NS_PER_MS


@attrs.frozen(kw_only=True, slots=True)
class Limits:
    """Bytes that an engine puts on a link."""

    append_bytes_max: int = 1 << 20  # one message; the receiver handles it in one go
    window_bytes: int = 4 << 20  # in flight to one peer of one group; beyond it the peer is paused (rule 15)


class Rng(Protocol):
    """The random source handed to cores (random.Random fits)."""

    def randrange(self, start: int, stop: int, /) -> int:
        """A number with start <= number < stop."""
        ...


class Sealer(Protocol):
    """Encodes one entry as a frame: jetraft.store.frames._frame.seal."""

    def __call__(  # noqa: PLR0913  (a frame has that many fields)
        self,
        kind: int,
        *,
        index: int,
        term: int,
        incarnation: int,
        body: bytes | Sequence[bytes | memoryview],
        first_seq: int = 0,
        count: int = 0,
        summed: bool = False,
    ) -> bytes:
        """The frame's bytes, header and checksum included; `summed`: and one for each of `count` records."""
        ...


@attrs.frozen(kw_only=True, slots=True)
class CoreSetup:
    """The parts that an engine is built from. `eager`: stand for election at once when the log is empty."""

    node_id: NodeId
    incarnation: int
    seal: Sealer
    rng: Rng
    timing: Timing = attrs.Factory(Timing)
    limits: Limits = attrs.Factory(Limits)
    eager: bool = False
    tempo: Tempo = attrs.Factory(Tempo)  # what the groups of a node have measured


@attrs.define(kw_only=True, unsafe_hash=True)  # never changed; not frozen for the same reason as Entry of store/port.py
class Proposal:
    """One entry to be: the frame's fields that the proposer knows. `body` may come in parts."""

    kind: int
    first_seq: int = 0
    count: int = 0
    body: bytes | Sequence[bytes | memoryview] = b""
    is_awaited: bool = True  # a client waits for its commit: worth a turn that waits for the disk


@attrs.frozen(kw_only=True, slots=True)
class PeerProgress:
    """A leader's knowledge of one member, for reports."""

    node: NodeId
    match_index: int
    state: str
    up: bool
    responded: bool
    active_ns: int


class Engine(Protocol):
    """One member of one group. All methods are synchronous, deterministic and called from one thread."""

    reluctant: bool  # set by the shell: others should lead, if they can

    @property
    def handed_by(self) -> NodeId | None:
        """As leader: the leader before, if that one had asked this member to lead; else None."""
        ...

    @property
    def has_handed_over(self) -> bool:
        """Whether this member led last, and had asked another one to lead."""
        ...

    @property
    def members_may_change(self) -> bool:
        """Whether `change_members` ever succeeds with this engine."""
        ...

    @property
    def role(self) -> Role:
        """The role in the current term."""
        ...

    @property
    def term(self) -> int:
        """The current term."""
        ...

    @property
    def leader(self) -> NodeId | None:
        """The leader of the current term, when known."""
        ...

    @property
    def commit_index(self) -> int:
        """The highest index known to be committed. Never goes back."""
        ...

    @property
    def up(self) -> AbstractSet[NodeId]:
        """The nodes with a link session."""
        ...

    @property
    def applicable_index(self) -> int:
        """The highest index that may be applied: committed and durable here (rule 5)."""
        ...

    @property
    def term_start_index(self) -> int:
        """As leader: the state is complete when this index is applied, that of its no-op where it needs one."""
        ...

    @property
    def accepts_proposals(self) -> bool:
        """Whether this member leads and no transfer is running."""
        ...

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        ...

    @property
    def told_commit_index(self) -> int | None:
        """The commit index that the leader told last in this link session; None without a leader's claim."""
        ...

    @property
    def confirmed_read_round(self) -> int:
        """The newest read round that a majority answered; 0 when not leader."""
        ...

    def is_majority_with(self, node: NodeId, term: int) -> bool:
        """Whether this member leads in that term, and the node and it are a majority of the voters."""
        ...

    @property
    def deadline_ns(self) -> int | None:
        """When `tick` is due; None for a group that waits for events only."""
        ...

    def peer_progress(self) -> list[PeerProgress]:
        """The leader's knowledge of the members; nothing elsewhere."""
        ...

    def start(self, now_ns: int) -> None:
        """Begin: a group of one stands for election, others wait for a leader or their timer."""
        ...

    def step(self, sender: NodeId, message: Message, now_ns: int) -> None:
        """A peer's message arrived."""
        ...

    def tick(self, now_ns: int) -> None:
        """The deadline passed."""
        ...

    def persisted(self, now_ns: int) -> None:
        """The log's durable token moved."""
        ...

    def propose(self, proposals: Sequence[Proposal]) -> int:
        """Append one entry per proposal; returns the index of the first. Requires `accepts_proposals`."""
        ...

    def flush(self, now_ns: int) -> None:
        """End of a turn: send the appends and commit notices that became due."""
        ...

    def take_ready(self) -> Ready:
        """The effects of the events since the last call, which the shell performs; NOTHING when there is none."""
        ...

    def peer_up(self, node: NodeId, now_ns: int) -> None:
        """A new link session with the node began."""
        ...

    def peer_down(self, node: NodeId, now_ns: int) -> None:
        """The link session ended: whatever was in flight may be lost."""
        ...

    def transfer(self, target: NodeId | None, now_ns: int) -> bool:
        """Hand leadership over, to the most advanced voter when `target` is None. Returns whether that has begun."""
        ...

    def begin_read(self, now_ns: int) -> int:
        """Start a read round (rule 21), as leader: the commit index of now may be read when the round is confirmed."""
        ...

    def change_members(self, configuration: Configuration, now_ns: int) -> int:
        """Append a configuration entry and return its index. Raises MembershipChangeRefusedError."""
        ...

    def outlive(self, configuration: Configuration, term: int, now_ns: int) -> None:
        """Lead alone in a term beyond all others. Requires `members_may_change`; see raft/recovery/survivor.py."""
        ...

    def forget_member(self, node: NodeId) -> None:
        """The member has lost its memory: what it acknowledged to this leader counts no more."""
        ...

    def resign(self, now_ns: int) -> None:
        """Take no part any more: the replica is removed or its log has failed. Peers learn it at once."""
        ...


class EngineFactory(Protocol):
    """Builds a member's engine over its log: `create_engine` of raft/engine/core.py or of raft/pysyncobj/engine.py."""

    def __call__(
        self,
        setup: CoreSetup,
        *,
        log: GroupLog,
        configurations: ConfigurationHistory,
        commit_index: int,
        snapshot_offer: Callable[[int], SnapshotOffer | None],
    ) -> Engine:
        """An engine that has not begun yet; `commit_index` is what the state machine was restored to."""
        ...


class EngineUnavailableError(Exception):
    """The engine that the configuration asks for cannot run here; the message says what is missing."""
