"""Core NATS as nats-py uses it: delivery, queue groups, requests, headers, drain, reconnect."""

import asyncio
import json
from collections.abc import Callable, Sequence

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import MaxPayloadError, NoRespondersError

from tests.clients.nats_py import connection, run
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S, until
from tests.harness.raw import Line, RawClient
from tests.harness.server import Server

# nats-py leaves the transport of a failed reconnect to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_a_message_reaches_wildcard_subscribers_on_every_node(servers: Sequence[Server], stream: str) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as near, connection(servers[-1].url) as far:
            subscriptions = [await client.subscribe(f"{stream}.*") for client in (near, far)]
            await near.flush()
            await far.flush()
            await wait_for_interest(near, f"{stream}.hello", subscriptions[1])
            await near.publish(f"{stream}.x", b"payload", headers={"A": "b"})
            for subscription in subscriptions:
                while (message := await subscription.next_msg(timeout=PATIENCE_S)).subject != f"{stream}.x":
                    pass
                assert (message.data, message.headers) == (b"payload", {"A": "b"})

    run(check)


async def wait_for_interest(publisher: object, subject: str, subscription: object) -> None:
    """Interest reaches other nodes a moment after its SUB was acknowledged: publish until one message arrives."""
    while True:
        await publisher.publish(subject, b"")  # type: ignore[attr-defined]  # a nats-py client
        try:
            await subscription.next_msg(timeout=0.2)  # type: ignore[attr-defined]  # its subscription
        except TimeoutError:
            continue
        return


def test_a_queue_group_gets_each_message_once(servers: Sequence[Server], stream: str) -> None:
    async def check() -> None:
        received: list[bytes] = []
        complete = asyncio.Event()

        async def note(message: Msg) -> None:
            received.append(message.data)
            if len(received) >= 100:
                complete.set()

        async with connection(servers[0].url) as client:
            for _ in range(3):
                await client.subscribe(stream, queue="workers", cb=note)
            await client.flush()
            for number in range(100):
                await client.publish(stream, str(number).encode())
            await client.flush()
            await asyncio.wait_for(complete.wait(), PATIENCE_S)
            await client.flush()
            assert sorted(map(int, received)) == list(range(100))

    run(check)


def test_a_request_is_answered_across_nodes(servers: Sequence[Server], stream: str) -> None:
    async def check() -> None:
        async def answer(message: Msg) -> None:
            await message.respond(message.data.upper())

        async with connection(servers[0].url) as asking, connection(servers[-1].url) as answering:
            await answering.subscribe(stream, cb=answer)
            await answering.flush()
            while True:
                try:
                    reply = await asking.request(stream, b"hello", timeout=PATIENCE_S)
                    break
                except NoRespondersError:  # interest is on its way to the other node
                    await asking.flush()
            assert reply.data == b"HELLO"

    run(check)


def test_a_request_without_responder_fails_at_once(servers: Sequence[Server], stream: str) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            with pytest.raises(NoRespondersError):
                await client.request(stream, b"", timeout=PATIENCE_S)

    run(check)


def test_a_subscription_ends_after_its_maximum(servers: Sequence[Server], stream: str) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            subscription = await client.subscribe(stream)
            await subscription.unsubscribe(limit=2)
            for number in range(5):
                await client.publish(stream, str(number).encode())
            await client.flush()
            assert [(await subscription.next_msg(timeout=PATIENCE_S)).data for _ in range(2)] == [b"0", b"1"]
            assert subscription.delivered == 2

    run(check)


def test_drain_delivers_what_was_received_before(servers: Sequence[Server], stream: str) -> None:
    async def check() -> None:
        received: list[bytes] = []

        async def note(message: Msg) -> None:
            received.append(message.data)

        async with connection(servers[0].url) as client:
            await client.subscribe(stream, cb=note)
            for number in range(500):
                await client.publish(stream, str(number).encode())
            await client.drain()
        assert len(received) == 500

    run(check)


def test_the_largest_payload_passes_and_the_client_knows_the_limit(servers: Sequence[Server], stream: str) -> None:
    async def check() -> None:
        async with connection(servers[0].url) as client:
            assert client.max_payload == 1024 * 1024
            subscription = await client.subscribe(stream)
            await client.publish(stream, b"x" * client.max_payload)
            assert len((await subscription.next_msg(timeout=PATIENCE_S)).data) == client.max_payload
            with pytest.raises(MaxPayloadError):
                await client.publish(stream, b"x" * (client.max_payload + 1))

    run(check)


def test_wrong_credentials_are_refused(start_server: Callable[..., Server]) -> None:
    server = start_server(flags=("--user", "a", "--pass", "b"))

    async def check() -> None:
        async with connection(server.url, user="a", password="b") as client:
            await client.flush()
        with pytest.raises(Exception, match=r"(?i)authorization violation"):
            async with connection(server.url, user="a", password="c", allow_reconnect=False):
                pass

    run(check)


async def told_of(client: Client, count: int) -> None:
    """Wait until the client knows so many other servers: an INFO names those that the node has heard of until then."""
    while len(client.discovered_servers) != count:
        await client.flush()


def test_a_client_moves_to_a_node_that_it_was_told_of(cluster: Cluster, stream: str) -> None:
    """Only one URL is given; the others come from connect_urls."""

    async def check() -> None:
        moved = asyncio.Event()

        async def reconnected() -> None:
            moved.set()

        node = cluster[0]
        async with connection(node.url, reconnected_cb=reconnected, reconnect_time_wait=0.05) as client:
            subscription = await client.subscribe(stream)
            await client.flush()
            await asyncio.wait_for(told_of(client, 2), PATIENCE_S)
            await asyncio.to_thread(node.kill)
            await asyncio.wait_for(moved.wait(), PATIENCE_S)
            assert client.connected_url is not None
            assert client.connected_url.port in [other.client_port for other in cluster.nodes[1:]]
            await client.publish(stream, b"after")
            assert (await subscription.next_msg(timeout=PATIENCE_S)).data == b"after"

    try:
        run(check)
    finally:
        if not cluster[0].running.running:
            cluster[0].start()
        cluster.wait_healthy()


def test_a_node_that_is_stopped_takes_no_address_from_its_clients(cluster: Cluster) -> None:
    """Its links end before the clients do; a client that heard of that would not know where to go."""
    node = cluster[0]

    def knows_all() -> bool:
        """Say whether its links to the others are up again, if a test before this one has started it."""
        with RawClient(node.address) as client:
            return len(client.info["connect_urls"]) == len(cluster.nodes)

    until(knows_all)
    try:
        with RawClient(node.address) as client:
            urls = sorted(client.info["connect_urls"])
            node.stop()
            lines = [event.text for event in client.rest(PATIENCE_S) if isinstance(event, Line)]
        told = [json.loads(line[5:])["connect_urls"] for line in lines if line.startswith("INFO ")]
        assert [sorted(each) for each in told] == [urls] * len(told)
    finally:
        node.start()
        cluster.wait_healthy()
