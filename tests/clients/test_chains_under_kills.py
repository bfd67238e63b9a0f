"""A chained stream while its leaders die: what an auditor was told stays true, of every acknowledged message."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from typing import TYPE_CHECKING, Any

from nats.errors import Error as NatsError
from nats.js.errors import APIError

from jetraft.api.cli.main import main
from tests.clients.nats_py import connection, run, until
from tests.clients.test_chains import ask, chained, everything, recomputed
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.store.stream import naive_merkle as naive

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

    from tests.harness.server import Server

AWAY = (NatsError, APIError, TimeoutError)  # while no leader answers
MESSAGES = 300
ANSWER_S = 2


class Auditor:
    """Asks for heads, and keeps them apart from the servers."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.heads: dict[int, dict[str, Any]] = {}

    async def look(self) -> None:
        try:
            found = await ask(self.client, "HEAD", "K")
        except AWAY:
            return
        if "error" not in found:
            known = self.heads.setdefault(found["size"], found)
            assert known["head"] == found["head"]

    async def check(self) -> None:
        """Every head that was told is the beginning of the last one."""
        last = max(self.heads)
        for size in sorted(self.heads):
            proof = await ask(self.client, "CONSISTENCY", "K", {"from": size, "to": last})
            path = [bytes.fromhex(one) for one in proof["path"]]
            older, newer = (bytes.fromhex(self.heads[one]["head"]) for one in (size, last))
            assert naive.consistent(size, last, path, older, newer)


async def publish(client: Client, auditor: Auditor, cluster: Cluster) -> set[int]:
    """All messages are acknowledged at last; the leader is killed after a third, and the next one after two."""
    context = client.jetstream(timeout=ANSWER_S)
    acked: set[int] = set()
    killed: list[Server] = []

    async def has_leader() -> bool:
        try:
            info = await context.stream_info("K")
        except AWAY:
            return False
        return info.cluster is not None and bool(info.cluster.leader)

    for number in range(MESSAGES):
        if number in (MESSAGES // 3, 2 * MESSAGES // 3):
            for node in killed:
                node.start()
            killed = []
            await until(has_leader)
            info = await context.stream_info("K")
            assert info.cluster is not None
            killed = [node for node in cluster.nodes if node.name == info.cluster.leader]
            killed[0].kill()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    ack = await context.publish("K.a", b"%d" % number, headers={"Nats-Msg-Id": f"m{number}"})
                except AWAY:
                    await asyncio.sleep(0.05)
                    continue
                acked.add(ack.seq)
                break
        if number % 10 == 0:
            await auditor.look()
    for node in killed:
        node.start()
    return acked


def test_what_an_auditor_was_told_stays_true_when_leaders_are_killed(tmp_path: Path) -> None:
    async def check(cluster: Cluster) -> None:
        async with connection(*(node.url for node in cluster.nodes)) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            await context.add_stream(chained("K", 3))
            auditor = Auditor(client)
            acked = await publish(client, auditor, cluster)
            cluster.wait_healthy()
            await auditor.look()
            await auditor.check()
            messages = await everything(context, "K")
            assert {message.metadata.sequence.stream for message in messages} >= acked
            last = max(auditor.heads)
            assert auditor.heads[last]["head"] == recomputed(messages[:last])
            kept = tmp_path / "heads.jsonl"
            kept.write_text("".join(json.dumps(one) + "\n" for one in auditor.heads.values()))

    with Cluster("jetraft", 3, directory=tmp_path / "nodes") as cluster:
        run(check, cluster)
        out = io.StringIO()
        words = ["chain", "verify", "K", "--servers", ",".join(cluster.urls), "--file", str(tmp_path / "heads.jsonl")]
        with contextlib.redirect_stdout(out):
            assert main(words) == 0, out.getvalue()
        assert out.getvalue().startswith(f"OK K: sequences 1 to {MESSAGES}, size {MESSAGES}, ")
