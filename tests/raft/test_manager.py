from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.port import Proposal
from jetraft.raft.group_spec import GroupSpec
from jetraft.raft.manager import TICKS_PER_TURN
from jetraft.store.frames.format import Kind
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.ids import GroupId, NodeId
from tests.raft.lab import MS, Lab, ListMachine

NODES = tuple(NodeId(name) for name in ("n1", "n2", "n3"))


def test_many_groups_share_one_payload_per_peer_and_turn() -> None:
    lab = Lab(nodes=NODES)
    names = [f"S-R3F-{number:08d}" for number in range(20)]
    for name in names:
        lab.create(name, preferred=NODES[0])
    lab.settle()
    manager = lab.managers[NODES[0]]
    assert manager.statistics().groups_led == 20
    for name in names:
        manager.groups[GroupId(name)].propose(Proposal(kind=Kind.META, body=b"x"))
    manager.flush()
    assert len(lab.queue) == 2


def test_something_queued_outside_a_turn_asks_for_one_once() -> None:
    asked: list[None] = []
    lab = Lab(nodes=NODES, turns={"on_dirty": lambda: asked.append(None)})
    lab.create(preferred=NODES[0])
    lab.settle()
    manager = lab.managers[NODES[0]]
    asked.clear()
    group = manager.groups[GroupId("S-R3F-test0000")]
    group.propose(Proposal(kind=Kind.META, body=b"1"))
    group.propose(Proposal(kind=Kind.META, body=b"2"))
    assert len(asked) == 1
    manager.flush()
    assert len(asked) == 1


def test_large_turns_are_cut_into_payloads_between_messages() -> None:
    lab = Lab(nodes=NODES)
    machines = lab.create(preferred=NODES[0])
    lab.settle()
    group = lab.managers[NODES[0]].groups[GroupId("S-R3F-test0000")]
    for _ in range(6):
        group.propose(Proposal(kind=Kind.META, body=bytes(5 << 20)))
    lab.run(20 * MS)
    assert [len(machine.bodies) for machine in machines.values()] == [6, 6, 6]


def test_a_node_that_is_added_later_is_known_to_be_up() -> None:
    """Simulator, member-chaos 18: it was taken for unreachable, as it was no member when the group was created."""
    lab = Lab(nodes=NODES)
    name = GroupId("S-R3F-test0000")
    spec = GroupSpec(group_id=name, incarnation=7, members=NODES[:2], preferred_leader=NODES[0])
    for link in lab.links.values():
        for node in NODES:
            if node != link.node_id:
                link.on_peer_up.emit(node)
    machines = {node: ListMachine() for node in NODES}
    for node in NODES:
        lab.managers[node].create(spec, MemLog(), machines[node])
    lab.settle()
    group = lab.managers[NODES[0]].groups[name]
    group.propose(Proposal(kind=Kind.META, body=b"x"))
    group.change_members(Configuration(voters=NODES[:2], learners=NODES[2:]))
    lab.run(50 * MS)
    assert machines[NODES[2]].bodies == [b"x"]


def test_a_turn_asks_for_a_bounded_number_of_elections() -> None:
    """The answers to the first come before the questions of the last; else each asks again while it waits."""
    lab = Lab(nodes=NODES)
    names = [GroupId(f"S-R3F-{number:08d}") for number in range(2 * TICKS_PER_TURN)]
    for name in names:
        lab.create(str(name), preferred=NODES[0])
    lab.run(1000 * MS, 20 * MS)
    lab.unlink(NODES[0], NODES[1])
    lab.unlink(NODES[0], NODES[2])
    manager = lab.managers[NODES[1]]
    manager.flush()  # tells the rest of the groups of the link
    lab.clock.advance(10_000 * MS)
    manager.tick(lab.clock.now_ns)
    manager.flush()
    assert sum(message[0] == NODES[1] for message in lab.queue) <= 2, "one payload per peer"
    assert manager.next_deadline_ns is not None
    assert manager.next_deadline_ns <= lab.clock.now_ns, "the others are due in the next turn"
    before = manager.statistics().messages_sent
    manager.tick(lab.clock.now_ns)
    manager.flush()
    assert 0 < manager.statistics().messages_sent - before <= 2 * TICKS_PER_TURN


class DiskLog(MemLog):
    """Waits for the disk in `submit` when it may, as a log in files does with a small batch."""

    def would_block(self, bytes_max: int) -> bool:
        return bytes_max > 0

    def submit(self, *, may_block: bool = False) -> None:
        super().submit(may_block=may_block)
        if may_block:
            self.complete()


def managed(lab: Lab, *names: str, log: type[DiskLog] = DiskLog) -> list[ListMachine]:
    """Groups of one on the first node, over logs that say what is durable later."""
    manager = lab.managers[NODES[0]]
    machines = []
    for name in names:
        machines.append(ListMachine())
        spec = GroupSpec(group_id=GroupId(name), incarnation=7, members=NODES[:1], preferred_leader=NODES[0])
        manager.create(spec, log(durable_on_submit=False), machines[-1])
    manager.flush()
    return machines


def test_a_single_small_batch_is_written_after_the_turn_has_sent_what_it_has_to_send() -> None:
    lab = Lab(nodes=NODES, turns={"may_block": True})
    managed(lab, "S-R1F-test0000")
    manager = lab.managers[NODES[0]]
    group = manager.groups[GroupId("S-R1F-test0000")]
    assert group.log.durable_token < group.log.token()
    assert manager.write()
    assert group.log.durable_token == group.log.token()
    manager.flush()
    while manager.write():
        manager.flush()
    assert group.is_leader


def test_what_nobody_waits_for_is_left_to_the_writer_threads() -> None:
    lab = Lab(nodes=NODES, turns={"may_block": True})
    managed(lab, "S-R1F-test0000")
    manager = lab.managers[NODES[0]]
    group = manager.groups[GroupId("S-R1F-test0000")]
    while manager.write():
        manager.flush()
    group.propose(Proposal(kind=Kind.META, body=b"noted", is_awaited=False))
    manager.flush()
    assert not manager.write()
    assert isinstance(group.log, DiskLog)
    assert group.log.durable_token < group.log.token()
    group.log.complete()
    group.propose(Proposal(kind=Kind.META, body=b"noted", is_awaited=False))
    group.propose(Proposal(kind=Kind.META, body=b"asked"))
    manager.flush()
    assert manager.write()
    assert group.log.durable_token == group.log.token()


def test_batches_of_two_groups_go_to_the_writer_threads_at_once() -> None:
    lab = Lab(nodes=NODES, turns={"may_block": True})
    managed(lab, "S-R1F-test0000", "S-R1F-test0001")
    assert not lab.managers[NODES[0]].write()


@pytest.mark.parametrize(("names", "is_gathered"), [(["S-R1F-test0000"], False), (["S-R1F-a", "S-R1F-b"], True)])
def test_what_several_groups_write_in_a_turn_is_handed_over_at_once(names: list[str], *, is_gathered: bool) -> None:
    submitted: list[bool] = []
    inside = [False]

    @contextmanager
    def gathering() -> Iterator[None]:
        inside[0] = True
        yield
        inside[0] = False

    class Seen(DiskLog):
        def submit(self, *, may_block: bool = False) -> None:
            submitted.append(inside[0])
            super().submit(may_block=may_block)

    lab = Lab(nodes=NODES, turns={"gathering": gathering})
    managed(lab, *names, log=Seen)
    assert submitted == [is_gathered] * len(names)


def test_who_asks_for_the_commit_hears_of_it_before_any_group_of_the_turn_applies() -> None:
    seen: list[int] = []
    sent: list[int] = []
    lab = Lab(nodes=NODES, turns={"on_committed": lambda: sent.append(len(seen))})
    machines = [lab.create(name, preferred=NODES[0])[NODES[0]] for name in ("S-R3F-test0000", "S-R3F-test0001")]
    lab.settle()
    manager = lab.managers[NODES[0]]
    for group in manager.groups.values():
        group.propose(
            Proposal(kind=Kind.META, body=b"x"),
            committed=lambda: seen.append(sum(len(machine.bodies) for machine in machines)),
        )
    lab.run(20 * MS)
    assert seen == [0, 0]
    assert sent == [2]
    assert [machine.bodies for machine in machines] == [[b"x"], [b"x"]]


def test_a_log_on_a_slow_disk_is_asked_for_its_floor_again_when_it_is_durable() -> None:
    lab = Lab(nodes=NODES[:1])
    manager, log = lab.managers[NODES[0]], MemLog(durable_on_submit=False)
    name = GroupId("S-R1F-test0000")
    group = manager.create(GroupSpec(group_id=name, incarnation=7, members=NODES[:1]), log, ListMachine())
    for _ in range(3):
        manager.flush()
        log.complete()
    group.propose(Proposal(kind=Kind.META, body=b"x"))
    manager.flush()
    manager.note_floors()
    assert log.durable_index < log.last_index
    assert manager.logs_written == 1, "its end is not durable yet"

    log.complete()
    manager.note_floors()
    assert manager.logs_written == 0


def test_the_first_write_since_the_floors_were_noted_is_told_once() -> None:
    """A node asks for floors after that alone: a quiet one is not woken."""
    told: list[None] = []
    lab = Lab(nodes=NODES, turns={"on_written": lambda: told.append(None)})
    lab.create(preferred=NODES[0])
    lab.settle()
    manager = lab.managers[NODES[0]]
    manager.note_floors()
    assert manager.logs_written == 0
    told.clear()
    lab.settle()
    assert told == [], "nothing was written"
    group = manager.groups[GroupId("S-R3F-test0000")]
    for _ in range(3):
        group.propose(Proposal(kind=Kind.META, body=b"x"))
        lab.run(20 * MS)
    assert manager.logs_written == 1
    assert len(told) >= 1
    manager.note_floors()
    assert manager.logs_written == 0
