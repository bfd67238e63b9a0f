from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from jetraft.raft.checkpointing import CheckpointPolicy
from jetraft.raft.engine.leadership import MembershipChangeRefusedError
from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.messages import Resigned, VoteRequest
from jetraft.raft.engine.port import Proposal
from jetraft.raft.group import Group
from jetraft.raft.group_spec import GroupSpec
from jetraft.raft.proposals import NotLeaderError, Outcome, OutcomeUnknownError
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.frames.format import Identity, Kind
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.log.mem_log import MemLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.start import LogOptions
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Entry, StoreCorrupt
from tests.doubles.lossy_disk import LossyDisk
from tests.raft.lab import MS, Lab, ListMachine

NAME = GroupId("S-R3F-test0000")
THREE = tuple(NodeId(name) for name in ("n1", "n2", "n3"))
ONE = (NodeId("n1"),)


def command(body: bytes) -> Proposal:
    return Proposal(kind=Kind.META, body=body)


class Outcomes:
    """What proposers were told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[Outcome, object]] = []

    def __call__(self, outcome: Outcome, result: object) -> None:
        self.told.append((outcome, result))


def lab_with_leader(nodes: tuple[NodeId, ...] = THREE) -> tuple[Lab, dict[NodeId, ListMachine], Group]:
    lab = Lab(nodes=nodes)
    machines = lab.create(preferred=nodes[0])
    lab.settle()
    return lab, machines, lab.managers[lab.leader_of()].groups[NAME]


def test_the_preferred_leader_leads_without_waiting() -> None:
    lab, machines, group = lab_with_leader()
    assert group.node_id == "n1"
    assert [machines[node].roles for node in THREE] == [
        [("leader", 1, None)],
        [("follower", 1, "n1")],
        [("follower", 1, "n1")],
    ]
    assert lab.clock.now_ns == 0


def test_proposals_are_applied_everywhere_in_order_and_told_once() -> None:
    lab, machines, group = lab_with_leader()
    outcomes = Outcomes()
    for number in range(10):
        group.propose(command(b"%d" % number), outcomes)
    assert outcomes.told == [], "queued until the end of the turn"
    lab.run(10 * MS)
    assert outcomes.told == [(Outcome.OK, 2 + number) for number in range(10)]
    assert [machine.bodies for machine in machines.values()] == [[b"%d" % number for number in range(10)]] * 3


def test_a_body_in_parts_is_one_entry() -> None:
    lab, machines, group = lab_with_leader()
    group.propose(Proposal(kind=Kind.META, body=[b"a", b"b"]))
    lab.settle()
    assert machines[NodeId("n1")].bodies == [b"ab"]


def test_a_follower_refuses() -> None:
    """Rule 24: proposals only at the leader, never forwarded."""
    lab, _, _ = lab_with_leader()
    outcomes = Outcomes()
    lab.managers[NodeId("n2")].groups[NAME].propose(command(b"x"), outcomes)
    lab.settle()
    assert outcomes.told == [(Outcome.REFUSED, None)]


def test_a_leader_that_is_cut_off_answers_unknown() -> None:
    """Rules 19 and 25."""
    lab, machines, group = lab_with_leader()
    outcomes = Outcomes()
    lab.unlink(NodeId("n1"), NodeId("n2"))
    lab.unlink(NodeId("n1"), NodeId("n3"))
    group.propose(command(b"lost"), outcomes)
    lab.run(900 * MS)
    assert outcomes.told == []
    lab.run(1000 * MS)
    assert outcomes.told == [(Outcome.UNKNOWN, None)]
    assert not group.is_leader
    assert machines[NodeId("n1")].roles[-1] == ("follower", group.term, None)
    lab.link(NodeId("n1"), NodeId("n2"))
    lab.link(NodeId("n1"), NodeId("n3"))
    lab.run(1000 * MS)
    assert all(b"lost" not in machine.bodies for machine in machines.values()), "its entry was cut"


def test_a_new_leader_is_found_soon_after_the_old_one_is_gone() -> None:
    lab, machines, group = lab_with_leader()
    group.propose(command(b"kept"))
    lab.settle()
    lab.unlink(NodeId("n1"), NodeId("n2"))
    lab.unlink(NodeId("n1"), NodeId("n3"))
    lab.run(500 * MS)
    leaders = [node for node in THREE[1:] if lab.managers[node].groups[NAME].is_leader]
    assert len(leaders) == 1
    assert machines[leaders[0]].bodies == [b"kept"]


def test_idle_groups_say_a_word_every_ten_seconds_and_wait_for_nothing_else() -> None:
    lab, _, _ = lab_with_leader()
    lab.run(100 * MS)

    def sent() -> int:
        return sum(manager.statistics().messages_sent for manager in lab.managers.values())

    before = sent()
    lab.run(5_000 * MS, step_ns=50 * MS)
    assert sent() == before
    lab.run(60_000 * MS, step_ns=50 * MS)
    assert sent() - before <= 4 * 6, "an append and its answer, for two followers, each ten seconds"


def test_a_group_of_one_leads_and_applies_at_once() -> None:
    lab, machines, group = lab_with_leader(ONE)
    outcomes = Outcomes()
    group.propose(command(b"x"), outcomes)
    lab.settle()
    assert outcomes.told == [(Outcome.OK, 1)]
    assert machines[NodeId("n1")].bodies == [b"x"]


def test_a_group_of_one_replays_its_log_after_a_restart() -> None:
    lab, _, group = lab_with_leader(ONE)
    for number in range(5):
        group.propose(command(b"%d" % number))
    lab.settle()
    manager = lab.managers[NodeId("n1")]
    manager.remove(NAME)
    machine = ListMachine()
    manager.create(GroupSpec(group_id=NAME, incarnation=7, members=ONE), group.log, machine)
    lab.settle()
    assert machine.bodies == [b"%d" % number for number in range(5)]
    assert machine.roles[-1] == ("leader", 2, None)


def test_the_members_come_from_the_log_not_from_the_caller() -> None:
    """Rule 27: a configuration appended before the restart is in force after it."""
    lab, _, group = lab_with_leader()
    group.change_members(Configuration(voters=THREE, learners=(NodeId("n4"),)))
    lab.settle()
    manager = lab.managers[NodeId("n1")]
    manager.remove(NAME)
    again = manager.create(GroupSpec(group_id=NAME, incarnation=7, members=ONE), group.log, ListMachine())
    assert again.configuration == Configuration(voters=THREE, learners=(NodeId("n4"),))


def test_leadership_moves_to_the_chosen_node_behind_what_was_queued_and_later_proposals_end() -> None:
    lab, machines, group = lab_with_leader()
    before, after = Outcomes(), Outcomes()
    group.propose(command(b"before"), before)
    assert group.transfer_leadership(NodeId("n3"))
    group.propose(command(b"after"), after)
    lab.run(50 * MS)
    assert lab.leader_of() == "n3"
    assert [outcome for outcome, _ in before.told] == [Outcome.OK]
    assert after.told == [(Outcome.REFUSED, None)]
    assert b"before" in machines[NodeId("n3")].bodies


def test_an_exception_of_apply_stops_the_group_and_another_node_leads() -> None:
    """Rule 26."""
    lab, machines, group = lab_with_leader()

    def broken(entries: Sequence[Entry]) -> Sequence[object]:
        raise ZeroDivisionError(len(entries))

    machines[NodeId("n1")].apply = broken  # type: ignore[method-assign]  # this machine breaks
    outcomes = Outcomes()
    group.propose(command(b"x"), outcomes)
    lab.run(1000 * MS)
    assert isinstance(group.failed, ZeroDivisionError)
    assert [outcome for outcome, _ in outcomes.told] == [Outcome.UNKNOWN]
    assert lab.leader_of() in {"n2", "n3"}


def test_damage_that_a_new_leader_meets_stops_the_group_and_another_node_leads() -> None:
    """It looks at its oldest message, say; the turn of the node goes on (simulator, rot seed 15)."""
    lab = Lab(nodes=THREE)
    machines = lab.create(preferred=NodeId("n1"))

    def looks_at_the_oldest(term: int) -> None:
        raise StoreCorrupt(f"entry 1 is damaged, says the leader of term {term}")

    machines[NodeId("n1")].became_leader = looks_at_the_oldest  # type: ignore[method-assign]  # its disk has rotted
    lab.run(2000 * MS)
    (group,) = lab.managers[NodeId("n1")].groups.values()
    assert isinstance(group.failed, StoreCorrupt)
    assert lab.leader_of() in {"n2", "n3"}


def test_a_failed_log_ends_leadership_and_nothing_is_acknowledged_after_it() -> None:
    """Rule 7."""
    lab, _, group = lab_with_leader()
    outcomes = Outcomes()
    assert isinstance(group.log, MemLog)
    group.log.progress.failed = OSError(5, "EIO")
    group.propose(command(b"x"), outcomes)
    lab.run(1000 * MS)
    assert [outcome for outcome, _ in outcomes.told] == [Outcome.REFUSED]
    assert group.statistics().failed is not None
    assert lab.leader_of() in {"n2", "n3"}


def test_a_failed_log_votes_for_nobody_from_the_moment_of_the_error() -> None:
    lab, _, leader = lab_with_leader()
    group = lab.managers[NodeId("n2")].groups[NAME]
    assert isinstance(group.log, MemLog)
    group.log.progress.failed = OSError(5, "EIO")
    term, now_ns = group.term + 1, lab.clock.now_ns
    request = VoteRequest(term=term, last_index=leader.log.last_index, last_term=1, transfer=True)
    group.step(NodeId("n3"), request, now_ns)
    assert group.term == term - 1
    assert all(isinstance(message, Resigned) for _, message in group.turns.outbox.take_sends())
    assert group.failed is group.log.failed


def test_damage_that_a_reader_meets_stops_the_group_at_the_end_of_the_turn_and_not_before() -> None:
    lab, _, group = lab_with_leader()
    outcomes = Outcomes()
    group.distrust(StoreCorrupt("entry 1"))
    group.propose(command(b"x"), outcomes)
    assert group.failed is None
    lab.run(2000 * MS)
    assert isinstance(group.failed, StoreCorrupt)
    assert outcomes.told == [(Outcome.REFUSED, None)]
    assert lab.leader_of() != "n1"


def test_removing_the_leaders_replica_lets_the_others_elect() -> None:
    lab, _, _ = lab_with_leader()
    lab.managers[NodeId("n1")].remove(NAME)
    lab.run(500 * MS)
    assert [node for node in THREE[1:] if lab.managers[node].groups[NAME].is_leader]


def test_messages_of_another_incarnation_are_dropped() -> None:
    """Rule 30."""
    lab, _, _ = lab_with_leader()
    lab.managers[NodeId("n3")].remove(NAME)
    spec = GroupSpec(group_id=NAME, incarnation=8, members=THREE)
    stranger = lab.managers[NodeId("n3")].create(spec, MemLog(), ListMachine())
    lab.run(1000 * MS)
    assert stranger.leader is None
    assert lab.managers[NodeId("n1")].statistics().messages_dropped > 0


def test_a_replica_that_is_opened_again_learns_its_leader_although_the_group_is_idle() -> None:
    """Nothing tells the leader inside a link session; the replica's pre-vote does."""
    lab, machines, group = lab_with_leader()
    group.propose(command(b"x"))
    lab.run(100 * MS)
    manager = lab.managers[NodeId("n3")]
    kept = manager.groups[NAME].log
    manager.remove(NAME)
    machine = ListMachine()
    again = manager.create(GroupSpec(group_id=NAME, incarnation=7, members=THREE), kept, machine)
    lab.run(1500 * MS)
    assert again.leader == "n1"
    assert machine.bodies == machines[NodeId("n1")].bodies == [b"x"]


def test_checkpoints_are_taken_and_the_log_is_trimmed() -> None:
    lab = Lab(nodes=ONE, checkpoints=CheckpointPolicy(applied_entries_min=10, applied_bytes_min=1 << 40))
    machine = ListMachine()
    manager = lab.managers[NodeId("n1")]
    spec = GroupSpec(group_id=NAME, incarnation=7, members=ONE)
    group = manager.create(spec, MemLog(block_bytes=500), machine)
    lab.settle()
    for number in range(100):
        group.propose(command(b"%d" % number))
        lab.settle()
    assert group.log.first_index > 50
    manager.remove(NAME)
    again = ListMachine()
    manager.create(spec, group.log, again)
    lab.settle()
    assert again.bodies == machine.bodies


def test_the_lag_of_replicas_is_reported_by_the_leader() -> None:
    lab, _, group = lab_with_leader()
    lab.unlink(NodeId("n1"), NodeId("n3"))
    group.propose(command(b"x"))
    lab.settle()
    lags = {lag.node: lag for lag in group.replica_lag()}
    assert (lags[NodeId("n2")].current, lags[NodeId("n2")].offline, lags[NodeId("n2")].lag_entries) == (True, False, 0)
    assert (lags[NodeId("n3")].current, lags[NodeId("n3")].offline, lags[NodeId("n3")].lag_entries) == (False, True, 1)


def test_a_read_barrier_waits_for_contact_and_apply() -> None:
    """Rule 21."""
    lab, _, group = lab_with_leader()
    outcomes = Outcomes()
    group.read_barrier(outcomes)
    assert outcomes.told == []
    lab.settle()
    assert outcomes.told == [(Outcome.OK, None)]


@pytest.mark.parametrize("word", [None, (NodeId("n2"), 1)])
def test_a_read_sees_what_was_proposed_before_it_in_the_same_turn(word: tuple[NodeId, int] | None) -> None:
    lab, log, group = lab_with_leader()
    outcomes, applied = Outcomes(), Outcomes()
    del log
    group.propose(command(b"x"), applied)
    group.read_barrier(lambda outcome, _: outcomes(outcome, len(applied.told)), word=word)
    lab.settle()
    assert outcomes.told == [(Outcome.OK, 1)]


def test_what_was_proposed_is_settled_when_it_is_applied_or_leadership_is_over() -> None:
    lab, _, group = lab_with_leader()
    assert group.is_settled
    outcomes, applied = Outcomes(), Outcomes()
    group.settle(outcomes)
    assert outcomes.told == [(Outcome.OK, None)], "nothing is on its way"
    group.propose(command(b"x"), applied)
    assert not group.is_settled
    group.settle(lambda outcome, _: outcomes(outcome, len(applied.told)))
    lab.managers[NodeId("n1")].flush()
    assert outcomes.told[1:] == [], "in the log, and not committed"
    lab.settle()
    assert outcomes.told[1:] == [(Outcome.OK, 1)]
    group.propose(command(b"y"))
    group.settle(outcomes)
    group.turns.proposals.end()
    assert outcomes.told[2:] == [(Outcome.REFUSED, None)]
    follower = lab.managers[NodeId("n2")].groups[NAME]
    assert follower.is_settled


def test_reads_of_one_turn_share_a_round_and_those_of_the_next_have_another() -> None:
    """Rule 21: a round that began before a read came says nothing about what was committed in between."""
    lab, _, group = lab_with_leader()
    outcomes = Outcomes()
    before = group.core.begin_read(lab.clock.now_ns)
    for _ in range(5):
        group.read_barrier(outcomes)
    lab.settle()
    assert outcomes.told == [(Outcome.OK, None)] * 5
    assert group.core.begin_read(lab.clock.now_ns) == before + 2
    for _ in range(2):
        group.read_barrier(outcomes)
        lab.settle()
    assert group.core.begin_read(lab.clock.now_ns) == before + 5


def test_of_three_the_word_of_the_member_through_which_a_read_came_is_enough() -> None:
    """Rule 21: it was given after the read came, and says that the member is in the leader's term."""
    lab, _, group = lab_with_leader()
    followers = [lab.managers[node].groups[NAME] for node in THREE if node != group.node_id]
    assert [follower.followed() for follower in followers] == [("n1", 1)] * 2
    assert group.followed() is None
    outcomes = Outcomes()
    sent = lab.managers[NodeId("n1")].statistics().messages_sent
    group.read_barrier(outcomes, word=(NodeId("n2"), 1))
    lab.managers[NodeId("n1")].flush()
    assert outcomes.told == [(Outcome.OK, None)]
    assert lab.managers[NodeId("n1")].statistics().messages_sent == sent


def test_a_word_of_another_term_or_of_no_voter_or_of_a_minority_counts_for_nothing() -> None:
    lab, _, group = lab_with_leader()
    for word in ((NodeId("n2"), 0), (NodeId("n2"), 2), (NodeId("n9"), 1), (NodeId("n1"), 1)):
        outcomes = Outcomes()
        group.read_barrier(outcomes, word=word)
        lab.managers[NodeId("n1")].flush()
        assert outcomes.told == []
        lab.settle()
        assert outcomes.told == [(Outcome.OK, None)]
    five = tuple(NodeId(f"n{number}") for number in range(1, 6))
    lab, _, group = lab_with_leader(five)
    outcomes = Outcomes()
    group.read_barrier(outcomes, word=(NodeId("n2"), 1))
    lab.managers[NodeId("n1")].flush()
    assert outcomes.told == []


def test_reads_that_come_with_a_word_are_refused_with_the_leadership() -> None:
    _, _, group = lab_with_leader()
    outcomes = Outcomes()
    group.read_barrier(outcomes, word=(NodeId("n2"), 1))
    group.turns.proposals.end()
    assert outcomes.told == [(Outcome.REFUSED, None)]


def test_reads_whose_round_has_not_begun_are_refused_with_the_leadership() -> None:
    _, _, group = lab_with_leader()
    outcomes = Outcomes()
    group.read_barrier(outcomes)
    group.turns.proposals.end()
    assert outcomes.told == [(Outcome.REFUSED, None)]


async def test_propose_and_wait_returns_the_result_of_apply() -> None:
    lab, _, group = lab_with_leader()
    results: list[object] = []

    async def propose() -> None:
        results.append(await group.propose_and_wait(command(b"x")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(propose)
        await wait_all_tasks_blocked()
        lab.settle()
    assert results == [2]


async def test_propose_and_wait_raises_when_it_was_refused_or_is_unknown() -> None:
    lab, _, group = lab_with_leader()
    raised: list[type[Exception]] = []

    async def propose(at: Group) -> None:
        try:
            await at.propose_and_wait(command(b"x"))
        except (NotLeaderError, OutcomeUnknownError) as error:
            raised.append(type(error))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(propose, lab.managers[NodeId("n2")].groups[NAME])
        await wait_all_tasks_blocked()
        lab.settle()
        lab.unlink(NodeId("n1"), NodeId("n2"))
        lab.unlink(NodeId("n1"), NodeId("n3"))
        nursery.start_soon(propose, group)
        await wait_all_tasks_blocked()
        lab.run(1500 * MS)
    assert raised == [NotLeaderError, OutcomeUnknownError]


@pytest.mark.parametrize("count", [1, 50])
def test_a_turn_sends_one_payload_per_peer(count: int) -> None:
    lab, _, group = lab_with_leader()
    for _ in range(count):
        group.propose(command(b"x"))
    lab.managers[NodeId("n1")].flush()
    assert [(sender, to) for sender, to, _, _ in lab.queue] == [("n1", "n2"), ("n1", "n3")]


def test_how_far_a_follower_is_behind_is_known_from_the_leader_of_this_session_alone() -> None:
    lab, _, leader = lab_with_leader()
    lab.run(100 * MS)
    follower = lab.managers[THREE[1]].groups[NAME]
    assert (leader.behind_entries, follower.behind_entries) == (0, 0)

    lab.unlink(leader.node_id, follower.node_id)
    assert follower.behind_entries is None, "what it remembers of an earlier session says nothing"
    lab.link(leader.node_id, follower.node_id)
    lab.run(2000 * MS)
    assert follower.behind_entries == 0


def test_members_change_under_a_leader_that_had_nothing_to_find_out() -> None:
    """It is refused once, for want of an entry of the own term: that entry is written, though nobody publishes."""
    lab, _, group = lab_with_leader(ONE)
    group.propose(command(b"x"))
    lab.run(10 * MS)
    group.checkpoint()
    lab.run(10 * MS)
    manager = lab.managers[group.node_id]
    manager.remove(NAME)
    again = manager.create(GroupSpec(group_id=NAME, incarnation=7, members=ONE), group.log, ListMachine())
    lab.run(100 * MS)
    assert again.is_leader
    assert again.log.last_index == group.log.last_index == again.commit_index, "no no-op"
    wanted = Configuration(voters=ONE, learners=THREE[1:2])
    with pytest.raises(MembershipChangeRefusedError, match="beginning of this term"):
        again.change_members(wanted)
    lab.run(10 * MS)
    again.change_members(wanted)
    assert again.configuration == wanted


def test_no_other_member_hears_of_a_log_whose_beginning_a_crash_may_take() -> None:
    """It would begin again, and its first entry might be another one then."""
    disk, lab = LossyDisk(), Lab(nodes=ONE)
    ledger = Ledger.open(disk, Path("/store"))
    identity = Identity(node_id=ONE[0], group_id=NAME, incarnation=7)
    options = LogOptions(begun_bytes_max=1000)
    log = open_log(ledger, Path("/store/groups/g"), identity, BlockCache(), options)
    log.durability.assume_beginning(is_alone=True)
    group = lab.managers[ONE[0]].create(GroupSpec(group_id=NAME, incarnation=7, members=ONE), log, ListMachine())
    lab.run(10 * MS)
    group.propose(Proposal(kind=Kind.STREAM_OP, body=b"configuration"))
    lab.run(10 * MS)
    assert (group.is_leader, group.applied_index, log.is_secure) == (True, 1, False)
    wanted = Configuration(voters=ONE, learners=THREE[1:2])
    with pytest.raises(MembershipChangeRefusedError, match="outlive a crash"):
        group.change_members(wanted)
    disk.finish()
    assert log.is_secure
    group.change_members(wanted)
    assert group.configuration == wanted


def test_a_change_of_members_that_nobody_else_has_does_not_outlive_the_next_leader() -> None:
    """The deposed leader keeps it in force until it is cut; with the next one gone, it and the other one must elect."""
    lab, _, group = lab_with_leader()
    group.propose(command(b"x"))
    lab.run(1000 * MS)
    first, second, third = THREE
    groups = {node: lab.managers[node].groups[NAME] for node in THREE}
    group.change_members(Configuration(voters=(first, second)))
    lab.managers[first].flush()
    lab.queue.clear()
    lab.unlink(first, second)
    lab.unlink(first, third)
    lab.run(3000 * MS)
    if groups[third].is_leader:
        groups[third].transfer_leadership(second)
        lab.run(1000 * MS)
    assert groups[second].is_leader
    assert groups[second].log.last_index < groups[first].log.last_index, "it had nothing to find out"
    lab.link(first, second)
    lab.link(first, third)
    lab.run(3000 * MS)
    assert groups[first].configuration == groups[second].configuration
    lab.unlink(second, first)
    lab.unlink(second, third)
    lab.run(5000 * MS)
    assert lab.leader_of_those((first, third), NAME) in {first, third}


def test_a_member_goes_on_voting_while_another_one_is_changed() -> None:
    lab, _, leader = lab_with_leader()
    lab.run(100 * MS)
    first, second = (lab.managers[node].groups[NAME] for node in THREE[1:])
    leader.change_members(Configuration(voters=THREE[:2], learners=THREE[2:]))
    assert leader.votes, "its configuration is not committed yet"
    assert not leader.configuration_is_committed
    lab.run(100 * MS)
    assert (first.votes, second.votes) == (True, False)

    leader.change_members(Configuration(voters=THREE))
    lab.run(100 * MS)
    assert second.votes
