"""Extensions while leaders die, as plain nats-py sees it: what is acknowledged is there, once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig
from nats.js.errors import APIError

from tests.clients.nats_py import LOOK_S, connection, run, until
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client
    from nats.js import JetStreamContext

    from tests.harness.server import Server

AWAY = (NatsError, APIError, TimeoutError)  # while no leader answers
ANSWER_S = 2  # what was asked at a node that is killed is never answered: it is asked again


def test_what_is_due_comes_once_and_in_order_when_the_leader_is_killed(tmp_path: Path) -> None:
    """Messages are due one after the other while the leader of their stream dies, and comes back."""
    messages = 40

    async def check(cluster: Cluster) -> None:
        async with connection(*(node.url for node in cluster.nodes)) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            config = StreamConfig(name="K", subjects=["K.>"], num_replicas=3, metadata={"jetraft.delayed": "true"})
            await context.add_stream(config)
            first_due = datetime.now(UTC) + timedelta(seconds=2)
            for number in range(messages):  # due every 50 ms, published in another order
                place = number * 7 % messages
                headers = {"Jetraft-Deliver-At": (first_due + timedelta(seconds=place * 0.05)).isoformat()}
                await context.publish("K.a", b"%d" % place, headers=headers)
            assert (await context.stream_info("K")).state.messages == messages
            info = await context.stream_info("K")
            assert info.cluster is not None
            leader = next(node for node in cluster.nodes if node.name == info.cluster.leader)

            killed: list[str] = []
            asking = client.jetstream(timeout=ANSWER_S)

            async def are_due() -> bool:
                try:
                    state = (await asking.stream_info("K", subjects_filter="K.>")).state
                except AWAY:
                    return False
                found = (state.subjects or {}).get("K.a", 0)
                if found >= messages // 4 and not killed:
                    leader.kill()
                    killed.append(leader.name)
                return found == messages

            await until(are_due)
            reader = await context.pull_subscribe("", stream="K", config=ConsumerConfig(ack_policy=AckPolicy.NONE))
            found = await reader.fetch(messages, timeout=PATIENCE_S)
            assert [int(one.data) for one in found] == list(range(messages))
            assert (await context.stream_info("K")).state.messages == messages
            assert killed

    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        run(check, cluster)


class Tasks:
    """Workers that publish the result of each task with its ack, and ask again when they hear nothing."""

    def __init__(self, client: Client, cluster: Cluster, count: int) -> None:
        self.client = client
        self.context: JetStreamContext = client.jetstream(timeout=PATIENCE_S)
        self.asking: JetStreamContext = client.jetstream(timeout=ANSWER_S)
        self.cluster = cluster
        self.count = count
        self.settled = 0
        self.killed: list[Server] = []
        self.leader: str | None = None

    async def begin(self) -> None:
        await self.context.add_stream(StreamConfig(name="K", subjects=["K.>"], num_replicas=3))
        keys = {"jetraft.strict_acks": "true", "jetraft.ack_publish": "K.done"}
        config = ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT, ack_wait=1, metadata=keys)
        self.subscription = await self.context.pull_subscribe("K.todo", durable="c", stream="K", config=config)
        for number in range(self.count):
            await self.context.publish("K.todo", b"%d" % number)

    async def work(self) -> None:
        while self.settled < self.count:
            try:
                (task,) = await self.subscription.fetch(1, timeout=1)
                headers = {"Jetraft-Publish": "K.done"}
                answer = await self.client.request(task.reply, task.data, headers=headers, timeout=1)
                self.settled += answer.headers is None
            except AWAY:
                self.settled = max(self.settled, await self.results())

    async def results(self) -> int:
        try:
            state = (await self.asking.stream_info("K", subjects_filter="K.done")).state
        except AWAY:
            return 0
        return (state.subjects or {}).get("K.done", 0)

    async def harm(self) -> None:
        """Kill the leader after a quarter, and the next one after a half."""
        for share in (4, 2):
            async with asyncio.timeout(PATIENCE_S):
                while self.settled < self.count // share:  # noqa: ASYNC110  (counted by the workers)
                    await asyncio.sleep(LOOK_S)
            for node in self.killed:
                node.start()
            await until(self.has_leader)
            self.killed = [next(node for node in self.cluster.nodes if node.name == self.leader)]
            self.killed[0].kill()

    async def has_leader(self) -> bool:
        try:
            found = await self.asking.stream_info("K")
        except AWAY:
            return False
        self.leader = found.cluster.leader if found.cluster is not None else None
        return self.leader is not None

    async def is_over(self) -> bool:
        try:
            info = await self.asking.consumer_info("K", "c")
        except AWAY:
            return False
        return not info.num_ack_pending and not info.num_pending


def test_a_task_has_one_result_when_the_leader_is_killed(tmp_path: Path) -> None:
    async def check(cluster: Cluster) -> None:
        async with connection(*(node.url for node in cluster.nodes)) as client:
            tasks = Tasks(client, cluster, 80)
            await tasks.begin()
            await asyncio.gather(tasks.harm(), *(tasks.work() for _ in range(4)))
            await until(tasks.is_over)
            config = ConsumerConfig(ack_policy=AckPolicy.NONE)
            reader = await tasks.context.pull_subscribe("K.done", stream="K", config=config)
            found = await reader.fetch(await tasks.results(), timeout=PATIENCE_S)
            assert sorted(int(result.data) for result in found) == list(range(tasks.count))

    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        run(check, cluster)
