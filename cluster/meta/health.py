"""Is this node current? Pure: figures in, one verdict out, in nats-server's words for `/healthz`.

"ok" is a proof, as a rolling restart goes on by it (rule 42). The table is what the meta leader of now has
(`confirmed`: it was asked, and that much is applied here); each replica that the table assigns here is open, votes, and
has applied what its leader had committed. That index was told by the leader itself, in the present link session and in
a term of which an entry is applied here: an index that is remembered from before says nothing.

A proof stays good for GRACE_NS without a leader: an election takes a moment, and a replica that held everything
before still does. It stays so while entries arrive, within LAG_MAX. A replica that is no voter, or that has stopped,
has no such grace. A replica whose applied index does not move is not healthy even if its links are (nats-server #8519).
Source: monitor.go, healthz.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import attrs

from jetraft.store.model.clock import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from jetraft.cluster.state.assignment import StreamKey
    from jetraft.store.model.ids import GroupId, NodeId

T = TypeVar("T")
Steps = Generator[None, None, T]  # between which others are served
ROWS_PER_STEP: Final = 64  # each some 10 us
LAG_MAX: Final = 1_000  # entries committed and not yet applied: more, and the node is catching up
GRACE_NS: Final = 3 * NS_PER_S  # a leader is found in 2 s (p99); who was current before is not told off for that
LOST_RUNS_SHOWN: Final = 5
LOST_STREAMS_SHOWN: Final = 20
DISK_FULL: Final = "is out of storage: the disk is nearly full, and messages are refused until there is room"
STORE_OLD: Final = (
    "runs on an older copy of its store, which has forgotten what it promised: start it with an empty one"
)
REMOVED: Final = "was removed from the cluster: start it again to have it admitted again"
HTTP_OK: Final = 200
HTTP_UNAVAILABLE: Final = 503


class GroupFigures(Protocol):
    """The state that health looks at."""

    @property
    def leader(self) -> NodeId | None:
        """The known leader."""

    @property
    def leader_since_ns(self) -> int:
        """Since when (monotonic) that leader is known, or none is."""

    @property
    def applied_index(self) -> int:
        """The highest index applied."""

    @property
    def behind_entries(self) -> int | None:
        """Entries that the leader, in this link session, calls committed and that are not applied; None: unknown."""

    @property
    def votes(self) -> bool:
        """Whether this member is a voter: a learner is still being filled."""

    @property
    def failed(self) -> Exception | None:
        """Why the group stopped."""

    @property
    def is_starved(self) -> bool:
        """Whether its log waits until a file can be opened again."""


@attrs.frozen(kw_only=True, slots=True)
class ReportedLoss:
    """The losses of a stream: runs of sequences that are damaged everywhere; all, as its members had forgotten it."""

    runs: Sequence[tuple[int, int]] = ()
    is_forgotten: bool = False


@attrs.frozen(kw_only=True, slots=True)
class Seen:
    """A node's part of the cluster at one moment.

    `replicas` is gone through once, and gives those that are there then. `failed` are streams whose replica could not
    be started, `unopened` those that are assigned here and not there yet.
    `unclaimed`: groups with data here of which the stream is unknown.
    `is_full`: the disk has so little room that messages are refused.
    `is_store_old`: other nodes have met a later state of this node's store.
    `is_removed`: from the meta group, while this node ran.
    """

    clustered: bool
    outside: bool
    meta: GroupFigures | None
    failed: Mapping[StreamKey, str] = attrs.field(factory=dict)
    unopened: Sequence[StreamKey] = ()
    replicas: Iterable[tuple[StreamKey, GroupFigures]] = ()
    lost: Sequence[tuple[StreamKey, ReportedLoss]] = ()
    unclaimed: Sequence[GroupId] = ()
    is_full: bool = False
    is_store_old: bool = False
    is_removed: bool = False


@attrs.frozen(kw_only=True, slots=True)
class Health:
    """The verdict: an HTTP status and, unless it is 200, the first reason found.

    `notice` is something an operator should know that no restart, and no waiting, can change: it fails no probe.
    """

    http_status: int
    reason: str = ""
    notice: str = ""

    @property
    def status(self) -> str:
        """The word under `status`."""
        return "ok" if self.http_status == HTTP_OK else "unavailable"


HEALTHY: Final = Health(http_status=HTTP_OK)


@attrs.define(slots=True)
class _Proof:
    """How far a replica has to be under one leader; `group` is another object when its log was opened again."""

    group: GroupFigures
    leader: NodeId | None = None
    target_index: int = 0
    is_proved: bool = False


class Judge:
    """Gives verdicts, and remembers what it has seen proved in this process."""

    def __init__(self) -> None:
        self._proofs: dict[StreamKey | None, _Proof] = {}  # None: the meta group

    def assess(self, seen: Seen, now_ns: int, *, confirmed: bool) -> Steps[Health]:
        """Judge; `confirmed` says that the meta leader of now has no more than what is applied here.

        A step looks at ROWS_PER_STEP replicas, each as it is then.
        """
        here: set[StreamKey | None] = {None}
        troubles = []
        for number, (key, group) in enumerate(seen.replicas, 1):
            here.add(key)
            if (trouble := self._trouble_of(key, group, now_ns)) is not None:
                troubles.append((key, trouble))
            if number % ROWS_PER_STEP == 0:
                yield
        self._proofs = {key: proof for key, proof in self._proofs.items() if key in here}
        reason = next(self._reasons(seen, troubles, now_ns, confirmed=confirmed), None)
        notice = _forgotten([key for key, loss in seen.lost if loss.is_forgotten])
        if reason is None:
            return attrs.evolve(HEALTHY, notice=notice)
        return Health(http_status=HTTP_UNAVAILABLE, reason=f"JetStream {reason}", notice=notice)

    def _reasons(
        self, seen: Seen, troubles: Sequence[tuple[StreamKey, str]], now_ns: int, *, confirmed: bool
    ) -> Iterator[str]:
        if seen.is_store_old:
            yield STORE_OLD
        if seen.is_removed:
            yield REMOVED
        if seen.outside:
            yield "is not a member of the meta group"
        yield from self._meta_trouble(seen, now_ns, confirmed=confirmed)
        for key, why in seen.failed.items():
            yield f"stream {_named(key)} could not be recovered: {why}"
        yield from (f"stream {_named(key)} {trouble}" for key, trouble in troubles)
        yield from (f"stream {_named(key)} is not current: it is not open yet" for key in seen.unopened)
        lost = _losses([(key, loss) for key, loss in seen.lost if loss.runs])
        if lost is not None:
            yield lost
        if seen.unclaimed:
            yield (
                f"has data of {len(seen.unclaimed)} groups that belong to no known stream: {', '.join(seen.unclaimed)};"
                " restore the store from a backup, or remove what `jetraft inspect` shows to be of no use"
            )
        if seen.is_full:
            yield DISK_FULL

    def _meta_trouble(self, seen: Seen, now_ns: int, *, confirmed: bool) -> Iterator[str]:
        meta = seen.meta
        if meta is None:
            yield "has not established contact with a meta leader"
        elif meta.failed is not None:
            yield f"has stopped its replica of the meta group: {meta.failed}"
        elif seen.clustered:
            trouble = self._trouble_of(None, meta, now_ns)
            if trouble is not None and meta.leader is None:
                yield "has not established contact with a meta leader"
            elif trouble is not None or not confirmed:
                yield "is not current with the meta leader"

    def _trouble_of(self, key: StreamKey | None, group: GroupFigures, now_ns: int) -> str | None:
        """The faults that keep the replica from being current, the worst first."""
        proof = self._proofs.get(key)
        if proof is None or proof.group is not group:
            proof = self._proofs[key] = _Proof(group)
        if group.failed is not None:
            return f"has stopped: {group.failed}"
        if group.is_starved:
            return "waits until a file can be opened: Too many open files"
        if not group.votes:
            proof.is_proved = False
            return "is not current: its replica here is being filled"
        behind = group.behind_entries
        if group.leader is None or behind is None:
            proof.leader = None
            proof.is_proved &= now_ns - group.leader_since_ns <= GRACE_NS
            trouble = (
                "has no leader" if group.leader is None else "is not current: its leader has not said how far it is"
            )
            return None if proof.is_proved else trouble
        if proof.leader != group.leader:
            proof.leader, proof.target_index = group.leader, group.applied_index + behind
        proof.is_proved = behind <= LAG_MAX and (proof.is_proved or group.applied_index >= proof.target_index)
        return None if proof.is_proved else "is not current"


def _losses(lost: Sequence[tuple[StreamKey, ReportedLoss]]) -> str | None:
    """Each stream by its name: one that is not named here looks well."""
    shown = []
    for key, loss in lost[:LOST_STREAMS_SHOWN]:
        runs = ", ".join(f"{first}-{last}" for first, last in loss.runs[:LOST_RUNS_SHOWN])
        shown.append(f"stream {_named(key)} has damaged messages: {runs}")
    if len(lost) > LOST_STREAMS_SHOWN:
        shown.append(f"and {len(lost) - LOST_STREAMS_SHOWN} more streams have some")
    return "; ".join(shown) or None


def _forgotten(lost: Sequence[StreamKey]) -> str:
    """Streams in memory whose members were all restarted. No restart brings that back, so it fails no probe."""
    if not lost:
        return ""
    shown = ", ".join(map(_named, lost[:LOST_STREAMS_SHOWN]))
    more = f" and {len(lost) - LOST_STREAMS_SHOWN} more" if len(lost) > LOST_STREAMS_SHOWN else ""
    return f"JetStream streams in memory have lost their messages, as all members were restarted: {shown}{more}"


def _named(key: StreamKey) -> str:
    return f"'{key.account} > {key.name}'"
