"""A leader whose table is not proved serves nobody: after a while it gives the others the chance to."""

import trio

from jetraft.cluster.upkeep.unproved import PATIENCE_NS, Unproved
from jetraft.raft.group import Group
from jetraft.raft.transfer_candidates import no_rank
from jetraft.store.model.ids import GroupId, NodeId
from tests.harness.patience import PATIENCE_S
from tests.raft.lab import MS, Lab

A, B, C = (NodeId(name * 8) for name in "ABC")
NAME = GroupId("S-R3F-test0000")


def led_by_a() -> tuple[Lab, Group]:
    lab = Lab((A, B, C))
    lab.create(preferred=A)
    lab.run(1000 * MS)
    assert lab.leader_of() == A
    return lab, lab.managers[A].groups[NAME]


def test_what_is_led_without_being_served_is_handed_over() -> None:
    lab, group = led_by_a()
    unproved = Unproved(clock=lab.clock, groups=lambda: [group], is_proved=lambda: False, ranking=lambda: no_rank)
    unproved.look()
    lab.run(1000 * MS)
    assert lab.leader_of() == A, "the meta leader may be about to say so"
    lab.run(PATIENCE_NS, 20 * MS)
    unproved.look()
    lab.run(1000 * MS)
    assert lab.leader_of() in {B, C}


def test_without_anybody_else_it_leads_on() -> None:
    lab, group = led_by_a()
    for node in (B, C):
        lab.unlink(A, node)
    unproved = Unproved(clock=lab.clock, groups=lambda: [group], is_proved=lambda: False, ranking=lambda: no_rank)
    lab.clock.advance(PATIENCE_NS)
    unproved.look()
    assert group.core.accepts_proposals, "no transfer runs"


async def test_it_ends_when_the_table_is_proved() -> None:
    lab, group = led_by_a()
    lab.clock.advance(PATIENCE_NS)
    unproved = Unproved(clock=lab.clock, groups=lambda: [group], is_proved=lambda: True, ranking=lambda: no_rank)
    with trio.fail_after(PATIENCE_S):
        await unproved.run()
    lab.settle()
    assert lab.leader_of() == A
