"""A replica that has silently gone wrong is found by comparing, and holds what the others hold afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from jetraft.cluster.state import commands
from jetraft.cluster.state.assignment import StreamKey
from jetraft.cluster.state.digest import digests_of
from jetraft.store.frames._frame import crc32c, parse_header
from jetraft.store.frames.format import FRAME_CRC_AT, FRAME_CRC_FROM, Kind
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.mem_log import MemLog
from jetraft.store.stream.chain import Chain
from tests.cluster.inprocess import InProcessCluster, InProcessNode, until
from tests.harness.log_lines import kinds_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import trio

    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.cluster.upkeep.comparer import Comparer

KEY = StreamKey("$G", "S")
COUNT = 40
EVERYTHING = commands.Digest(1, COUNT, "", 10)


@pytest.fixture
def cluster(tmp_path: Path, nursery: trio.Nursery) -> InProcessCluster:
    return InProcessCluster(tmp_path, nursery)


def replica(node: InProcessNode) -> StreamReplica:
    found = node.node.directory.get(KEY)
    assert found is not None
    return found


def comparer(node: InProcessNode) -> Comparer:
    assert node.node.supervisor.comparer is not None
    return node.node.supervisor.comparer


def digest(node: InProcessNode) -> object:
    found = node.node.directory.get(KEY)
    return None if found is None or found.group.failed else digests_of(found.machine, EVERYTHING)


async def started(cluster: InProcessCluster, storage: str = "file", **fields: Any) -> InProcessNode:
    """Three nodes with the stream S: messages, and a consumer in the middle of them. Returns its leader."""
    await cluster.start("n1", "n2", "n3")
    await cluster.meta_leader()
    config = {"name": "S", "subjects": ["s.>"], "num_replicas": 3, "storage": storage, **fields}
    assert "error" not in await cluster["n1"].ask("STREAM.CREATE.S", config)
    consumer = {"stream_name": "S", "config": {"durable_name": "d", "ack_policy": "explicit"}}
    assert "error" not in await cluster["n1"].ask("CONSUMER.CREATE.S.d", consumer)
    await until(lambda: any(map(leads, cluster.running)))
    leader = next(filter(leads, cluster.running))
    for number in range(1, COUNT + 1):
        leader.outbox.publish(b"s.a", b"", b"message %d" % number)
    await settled(cluster)
    return leader


def leads(node: InProcessNode) -> bool:
    found = node.node.directory.get(KEY)
    return found is not None and found.is_leader


async def settled(cluster: InProcessCluster) -> None:
    """Wait until all replicas have everything, and the same."""
    await until(lambda: all(holds_all(node) for node in cluster.running))
    await until(lambda: len({digest(node) for node in cluster.running}) == 1)


def holds_all(node: InProcessNode) -> bool:
    found = node.node.directory.get(KEY)
    return found is not None and found.group.failed is None and found.machine.last_seq == COUNT


def total(cluster: InProcessCluster, figure: str) -> int:
    return sum(getattr(comparer(node).statistics(), figure) for node in cluster.running)


async def compare(cluster: InProcessCluster) -> None:
    for node in cluster.running:
        await comparer(node).compare_all()


def followers(cluster: InProcessCluster, leader: InProcessNode) -> list[InProcessNode]:
    return [node for node in cluster.running if node is not leader]


async def test_replicas_that_are_equal_are_found_equal(cluster: InProcessCluster) -> None:
    await started(cluster)
    await compare(cluster)
    assert total(cluster, "slices") >= 1
    assert total(cluster, "differing") == total(cluster, "undecided") == 0


def forge(node: InProcessNode, old: bytes, new: bytes) -> None:
    """Change a message in the block file, with a checksum that is right again; and in memory, as after a restart."""
    log = replica(node).group.log
    assert isinstance(log, FileLog)
    place = next(ref for ref, entry in log.frames(1, log.last_index) if old in entry.frame)
    frame = log.frame_at(place.block, place.offset)
    changed = bytearray(frame.replace(old, new))
    assert len(changed) == parse_header(frame).length
    changed[FRAME_CRC_AT:FRAME_CRC_FROM] = crc32c(memoryview(changed)[FRAME_CRC_FROM:]).to_bytes(4, "little")
    path = next(path for path in log.place.log.iterdir() if frame in path.read_bytes())
    data = path.read_bytes()
    path.write_bytes(data.replace(frame, bytes(changed)))
    reader = log._reader
    reader.cache.replace((reader._log, place.block, place.offset), bytes(changed))
    replica(node).machine.store.records.forget()


@pytest.mark.parametrize("whose", ["a follower's", "the leader's"])
async def test_a_message_changed_under_a_right_checksum_is_fetched_anew(cluster: InProcessCluster, whose: str) -> None:
    leader = await started(cluster)
    wrong = leader if whose == "the leader's" else followers(cluster, leader)[0]
    right = digest(followers(cluster, leader)[1])
    forge(wrong, b"message 17", b"massage 17")
    assert digest(wrong) != right
    await compare(cluster)
    assert total(cluster, "frames_disowned") == 1
    await settled(cluster)
    assert digest(wrong) == right


def lose_a_message(found: StreamReplica) -> None:
    found.machine.store.remove([7])


def bend_a_consumer(found: StreamReplica) -> None:
    found.machine.consumers["d"].delivered_consumer += 5


def forget_a_consumer(found: StreamReplica) -> None:
    del found.machine.consumers["d"]


@pytest.mark.parametrize("bend", [lose_a_message, bend_a_consumer, forget_a_consumer])
async def test_state_that_was_bent_is_taken_over_from_a_majority(
    cluster: InProcessCluster, bend: Callable[[StreamReplica], None]
) -> None:
    leader = await started(cluster)
    wrong, good = followers(cluster, leader)
    bend(replica(wrong))
    assert digest(wrong) != digest(good)
    await compare(cluster)
    assert total(cluster, "states_replaced") == 1
    await settled(cluster)


async def test_a_chain_that_was_bent_is_taken_over_from_a_majority(cluster: InProcessCluster) -> None:
    leader = await started(cluster, metadata={"jetraft.chain": "sha256"}, deny_delete=True, deny_purge=True)
    wrong, good = followers(cluster, leader)
    replica(wrong).machine.chain = Chain()
    await compare(cluster)
    assert total(cluster, "states_replaced") == 1
    await settled(cluster)
    assert head(wrong) == head(good) == head(leader)


async def test_a_replica_that_was_forged_while_it_was_down_has_the_head_of_the_others_again(
    cluster: InProcessCluster,
) -> None:
    """Its chain is made again from what was forged: first its messages are put right, then its state."""
    leader = await started(cluster, metadata={"jetraft.chain": "sha256"}, deny_delete=True, deny_purge=True)
    wrong, good = followers(cluster, leader)
    forge(wrong, b"message 17", b"massage 17")
    bent = Chain()
    log = replica(wrong).group.log
    for _, entry in log.frames(1, log.last_index):
        if entry.kind == Kind.MESSAGES:
            bent.tree.append(entry.frame.replace(b"message 17", b"massage 17"))
    replica(wrong).machine.chain = bent
    assert head(wrong) != head(good)
    for _ in range(2):
        await compare(cluster)
        await settled(cluster)
    assert head(wrong) == head(good) == head(leader)


def head(node: InProcessNode) -> tuple[int, bytes]:
    chain = replica(node).machine.chain
    assert chain is not None
    assert chain.size == COUNT
    return chain.size, chain.tree.root()


async def test_without_a_majority_nobody_is_believed(cluster: InProcessCluster) -> None:
    leader = await started(cluster)
    first, second = followers(cluster, leader)
    lose_a_message(replica(first))
    bend_a_consumer(replica(second))
    before: list[Any] = [digest(node) for node in cluster.running]
    await compare(cluster)
    assert total(cluster, "undecided") == 1
    assert [digest(node) for node in cluster.running] == before


def forge_in_memory(found: StreamReplica) -> None:
    """What no checksum is looked at for: memory that has changed."""
    log = found.group.log
    assert isinstance(log, MemLog)
    for entries in log._frames.values():
        for number, entry in enumerate(entries):
            entries[number] = attrs.evolve(entry, frame=entry.frame.replace(b"message 17", b"massage 17"))
    found.machine.store.records.forget()


@pytest.mark.parametrize("whose", ["a follower's", "the leader's"])
@pytest.mark.parametrize("bend", [forge_in_memory, lose_a_message, forget_a_consumer])
async def test_a_replica_in_memory_that_differs_is_filled_anew(
    cluster: InProcessCluster, bend: Callable[[StreamReplica], None], whose: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    leader = await started(cluster, "memory")
    wrong = leader if whose == "the leader's" else followers(cluster, leader)[0]
    right, before = digest(followers(cluster, leader)[1]), replica(wrong)
    bend(before)
    assert digest(wrong) != right

    await compare(cluster)

    assert total(cluster, "given_up") == 1
    await until(lambda: wrong.node.directory.get(KEY) not in {before, None})
    await settled(cluster)
    assert digest(wrong) == right
    await until(lambda: all(len(replica(node).group.configuration.voters) == 3 for node in cluster.running))
    leading = next(filter(leads, cluster.running))
    leading.outbox.publish(b"s.a", b"", b"one more")
    await until(lambda: all(replica(node).machine.last_seq == COUNT + 1 for node in cluster.running))
    assert {"replica_differs", "replica_discarded"} <= kinds_in(caplog)
