"""`legacy_api: true`: the walk-through of the tech preview (2020), with the subjects, bodies and answers of then."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from nats.aio.client import Client

from tests.clients.nats_py import connection, run
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.server import Server

SERVED = "jetstream { legacy_api: true }"
CONFIG = {
    "subjects": ["ORDERS.*"],
    "retention": "limits",
    "max_consumers": -1,
    "max_msgs": 5,
    "max_bytes": -1,
    "max_age": 31536000000000000,
    "max_msg_size": -1,
    "storage": "file",
    "discard": "new",
}
WORK = {"deliver_all": True, "ack_policy": "explicit", "ack_wait": 30000000000, "max_deliver": 20, "sample_freq": "100"}


@pytest.fixture(params=["one node", "three nodes"], scope="module")
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Server]]:
    directory = tmp_path_factory.mktemp("servers")
    if request.param == "one node":
        with Server("jetraft", directory=directory, config=SERVED) as server:
            yield [server]
    else:
        with Cluster("jetraft", 3, directory=directory, config=SERVED) as cluster:
            yield cluster.nodes


async def ask(client: Client, subject: str, body: object = b"") -> bytes:
    """The answer to a request."""
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    found: bytes = (await client.request(subject, payload, PATIENCE_S)).data
    return found


async def told(client: Client, subject: str, body: object = b"") -> Any:
    """The same as JSON."""
    return json.loads(await ask(client, subject, body))


async def refused(client: Client, subject: str, body: object = b"") -> str:
    """Why a request is refused."""
    answer = (await ask(client, subject, body)).decode()
    assert answer.startswith("-ERR '")
    return answer.removeprefix("-ERR '").removesuffix("'")


async def open_shop(client: Client, replicas: int) -> None:
    assert await ask(client, "$JS.ENABLED") == b"+OK"
    config = {"name": "ORDERS", **CONFIG, "num_replicas": replicas}
    assert await ask(client, "$JS.STREAM.ORDERS.CREATE", config) == b"+OK"
    for name, subject in (("NEW", "ORDERS.received"), ("DISPATCH", "ORDERS.processed")):
        request = {"stream_name": "ORDERS", "config": {"durable_name": name, "filter_subject": subject, **WORK}}
        assert await ask(client, f"$JS.STREAM.ORDERS.CONSUMER.{name}.CREATE", request) == b"+OK"
    monitor = {"delivery_subject": "monitor.ORDERS", "deliver_last": True, "ack_policy": "none"}
    request = {"stream_name": "ORDERS", "config": {"durable_name": "MONITOR", **monitor}}
    assert await ask(client, "$JS.STREAM.ORDERS.CONSUMER.MONITOR.CREATE", request) == b"+OK"


async def watch(client: Client) -> None:
    """A consumer without a name, for who listens just now."""
    late = await client.subscribe("late")
    await client.flush()
    request = {"stream_name": "ORDERS", "config": {"delivery_subject": "late", "stream_seq": 2, "ack_policy": "none"}}
    made = await ask(client, "$JS.STREAM.ORDERS.EPHEMERAL.CONSUMER.CREATE", request)
    word, _, name = made.decode().partition(" ")
    assert word == "+OK"
    assert name in await told(client, "$JS.STREAM.ORDERS.CONSUMERS")
    assert (await late.next_msg(PATIENCE_S)).data == b"order 2"


def test_the_walkthrough_of_2020_works_with_its_own_subjects(servers: Sequence[Server]) -> None:
    async def check() -> None:
        async with connection(servers[-1].url) as client:
            await open_shop(client, len(servers))
            monitor = await client.subscribe("monitor.ORDERS")
            for number in (1, 2):
                assert await ask(client, "ORDERS.received", b"order %d" % number) == b"+OK"
            assert [(await monitor.next_msg(PATIENCE_S)).data for _ in range(2)] == [b"order 1", b"order 2"]
            await watch(client)
            assert await told(client, "$JS.STREAM.LIST") == ["ORDERS"]
            assert {"NEW", "DISPATCH", "MONITOR"} <= set(await told(client, "$JS.STREAM.ORDERS.CONSUMERS"))
            for subject, seq in (("$JS.NEXT.ORDERS.NEW", 1), ("$JS.STREAM.ORDERS.CONSUMER.NEW.NEXT", 2)):
                order = await client.request(subject, b"", PATIENCE_S, old_style=True)
                assert (order.subject, order.data) == ("ORDERS.received", b"order %d" % seq)
                await client.request(order.reply, b"+ACK", PATIENCE_S)
            info = await told(client, "$JS.STREAM.ORDERS.CONSUMER.NEW.INFO")
            assert (info["config"]["deliver_all"], info["config"]["durable_name"]) == (True, "NEW")
            assert info["state"]["delivered"] == {"consumer_seq": 3, "stream_seq": 3}, "then: what comes next"
            assert info["state"]["ack_floor"] == {"consumer_seq": 2, "stream_seq": 2}
            found = await told(client, "$JS.STREAM.ORDERS.MSG.BYSEQ", b"2")
            assert (found["subject"], found["seq"], found["data"]) == ("ORDERS.received", 2, "b3JkZXIgMg==")
            assert await ask(client, "$JS.STREAM.ORDERS.MSG.DELETE", b"1") == b"+OK"
            info = await told(client, "$JS.STREAM.ORDERS.INFO")
            assert (info["config"]["name"], info["state"]["messages"], info["state"]["last_seq"]) == ("ORDERS", 1, 2)
            assert (await told(client, "$JS.INFO"))["streams"] == 1
            assert await ask(client, "$JS.STREAM.ORDERS.PURGE") == b"+OK"
            assert await ask(client, "$JS.STREAM.ORDERS.CONSUMER.MONITOR.DELETE") == b"+OK"
            assert await ask(client, "$JS.STREAM.ORDERS.DELETE") == b"+OK"
            assert await told(client, "$JS.STREAM.LIST") is None

    run(check)


def test_what_cannot_be_is_refused_in_the_words_of_then(servers: Sequence[Server]) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            await open_shop(client, len(servers))
            assert await refused(client, "$JS.STREAM.NONE.INFO") == "stream not found"
            assert await refused(client, "$JS.STREAM.ORDERS.CONSUMER.NONE.DELETE") == "consumer not found"
            for subject, body in (
                ("$JS.STREAM.ORDERS.INFO", b"x"),
                ("$JS.STREAM.ORDERS.MSG.BYSEQ", b"-1"),
                ("$JS.STREAM.ORDERS.MSG.DELETE", b""),
                ("$JS.STREAM.ORDERS.CREATE", b"{"),
                ("$JS.STREAM.ORDERS.CREATE", b'{"name":' + b"[" * 600 + b"]" * 600 + b"}"),
                ("$JS.STREAM.ORDERS.EPHEMERAL.CONSUMER.CREATE", b"{}"),
            ):
                assert await refused(client, subject, body) in ("bad request", "invalid JSON"), subject
            for number in range(5):
                assert await ask(client, "ORDERS.received", b"%d" % number) == b"+OK"
            assert await refused(client, "ORDERS.received", b"x") == "maximum messages exceeded"
            assert await ask(client, "$JS.STREAM.ORDERS.DELETE") == b"+OK"

    run(check)


def test_streams_of_today_answer_as_today(servers: Sequence[Server]) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            context = client.jetstream(timeout=PATIENCE_S)
            await context.add_stream(name="TODAY", subjects=["today"], num_replicas=len(servers))
            assert (await context.publish("today", b"x")).seq == 1
            info = await context.stream_info("TODAY")
            await context.update_stream(info.config.evolve(metadata={"jetraft.legacy_ack": "true"}))
            assert await ask(client, "today", b"x") == b"+OK"
            await context.update_stream(info.config)
            assert (await context.publish("today", b"x")).seq == 3
            for number in range(1100):
                config = {"durable_name": f"c{number}", "ack_policy": "explicit"}
                body = json.dumps({"stream_name": "TODAY", "config": config}).encode()
                await client.publish(f"$JS.API.CONSUMER.DURABLE.CREATE.TODAY.c{number}", body)
            await context.consumer_info("TODAY", "c1099")
            assert len(await told(client, "$JS.STREAM.TODAY.CONSUMERS")) == 1100, "more than a page"

    run(check)


def test_nobody_answers_without_the_option(server: Server) -> None:
    async def check() -> None:
        async with connection(server.url) as client:
            with pytest.raises(Exception, match="no responders"):
                await client.request("$JS.ENABLED", b"", PATIENCE_S)

    run(check)
