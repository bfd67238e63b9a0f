"""A leader whose disk holds up a group that could do without it hands over; nobody else does."""

from jetraft.raft.engine.disk_lag import SLOW_NS, DiskLag
from jetraft.raft.engine.port import Proposal
from jetraft.raft.group_spec import GroupSpec
from jetraft.raft.proposals import Outcome
from jetraft.store.frames.format import Kind
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.ids import GroupId, NodeId
from tests.raft.lab import MS, Lab, ListMachine

NAME = GroupId("S-R3F-test0000")
THREE = tuple(NodeId(name) for name in ("n1", "n2", "n3"))
N1, N2, N3 = THREE


class SlowDisks:
    """A group of three over logs whose fsyncs take as long as a test says; n1 leads."""

    def __init__(self) -> None:
        self.lab = Lab(nodes=THREE)
        self.logs = {node: MemLog(durable_on_submit=False) for node in THREE}
        self.machines = {node: ListMachine() for node in THREE}
        self.fsync_ns = dict.fromkeys(THREE, 0)
        self._due_ns: dict[NodeId, int] = {}
        spec = GroupSpec(group_id=NAME, incarnation=7, members=THREE, preferred_leader=N1)
        for node in THREE:
            self.lab.managers[node].create(spec, self.logs[node], self.machines[node])
        self.run(200 * MS)
        assert self.leader == N1

    @property
    def leader(self) -> NodeId:
        return self.lab.leader_of(NAME)

    def run(self, duration_ns: int) -> None:
        """One fsync at a time and disk; it covers what was written before it began."""
        end_ns = self.lab.clock.now_ns + duration_ns
        while self.lab.clock.now_ns < end_ns:
            for node, log in self.logs.items():
                due_ns = self._due_ns.setdefault(node, self.lab.clock.now_ns + self.fsync_ns[node])
                if due_ns <= self.lab.clock.now_ns:
                    log.complete()
                    del self._due_ns[node]
            self.lab.run(5 * MS)

    def publish(self) -> list[Outcome]:
        told: list[Outcome] = []
        group = self.lab.managers[self.leader].groups[NAME]
        group.propose(Proposal(kind=Kind.META, body=b"x"), lambda outcome, _result: told.append(outcome))
        return told


def test_a_leader_with_a_slow_disk_hands_over_and_publishing_goes_on() -> None:
    disks = SlowDisks()
    disks.fsync_ns[N1] = 5_000 * MS
    disks.run(20 * MS)
    told = disks.publish()
    disks.run(1_500 * MS)
    assert disks.leader in (N2, N3)
    assert told == [Outcome.UNKNOWN], "it may be committed or not: the publisher asks the new leader"
    told = disks.publish()
    disks.run(100 * MS)
    assert told == [Outcome.OK], "the slow member is not waited for"
    assert disks.machines[N2].bodies == disks.machines[N3].bodies == [b"x", b"x"]


def test_where_all_disks_are_slow_leadership_stays() -> None:
    disks = SlowDisks()
    disks.fsync_ns.update(dict.fromkeys(THREE, 1_000 * MS))
    told = disks.publish()
    disks.run(5_000 * MS)
    assert told == [Outcome.OK]
    assert disks.leader == N1
    assert disks.lab.managers[N1].groups[NAME].term == 1


def test_a_slow_follower_changes_nothing() -> None:
    disks = SlowDisks()
    disks.fsync_ns[N2] = 5_000 * MS
    disks.run(20 * MS)
    told = disks.publish()
    disks.run(2_000 * MS)
    assert (told, disks.leader) == ([Outcome.OK], N1)


def test_a_leader_without_a_ready_heir_tries_again_and_does_not_spin() -> None:
    lag = DiskLag()
    assert not lag.note(0, durable_index=5, others_index=5)
    assert lag.due_ns is None
    assert not lag.note(10, durable_index=5, others_index=6)
    assert not lag.note(20, durable_index=5, others_index=9)
    assert lag.due_ns == 10 + SLOW_NS
    assert lag.note(10 + SLOW_NS, durable_index=5, others_index=9)
    assert lag.due_ns == 10 + 2 * SLOW_NS


def test_what_the_disk_has_caught_up_with_is_not_held_against_it() -> None:
    lag = DiskLag()
    lag.note(0, durable_index=5, others_index=6)
    assert not lag.note(SLOW_NS, durable_index=6, others_index=8)
    assert lag.due_ns == 2 * SLOW_NS
    assert not lag.note(SLOW_NS + 1, durable_index=8, others_index=8)
    assert lag.due_ns is None
