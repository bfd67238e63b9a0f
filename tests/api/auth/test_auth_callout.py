"""A service says who clients are; both servers ask it the same and believe it the same."""

import json
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from nacl.public import PrivateKey

from jetraft.api.config.build import build_options
from jetraft.api.config.file import load_settings
from jetraft.api.config.settings import OptionsError
from tests.doubles.callout_service import CalloutService, Request, answer, user_token
from tests.harness.raw import Line, RawClient, connect_line
from tests.harness.server import Server
from tests.harness.tokens import Keys, checked_text

KINDS = ["jetraft", pytest.param("reference", marks=pytest.mark.reference)]
ISSUER = Keys.new("account")
STRANGER = Keys.new("account")
USER = Keys.new("user")
SERVICE: dict[str, Any] = {"user": "service", "pass": "s"}
NAMED: dict[str, Any] = {"user": "x", "pass": "y"}
ACCOUNTS = """
accounts {
  AUTH { users: [ { user: service, password: s }, { user: known, password: k } ] }
  A { jetstream: enabled }
}
"""
CALLOUT = f"auth_callout {{ issuer: {ISSUER.public}, auth_users: [service], account: AUTH }}"
CONFIG = f"{ACCOUNTS}\nauthorization {{ timeout: 60, {CALLOUT} }}"
VIOLATION = "-ERR 'Authorization Violation'"


def good(request: Request, **nats: Any) -> bytes:
    return answer(ISSUER, request, jwt=user_token(ISSUER, request, **nats))


@pytest.fixture(params=KINDS, scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(request.param, directory=tmp_path_factory.mktemp("callout"), config=CONFIG) as started:
        yield started


@pytest.fixture(params=KINDS, scope="module")
def telling(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a system account, whose service has a second to answer."""
    config = CONFIG.replace("timeout: 60", "timeout: 1").replace("[service]", "[service, known, sys]")
    config = (
        config.replace("AUTH {", "SYS { users: [ { user: sys, password: x } ] }\n  AUTH {") + "\nsystem_account: SYS"
    )
    with Server(request.param, directory=tmp_path_factory.mktemp("telling"), config=config) as started:
        yield started


def lines(server: Server, data: bytes = b"", /, **login: Any) -> list[str]:
    with RawClient(server.address, connect=False) as client:
        client.send(connect_line(**login) + data + b"PING\r\n")  # at once: the server may end the connection
        events = list(takewhile(lambda event: event != Line(text="PONG"), iter(client.next_event, None)))
    return [event.text for event in events if isinstance(event, Line) and not event.text.startswith("INFO")]


def test_the_service_is_asked_with_what_the_client_says(server: Server) -> None:
    with CalloutService(server.address, SERVICE, good) as service:
        login = {"user": "any", "pass": "thing", "name": "me", "lang": "raw", "version": "1"}
        assert lines(server, b"PUB a 0\r\n\r\n", **login) == []
        (request,) = service.requests
    nats = request["nats"]
    assert request["aud"] == "nats-authorization-request"
    assert request["sub"] == ISSUER.public
    assert request["iss"] == nats["server_id"]["id"]
    assert request["exp"] > request["iat"]
    assert (nats["type"], nats["version"]) == ("authorization_request", 2)
    assert nats["connect_opts"] == {**login, "protocol": 1}
    assert {key: nats["client_info"].get(key) for key in ("user", "name", "kind", "type")} == {
        "user": "any", "name": "me", "kind": "Client", "type": "nats",
    }  # fmt: skip
    assert set(nats["server_id"]) >= {"name", "host", "id", "version"}


def test_a_client_has_what_the_service_gives_it(server: Server) -> None:
    def decide(request: Request) -> bytes:
        return good(request, pub={"allow": ["a", "$JS.API.>"]}, sub={"deny": ["b"]})

    with CalloutService(server.address, SERVICE, decide), RawClient(server.address, user="x") as client:
        assert client.api("INFO")["streams"] == 0
        client.publish("b")
        client.subscribe("b")
        found = [event.text for event in client.settle() if isinstance(event, Line) and "ERR" in event.text]
        assert found == [
            "-ERR 'Permissions Violation for Publish to \"b\"'",
            "-ERR 'Permissions Violation for Subscription to \"b\"'",
        ]


def test_the_service_itself_and_nobody_else_is_judged_by_the_configuration(server: Server) -> None:
    assert lines(server, **SERVICE) == []
    assert lines(server, **(SERVICE | {"pass": "x"})) == [VIOLATION]
    with CalloutService(server.address, SERVICE, lambda request: answer(ISSUER, request, error="no")) as service:
        assert lines(server, **(SERVICE | {"user": "known", "pass": "k"})) == [VIOLATION]
        assert len(service.requests) == 1


def test_who_is_in_the_services_account_does_not_ask_it(server: Server) -> None:
    refused = "-ERR 'Permissions Violation for Publish to \"$SYS.REQ.USER.AUTH\"'"
    publish = b"PUB $SYS.REQ.USER.AUTH 0\r\n\r\n"
    assert refused in lines(server, publish, **SERVICE)

    def decide(request: Request) -> bytes:
        return answer(ISSUER, request, jwt=user_token(ISSUER, request, claims={"aud": "AUTH"}))

    with CalloutService(server.address, SERVICE, decide):
        assert refused in lines(server, publish, user="x")


def test_whom_the_service_judges_is_not_for_the_client_to_say(server: Server) -> None:
    with CalloutService(server.address, SERVICE, lambda request: answer(ISSUER, request, error="no")) as service:
        assert lines(server, user="known", **{"pass": "k"}, nkey="service") == [VIOLATION]
        assert len(service.requests) == 1
        assert lines(server, **SERVICE, nkey="x") == []
        assert len(service.requests) == 1


SHARED = CONFIG.replace("auth_users: [service]", "auth_users: [service], allowed_accounts: [A]").replace(
    "jetstream: enabled", "jetstream: enabled, users: [ { user: inside, password: i } ]"
)
HASHED = "$2a$04$hucVEEEereP8vRzGzg.UNuqjx7UExpbUgxcTT/DPDOnaciWB9rXlu"  # of `h`


@pytest.fixture(params=KINDS, scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    hashed = SHARED.replace("password: k }", f'password: k }}, {{ user: hashed, password: "{HASHED}" }}')
    config = f"no_auth_user: inside\n{hashed}"
    with Server(request.param, directory=tmp_path_factory.mktemp("shared"), config=config) as started:
        yield started


@pytest.mark.parametrize(
    ("login", "asked_about"),
    [
        ({"user": "inside", "pass": "i"}, "inside"),
        ({"user": "known", "pass": "k"}, None),
        ({"user": "hashed", "pass": "h"}, None),
        ({"user": "known", "pass": "wrong"}, "known"),
        ({"user": "hashed", "pass": "wrong"}, "hashed"),
        ({"user": "ghost", "pass": "g"}, "ghost"),
        ({}, "inside"),
    ],
)
def test_users_of_accounts_that_are_not_allowed_are_left_to_the_configuration(
    shared: Server, login: dict[str, str], asked_about: str | None
) -> None:
    with CalloutService(shared.address, SERVICE, good) as service:
        assert lines(shared, **login) == []
        found = [request["nats"]["connect_opts"].get("user") for request in service.requests]
    assert found == ([] if asked_about is None else [asked_about])


def by_stranger(request: Request) -> bytes:
    return answer(ISSUER, request, jwt=user_token(STRANGER, request))


def for_another(request: Request) -> bytes:
    other = {"nats": {**request["nats"], "user_nkey": USER.public}}
    return answer(ISSUER, request, jwt=user_token(ISSUER, other))


def to_another(request: Request) -> bytes:
    other = {"nats": {**request["nats"], "user_nkey": USER.public}}
    return answer(ISSUER, other, jwt=user_token(ISSUER, request))


def of_another_server(request: Request) -> bytes:
    return answer(ISSUER, request, claims={"aud": Keys.new("server").public}, jwt=user_token(ISSUER, request))


def expired(request: Request) -> bytes:
    return answer(ISSUER, request, jwt=user_token(ISSUER, request, claims={"exp": 5}))


def expired_answer(request: Request) -> bytes:
    return answer(ISSUER, request, claims={"exp": 5}, jwt=user_token(ISSUER, request))


def unknown_account(request: Request) -> bytes:
    return answer(ISSUER, request, jwt=user_token(ISSUER, request, claims={"aud": "Z"}))


def with_issuer_account(request: Request) -> bytes:
    return good(request, issuer_account=ISSUER.public)


def at_no_time(request: Request) -> bytes:
    return good(request, times=[{"start": "00:00:00", "end": "00:00:00"}])


def answer_by_stranger(request: Request) -> bytes:
    return answer(STRANGER, request, jwt=user_token(ISSUER, request))


WRONG: list[Callable[[Request], bytes]] = [
    by_stranger, for_another, to_another, of_another_server, expired, expired_answer, unknown_account,
    with_issuer_account, at_no_time, answer_by_stranger, lambda _request: b"",
    lambda _request: b"x", lambda _request: b"..",
    lambda request: answer(ISSUER, request, error="no"), lambda request: answer(ISSUER, request, jwt="x"),
    lambda request: user_token(ISSUER, request).encode(),
]  # fmt: skip


@pytest.mark.parametrize("decide", WRONG, ids=range(len(WRONG)))
def test_an_answer_that_is_not_one_lets_nobody_in(server: Server, decide: Callable[[Request], bytes]) -> None:
    with CalloutService(server.address, SERVICE, decide):
        assert lines(server, **NAMED) == [VIOLATION]


@pytest.mark.parametrize("kind", KINDS)
def test_requests_and_answers_may_be_sealed(kind: Any, tmp_path: Path) -> None:
    secret = PrivateKey(bytes(range(32)))
    xkey = checked_text(bytes([23 << 3]) + bytes(secret.public_key))
    config = CONFIG.replace("account: AUTH }", f"account: AUTH, xkey: {xkey} }}")
    with Server(kind, directory=tmp_path, config=config) as started:
        with CalloutService(started.address, SERVICE, good, secret=secret) as service:
            assert lines(started, **NAMED) == []
            assert service.requests[0]["nats"]["server_id"]["xkey"].startswith("X")
        with CalloutService(started.address, SERVICE, by_stranger, secret=secret):
            assert lines(started, **NAMED) == [VIOLATION]
        with CalloutService(started.address, SERVICE, lambda _request: b"x" * 90, secret=secret):
            assert lines(started, **NAMED) == [VIOLATION]


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_waits_no_longer_than_it_may(kind: Any, tmp_path: Path) -> None:
    config = CONFIG.replace("timeout: 60", "timeout: 0.5")
    with Server(kind, directory=tmp_path, config=config) as started:
        assert lines(started, user="x") in ([VIOLATION], ["-ERR 'Authentication Timeout'"])
        with CalloutService(started.address, SERVICE, lambda _request: None):
            assert lines(started, user="x") in ([VIOLATION], ["-ERR 'Authentication Timeout'"])
        assert lines(started, **SERVICE) == []


@pytest.mark.parametrize(
    ("decide", "reason"),
    [
        (lambda request: answer(ISSUER, request, error="no"), "no"),
        (lambda request: answer(ISSUER, request, jwt=user_token(ISSUER, request, claims={"aud": "NONE"})), "account"),
        (
            lambda request: answer(ISSUER, request, jwt=user_token(ISSUER, request, claims={"exp": 5})),
            "claim is expired",
        ),
        (lambda _request: b"", "no reason supplied"),
        (lambda _request: b"no token", "xpected 3 chunks"),
        (lambda _request: None, ""),  # nats-server leaves it out
    ],
    ids=["refused", "no account", "expired", "nothing", "no token", "silence"],
)
def test_the_account_of_the_service_hears_who_was_not_let_in(
    telling: Server, decide: Callable[[Request], bytes | None], reason: str
) -> None:
    with CalloutService(telling.address, SERVICE, decide), connected(telling) as listener:
        sid = listener.subscribe("$SYS.ACCOUNT.CLIENT.AUTH.ERR")
        listener.settle()
        assert len(lines(telling, **NAMED)) == 1
        (heard,) = listener.messages(sid, 1)
    event = json.loads(heard.payload)
    client = event["client"]
    assert event["type"] == "io.nats.server.advisory.v1.client_disconnect"
    assert event.keys() == {"type", "id", "timestamp", "server", "client", "sent", "received", "reason"}
    assert {name: client[name] for name in ("acc", "user", "name_tag", "kind", "client_type")} == {
        "acc": "AUTH", "user": "x", "name_tag": "$G", "kind": "Client", "client_type": "nats",
    }  # fmt: skip
    assert (event["sent"], event["received"]) == ({"msgs": 0, "bytes": 0},) * 2
    assert reason in event["reason"]


def connected(server: Server) -> RawClient:
    """A user of the service's account whom the configuration lets in."""
    login: dict[str, Any] = {"user": "known", "pass": "k"}
    return RawClient(server.address, **login)


def test_nothing_secret_is_logged(tmp_path: Path) -> None:
    with (
        Server("jetraft", directory=tmp_path, config=CONFIG, flags=("-D",)) as started,
        CalloutService(started.address, SERVICE, lambda request: answer(ISSUER, request, error="too bad")),
    ):
        assert lines(started, **(NAMED | {"pass": "hush-hush"})) == [VIOLATION]
        started.running.wait_for_line("auth callout service returned an error: 'too bad'")
        pages = [started.get(path) for path in ("/connz?auth=1", "/varz")]
        assert "hush" not in started.running.tail(1000) + json.dumps(pages)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (CALLOUT.replace(ISSUER.public, "x"), "valid public account nkey"),
        (CALLOUT.replace(f"issuer: {ISSUER.public},", ""), "require an issuer"),
        (CALLOUT.replace("auth_users: [service],", ""), "require authorized users"),
        (CALLOUT.replace("[service]", "service"), "to be an array"),
        (CALLOUT.replace("[service]", "[other]"), 'user "other" not valid'),
        (CALLOUT.replace("account: AUTH", "account: X"), 'account "X" not valid'),
        (CALLOUT.replace("account: AUTH", "xkey: XAAA"), "valid public xkey"),
        (CALLOUT.replace("account: AUTH", "account: AUTH, allowed_accounts: [A, X]"), 'allowed account "X" not found'),
        (CALLOUT.replace("account: AUTH", "account: AUTH, allowed_accounts: A"), "Expected allowed accounts"),
    ],
)
def test_a_callout_that_is_incomplete_is_refused(tmp_path: Path, changed: str, words: str) -> None:
    path = tmp_path / "c.conf"
    path.write_text(CONFIG.replace(CALLOUT, changed), encoding="utf-8")
    with pytest.raises(OptionsError, match=words):
        build_options(load_settings(path))
