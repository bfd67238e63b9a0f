"""The meta group's members are those of its log, not those that founded it; and it keeps a majority of them."""

from contextlib import suppress
from pathlib import Path

import pytest
import trio

from jetraft.cluster.calls.forward import AnswerLost, Moved
from jetraft.store.frames.format import BLOCK_HEAD_BYTES
from jetraft.store.model.errors import ApiError
from tests.cluster.inprocess import InProcessCluster, InProcessNode, until


def voters_at(node: InProcessNode) -> int:
    group = node.node.meta_group
    return 0 if group is None else len(group.configuration.voters)


async def remove(cluster: InProcessCluster, node: InProcessNode) -> None:
    """Take a stopped node out of the meta group, for good."""
    done = False
    while not done:
        leader = await cluster.meta_leader()
        with suppress(Moved, AnswerLost, ApiError):
            await leader.node.parts.leader_duties.remove(node.mesh.node_id)
            done = True


def flip_a_bit(directory: Path) -> None:
    """In the first entries of the meta log."""
    block = min(directory.rglob("meta.*/log-*/*.blk"))
    data = bytearray(block.read_bytes())
    data[BLOCK_HEAD_BYTES + 200] ^= 1
    block.write_bytes(data)


async def test_a_damaged_meta_log_is_repaired_when_all_other_founders_are_gone(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        cluster = InProcessCluster(tmp_path, nursery)
        await cluster.start("n1", "n2", "n3")
        await cluster.meta_leader()
        for number in range(4):
            config = {"name": f"S{number}", "subjects": [f"s{number}"], "num_replicas": 1}
            assert "error" not in await cluster["n1"].ask(f"STREAM.CREATE.S{number}", config)
        await cluster.start("n4", "n5")
        await until(lambda: all(voters_at(node) == 5 for node in cluster.running))
        for name in ("n1", "n2"):
            await cluster.stop(cluster[name])
            with trio.fail_after(60):
                await remove(cluster, cluster[name])
        await until(lambda: all(voters_at(node) == 3 for node in cluster.running))
        await cluster.stop(cluster["n3"])
        flip_a_bit(tmp_path / "n3")

        with trio.fail_after(60):
            await cluster.start("n3")
        await until(lambda: cluster["n3"].node.parts.currency.is_proved)
        assert cluster["n3"].node.parts.repairs.statistics().entries_repaired > 0
        nursery.cancel_scope.cancel()


async def test_a_node_is_not_removed_when_the_meta_group_would_lose_its_majority(tmp_path: Path) -> None:
    """Rule 32. With one away two are a majority; one of them and who is away would be none, and take nothing back."""
    async with trio.open_nursery() as nursery:
        cluster = InProcessCluster(tmp_path, nursery)
        await cluster.start("n1", "n2", "n3")
        leader = await cluster.meta_leader()
        away, here = (node for node in cluster.running if node is not leader)
        await cluster.stop(away)
        await until(lambda: not leader.mesh.is_up(away.mesh.node_id))
        leader = await cluster.meta_leader()
        here = next(node for node in cluster.running if node is not leader)
        with pytest.raises(ApiError) as refused:
            await leader.node.parts.leader_duties.remove(here.mesh.node_id)
        assert refused.value.err_code == 10008
        assert voters_at(leader) == 3
        made = await leader.ask("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "num_replicas": 1})
        assert "error" not in made, "it goes on"
        nursery.cancel_scope.cancel()
