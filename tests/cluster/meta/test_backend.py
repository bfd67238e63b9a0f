"""What a node runs follows the table, and data goes only with a tombstone."""

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from jetraft.cluster.meta.backend import SLOW_S, UNPROVED_RETRY_S, WORKED_AT_ONCE, MetaBackend
from jetraft.cluster.meta.commands import ReconfigureStream, RemoveStream, SettleStream
from jetraft.cluster.meta.currency import UnprovedError
from jetraft.cluster.meta.directory import ReplicaDirectory
from jetraft.cluster.meta.machine import MetaMachine
from jetraft.cluster.state.assignment import StreamAssignment, StreamKey
from jetraft.raft.recovery.repair import RepairPendingError
from jetraft.raft.recovery.swap import Swap, SwapRefusedError
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.ids import GroupId
from jetraft.store.port import GroupLog, StoreCorrupt, StoreError
from tests.cluster.meta.makers import ACCOUNT, N1, N2, assign, config, entry


@attrs.define(eq=False)
class FakeReplica:
    assignment: StreamAssignment
    reconfigured: list[int] = attrs.field(factory=list)
    group: Any = attrs.field(factory=lambda: SimpleNamespace(group_id="of a test"))

    def reconfigure(self, assignment: StreamAssignment) -> None:
        self.reconfigured.append(assignment.revision)


class FakeHost:
    """Writes down what it is asked to do; starting may fail."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.on_disk: list[tuple[GroupId, int]] = []
        self.fails = self.fails_to_discard = False
        self.error: Exception = OSError("disk full")
        self.attempts_s: list[float] = []
        self.discarding = trio.Event()  # what a discarding waits for
        self.discarding.set()
        self.held: dict[str, trio.Event] = {}  # by group: what its start waits for

    async def start(self, assignment: StreamAssignment) -> FakeReplica:
        await trio.lowlevel.checkpoint()
        self.attempts_s.append(trio.current_time())
        if self.fails:
            raise self.error
        if assignment.group_id in self.held:
            await self.held[assignment.group_id].wait()
        self.calls.append(f"start {assignment.group_id}")
        return FakeReplica(assignment)

    async def reopen(self, replica: FakeReplica, assignment: StreamAssignment, swap: Swap) -> FakeReplica:
        self.calls.append(f"reopen {replica.assignment.group_id}")
        await swap.carry_out()
        return FakeReplica(assignment)

    async def stop(self, replica: FakeReplica) -> None:
        await trio.lowlevel.checkpoint()
        self.calls.append(f"stop {replica.assignment.group_id}")

    async def discard(self, group_id: GroupId) -> None:
        await trio.lowlevel.checkpoint()
        if self.fails_to_discard:
            raise self.error
        await self.discarding.wait()
        self.calls.append(f"discard {group_id}")

    def stored_groups(self) -> Iterable[tuple[GroupId, int]]:
        return self.on_disk


class Bench:
    """A machine, a backend over it, and a log index that counts."""

    def __init__(self) -> None:
        self.machine = MetaMachine()
        self.host = FakeHost()
        self.is_proved = True
        self.directory: ReplicaDirectory[FakeReplica] = ReplicaDirectory()
        self.backend: MetaBackend[FakeReplica] = MetaBackend(
            node_id=N1,
            machine=self.machine,
            directory=self.directory,
            host=self.host,
            is_table_proved=lambda: self.is_proved,
        )
        self._index = 0

    async def apply(self, *commands: object) -> None:
        entries = []
        for command in commands:
            self._index += 1
            entries.append(entry(self._index, command))  # type: ignore[arg-type]  # commands of the module under test
        self.machine.apply(entries)
        await self.directory.settle()

    def calls(self) -> Sequence[str]:
        made, self.host.calls = self.host.calls, []
        return made


S = StreamKey(ACCOUNT, "S")


async def test_an_assigned_stream_is_started_and_a_removed_one_is_stopped_and_discarded(nursery: trio.Nursery) -> None:
    bench = Bench()
    await nursery.start(bench.backend.run)
    await bench.apply(assign("S", group="g1"))
    assert bench.calls() == ["start g1"]
    assert bench.directory.get(S) is not None

    await bench.apply(RemoveStream(account=ACCOUNT, name="S", incarnation=1))
    assert bench.calls() == ["stop g1", "discard g1"]
    assert bench.directory.get(S) is None


async def test_a_start_that_takes_long_holds_up_no_other_stream(nursery: trio.Nursery) -> None:
    bench = Bench()
    bench.host.held["g1"] = trio.Event()
    await nursery.start(bench.backend.run)
    bench.machine.apply([entry(1, assign("S", group="g1")), entry(2, assign("T", group="g2"))])
    await trio.testing.wait_all_tasks_blocked()
    assert bench.calls() == ["start g2"]

    bench.host.held["g1"].set()
    await bench.directory.settle()
    assert bench.calls() == ["start g1"]


async def test_a_stream_is_worked_at_by_one_task_at_a_time(nursery: trio.Nursery) -> None:
    bench = Bench()
    bench.host.held["g1"] = trio.Event()
    await nursery.start(bench.backend.run)
    bench.machine.apply([entry(1, assign("S", group="g1"))])
    await trio.testing.wait_all_tasks_blocked()
    removed = RemoveStream(account=ACCOUNT, name="S", incarnation=1)
    bench.machine.apply([entry(2, removed), entry(3, assign("S", group="g3"))])
    await trio.testing.wait_all_tasks_blocked()
    assert bench.calls() == [], "what became of the first one is not known yet"

    bench.host.held["g1"].set()
    await bench.directory.settle()
    assert bench.calls() == ["start g1", "stop g1", "discard g1", "start g3"]


async def test_only_so_many_streams_are_started_at_once(nursery: trio.Nursery) -> None:
    bench = Bench()
    groups = [f"g{number}" for number in range(2 * WORKED_AT_ONCE)]
    released = trio.Event()
    bench.host.held = dict.fromkeys(groups, released)
    await nursery.start(bench.backend.run)
    bench.machine.apply([entry(number + 1, assign(group.upper(), group=group)) for number, group in enumerate(groups)])
    await trio.testing.wait_all_tasks_blocked()
    assert len(bench.host.attempts_s) == WORKED_AT_ONCE
    assert bench.directory.wanted == len(groups)

    released.set()
    await bench.directory.settle()
    assert sorted(bench.calls()) == sorted(f"start {group}" for group in groups)


async def test_many_that_take_long_hold_up_no_other_stream(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """Large logs, and damaged ones that wait for other nodes."""
    bench = Bench()
    slow, quick = ([f"{name}{number}" for number in range(2 * WORKED_AT_ONCE)] for name in ("slow", "quick"))
    bench.host.held = dict.fromkeys(slow, trio.Event())
    await nursery.start(bench.backend.run)
    groups = [*slow, *quick]
    bench.machine.apply([entry(number + 1, assign(group.upper(), group=group)) for number, group in enumerate(groups)])
    await trio.sleep(2.5 * SLOW_S)
    assert sorted(bench.calls()) == sorted(f"start {group}" for group in quick)
    assert autojump_clock.current_time() >= 2 * SLOW_S


async def test_what_cannot_be_discarded_now_is_later_and_the_server_goes_on(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """The disk may be full, or the ledger may have failed."""
    bench = Bench()
    await nursery.start(bench.backend.run)
    await bench.apply(assign("S", group="g1"))
    bench.host.fails_to_discard = True
    await bench.apply(RemoveStream(account=ACCOUNT, name="S", incarnation=1))
    await bench.apply(assign("T", group="g2"))
    assert bench.calls() == ["start g1", "stop g1", "start g2"]

    bench.host.fails_to_discard = False
    await trio.sleep(60)
    assert bench.calls() == ["discard g1"]
    assert autojump_clock.current_time() >= 60


async def test_a_replica_whose_log_was_replaced_is_another_one(nursery: trio.Nursery) -> None:
    bench = Bench()
    await nursery.start(bench.backend.run)
    await bench.apply(assign("S", group="g1"))
    before = bench.directory.get(S)

    await bench.backend.reopen(swap_of(bench))

    assert bench.calls() == ["start g1", "reopen g1"]
    assert bench.directory.get(S) not in (None, before)


async def test_a_replica_whose_log_could_not_be_replaced_is_started_over_the_old_one(nursery: trio.Nursery) -> None:
    bench = Bench()
    await nursery.start(bench.backend.run)
    await bench.apply(assign("S", group="g1"))

    async def damaged() -> GroupLog:
        await trio.lowlevel.checkpoint()
        raise StoreCorrupt("a frame is damaged")

    swap = attrs.evolve(swap_of(bench), carry_out=damaged)
    with pytest.raises(StoreCorrupt):
        await bench.backend.reopen(swap)
    await bench.directory.settle()
    assert bench.calls() == ["start g1", "reopen g1", "start g1"]
    with pytest.raises(StoreError, match="does not run here"):
        await bench.backend.reopen(swap)


async def test_a_replica_ends_for_another_log_only_if_it_needs_that_when_its_turn_comes(nursery: trio.Nursery) -> None:
    """Other streams may be worked at for long, and the group goes on meanwhile (rule 37)."""
    bench = Bench()
    groups = [f"g{number}" for number in range(2, WORKED_AT_ONCE + 2)]
    await nursery.start(bench.backend.run)
    await bench.apply(assign("S", group="g1"))
    before = bench.directory.get(S)
    released = trio.Event()
    bench.host.held = dict.fromkeys(groups, released)
    bench.machine.apply([entry(number + 9, assign(group.upper(), group=group)) for number, group in enumerate(groups)])
    await trio.testing.wait_all_tasks_blocked()

    is_behind = True
    refusals: list[str] = []

    async def reopen() -> None:
        try:
            await bench.backend.reopen(swap_of(bench, is_wanted=lambda: is_behind))
        except SwapRefusedError as error:
            refusals.append(str(error))

    nursery.start_soon(reopen)
    await trio.testing.wait_all_tasks_blocked()
    is_behind = False
    released.set()
    await bench.directory.settle()
    await trio.testing.wait_all_tasks_blocked()
    assert "reopen g1" not in bench.calls()
    assert bench.directory.get(S) is before
    assert refusals == ["of a test has moved on"]


async def test_a_replica_that_was_started_again_is_not_ended_for_the_log_of_its_predecessor(
    nursery: trio.Nursery,
) -> None:
    bench = Bench()
    await nursery.start(bench.backend.run)
    await bench.apply(assign("S", group="g1"))
    swap = swap_of(bench)
    await bench.backend.reopen(swap)
    bench.calls()
    with pytest.raises(StoreError, match="does not run here"):
        await bench.backend.reopen(swap)
    assert bench.calls() == []


def swap_of(bench: Bench, is_wanted: Callable[[], bool] = lambda: True) -> Swap:
    """Another log for the replica of S."""
    replica = bench.directory.get(S)
    assert replica is not None
    return Swap(replica.group, is_wanted=is_wanted, carry_out=_new_log)


async def _new_log() -> GroupLog:
    await trio.lowlevel.checkpoint()
    return MemLog()


async def test_a_stream_on_other_nodes_is_left_alone(nursery: trio.Nursery) -> None:
    bench = Bench()
    await nursery.start(bench.backend.run)
    await bench.apply(assign("S", peers=(N2,)))
    assert bench.calls() == []


async def test_a_stream_created_again_replaces_its_namesake(nursery: trio.Nursery) -> None:
    bench = Bench()
    await nursery.start(bench.backend.run)
    await bench.apply(assign("S", group="g1"))
    await bench.apply(RemoveStream(account=ACCOUNT, name="S", incarnation=1), assign("S", group="g3"))
    assert bench.calls() == ["start g1", "stop g1", "discard g1", "start g3"]


async def test_what_was_created_and_deleted_in_one_batch_is_never_started(nursery: trio.Nursery) -> None:
    bench = Bench()
    await nursery.start(bench.backend.run)
    await bench.apply(assign("S", group="g1"), RemoveStream(account=ACCOUNT, name="S", incarnation=1))
    assert bench.calls() == []


async def test_a_new_config_reaches_the_running_replica(nursery: trio.Nursery) -> None:
    bench = Bench()
    await nursery.start(bench.backend.run)
    await bench.apply(assign("S"))
    await bench.apply(ReconfigureStream(account=ACCOUNT, incarnation=1, config=config("S", "new")))
    replica = bench.directory.get(S)
    assert replica is not None
    assert replica.reconfigured == [2]


async def test_absence_from_a_snapshot_deletes_nothing(nursery: trio.Nursery) -> None:
    """nats-server #4410, #6188, #7556: a bad meta snapshot was taken for an empty cluster, and all streams went."""
    bench = Bench()
    await nursery.start(bench.backend.run)
    await bench.apply(assign("S", group="g1"))
    bench.machine.restore(MetaMachine().snapshot())
    await bench.directory.settle()
    assert bench.calls() == ["start g1", "stop g1"]
    assert bench.backend.statistics().orphans == ("g1",)


async def test_a_sweep_discards_what_has_a_tombstone_and_reports_the_rest(nursery: trio.Nursery) -> None:
    bench = Bench()
    await nursery.start(bench.backend.run)
    await bench.apply(assign("S", group="gone"), RemoveStream(account=ACCOUNT, name="S", incarnation=1))
    await bench.apply(assign("S", group="alive"))
    bench.host.on_disk = [(GroupId("gone"), 1), (GroupId("alive"), 3), (GroupId("stranger"), 9)]
    bench.calls()
    await bench.backend.sweep()
    assert bench.calls() == ["discard gone"]
    assert bench.backend.statistics().orphans == ("stranger",)


async def test_nothing_is_discarded_by_a_table_that_may_be_of_the_past(nursery: trio.Nursery) -> None:
    """The group left this node, and has come back since: what is on disk is of its second stay."""
    bench = Bench()
    bench.is_proved = False
    await nursery.start(bench.backend.run)
    back = ReconfigureStream(account=ACCOUNT, incarnation=1, config=config("S"), peers=(N2, N1), based_on=2)
    await bench.apply(assign("S", group="g1", peers=(N1, N2)))
    await bench.apply(ReconfigureStream(account=ACCOUNT, incarnation=1, config=config("S"), peers=(N2,), based_on=1))
    await bench.apply(SettleStream(account=ACCOUNT, name="S", incarnation=1, revision=2))
    bench.host.on_disk = [(GroupId("g1"), 1), (GroupId("gone"), 5)]
    await bench.backend.sweep()
    assert bench.calls() == ["start g1", "stop g1"]

    await bench.apply(back)
    await bench.apply(assign("T", group="gone"), RemoveStream(account=ACCOUNT, name="T", incarnation=5))
    await bench.backend.sweep()
    assert bench.calls() == ["start g1"]
    bench.is_proved = True
    bench.backend.retry_all()
    await trio.testing.wait_all_tasks_blocked()
    assert bench.calls() == ["discard gone"]
    assert bench.backend.statistics().orphans == ()


async def test_a_group_that_comes_back_while_it_is_discarded_is_started_after_that(nursery: trio.Nursery) -> None:
    """Else the ledger would be told to forget what the new replica has promised."""
    bench = Bench()
    await nursery.start(bench.backend.run)
    away = assign("S", group="g1", peers=(N1, N2))
    leaves = ReconfigureStream(account=ACCOUNT, incarnation=1, config=config("S"), peers=(N2,), based_on=1)
    await bench.apply(away, leaves, SettleStream(account=ACCOUNT, name="S", incarnation=1, revision=2))
    bench.host.on_disk = [(GroupId("g1"), 1)]  # of an earlier process
    bench.host.discarding = trio.Event()
    nursery.start_soon(bench.backend.sweep)
    await trio.testing.wait_all_tasks_blocked()
    back = ReconfigureStream(account=ACCOUNT, incarnation=1, config=config("S"), peers=(N2, N1), based_on=2)
    bench.machine.apply([entry(4, back)])
    await trio.testing.wait_all_tasks_blocked()
    assert bench.calls() == []
    bench.host.discarding.set()
    await bench.directory.settle()
    assert bench.calls() == ["discard g1", "start g1"]


async def test_what_waits_for_the_table_is_started_when_that_is_proved(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench()
    bench.host.fails, bench.host.error = True, UnprovedError("g1")
    await nursery.start(bench.backend.run)
    await bench.apply(assign("S", group="g1"))
    await trio.sleep(1000)
    attempts = len(bench.host.attempts_s)
    assert 50 < attempts <= 1 + 1000 / UNPROVED_RETRY_S, "seldom, as this is announced"
    bench.host.fails = False
    before_s = autojump_clock.current_time()
    bench.backend.retry_all()
    await bench.directory.settle()
    assert bench.calls() == ["start g1"]
    assert autojump_clock.current_time() == before_s


async def test_a_replica_that_cannot_start_is_reported_and_tried_again(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench()
    bench.host.fails = True
    await nursery.start(bench.backend.run)
    await bench.apply(assign("S", group="g1"))
    assert bench.backend.statistics().failed == {S: "disk full"}
    bench.host.fails = False
    await trio.sleep(6)
    assert bench.calls() == ["start g1"]
    assert bench.backend.statistics().failed == {}


async def test_a_replica_that_waits_for_entries_is_tried_again_soon_then_seldom(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench()
    bench.host.fails, bench.host.error = True, RepairPendingError("of others")
    await nursery.start(bench.backend.run)
    began_s = trio.current_time()
    await bench.apply(assign("S", group="g1"))
    await trio.sleep(20)
    moments = [round(at_s - began_s, 3) for at_s in bench.host.attempts_s]
    assert moments == [0, 0.1, 0.35, 0.85, 1.85, 3.85, 8.85, 13.85, 18.85]


async def test_a_replica_that_waits_is_tried_at_once_when_its_group_is_heard_of(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench()
    bench.host.fails, bench.host.error = True, RepairPendingError("of others")
    await nursery.start(bench.backend.run)
    await bench.apply(assign("S", group="g1"), assign("T", group="g2"))
    await trio.sleep(15)
    bench.host.fails = False
    before = len(bench.host.attempts_s)
    bench.backend.retry(GroupId("g1"))
    bench.backend.retry(GroupId("g3"))
    await bench.directory.settle()
    assert bench.calls() == ["start g1"]
    assert bench.host.attempts_s[before:] == [trio.current_time()]
    bench.backend.retry(GroupId("g1"))
    await bench.directory.settle()
    assert bench.calls() == [], "it runs"


async def test_what_an_attempt_to_start_has_left_goes_with_the_assignment(nursery: trio.Nursery) -> None:
    bench = Bench()
    bench.host.fails = True
    await nursery.start(bench.backend.run)
    await bench.apply(assign("S", group="g1"), assign("T", group="g2", peers=(N1, N2)))
    await bench.apply(RemoveStream(account=ACCOUNT, name="S", incarnation=1))
    assert bench.calls() == ["discard g1"]

    only_n2 = ReconfigureStream(account=ACCOUNT, incarnation=2, config=config("T"), peers=(N2,), based_on=2)
    await bench.apply(only_n2)
    assert bench.calls() == [], "until the group has let it go, its copy may be the last one"
    await bench.apply(SettleStream(account=ACCOUNT, name="T", incarnation=2, revision=4))
    assert bench.calls() == ["discard g2"]
    assert bench.backend.statistics().failed == {}


async def test_replicas_are_stopped_with_the_backend() -> None:
    bench = Bench()
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.backend.run)
        await bench.apply(assign("S", group="g1"))
        nursery.cancel_scope.cancel()
    assert bench.calls() == ["start g1", "stop g1"]


async def test_what_runs_is_listed_anew_when_it_changes_and_only_then(nursery: trio.Nursery) -> None:
    bench = Bench()
    await nursery.start(bench.backend.run)
    await bench.apply(assign("S", group="g1"))
    listed = bench.directory.replicas()
    assert [row.group_id for row, _ in listed] == ["g1"]
    assert bench.directory.replicas() is listed

    await bench.apply(ReconfigureStream(account=ACCOUNT, incarnation=1, config=config("S", "new")))
    assert [row.revision for row, _ in bench.directory.replicas()] == [2]
    before = bench.directory.replicas()[0][1]
    await bench.backend.reopen(swap_of(bench))
    assert bench.directory.replicas()[0][1] is not before
    await bench.apply(RemoveStream(account=ACCOUNT, name="S", incarnation=1))
    assert list(bench.directory.replicas()) == []
