"""A server in operator mode: connections end when tokens do, and no token, seed or reason reaches a client or a log."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jetraft.api.config.build import build_options
from jetraft.api.config.file import load_settings
from jetraft.api.config.settings import OptionsError
from jetraft.api.options.options import Options
from tests.harness.process import ServerFailed
from tests.harness.raw import Line, RawClient, connect_line
from tests.harness.server import Kind, Server
from tests.harness.tokens import JETSTREAM, TokenOperator, TokenUser

OPERATOR = TokenOperator()
SYSTEM = OPERATOR.account("SYS")
ACCOUNT = OPERATOR.account("A", limits=JETSTREAM)
OTHER = OPERATOR.account("B")
UNKNOWN = OPERATOR.account("U")
LIVES_S = (2, 8, 32)  # of a token: the longer ones are for machines on which a start takes so long
REFUSED_LOGIN = "-ERR 'Authorization Violation'"
CONFIG = OPERATOR.config(SYSTEM, ACCOUNT, OTHER)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server("jetraft", directory=tmp_path_factory.mktemp("operators"), config=CONFIG, flags=("-D",)) as started:
        yield started


def connected(server: Server, user: TokenUser) -> RawClient:
    client = RawClient(server.address, connect=False)
    client.connect(**user.login(client.info["nonce"]))
    return client


def last_words(client: RawClient) -> list[str]:
    found = [event.text for event in client.rest() if isinstance(event, Line)]
    assert client.closed
    return [text for text in found if text.startswith("-ERR")]


def first_words(server: Server, user: TokenUser) -> str:
    """What a connection that is left alone hears in the end."""
    with connected(server, user) as client:
        return "".join(last_words(client))


@pytest.mark.parametrize("kind", ["jetraft", pytest.param("reference", marks=pytest.mark.reference)])
def test_a_connection_ends_with_its_token(kind: Kind, tmp_path: Path) -> None:
    with Server(kind, directory=tmp_path, config=CONFIG) as started:
        for life_s in LIVES_S:
            words = first_words(started, ACCOUNT.user(claims={"exp": int(time.time()) + life_s}))
            if words != REFUSED_LOGIN:
                break
        assert words == "-ERR 'User Authentication Expired'"


@pytest.mark.parametrize("kind", ["jetraft", pytest.param("reference", marks=pytest.mark.reference)])
def test_a_connection_ends_with_its_account(kind: Kind, tmp_path: Path) -> None:
    for life_s in LIVES_S:
        account = OPERATOR.account("ending", claims={"exp": int(time.time()) + life_s})
        with Server(kind, directory=tmp_path, config=OPERATOR.config(SYSTEM, ACCOUNT, account)) as started:
            words = first_words(started, account.user())
        if words != REFUSED_LOGIN:
            break
    assert words == "-ERR 'Account Authentication Expired'"


def test_accounts_are_apart_and_have_the_streams_that_they_may_have(server: Server) -> None:
    with connected(server, ACCOUNT.user()) as first, connected(server, OTHER.user()) as second:
        heard = second.subscribe("s.>")
        second.settle()
        assert "error" not in first.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        assert first.acknowledged("s.a", b"x")["seq"] == 1
        assert second.messages(heard, 0) == []
        assert second.api("STREAM.NAMES")["error"]["err_code"] == 10039


def test_nothing_secret_is_shown(server: Server) -> None:
    bearer = ACCOUNT.user(bearer_token=True)
    refused = TokenUser(bearer.keys, bearer.token[:-8] + "AAAAAAAA")
    with connected(server, bearer) as client:
        client.settle()
        pages: list[Any] = [server.get(path) for path in ("/connz?auth=1&subs=1", "/varz", "/jsz", "/healthz")]
        assert bearer.keys.public in json.dumps(pages)
    with connected(server, refused) as client:
        client.rest()
    line = server.running.wait_for_line("signature verification")
    server.running.wait_for_line("authentication error")
    for secret in (bearer.token, refused.token, bearer.token.split(".")[2], bearer.keys.seed):
        assert secret not in json.dumps(pages) + server.running.tail(10_000)
    assert "eyJ" not in line


def test_many_that_come_at_once_are_all_judged(server: Server) -> None:
    clients = [RawClient(server.address, connect=False) for _ in range(60)]
    user, wrong = ACCOUNT.user(), UNKNOWN.user()
    for number, client in enumerate(clients):
        login = (wrong if number % 3 == 0 else user).login(client.info["nonce"])
        client.send(connect_line(**login) + b"SUB a 1\r\nPUB a 1\r\nx\r\n")
    for number, client in enumerate(clients):
        if number % 3 == 0:
            assert last_words(client) == [REFUSED_LOGIN]
        else:
            assert len(client.messages("1", 1)) >= 1
        client.close()


# -- configuration


def options(directory: Path, text: str) -> Options:
    path = directory / "c.conf"
    path.write_text(text, encoding="utf-8")
    return build_options(load_settings(path))


def test_an_operator_may_stand_in_a_file(tmp_path: Path) -> None:
    token = tmp_path / "O.jwt"
    text = CONFIG.replace(CONFIG.split("\n", 1)[0], f'operator: "{token}"')
    for written in (OPERATOR.token(), f"-----BEGIN JWT-----\n{OPERATOR.token()}\n------END JWT------\n"):
        token.write_text(written, encoding="utf-8")
        trust = options(tmp_path, text).trust
        assert trust is not None
        assert [operator.subject for operator in trust.rules.operators] == [OPERATOR.keys.public]


def test_the_system_account_may_be_the_operators(tmp_path: Path) -> None:
    text = OPERATOR.config(SYSTEM, system_account=SYSTEM.key)
    assert options(tmp_path, text.replace(f"system_account: {SYSTEM.key}\n", "")).system_account == SYSTEM.key


def test_a_cookie_may_have_the_token(tmp_path: Path) -> None:
    web = 'websocket { port: -1, no_tls: true, jwt_cookie: "token" }'
    found = options(tmp_path, f"{CONFIG}\n{web}").websocket
    assert found is not None
    assert found.cookies.jwt == "token"
    with pytest.raises(OptionsError, match="required for JWT authentication via cookie"):
        options(tmp_path, web)


@pytest.mark.parametrize("kind", ["jetraft", pytest.param("reference", marks=pytest.mark.reference)])
def test_who_shows_no_token_is_the_sentinel(kind: Kind, tmp_path: Path) -> None:
    sentinel = ACCOUNT.user(bearer_token=True, pub={"allow": ["a"]})
    config = f"{CONFIG}\ndefault_sentinel: {sentinel.token}"
    with Server(kind, directory=tmp_path, config=config) as started:
        with RawClient(started.address, user="any") as client:
            client.publish("b")
            found = [event.text for event in client.settle() if isinstance(event, Line) and "ERR" in event.text]
            assert found == ["-ERR 'Permissions Violation for Publish to \"b\"'"]
        assert first_words(started, UNKNOWN.user()) == REFUSED_LOGIN


@pytest.mark.parametrize("kind", ["jetraft", pytest.param("reference", marks=pytest.mark.reference)])
def test_keys_of_operators_are_enough(kind: Kind, tmp_path: Path) -> None:
    config = CONFIG.replace(CONFIG.split("\n", 1)[0], f"trusted_keys: [{OPERATOR.keys.public}]")
    with Server(kind, directory=tmp_path, config=config) as started, connected(started, ACCOUNT.user()) as client:
        client.publish("a")
        assert not [event for event in client.settle() if isinstance(event, Line) and "ERR" in event.text]


LINE = CONFIG.split("\n", 1)[0]
PRELOAD = CONFIG[CONFIG.index("resolver_preload") :]
REFUSED = {
    "operator: x": "error parsing operator JWT",
    f"operator: {ACCOUNT.token()}\nresolver: MEMORY": "not operator claim",
    LINE: "operators require an account resolver to be configured",
    f"{LINE}\nresolver: MEMORY\naccounts: {{ A {{}} }}": "operators do not allow Accounts",
    f"{LINE}\nresolver: MEMORY\nauthorization: {{ users: [{{user: a, password: b}}] }}": "operators do not allow users",
    f"{LINE}\nresolver: MEMORY\nauthorization: {{ token: t }}": "operators do not allow users, tokens or callouts",
    f"{LINE}\nresolver: MEMORY\nsystem_account: A": "not a public account nkey",
    f"{LINE}\nresolver: URL(http://u:hidden@h:x/)": "error parsing account resolver url",
    f"{LINE}\nresolver: WHAT": "should be MEM or",
    f"{LINE}\nresolver: MEMORY\nresolver_preload: x": "preload should be a map",
    f"{LINE}\nresolver: MEMORY\nresolver_preload: {{ {ACCOUNT.key}: x }}": "invalid account JWT",
    f"{LINE}\nresolver: MEMORY\nresolver_preload: {{ {OTHER.key}: {ACCOUNT.token()} }}": "of another account",
    f"{LINE}\nresolver: MEMORY\nresolver_pinned_accounts: [x]": "not a valid public account nkey",
    f"operator: {OPERATOR.token(assert_server_version='99.0.0')}\nresolver: MEMORY": "expected version 99.0.0",
    f"{LINE}\nresolver: {{ type: cache, dir: x, allow_delete: true }}": "CACHE does not accept allow_delete",
    f"{LINE}\nresolver: {{ type: full }}": "dir has no value",
    f"{LINE}\nresolver: {{ type: full, dir: x, ttl: 1h }}": "FULL does not accept ttl",
    f"{LINE}\nresolver: {{ type: full, dir: x, hard_delete: true }}": "hard_delete has no effect",
    f"{LINE}\nresolver: {{ type: full, dir: x }}": "system account needs to be specified",
    "resolver: MEMORY": "a resolver needs an operator",
    f"{LINE}\nresolver: MEMORY\nresolver_tls: {{ x: 1 }}": "unknown field",
    f"{LINE}\nresolver: MEMORY\ntrusted_keys: x": "required to be a valid public operator nkey",
    f"{LINE}\nresolver: MEMORY\ntrusted_keys: {OPERATOR.keys.public}": "conflicting options for 'TrustedKeys'",
    f"{LINE}\nresolver: MEMORY\ndefault_sentinel: x": "default sentinel JWT not valid",
    f"{LINE}\nresolver: MEMORY\ndefault_sentinel: {ACCOUNT.user().token}": "must be a bearer token",
    f"default_sentinel: {ACCOUNT.user(bearer_token=True).token}": "requires operators and accounts",
}


@pytest.mark.parametrize("text", REFUSED, ids=[*REFUSED.values()])
def test_a_configuration_that_is_wrong_is_refused_without_the_token(tmp_path: Path, text: str) -> None:
    with pytest.raises(OptionsError, match=REFUSED[text]) as error:
        options(tmp_path, text)
    assert "eyJ" not in str(error.value)


def test_a_system_account_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    config = f"{LINE}\nresolver: MEMORY\nsystem_account: {SYSTEM.key}"
    with pytest.raises(ServerFailed, match="system account"), Server("jetraft", directory=tmp_path, config=config):
        pass
