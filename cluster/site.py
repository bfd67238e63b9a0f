"""The surroundings of a stream replica: node and account around it, handed in by the composition root."""

from __future__ import annotations

from random import SystemRandom
from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.advisories import Advisories
from jetraft.cluster.batch_room import BatchRoom
from jetraft.cluster.state.changes import StreamChanges
from jetraft.cluster.turn_work import TurnWork
from jetraft.store.model.feature_level import LEVEL
from jetraft.store.model.histogram import Histogram
from jetraft.store.model.ids import GLOBAL_ACCOUNT
from jetraft.store.model.limits import NO_LIMITS, ServerLimits
from jetraft.store.model.state import AccountLimits

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from jetraft.cluster.accounts import AccountQuota
    from jetraft.cluster.calls.handing_over import Handovers
    from jetraft.cluster.memory_budget import MemoryBudget
    from jetraft.cluster.ports import Outbox, Timers, Traces
    from jetraft.cluster.quota import Quota
    from jetraft.cluster.state.assignment import StreamAssignment
    from jetraft.raft.manager import Manager
    from jetraft.store.disk.space import SpaceWatch
    from jetraft.store.model.ids import GroupId, NodeId
    from jetraft.store.model.limits import QueueLimits
    from jetraft.store.model.steady import SteadyClock
    from jetraft.store.model.tiers import Allowance


@attrs.frozen(kw_only=True, slots=True)
class Site:
    """One node, as replicas of an account's streams see it. `cluster_name` is empty on a server that stands alone."""

    manager: Manager
    outbox: Outbox
    timers: Timers
    clock: SteadyClock
    traces: Traces | None = None  # None: no message is traced
    account: str = GLOBAL_ACCOUNT  # of the streams
    cluster_name: str = ""
    domain: str = ""  # of JetStream on this server
    name_of: Callable[[NodeId], str] = str  # a node's server name, for people
    # When the link with a node was last heard (mono); None: never.
    link_heard_ns: Callable[[NodeId], int | None] = attrs.field(default=lambda _node: None)
    quota: Quota | None = None  # what the server was told to hold at most; None: no limits
    limits: Callable[[], Allowance] = AccountLimits  # of the account, now
    server_limits: ServerLimits = NO_LIMITS  # what requests may ask of this server
    account_quota: AccountQuota | None = None  # what the account may hold at most; None: no limits
    batches: BatchRoom = attrs.Factory(BatchRoom)  # what batches of all streams take on this node
    space: SpaceWatch | None = None  # room for streams on disk; None: never short
    ack_times: Histogram = attrs.field(factory=Histogram)  # of the node's publishes, from their admission
    memory: MemoryBudget | None = None  # below a limit of the process; None: there is none
    handovers: Handovers | None = None  # of publishes, from leader to leader; None where no other node is
    work: TurnWork = attrs.field(  # slices of turns, of the whole node
        default=attrs.Factory(lambda site: TurnWork(site.timers, site.clock), takes_self=True)
    )
    changes: StreamChanges = attrs.Factory(StreamChanges)  # hears of a replica's role and config
    level_in_use: Callable[[], int] = attrs.field(default=lambda: LEVEL)  # that entries may use, by the table
    is_table_held: Callable[[], bool] = attrs.field(default=lambda: True)  # its lease runs (meta/table_lease.py)
    # Whether the meta group's present table has this incarnation, with a replica on this node (streams/mandate.py).
    is_row_current: Callable[[StreamAssignment], bool] = attrs.field(default=lambda _row: True)
    has_no_row: Callable[[StreamAssignment], bool] = attrs.field(default=lambda _row: False)  # the stream is removed
    on_settled: Callable[[StreamAssignment], None] = attrs.field(default=lambda _row: None)  # its peers are its members
    # Calls back when a replica here has all that is committed now, or cannot know.
    confirm_read: Callable[[StreamAssignment, Callable[[bool], None]], None] = attrs.field(
        default=lambda _row, told: told(False)  # noqa: FBT003  (a callback's one word)
    )
    on_abandoned: Callable[[StreamAssignment], None] = attrs.field(default=lambda _row: None)  # its restore has stopped
    has_begun_empty: Callable[[GroupId], bool] = attrs.field(
        default=lambda _group: False
    )  # all members had forgotten it
    rng: Random = attrs.Factory(SystemRandom)  # draws the names of unnamed consumers
    advisories: Advisories = attrs.field(
        default=attrs.Factory(
            lambda site: Advisories(outbox=site.outbox, clock=site.clock, rng=site.rng, domain=site.domain),
            takes_self=True,
        )
    )

    @property
    def queues(self) -> QueueLimits:
        """How much of what waits is taken."""
        return self.server_limits.queues
