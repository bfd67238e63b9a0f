"""Clients over WebSocket: nats-py, and the plain client for what no library shows."""

import asyncio

import pytest

from tests.api.websocket.conftest import Start, web_address
from tests.clients.nats_py import connection, run
from tests.harness.patience import PATIENCE_S
from tests.harness.raw_websocket import WebSocketClient

PAYLOAD = bytes(range(256)) * 1024
pytest.importorskip("aiohttp")
# nats-py gives aiohttp its timeout in a form of the past, and its session to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:parameter 'timeout' of type 'float':DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_nats_py_publishes_and_receives(start: Start) -> None:
    host, port = web_address(start())

    async def check() -> None:
        async with connection(f"ws://{host}:{port}") as client:
            subscription = await client.subscribe("a.*")
            for size in (0, 1, 125, 126, 65_000, 66_000, 1 << 18):
                await client.publish("a.b", PAYLOAD[:size], headers={"A": "b"})
                message = await subscription.next_msg(timeout=PATIENCE_S)
                assert (message.data, message.headers) == (PAYLOAD[:size], {"A": "b"})

    run(check)


def test_nats_py_uses_jetstream_and_meets_clients_without_websocket(start: Start) -> None:
    server = start()
    host, port = web_address(server)

    async def check() -> None:
        async with connection(f"ws://{host}:{port}") as web, connection(server.url) as plain:
            stream = web.jetstream()
            await stream.add_stream(name="S", subjects=["s.>"])
            for number in range(100):
                await stream.publish("s.a", b"%d" % number)
            consumer = await plain.jetstream().pull_subscribe("s.>", durable="d")
            messages = await consumer.fetch(100, timeout=PATIENCE_S)
            assert [int(message.data) for message in messages] == list(range(100))
            subscription = await web.subscribe("x")
            await web.flush()
            await asyncio.gather(*(plain.publish("x", PAYLOAD) for _ in range(20)))
            for _ in range(20):
                assert (await subscription.next_msg(timeout=PATIENCE_S)).data == PAYLOAD

    run(check)


def test_info_and_pages_speak_of_the_listener(start: Start) -> None:
    server = start()
    address = web_address(server)
    with WebSocketClient(address, name="web") as client:
        client.settle()
        assert (client.info["host"], client.info["port"]) == address
        assert "tls_required" not in client.info
        _, connections = server.get("/connz")
        assert [(row["name"], row["kind"], row["type"]) for row in connections["connections"]] == [
            ("web", "Client", "websocket")
        ]
        _, variables = server.get("/varz")
        section = variables["websocket"]
        assert (section["host"], section["port"], section["no_tls"]) == (*address, True)
    server.running.wait_for_line("Websocket not configured with TLS. DO NOT USE IN PRODUCTION!")
    server.running.wait_for_line(f" - wid:{client.info['client_id']} - ")
