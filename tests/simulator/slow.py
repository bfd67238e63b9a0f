"""Directed generators for rule 41: elections end on slow disks and slow links, and what is believed is asked again.

Each takes a seed and says what did not come true, or None. Times are virtual. The faults of `run` are too mild for
this: they stall a disk for a second and a half at most, and end before any lease does.
"""

import logging
from collections.abc import Callable

from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.port import Timing
from jetraft.raft.group import Group
from jetraft.raft.group_spec import GroupSpec
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.ids import GroupId, NodeId
from tests.raft.lab import Lab, ListMachine
from tests.simulator.herd import Herd
from tests.simulator.repairing import file_work_at_once
from tests.simulator.run import MODES, Simulation
from tests.simulator.world import MS, World

A, B, C = NODES = (NodeId("AAAAAAAA"), NodeId("BBBBBBBB"), NodeId("CCCCCCCC"))
NAME = GroupId("S-R3F-test0000")
STEP_NS = 50 * MS
SETTLED_NS = 4 * NS_PER_S
LIMIT_NS = 60 * NS_PER_S
TERMS_MAX = 2  # the elections of one failover: one is enough, and two may begin together
MESSAGES_MAX = 45  # of both members together: nobody is asked again and again while disks are busy
SYNCS_IN_A_ROW = 4  # own vote and a voter's, and what each disk was busy with before


def disks(seed: int) -> str | None:
    """Every fsync takes up to two seconds on all nodes, or on all that are left but one; the leader dies."""
    world = World(seed)
    simulation = Simulation(seed, MODES["base"], world=world)
    stall_ns = world.between(300 * MS, 2000 * MS)
    logging.disable(logging.CRITICAL)
    try:
        with file_work_at_once():
            for host in simulation.hosts.values():
                host.start()
            simulation.network.connect_all()
            simulation.client.start()
            world.run_until(world.now_ns + SETTLED_NS)
            leader = next(host for host in simulation.hosts.values() if host.leads)
            left = [host for host in simulation.hosts.values() if host is not leader]
            quick = world.rng.choice([None, *left])
            for host in left:
                host.disk.stall_ns = 0 if host is quick else stall_ns
            began_ns, term = (
                world.now_ns,
                max(host.group.term for host in simulation.hosts.values() if host.group is not None),
            )
            leader.crash(power=False)
            sent = sum(host.manager.statistics().messages_sent for host in left)
            while not any(host.is_elected for host in left) and world.now_ns < began_ns + LIMIT_NS:
                world.run_until(world.now_ns + STEP_NS)
    finally:
        logging.disable(logging.NOTSET)
    waited_ns = world.now_ns - began_ns
    terms = max(host.group.term for host in left if host.group is not None) - term
    sent = sum(host.manager.statistics().messages_sent for host in left) - sent
    too_slow = waited_ns > SYNCS_IN_A_ROW * stall_ns + SETTLED_NS or terms > TERMS_MAX
    too_loud = quick is None and sent > MESSAGES_MAX
    if too_slow or too_loud:
        return f"violation: {waited_ns // MS} ms, {terms} terms, {sent} messages with fsyncs of {stall_ns // MS} ms"
    return None


def herd(seed: int) -> str | None:
    """Many groups lose their leader at once, and share a disk that does few fsyncs a second."""
    found = Herd(seed, groups=60).fail_over(syncs_per_s=100, limit_ns=LIMIT_NS)
    last_ns = found.percentile_ns(100)
    if last_ns is None or last_ns > 6 * NS_PER_S or found.terms > TERMS_MAX:
        return f"violation: the last of 60 groups has a leader after {last_ns} ns and {found.terms} terms"
    return None


def _lab() -> Lab:
    lab = Lab(NODES)
    lab.create(str(NAME), preferred=A)
    lab.run(2 * NS_PER_S, STEP_NS)
    return lab


def _member(lab: Lab, node: NodeId) -> Group:
    return lab.managers[node].groups[NAME]


def _runs_until(lab: Lab, condition: Callable[[], bool], limit_ns: int) -> bool:
    for _ in range(limit_ns // STEP_NS):
        if condition():
            return True
        lab.run(STEP_NS, STEP_NS)
    return condition()


def lost_words(seed: int) -> str | None:
    """A word that nobody repeats is lost inside a session; the links stay up, and all must be well in the end."""
    return (_lost_farewell, _lost_removal, _lost_learner)[seed % 3](World(seed))


def _lost_farewell(world: World) -> str | None:
    """The leader's replica ends, and nobody hears of it."""
    lab = _lab()
    lab.run(world.between(0, LIMIT_NS), STEP_NS)
    _drop_silently(lab, A)
    left = [_member(lab, node) for node in (B, C)]
    led = _runs_until(lab, lambda: any(group.is_leader for group in left), Timing().lease_max_ns + SETTLED_NS)
    return None if led else "violation: no member leads, and none is a candidate"


def _lost_removal(world: World) -> str | None:
    """A removal that never comes to be: who was to be removed did not hear of it, and holds on to its leader."""
    lab = _lab()
    lab.run(world.between(0, LIMIT_NS), STEP_NS)
    _member(lab, A).change_members(Configuration(voters=(A, B)))
    lab.managers[A].flush()
    lab.queue.clear()
    lab.unlink(A, B)
    left = [_member(lab, node) for node in (B, C)]
    led = _runs_until(lab, lambda: any(group.is_leader for group in left), Timing().lease_max_ns + SETTLED_NS)
    return None if led else "violation: two of three are connected, and nobody leads them"


def _lost_learner(world: World) -> str | None:
    """A learner's replica ends and begins again inside a session, and nobody publishes."""
    lab = _lab()
    _member(lab, A).change_members(Configuration(voters=(A, B), learners=(C,)))
    lab.run(world.between(NS_PER_S, LIMIT_NS), STEP_NS)
    log = _member(lab, C).log
    if world.chance(0.5):
        _drop_silently(lab, C)
    else:
        lab.managers[C].remove(NAME)
        lab.settle()
    spec = GroupSpec(group_id=NAME, incarnation=7, members=NODES)
    again = lab.managers[C].create(spec, log, ListMachine())
    found = _runs_until(lab, lambda: again.leader == A, Timing().renewal_max_ns + SETTLED_NS)
    return None if found else "violation: nobody contacts the learner"


def _drop_silently(lab: Lab, node: NodeId) -> None:
    lab.managers[node].remove(NAME)
    lab.managers[node]._outgoing.clear()


GENERATORS: dict[str, Callable[[int], str | None]] = {"disks": disks, "herd": herd, "lost-words": lost_words}
