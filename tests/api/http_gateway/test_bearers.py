"""The gateway of a server in operator mode: the token of a bearer is a login, and no other token is one."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.http_gateway.test_http_gateway import LISTEN, Browser, basic
from tests.harness.raw import RawClient
from tests.harness.server import Server
from tests.harness.tokens import JETSTREAM, TokenOperator, TokenUser

OPERATOR = TokenOperator()
SYSTEM = OPERATOR.account("SYS")
ACCOUNT = OPERATOR.account("A", limits=JETSTREAM)
STRICT = OPERATOR.account("B", limits={**JETSTREAM, "disallow_bearer": True})
ADMIN = SYSTEM.user()
REVOKED = ACCOUNT.user(bearer_token=True)
DOOR = "/pub/s.a"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = LISTEN + "\n" + OPERATOR.config(SYSTEM, ACCOUNT, STRICT)
    with Server("jetraft", directory=tmp_path_factory.mktemp("bearers"), config=config, flags=("-D",)) as started:
        with logged_in(started, ACCOUNT.user()) as client:
            client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        yield started


def logged_in(server: Server, user: TokenUser) -> RawClient:
    client = RawClient(server.address, connect=False)
    client.connect(**user.login(client.info["nonce"]))
    return client


def asked(server: Server, authorization: str, path: str = DOOR) -> tuple[int, Any]:
    browser = Browser(server)
    try:
        return browser.told("POST", path, b"x", Authorization=authorization)
    finally:
        browser.close()


def test_the_token_of_a_bearer_is_a_login(server: Server) -> None:
    user = ACCOUNT.user(bearer_token=True)
    assert asked(server, f"Bearer {user.token}")[0] == 200
    listed = server.get("/connz?auth=1&state=closed")[1]["connections"]
    assert user.keys.public in [connection.get("authorized_user") for connection in listed]


def test_its_permissions_count(server: Server) -> None:
    user = ACCOUNT.user(bearer_token=True, pub={"allow": ["s.a"]})
    assert asked(server, f"Bearer {user.token}")[0] == 200
    status, answer = asked(server, f"Bearer {user.token}", "/pub/s.b")
    assert (status, answer["error"]["description"]) == (403, 'Permissions Violation for Publish to "s.b"')


@pytest.mark.parametrize(
    "user",
    [
        ACCOUNT.user(),
        ACCOUNT.user(bearer_token=True, claims={"exp": 1}),
        ACCOUNT.user(bearer_token=True, allowed_connection_types=["WEBSOCKET"]),
        ACCOUNT.user(bearer_token=True, src=["198.51.100.0/24"]),
        ACCOUNT.user(bearer_token=True, proxy_required=True),
        STRICT.user(bearer_token=True),
        OPERATOR.account("C").user(bearer_token=True),
    ],
    ids=["not a bearer", "expired", "another connection", "another network", "proxy", "account", "unknown account"],
)
def test_other_tokens_are_refused(server: Server, user: TokenUser) -> None:
    status, answer = asked(server, f"Bearer {user.token}")
    assert status == 401
    assert "bearer_token" in answer["error"]["description"]
    assert user.token not in "".join(server.running.lines)


def test_what_is_no_token_is_refused(server: Server) -> None:
    for said in (
        "Bearer eyJ.eyJ.x",
        "Bearer t0ken",
        basic("user:password")["Authorization"],
        "Bearer eyJ." + "x" * 5000,
    ):
        assert asked(server, said)[0] == 401
    long = ACCOUNT.user(bearer_token=True, pub={"allow": [f"s.{number}" for number in range(1000)]})
    status, answer = asked(server, f"Bearer {long.token}")
    assert (status, answer["error"]["description"]) == (401, "a login has 4096 bytes at most (max_control_line)")


def test_a_token_that_is_revoked_ends_in_the_middle_of_a_connection(server: Server) -> None:
    browser = Browser(server)
    bearer = {"Authorization": f"Bearer {REVOKED.token}"}
    assert browser.ask("POST", DOOR, b"x", **bearer)[0] == 200
    revoked = ACCOUNT.token(claims={"iat": 4_000_000_000}, revocations={REVOKED.keys.public: 3_000_000_000})
    with logged_in(server, ADMIN) as admin:
        (answer,) = admin.request("$SYS.REQ.CLAIMS.UPDATE", revoked.encode())
        assert b'"code":200' in answer.payload
    assert browser.ask("POST", DOOR, b"x", **bearer)[0] == 401
    assert browser.ask("POST", DOOR, b"x", **bearer)[0] == 401
    assert browser.ask("POST", DOOR, b"x", Authorization=f"Bearer {ACCOUNT.user(bearer_token=True).token}")[0] == 200
    browser.close()
