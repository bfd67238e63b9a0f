"""Nodes that restart with a table of the past: by its rows nothing is founded, acknowledged, changed or deleted.

After a restart the table is the one of the newest checkpoint of the meta log; what came behind it is learnt from the
meta group's leader. The disks of all nodes are intact, and every node is only stopped and started.
"""

from functools import partial
from pathlib import Path

import pytest
import trio

from jetraft.cluster.requests.inquiries import Inquiries
from jetraft.cluster.state.assignment import StreamAssignment, StreamKey
from jetraft.cluster.upkeep import unproved
from jetraft.raft.group import Group
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.ids import NodeId
from jetraft.store.port import GroupLog
from tests.cluster.inprocess import InProcessCluster, InProcessNode, until

KEY = StreamKey("$G", "S")
FIVE = ("n1", "n2", "n3", "n4", "n5")


class Story:
    """A cluster with one stream, S on `s.>`, and a table that is kept as it is at `remember`."""

    def __init__(self, directory: Path, nursery: trio.Nursery, names: tuple[str, ...]) -> None:
        self.directory = directory
        self.names = names
        self.cluster = InProcessCluster(directory, nursery)

    async def begin(self, *, replicas: int, **config: object) -> StreamAssignment:
        await self.cluster.start(*self.names, expected=len(self.names))
        await self.cluster.meta_leader()
        await self.create(replicas=replicas, **config)
        await until(lambda: all(self.row_at(node) is not None for node in self.cluster.running))
        return self.row()

    async def create(self, *, replicas: int, **config: object) -> None:
        node = self.cluster.running[0]
        made = await node.ask("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "num_replicas": replicas} | config)
        assert "error" not in made, made

    async def change(self, *, replicas: int, **config: object) -> None:
        node = self.cluster.running[0]
        made = await node.ask("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "num_replicas": replicas} | config)
        assert "error" not in made, made

    async def remember(self) -> None:
        """What 50,000 entries or 32 MiB of the meta log do by themselves. Durable when this returns."""
        for node in self.cluster.running:
            group = node.node.meta_group
            assert group is not None
            group.checkpoint()
            token, log = group.log.token(), group.log
            await until(partial(_is_durable, log, token))

    @staticmethod
    def row_at(node: InProcessNode) -> StreamAssignment | None:
        return node.node.machine.table.get(KEY)

    def row(self) -> StreamAssignment:
        found = self.row_at(self.cluster.running[0])
        assert found is not None
        return found

    def rows(self) -> list[StreamAssignment]:
        return [row for node in self.cluster.running if (row := self.row_at(node)) is not None]

    def named(self, node_id: str) -> str:
        return next(name for name in self.names if self.cluster[name].mesh.node_id == node_id)

    async def settled(self, count: int) -> None:
        """All tables say that the stream has so many replicas and that nobody is on the way out."""

        def is_settled(node: InProcessNode) -> bool:
            row = self.row_at(node)
            return row is not None and len(row.peers) == count and not row.leaving

        await until(lambda: all(map(is_settled, self.cluster.running)))

    def holds_data(self, name: str) -> bool:
        return any(path.name.startswith("S-") for path in (self.directory / name / "groups").iterdir())

    async def stop_all(self) -> None:
        for node in self.cluster.running:
            await self.cluster.stop(node)

    async def restart(self, *names: str) -> None:
        for name in names:
            await self.cluster.start(name, expected=len(self.names))

    def waits(self, name: str) -> bool:
        """The node knows of a replica that it may not begin."""
        return "has not confirmed" in self.cluster[name].node.backend.statistics().failed.get(KEY, "")

    def led_by(self) -> InProcessNode | None:
        for node in self.cluster.running:
            replica = node.node.directory.get(KEY)
            if replica is not None and replica.is_leader:
                return node
        return None

    async def publish(self, count: int) -> None:
        await until(lambda: self._taker() is not None)
        node = self._taker()
        assert node is not None
        for _ in range(count):
            assert (await node._request(b"s.x", b"precious")).startswith(b'{"stream":"S"')

    def _taker(self) -> InProcessNode | None:
        """The leader, when it takes publishes: one that was asked to lead first fetches what the one before holds."""
        node = self.led_by()
        return node if node is not None and self.takes_publishes(node.name) else None

    def messages(self) -> int:
        node = self.led_by()
        assert node is not None
        replica = node.node.directory.get(KEY)
        assert replica is not None
        return replica.machine.store.state.messages

    def takes_publishes(self, name: str) -> bool:
        return any(subject == b"s.>" for subject, _ in self.cluster[name].outbox._sinks.values())


async def test_a_majority_of_those_that_a_stream_has_left_do_not_found_it_again(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        story = Story(tmp_path, nursery, FIVE)
        row = await story.begin(replicas=3)
        await story.remember()
        await story.change(replicas=1)
        await story.settled(1)
        left = [story.named(peer) for peer in row.peers if peer not in story.row().peers]
        await until(lambda: not any(map(story.holds_data, left)))
        await story.stop_all()

        await story.restart(*left)
        await until(lambda: all(map(story.waits, left)))
        assert not any(map(story.holds_data, left))
        assert not any(map(story.takes_publishes, left))

        await story.restart(*(name for name in FIVE if name not in left))
        await story.publish(3)
        assert story.named(story.row().peers[0]) not in left
        await until(lambda: not any(story.waits(name) for name in FIVE))
        assert not any(map(story.holds_data, left))
        nursery.cancel_scope.cancel()


async def test_the_only_node_that_a_stream_began_on_does_not_found_it_again(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        story = Story(tmp_path, nursery, FIVE)
        first = story.named((await story.begin(replicas=1)).peers[0])
        await story.remember()
        await story.change(replicas=3)
        await story.settled(3)
        removed = await story.cluster["n1"].ask("STREAM.PEER.REMOVE.S", {"peer": first})
        assert "error" not in removed
        await until(lambda: story.cluster[first].mesh.node_id not in story.row().peers)
        await story.settled(3)
        await until(lambda: not story.holds_data(first))
        await story.stop_all()

        await story.restart(first)
        await until(lambda: story.waits(first))
        assert not story.takes_publishes(first)
        assert not story.holds_data(first)
        nursery.cancel_scope.cancel()


async def test_the_data_of_a_stream_that_was_created_again_elsewhere_takes_no_publishes(tmp_path: Path) -> None:
    """Its group is this node's alone, by its own log, and elects; but its row may be of the past, and is."""
    async with trio.open_nursery() as nursery:
        story = Story(tmp_path, nursery, ("n1", "n2", "n3"))
        old = await story.begin(replicas=1)
        first = story.named(old.peers[0])
        await story.publish(3)
        await story.remember()
        await story.cluster.stop(story.cluster[first])
        await story.cluster.meta_leader()
        assert (await story.cluster.running[0].ask("STREAM.DELETE.S"))["success"] is True
        await story.create(replicas=1)
        await story.stop_all()

        await story.restart(first)

        def leads_its_group() -> bool:
            replica = story.cluster[first].node.directory.get(KEY)
            return replica is not None and replica.group.is_leader

        await until(leads_its_group)
        assert not story.takes_publishes(first)
        assert story.led_by() is None

        await story.restart(*(name for name in story.names if name != first))
        await story.publish(1)
        assert story.messages() == 1
        await until(lambda: not story.holds_data(first))
        nursery.cancel_scope.cancel()


async def test_a_move_that_its_first_node_has_begun_is_not_undone_by_that_node_alone(tmp_path: Path) -> None:
    """Who moves a stream makes the other one a voter: then its own log says that it is no majority any more."""
    async with trio.open_nursery() as nursery:
        story = Story(tmp_path, nursery, ("n1", "n2", "n3"))
        old = (await story.begin(replicas=1)).peers[0]
        first = story.named(old)
        await story.publish(3)
        await story.remember()
        removed = await story.cluster["n1"].ask("STREAM.PEER.REMOVE.S", {"peer": first})
        assert "error" not in removed
        await until(lambda: len(voters_at(story.cluster[first])) == 2)
        await story.cluster.stop(story.cluster[first])
        await story.stop_all()

        await story.restart(first)
        await until(lambda: len(voters_at(story.cluster[first])) == 2)
        assert not story.takes_publishes(first)
        await story.restart(*(name for name in story.names if name != first))
        await until(lambda: any(old not in row.peers for row in story.rows()))
        await story.settled(1)
        await until(lambda: story.led_by() is not None and story.led_by() is not story.cluster[first])
        await story.publish(2)
        assert story.messages() == 5
        nursery.cancel_scope.cancel()


def _is_durable(log: GroupLog, token: int) -> bool:
    return log.durable_token >= token


def voters_at(node: InProcessNode) -> tuple[str, ...]:
    """Of the stream's group as this node knows it, durably."""
    replica = node.node.directory.get(KEY)
    if replica is None or replica.group.log.durable_index < replica.group.log.last_index:
        return ()
    return replica.group.configuration.voters


async def test_limits_of_the_past_delete_nothing_when_a_cluster_is_restarted(tmp_path: Path) -> None:
    """The leader puts the config of its row into force: where that is of the past, messages of today are too many."""
    async with trio.open_nursery() as nursery:
        story = Story(tmp_path, nursery, ("n1", "n2", "n3"))
        await story.begin(replicas=1, max_msgs=5)
        await story.remember()
        await story.change(replicas=1, max_msgs=100)
        await story.publish(30)
        assert story.messages() == 30
        await story.stop_all()
        await story.restart(*story.names)
        await story.publish(1)
        assert story.messages() == 31
        nursery.cancel_scope.cancel()


async def test_a_node_that_nobody_confirms_does_not_keep_a_stream_from_being_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is elected as ever, and the others see a leader that is alive: it has to hand over by itself."""
    asked = Inquiries.committed_index
    unheard = set[NodeId]()

    async def committed_index(inquiries: Inquiries) -> int | None:
        return None if inquiries._node_id in unheard else await asked(inquiries)

    monkeypatch.setattr(Inquiries, "committed_index", committed_index)
    monkeypatch.setattr(unproved, "PATIENCE_NS", NS_PER_S // 2)
    async with trio.open_nursery() as nursery:
        story = Story(tmp_path, nursery, FIVE[:3])
        await story.begin(replicas=3)
        await story.publish(3)
        unheard.add(story.cluster["n1"].mesh.node_id)
        await story.cluster.stop(story.cluster["n1"])
        await story.restart("n1")
        first = story.cluster["n1"]
        await until(lambda: first.node.directory.get(KEY) is not None)
        replica = first.node.directory.get(KEY)
        assert replica is not None
        await until(lambda: _takes_over(story, replica.group))
        assert not replica.is_leader, "it serves nothing"
        await until(lambda: story.led_by() is not None)
        await story.publish(3)
        assert story.messages() == 6
        nursery.cancel_scope.cancel()


def _takes_over(story: Story, group: Group) -> bool:
    """Have the group led by this member; whether it is."""
    led = story.led_by()
    found = None if led is None else led.node.directory.get(KEY)
    if found is not None:
        found.transfer_leadership(group.node_id)
    return group.is_leader
