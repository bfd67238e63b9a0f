"""What joins the parts of a node, switched off one at a time: can whole nodes in the simulator see that it is missing?

Each entry says what happens instead, in which plan, and within how many seeds that is noticed: a promise that is
broken, or a cluster that does not come to what it should be. The rules of Raft themselves have a table of their own
(tests/simulator/mutations.py).
"""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import trio

from jetraft.cluster.calls.reconciling import Reconciling
from jetraft.cluster.meta.leader_duties import LeaderDuties
from jetraft.cluster.meta.members.exclusion import Exclusion
from jetraft.cluster.meta.table_lease import TableLease
from jetraft.cluster.requests.in_force import ConfigsInForce
from jetraft.cluster.requests.releases import Releases
from jetraft.cluster.requests.service import ClusterService
from jetraft.cluster.requests.template_publishes import TemplatePublishes
from jetraft.cluster.state.machine import StreamMachine
from jetraft.cluster.streams.mandate import Evidence, Mandate
from jetraft.cluster.streams.replica.host import StreamHost
from jetraft.cluster.streams.replica.replica import StreamReplica
from jetraft.raft import freshness
from jetraft.raft.freshness import ENDLESS_NS, Freshness
from jetraft.raft.recovery.catchup import Catchup
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.port import Entry
from jetraft.store.stream.dedup import Dedup
from tests.doubles.lossy_disk import LossyDisk
from tests.simulator.nodes.run import NodeSimulation, Plan

Patch = pytest.MonkeyPatch
EVERY = 7


@attrs.frozen(kw_only=True)
class NodeMutation:
    """One duty left out: `instead` happens. Noticed in `plan` within `seeds` seeds."""

    duty: str
    instead: str
    switch: Callable[[Patch], None]
    plan: Plan
    seeds: int = 4


def replaced(owner: Any, name: str, value: Any) -> Callable[[Patch], None]:
    """A switch that puts another thing in the place of one."""
    return lambda patch: patch.setattr(owner, name, value)


async def _nothing(*_args: object, **_kwargs: object) -> None:
    """What a duty that is left out does."""


def _nothing_now(*_args: object, **_kwargs: object) -> None:
    """The same, at once."""


SMALL = Plan(kinds=(), has_memory=False)


def plan(*kinds: str, **others: Any) -> Plan:
    """A run with these faults and without a memory stream."""
    return attrs.evolve(SMALL, kinds=kinds, **others)


def _assume(**evidence: bool) -> Callable[[Patch], None]:
    """A switch that takes some of the evidence for serving as given."""
    weigh = Mandate.weigh

    def assuming(self: Mandate, found: Evidence) -> bool:
        return weigh(self, attrs.evolve(found, **evidence))

    return replaced(Mandate, "weigh", assuming)


def _always_fresh(self: Freshness, on_news: Callable[[], None] = lambda: None) -> None:
    _begin(self, on_news)
    self.until_ns = ENDLESS_NS


def _sound_for_ever(patch: Patch) -> None:
    _assume(is_sound=True)(patch)
    patch.setattr(Freshness, "void", _nothing_now)


_begin = Freshness.__init__
READ = Plan(kinds=(), has_memory=False, has_readers=True)

MUTATIONS = [
    NodeMutation(
        duty="reads wait until the replica has had what its leader had committed",
        instead="they are answered from the moment it starts",
        switch=replaced(Freshness, "__init__", _always_fresh),
        plan=attrs.evolve(READ, kinds=("kill", "wipe", "scale"), machines=4, checkpoint_entries=12),
    ),
    NodeMutation(
        duty="reads end some time after contact with the leader",
        instead="a member that was current once stays readable",
        switch=replaced(freshness, "READ_GRACE_NS", ENDLESS_NS // 2),
        plan=attrs.evolve(READ, kinds=("long-cut",), faults_ns=20 * NS_PER_S),
    ),
    NodeMutation(
        duty="reads end with the log",
        instead="a replica that has failed goes on answering",
        switch=_sound_for_ever,
        plan=attrs.evolve(READ, kinds=("full",), is_tight=True),
    ),
    NodeMutation(
        duty="a replica serves by a row that is current",
        instead="it goes by the one that it started with",
        switch=_assume(is_row_current=True),
        plan=attrs.evolve(READ, kinds=("delete-and-restart",), machines=4, checkpoint_entries=1),
    ),
    NodeMutation(
        duty="a template's stream is made before its first message is brought to it",
        instead="it is taken to be there",
        switch=replaced(TemplatePublishes, "_is_made", lambda *_args: True),
        plan=plan("step-down", has_template=True),
    ),
    NodeMutation(
        duty="what is fsynced stays",
        instead="an fsync of a file keeps nothing",
        switch=replaced(LossyDisk, "_do_sync", _nothing_now),
        plan=plan("power-of-some"),
    ),
    NodeMutation(
        duty="data of deleted streams goes",
        instead="what a deletion leaves stays",
        switch=replaced(StreamHost, "discard", _nothing),
        plan=plan("create", "delete"),
    ),
    NodeMutation(
        duty="replicas follow the table",
        instead="a change of members is not passed on to the replica",
        switch=replaced(StreamReplica, "reconfigure", _nothing_now),
        plan=plan("remove-peer", "scale", machines=4),
    ),
    NodeMutation(
        duty="a member behind the log fetches a snapshot",
        instead="offers of snapshots are not heard",
        switch=replaced(Catchup, "_on_offer", _nothing_now),
        plan=plan("power", "kill", checkpoint_entries=4, is_tight=True),
    ),
    NodeMutation(
        duty="a retry finds the first attempt (rule 24)",
        instead="message ids are forgotten at once",
        switch=replaced(Dedup, "check", lambda *_args, **_kwargs: None),
        plan=plan("kill", "partition"),
    ),
    NodeMutation(
        duty="leaving members are reported",
        instead="the meta group never hears that they are out",
        switch=replaced(StreamReplica, "_report_settled", lambda *_: False),
        plan=plan("remove-peer", "scale", machines=4),
    ),
    NodeMutation(
        duty="a stream with one replica is served by the lease of the table (decision 130)",
        instead="the lease never ends",
        switch=replaced(TableLease, "is_held", property(lambda _lease: True)),
        plan=plan("delete-behind-a-cut"),
        seeds=24,
    ),
    NodeMutation(
        duty="a deletion waits for the nodes that act on the row (decision 130)",
        instead="it is answered when it is committed",
        switch=replaced(Releases, "stream_gone", _nothing),
        plan=plan("delete-behind-a-cut"),
        seeds=8,
    ),
    NodeMutation(
        duty="who changes a stream's subjects is answered when they are in force (decision 130)",
        instead="when the change is committed, and no lease ends",
        switch=lambda patch: _answer_at_commit(patch),  # noqa: PLW0108  (it is defined below)
        plan=plan("update-behind-a-cut"),
        seeds=8,
    ),
    NodeMutation(
        duty="a server that was removed while it ran ends its replicas",
        instead="it goes on, and is waited for until its lease is over",
        switch=replaced(Exclusion, "_end_or_rejoin", _nothing),
        plan=plan("remove-server", machines=4),
        seeds=8,
    ),
    NodeMutation(
        duty="replicas of removed servers go to others",
        instead="the meta leader does not look for them",
        switch=replaced(LeaderDuties, "duties", lambda *_args: {}),
        plan=plan("remove-for-good", machines=5, first="remove-for-good"),
    ),
    NodeMutation(
        duty="loops compare, events only wake them (decision 133)",
        instead="a loop looks when it is woken, and at no other time",
        switch=replaced(Reconciling, "run", lambda self: _only_when_woken(self)),  # noqa: PLW0108  (defined below)
        plan=plan("scale", "create", machines=4, first="scale", loses_events=True),
    ),
    NodeMutation(
        duty="replicas apply what is committed in the same way (rule 26)",
        instead="every seventh batch of commands is left out, wherever it comes",
        switch=lambda patch: _skip_some(patch),  # noqa: PLW0108  (it is defined below)
        plan=plan("step-down"),
    ),
]


def _answer_at_commit(patch: Patch) -> None:
    async def no_info(*_args: object) -> dict[str, Any]:
        return {}

    patch.setattr(ClusterService, "info_of", no_info)
    patch.setattr(ConfigsInForce, "let_replicas_follow", _nothing)
    patch.setattr(TableLease, "is_held", property(lambda _lease: True))


async def _only_when_woken(loop: Reconciling) -> None:
    while True:
        await loop._woken.wait()
        loop._woken = trio.Event()
        await loop._look()


def _skip_some(patch: Patch) -> None:
    apply = StreamMachine.apply
    counts = [0]

    def sometimes(self: StreamMachine, entries: Sequence[Entry]) -> list[object]:
        counts[0] += 1
        return [None] * len(entries) if counts[0] % EVERY == 0 else apply(self, entries)

    patch.setattr(StreamMachine, "apply", sometimes)


def first_noticed(mutation: NodeMutation) -> tuple[int, str] | None:
    """The first seed that notices, and what. What goes wrong without the mutation as well is not noticing."""
    for seed in range(mutation.seeds):
        with pytest.MonkeyPatch.context() as patch:
            mutation.switch(patch)
            problem = _problem(seed, mutation.plan)
        if problem is not None and _problem(seed, mutation.plan) is None:
            return seed, problem
    return None


def _problem(seed: int, plan: Plan) -> str | None:
    try:
        return NodeSimulation(seed, plan).run().problem
    except (AssertionError, KeyError, ValueError, IndexError) as error:  # a server's own checks notice, too
        return repr(error)
