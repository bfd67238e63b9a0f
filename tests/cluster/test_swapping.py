"""A fetched snapshot whose installation has to wait: what the replica acknowledges meanwhile stays. Crashes only."""

from pathlib import Path

import pytest
import trio

from jetraft.cluster.meta.backend import MetaBackend
from jetraft.cluster.state.assignment import StreamKey
from jetraft.cluster.streams.replica.replica import StreamReplica
from jetraft.raft.recovery.swap import Swap
from tests.cluster.inprocess import InProcessCluster, InProcessNode, until

KEY = StreamKey("$G", "S")
ROUND, KEPT = 12, 3
PAYLOAD = b"z" * (64 << 10)  # a few rounds fill several blocks


def replica(node: InProcessNode) -> StreamReplica:
    found = node.node.directory.get(KEY)
    assert found is not None
    return found


def leads(node: InProcessNode) -> bool:
    found = node.node.directory.get(KEY)
    return found is not None and found.is_leader


class BusyOwner:
    """The owner of the replicas of one node comes to an installation when it `is_free`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.busy: MetaBackend[StreamReplica] | None = None
        self.asked, self.is_free = trio.Event(), trio.Event()
        reopen = MetaBackend.reopen

        async def later(backend: MetaBackend[StreamReplica], swap: Swap) -> None:
            if backend is self.busy:
                self.asked.set()
                await self.is_free.wait()
            await reopen(backend, swap)

        patch.setattr(MetaBackend, "reopen", later)


async def test_a_snapshot_does_not_take_the_place_of_a_log_that_has_gone_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = BusyOwner(monkeypatch)
    async with trio.open_nursery() as nursery:
        cluster = InProcessCluster(tmp_path, nursery)
        await cluster.start("n1", "n2", "n3")
        await cluster.meta_leader()
        made = await cluster["n1"].ask("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "num_replicas": 3})
        assert "error" not in made
        await until(lambda: any(map(leads, cluster.running)))
        one = next(filter(leads, cluster.running))
        late, two = (node for node in cluster.running if node is not one)
        await one._request(b"s.x", b"early")
        await cluster.stop(late)
        for _ in range(3):  # the leader trims after each purge; the other has everything
            for _ in range(ROUND):
                await one._request(b"s.x", PAYLOAD)
            assert (await one.ask("STREAM.PURGE.S", {"keep": KEPT}))["success"] is True

        await cluster.start(late.name)
        late = cluster[late.name]
        owner.busy = late.node.backend
        await owner.asked.wait()

        await cluster.stop(one)
        await until(lambda: leads(two))
        acknowledged = [await two._request(b"s.x", b"precious %d" % number) for number in range(5)]
        assert all(answer.startswith(b'{"stream":"S"') for answer in acknowledged)
        come_to = replica(late).group.log.durable_index
        await cluster.stop(two)
        owner.is_free.set()
        await until(lambda: late.node.catchup is not None and late.node.catchup.statistics().fetches_running == 0)
        assert replica(late).group.log.durable_index >= come_to

        await cluster.start(one.name)  # with the late one it is a majority
        await until(lambda: any(map(leads, cluster.running)))
        store = replica(next(filter(leads, cluster.running))).machine.store
        found = [message.payload for message in store.load_many(range(store.first_seq, store.last_seq + 1))]
        assert found[-5:] == [b"precious %d" % number for number in range(5)]
        nursery.cancel_scope.cancel()
