"""What may come between a fetch and its end: other offers, other leaders, the end of the group.

There is one node here; its peers are played.
"""

from collections.abc import Sequence
from random import Random

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.messages import Append, SnapshotOffer
from jetraft.raft.engine.port import Proposal
from jetraft.raft.group import Group
from jetraft.raft.group_spec import GroupSetting, GroupSpec
from jetraft.raft.manager import Manager
from jetraft.raft.mesh.rpc import Handler, PeerUnavailableError
from jetraft.raft.recovery.catchup import LEASE_NS, METHOD, Catchup
from jetraft.raft.recovery.snapshot import CHUNK, OPEN, STATE, SnapshotFetch, SnapshotRequest, answer
from jetraft.raft.recovery.swap import Swap
from jetraft.raft.wire import encode
from jetraft.store.frames._frame import seal
from jetraft.store.frames.format import Kind
from jetraft.store.log.mem_log import MemLog
from jetraft.store.model.clock import ManualClock
from jetraft.store.model.files.manifest import Manifest
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Checkpoint, Entry, GroupLog
from tests.harness.patience import PATIENCE_S
from tests.raft.lab import Lab, ListMachine
from tests.raft.recovery.test_snapshot import GROUP, messages
from tests.raft.rig import INCARNATION

OWN, OLD_LEADER, NEW_LEADER = NodeId("node0001"), NodeId("node0002"), NodeId("node0003")
MEMBERS = (OWN, OLD_LEADER, NEW_LEADER)
PACKED = Configuration(voters=MEMBERS).encode()


def source(count: int, members: bytes = PACKED) -> tuple[MemLog, Manifest, Checkpoint]:
    log = MemLog(block_bytes=1000)
    log.append(messages(count))
    log.save_checkpoint(count, 1, members, ListMachine().snapshot())
    log.submit()
    found = log.manifest(1)
    assert found is not None
    return log, *found


@attrs.define
class PlayedPeers:
    """Answers from a log while `is_open`; `asked` are the requests."""

    log: MemLog
    manifest: Manifest
    checkpoint: Checkpoint
    is_open: bool = True
    breaks_at: str = ""
    asked: list[tuple[NodeId, SnapshotRequest]] = attrs.Factory(list)
    handler: Handler | None = None
    opened: trio.Event = attrs.Factory(trio.Event)

    def serve(self, method: str, handler: Handler) -> None:
        assert method == METHOD
        self.handler = handler

    async def call(self, to: NodeId, method: str, payload: bytes, *, timeout_s: float, bulk: bool = False) -> bytes:
        del method, timeout_s, bulk
        request = SnapshotRequest.unpack(payload)
        self.asked.append((to, request))
        if request.what == self.breaks_at:
            raise PeerUnavailableError("the link broke")
        if not self.is_open:
            await self.opened.wait()
        return answer(self.log, self.manifest, self.checkpoint, request)


class Node:
    """The manager of OWN, one replica that is behind, and its catching up.

    The owner is busy until `is_free`; between the end of the replica and the installation it waits for `may_install`.
    """

    def __init__(self, peers: PlayedPeers) -> None:
        lab = Lab(nodes=(OWN,))
        self.peers = peers
        setting = GroupSetting(node_id=OWN, seal=seal, rng=Random(1))
        self.manager = Manager(setting, links=lab.links[OWN], clock=ManualClock())
        self.catchup = Catchup(self.manager, peers, clock=ManualClock(), reopen=self._reopen)
        self.is_free, self.may_install = trio.Event(), trio.Event()
        self.is_free.set()
        self.may_install.set()
        self.reopenings = 0
        self.installed = trio.Event()
        self.group = self.start_group(MemLog())

    def start_group(self, log: GroupLog) -> Group:
        spec = GroupSpec(group_id=GROUP, incarnation=INCARNATION, members=MEMBERS)
        self.group = self.manager.create(spec, log, ListMachine())
        return self.group

    async def _reopen(self, swap: Swap) -> None:
        self.reopenings += 1
        await self.is_free.wait()
        swap.check(self.manager.groups.get(GROUP))
        self.manager.remove(GROUP)
        await self.may_install.wait()
        self.start_group(await swap.carry_out())
        self.installed.set()

    def append(self, entries: Sequence[Entry]) -> None:
        """A leader that has the whole log sends these entries, which nobody has committed yet."""
        append = Append(term=3, prev_index=0, prev_term=0, commit_index=0, entries=entries)
        self.manager._on_payload(NEW_LEADER, memoryview(b"".join(encode(GROUP.encode(), INCARNATION, append))))
        self.manager.flush()

    def offer(self, sender: NodeId, *, term: int) -> None:
        """A leader's frame arrives, and the turn ends."""
        index = self.peers.checkpoint.index
        offered = SnapshotOffer(term=term, index=index, index_term=1, members=PACKED)
        payload = b"".join(encode(GROUP.encode(), INCARNATION, offered))
        self.manager._on_payload(sender, memoryview(payload))
        self.manager.flush()

    async def has_installed(self) -> None:
        """The thread that replaces the log is done, and the fetch has ended."""
        with trio.fail_after(PATIENCE_S):
            await self.installed.wait()
        await wait_all_tasks_blocked()


@pytest.fixture
def node() -> Node:
    return Node(PlayedPeers(*source(60)))


async def test_an_offer_during_a_fetch_begins_no_other_one(node: Node, nursery: trio.Nursery) -> None:
    await nursery.start(node.catchup.run)
    node.peers.is_open = False
    node.offer(OLD_LEADER, term=2)
    await wait_all_tasks_blocked()
    node.offer(OLD_LEADER, term=2)
    node.offer(NEW_LEADER, term=3)
    await wait_all_tasks_blocked()
    assert [to for to, _ in node.peers.asked] == [OLD_LEADER]
    node.peers.is_open = True
    node.peers.opened.set()
    await node.has_installed()
    assert {to for to, _ in node.peers.asked} == {OLD_LEADER}
    assert node.group.log.last_index == 60
    assert node.catchup.statistics().fetches_done == 1


async def test_an_offer_during_the_installation_begins_no_fetch(node: Node, nursery: trio.Nursery) -> None:
    """The directory in which the next fetch would gather is the one that is being installed."""
    await nursery.start(node.catchup.run)
    node.may_install = trio.Event()
    old = node.group
    node.offer(OLD_LEADER, term=2)
    await wait_all_tasks_blocked()
    assert node.reopenings == 1
    asked = len(node.peers.asked)
    node.offer(NEW_LEADER, term=3)
    node.catchup._on_offer(old, NEW_LEADER, SnapshotOffer(term=3, index=60, index_term=1, members=PACKED))
    await wait_all_tasks_blocked()
    assert len(node.peers.asked) == asked
    node.may_install.set()
    await node.has_installed()
    assert node.group is not old
    assert node.group.log.last_index == 60
    assert node.catchup.statistics().fetches_running == 0


async def test_a_group_that_comes_further_while_its_owner_is_busy_keeps_its_log(
    node: Node, nursery: trio.Nursery
) -> None:
    """What it acknowledged meanwhile is nowhere else on this node (rules 35 and 37)."""
    await nursery.start(node.catchup.run)
    node.is_free = trio.Event()
    old = node.group
    node.offer(OLD_LEADER, term=2)
    await wait_all_tasks_blocked()
    assert node.reopenings == 1
    node.append(messages(65))
    node.is_free.set()
    await wait_all_tasks_blocked()
    assert node.group is old
    assert old.failed is None
    assert old.log.last_index == 65
    assert node.catchup.statistics().fetches_failed == 1


async def test_a_log_that_came_further_before_it_stopped_is_started_again_as_it_is(
    node: Node, nursery: trio.Nursery
) -> None:
    """The last question is asked of the stopped log: whoever decided before may have been wrong."""
    await nursery.start(node.catchup.run)
    node.may_install = trio.Event()
    log = node.group.log
    node.offer(OLD_LEADER, term=2)
    await wait_all_tasks_blocked()
    log.append(messages(65))
    log.submit()
    node.may_install.set()
    await node.has_installed()
    assert node.group.log is log
    assert log.last_index == 65
    assert node.catchup.statistics().fetches_failed == 1


async def test_an_offer_that_the_last_frames_of_a_group_brought_is_not_taken(node: Node, nursery: trio.Nursery) -> None:
    """The group is removed before the end of the turn."""
    await nursery.start(node.catchup.run)
    offered = SnapshotOffer(term=2, index=60, index_term=1, members=PACKED)
    node.group.step(OLD_LEADER, offered, 0)
    node.manager.remove(GROUP)
    await wait_all_tasks_blocked()
    assert not node.peers.asked


async def test_a_group_that_is_closed_during_a_fetch_is_not_installed(node: Node, nursery: trio.Nursery) -> None:
    await nursery.start(node.catchup.run)
    node.peers.is_open = False
    node.offer(OLD_LEADER, term=2)
    await wait_all_tasks_blocked()
    node.manager.remove(GROUP)
    node.peers.opened.set()
    await wait_all_tasks_blocked()
    assert node.reopenings == 0
    assert len(node.peers.asked) == 1
    assert node.catchup.statistics().fetches_failed == 1
    assert node.catchup.statistics().fetches_running == 0


async def test_an_interrupted_fetch_goes_on_over_the_same_log_only(node: Node, nursery: trio.Nursery) -> None:
    """A log that was opened again meanwhile has thrown away what was gathered beside it."""
    await nursery.start(node.catchup.run)
    node.peers.breaks_at = CHUNK
    node.offer(OLD_LEADER, term=2)
    await wait_all_tasks_blocked()
    node.offer(OLD_LEADER, term=2)
    await wait_all_tasks_blocked()
    asked = [request.what for _, request in node.peers.asked]
    assert asked == [OPEN, STATE, CHUNK, OPEN, CHUNK], "it went on where it was"
    node.manager.remove(GROUP)
    node.start_group(MemLog())
    node.peers.breaks_at = ""
    node.offer(OLD_LEADER, term=2)
    await node.has_installed()
    assert [request.what for _, request in node.peers.asked][len(asked) :][:2] == [OPEN, STATE]
    assert node.group.log.last_index == 60


async def test_what_was_fetched_for_a_deleted_group_is_dropped(node: Node, nursery: trio.Nursery) -> None:
    await nursery.start(node.catchup.run)
    node.peers.breaks_at = CHUNK
    node.offer(OLD_LEADER, term=2)
    await wait_all_tasks_blocked()
    node.manager.remove(GROUP)
    assert GROUP in node.catchup._fetches
    spec = GroupSpec(group_id=type(GROUP)("S-R3F-another1"), incarnation=8, members=MEMBERS)
    other = node.manager.create(spec, MemLog(), ListMachine())
    node.catchup._on_offer(other, OLD_LEADER, SnapshotOffer(term=2, index=60, index_term=1, members=PACKED))
    await wait_all_tasks_blocked()
    assert GROUP not in node.catchup._fetches


async def never(swap: Swap) -> None:
    del swap
    raise AssertionError("nothing is installed here")


async def test_what_is_being_fetched_stays_until_nobody_asks_for_it_any_more() -> None:
    """Rule 36."""
    lab = Lab(nodes=(OWN,))
    manager = lab.managers[OWN]
    alone = Configuration(voters=(OWN,)).encode()
    log, manifest, checkpoint = source(60, alone)
    peers = PlayedPeers(log, manifest, checkpoint)
    Catchup(manager, peers, clock=lab.clock, reopen=never)
    spec = GroupSpec(group_id=GROUP, incarnation=INCARNATION, members=(OWN,))
    machine = ListMachine()
    group = manager.create(spec, log, machine)
    lab.settle()
    assert group.is_leader
    fetch = SnapshotFetch(
        group_id=GROUP,
        incarnation=INCARNATION,
        sender=OWN,
        offer=SnapshotOffer(term=1, index=60, index_term=1, members=alone),
        members=alone,
        log=MemLog(),
    )
    first = fetch.next_request()
    assert first is not None
    assert peers.handler is not None
    fetch.received(await peers.handler(NEW_LEADER, first.pack()))

    group.checkpoint()
    lab.settle()
    assert group.log.first_index == 1
    assert group.change_blocks(lambda: 1) == 0
    while (request := fetch.next_request()) is not None:
        fetch.received(await peers.handler(NEW_LEADER, request.pack()))
    assert fetch.staging is not None
    assert fetch.staging.finish().last_index == 60

    lab.clock.advance(LEASE_NS + 1)
    group.propose(Proposal(kind=Kind.META, body=b"one more"))
    lab.settle()
    group.checkpoint()
    lab.settle()
    assert group.log.first_index > manifest.parts[0].last_index
    assert group.change_blocks(lambda: 1) == 1
