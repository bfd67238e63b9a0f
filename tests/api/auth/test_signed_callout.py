"""An account of an operator has a service that says who its clients are; both servers believe it the same."""

import threading
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import attrs
import pytest
from nacl.public import PrivateKey

from tests.api.auth.test_claims_service import ADMIN, KINDS, OPERATOR, config, connected, update
from tests.doubles.callout_service import CalloutService, Request, answer, user_token
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import Line, RawClient, connect_line
from tests.harness.server import Server
from tests.harness.tokens import Keys, TokenAccount, TokenUser, checked_text, scope

VIOLATION = "-ERR 'Authorization Violation'"
SERVICE, SIGNING, SCOPED, STRANGER = Keys.new("user"), Keys.new("account"), Keys.new("account"), Keys.new("account")
REVOKED = Keys.new("user")
OPEN = OPERATOR.account("A", signing_keys=[SIGNING.public, scope(SCOPED, pub={"allow": ["a"]})])
CLOSED = OPERATOR.account("B")
SECRET = PrivateKey(bytes(range(32)))
XKEY = checked_text(bytes([23 << 3]) + bytes(SECRET.public_key))


def asking(**authorization: Any) -> TokenAccount:
    """An account with a service, whose users may be put into A as well."""
    block = {"auth_users": [SERVICE.public], "allowed_accounts": [OPEN.key], **authorization}
    return OPERATOR.account(
        "AUTH", authorization=block, signing_keys=[SIGNING.public], revocations={REVOKED.public: 2**40}
    )


AUTH = asking()
SENTINEL = AUTH.user(bearer_token=True, pub={"deny": [">"]}, sub={"deny": [">"]})


def service(server: Server, decide: Callable[[Request], bytes | None], **more: Any) -> CalloutService:
    user = AUTH.user(keys=SERVICE, bearer_token=True)
    return CalloutService(server.address, {"jwt": user.token}, decide, **more)


def in_account(request: Request, account: TokenAccount, by: Keys | None = None, **nats: Any) -> str:
    """A user of an account, of a signing key of it."""
    owner = {} if by is None else {"issuer_account": account.key}
    return user_token(by or account.keys, request, claims={"aud": ""}, **owner, **nats)


def into(account: TokenAccount, **nats: Any) -> Callable[[Request], bytes]:
    """The decision to put everybody into an account."""
    return lambda request: answer(AUTH.keys, request, jwt=in_account(request, account, **nats))


@pytest.fixture(params=KINDS, scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("callout")
    with Server(request.param, directory=directory, config=config(directory / "jwt", AUTH, OPEN, CLOSED)) as started:
        yield started


def lines(server: Server, user: TokenUser, /, data: bytes = b"", **login: Any) -> list[str]:
    with RawClient(server.address, connect=False) as client:
        client.send(connect_line(**{**user.login(client.info["nonce"]), **login}) + data + b"PING\r\n")
        events = list(takewhile(lambda event: event != Line(text="PONG"), iter(client.next_event, None)))
    return [event.text for event in events if isinstance(event, Line) and not event.text.startswith("INFO")]


def test_the_service_is_asked_who_shows_a_token_of_its_account(server: Server) -> None:
    with service(server, into(OPEN)) as asked:
        assert lines(server, SENTINEL, b"PUB a 0\r\n\r\n", user="me", **{"pass": "secret"}) == []
        (request,) = asked.requests
        assert lines(server, OPEN.user()) == []
        assert len(asked.requests) == 1
    assert request["sub"] == AUTH.key
    assert {key: request["nats"]["connect_opts"].get(key) for key in ("user", "pass", "jwt")} == {
        "user": "me", "pass": "secret", "jwt": SENTINEL.token,
    }  # fmt: skip


def test_a_client_is_where_the_service_puts_it(server: Server) -> None:
    with service(server, into(OPEN)), connected(server, OPEN.user()) as listener:
        sid = listener.subscribe("a")
        listener.settle()
        with connected(server, SENTINEL) as client:
            client.publish("a", b"x")
            client.settle()
        assert [message.payload for message in listener.messages(sid, 1)] == [b"x"]


@pytest.mark.parametrize(
    ("decide", "is_let_in"),
    [
        (into(OPEN), True),
        (into(AUTH), True),
        (into(OPEN, by=SIGNING), True),
        (lambda request: answer(SIGNING, request, issuer_account=AUTH.key, jwt=in_account(request, OPEN)), True),
        (into(OPEN, by=STRANGER), False),
        (into(CLOSED), False),
        (lambda request: answer(STRANGER, request, jwt=in_account(request, OPEN)), False),
        (lambda request: answer(SIGNING, request, jwt=in_account(request, OPEN)), True),
        (lambda request: answer(STRANGER, request, issuer_account=AUTH.key, jwt=in_account(request, OPEN)), False),
        (lambda request: answer(OPEN.keys, request, jwt=in_account(request, OPEN)), False),
        (lambda request: answer(AUTH.keys, request, error="no"), False),
        (lambda _request: b"", False),
    ],
    ids=[
        "another account", "the service's account", "by a signing key", "the answer by a signing key",
        "a user by another key", "an account that is not allowed", "an answer by another key",
        "by a signing key that is not named so", "by another key that says so", "an answer by the other account",
        "an error", "nothing",
    ],
)  # fmt: skip
def test_an_answer_counts_that_the_services_account_has_signed(
    server: Server,
    decide: Callable[[Request], bytes],
    is_let_in: bool,  # noqa: FBT001  (a parameter of the test)
) -> None:
    with service(server, decide):
        assert lines(server, SENTINEL) == ([] if is_let_in else [VIOLATION])


def test_a_user_has_the_rights_of_the_scope_that_signed_it(server: Server) -> None:
    scoped = {"subs": 0, "data": 0, "payload": 0}
    with service(server, into(OPEN, by=SCOPED, **scoped)):
        found = lines(server, SENTINEL, b"PUB a 0\r\n\r\nPUB b 0\r\n\r\n")
    assert found == ["-ERR 'Permissions Violation for Publish to \"b\"'"]


def test_who_is_in_the_services_account_does_not_ask_it(server: Server) -> None:
    refused = ["-ERR 'Permissions Violation for Publish to \"$SYS.REQ.USER.AUTH\"'"]
    publish = b"PUB $SYS.REQ.USER.AUTH 0\r\n\r\n"
    assert lines(server, AUTH.user(keys=SERVICE, bearer_token=True), publish) == refused
    with service(server, into(AUTH)):
        assert lines(server, SENTINEL, publish) == refused


def test_a_service_comes_and_goes_with_the_token_of_its_account(server: Server) -> None:
    other = OPERATOR.account("LATER")
    user = other.user(bearer_token=True)
    with connected(server, ADMIN) as admin:
        for authorization, expected in (({}, []), ({"auth_users": [SERVICE.public]}, [VIOLATION]), ({}, [])):
            assert update(admin, other, authorization=authorization)[0] == 200
            with CalloutService(
                server.address,
                {"jwt": other.user(keys=SERVICE, bearer_token=True).token},
                lambda request: answer(other.keys, request, error="no"),
            ):
                assert lines(server, user) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_requests_and_answers_may_be_sealed(kind: Any, tmp_path: Path) -> None:
    sealed = attrs.evolve(AUTH, nats={**asking(xkey=XKEY).nats})
    with (
        Server(kind, directory=tmp_path, config=config(tmp_path / "jwt", sealed, OPEN)) as started,
        service(started, into(OPEN), secret=SECRET) as asked,
    ):
        assert lines(started, SENTINEL) == []
        assert asked.requests[0]["nats"]["server_id"]["xkey"].startswith("X")


def test_a_token_that_is_revoked_or_unproved_asks_nobody(tmp_path: Path) -> None:
    """Unlike nats-server, which asks about each token that names the account."""
    with (
        Server("jetraft", directory=tmp_path, config=config(tmp_path / "jwt", AUTH, OPEN)) as started,
        service(started, into(OPEN)) as asked,
    ):
        assert lines(started, AUTH.user(), sig="") == [VIOLATION]
        assert lines(started, AUTH.user(keys=REVOKED)) == [VIOLATION]
        assert asked.requests == []
        assert lines(started, AUTH.user()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"revocations": {SENTINEL.keys.public: 2**40}},
        {"signing_keys": []},
        {"authorization": {"auth_users": [SERVICE.public], "allowed_accounts": [CLOSED.key]}},
    ],
    ids=["the asking user is revoked", "the key of the answer is none any more", "the account is not allowed any more"],
)
def test_an_answer_counts_by_the_accounts_token_when_it_comes(tmp_path: Path, changes: dict[str, Any]) -> None:
    """The service was asked by another token of its account: it is asked again, or nobody is."""
    may_answer, asked = threading.Event(), threading.Event()

    def decide(request: Request) -> bytes:
        asked.set()
        assert may_answer.wait(PATIENCE_S)
        return answer(SIGNING, request, jwt=in_account(request, OPEN))

    with (
        Server("jetraft", directory=tmp_path, config=config(tmp_path / "jwt", AUTH, OPEN, CLOSED)) as server,
        service(server, decide),
        connected(server, ADMIN) as admin,
        RawClient(server.address, connect=False) as client,
    ):
        client.send(connect_line(**SENTINEL.login(client.info["nonce"])))
        assert asked.wait(PATIENCE_S)
        assert update(admin, AUTH, **changes) == (200, "jwt updated")
        may_answer.set()
        client.send(b"PING\r\n")
        found = [event.text for event in client.rest(PATIENCE_S) if isinstance(event, Line)]
        assert [text for text in found if not text.startswith("INFO")] == [VIOLATION]
