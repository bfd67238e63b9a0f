"""nats-py names itself: users, tokens, keys, and what a user may do; some of it over a route of a cluster."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from tests.clients.nats_py import connection, run
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.server import Server
from tests.harness.tokens import JETSTREAM, TokenOperator

# nats-py leaves the transport of a refused connection open.
pytestmark = [pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
KEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
HASH = bcrypt.hashpw(b"secret", b"$2b$04$" + b"a" * 21 + b"u").decode()
CONFIG = f"""
authorization {{
  users: [
    {{ nkey: {KEY}, permissions: {{ publish: "keys.>" }} }}
    {{ user: hashed, password: "{HASH}" }}
    {{ user: service, password: s, permissions: {{ subscribe: "service", allow_responses: true }} }}
    {{ user: app, password: a, permissions: {{
        publish: [ "orders.>", "service", "$JS.API.>", "$JS.ACK.>" ]
        subscribe: {{ allow: [ "orders.>", "_INBOX.>" ], deny: "orders.secret" }} }} }}
  ]
}}
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server("jetraft", directory=tmp_path_factory.mktemp("guarded"), config=CONFIG) as server:
        yield server


@pytest.mark.parametrize(
    ("flags", "right", "wrong"),
    [
        (("--user", "a", "--pass", "b"), {"user": "a", "password": "b"}, {"user": "a", "password": "c"}),
        (("--auth", "t"), {"token": "t"}, {"token": "x"}),
        (("--auth", HASH), {"token": "secret"}, {"token": HASH}),
    ],
)
def test_flags_say_who_may_connect(
    start_server: Callable[..., Server], flags: tuple[str, ...], right: dict[str, str], wrong: dict[str, str]
) -> None:
    server = start_server(flags=flags)

    async def check() -> None:
        async with connection(server.url, **right) as client:
            await client.flush()
        with pytest.raises(Exception, match=r"(?i)authorization violation"):
            async with connection(server.url, **wrong, allow_reconnect=False):
                pass

    run(check)


def test_a_key_signs_the_nonce_and_has_its_permissions(guarded: Server) -> None:
    async def check() -> None:
        refused = asyncio.Queue[Exception]()
        async with connection(guarded.url, nkeys_seed_str=SEED, error_cb=refused.put) as client:
            subscription = await client.subscribe("keys.*")
            await client.publish("keys.a", b"1")
            assert (await subscription.next_msg(timeout=PATIENCE_S)).data == b"1"
            await client.publish("other", b"2")
            error = await asyncio.wait_for(refused.get(), PATIENCE_S)
            assert 'permissions violation for publish to "other"' in str(error).lower()

    run(check)


def test_a_service_answers_what_it_was_asked_and_nothing_else(guarded: Server) -> None:
    async def check() -> None:
        refused = asyncio.Queue[Exception]()
        service_options: dict[str, Any] = {"user": "service", "password": "s", "error_cb": refused.put}
        async with connection(guarded.url, **service_options) as service, app(guarded) as client:

            async def answer(message: Any) -> None:
                await message.respond(b"pong")

            await service.subscribe("service", cb=answer)
            await service.flush()
            assert (await client.request("service", b"ping", timeout=PATIENCE_S)).data == b"pong"
            await service.publish("orders.a", b"x")
            error = await asyncio.wait_for(refused.get(), PATIENCE_S)
            assert 'publish to "orders.a"' in str(error)

    run(check)


def app(server: Server, **options: Any) -> Any:
    return connection(server.url, user="app", password="a", **options)


def test_jetstream_under_permissions(guarded: Server) -> None:
    async def check() -> None:
        async with app(guarded) as client:
            context = client.jetstream()
            await context.add_stream(name="ORDERS", subjects=["orders.>"])
            for subject in ("orders.a", "orders.secret", "orders.b"):
                await context.publish(subject, subject.encode())
            pull = await context.pull_subscribe("orders.>", "d")
            fetched = await pull.fetch(3, timeout=PATIENCE_S)
            # Its wildcard of inboxes reaches nothing that is denied, so a pull delivers what the stream has.
            assert [message.subject for message in fetched] == ["orders.a", "orders.secret", "orders.b"]
            for message in fetched:
                await message.ack_sync(timeout=PATIENCE_S)
            subscription = await client.subscribe("orders.*")
            await client.publish("orders.secret", b"")
            await client.publish("orders.open", b"")
            assert (await subscription.next_msg(timeout=PATIENCE_S)).subject == "orders.open"
            await context.delete_stream("ORDERS")

    run(check)


def test_a_denied_subject_stays_so_over_a_route(tmp_path_factory: pytest.TempPathFactory) -> None:
    async def check(first: Server, second: Server) -> None:
        async with app(first) as receiver, connection(second.url, user="hashed", password="secret") as sender:
            subscription = await receiver.subscribe("orders.*")
            await receiver.flush()
            await until_heard(sender, subscription)
            for subject in ("orders.secret", "orders.end"):
                await sender.publish(subject, b"")
            assert (await subscription.next_msg(timeout=PATIENCE_S)).subject == "orders.end"

    with Cluster("jetraft", 2, directory=tmp_path_factory.mktemp("route"), config=CONFIG) as cluster:
        run(check, cluster[0], cluster[1])


async def until_heard(sender: Client, subscription: Any) -> None:
    """Publish until the interest of the other node has come; what is left of it is taken away."""
    heard = None
    while heard is None:
        await sender.publish("orders.first", b"")
        try:
            heard = await subscription.next_msg(timeout=0.1)
        except NatsTimeoutError:
            continue
    await sender.flush()
    while subscription.pending_msgs:
        await subscription.next_msg(timeout=PATIENCE_S)


def test_a_request_to_nobody_is_told_so_under_permissions(guarded: Server) -> None:
    async def check() -> None:
        async with app(guarded) as client:
            with pytest.raises(NoRespondersError):
                await client.request("orders.nobody", b"", timeout=PATIENCE_S)

    run(check)


def test_a_file_of_credentials(start_server: Callable[..., Server], tmp_path: Path) -> None:
    operator = TokenOperator()
    system, account = operator.account("SYS"), operator.account("A", limits=JETSTREAM)
    server = start_server(config=operator.config(system, account))
    file = tmp_path / "user.creds"
    file.write_text(account.user(sub={"deny": ["secret"]}).creds, encoding="ascii")

    async def check() -> None:
        refused = asyncio.Queue[Exception]()
        options: dict[str, Any] = {"user_credentials": str(file), "error_cb": refused.put}
        async with connection(server.url, **options) as client:
            context = client.jetstream()
            await context.add_stream(name="S", subjects=["s"])
            assert (await context.publish("s", b"x")).seq == 1
            await client.subscribe("secret")
            error = await asyncio.wait_for(refused.get(), PATIENCE_S)
            assert 'subscription to "secret"' in str(error)

    run(check)
