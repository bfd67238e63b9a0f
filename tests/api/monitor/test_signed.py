"""/accountz and $SYS.REQ.ACCOUNT.<id>.INFO of accounts that an operator has signed; both servers are asked."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jetraft.api.monitor.signed import problem_at, signed_fields
from tests.harness.raw import RawClient
from tests.harness.server import Server
from tests.harness.tokens import JETSTREAM, UNLIMITED, Keys, TokenAccount, TokenOperator

KINDS = ["jetraft", pytest.param("reference", marks=pytest.mark.reference)]
REVOKED = Keys.new("user").public
OPERATOR = TokenOperator()
SYSTEM = OPERATOR.account("SYS")
ACCOUNT = OPERATOR.account(
    "A",
    limits=JETSTREAM,
    revocations={REVOKED: 1_700_000_000, "*": 100},
    exports=[{"name": "e", "subject": "e.>", "type": "stream", "token_req": True}],
)
PLAIN = OPERATOR.account("B")
OLD, OLD_AND_EMPTY = OPERATOR.account("C"), OPERATOR.account("D")
OLD_NATS: dict[str, Any] = {"limits": {**UNLIMITED, **JETSTREAM}, "revocations": {REVOKED: 5}, "trace": {}}
OLD_TOKENS = "\n".join(
    f"  {account.key}: {OPERATOR.keys.token_1('account', account.key, claims={'tags': ['x']}, **nats)}"
    for account, nats in ((OLD, OLD_NATS), (OLD_AND_EMPTY, {}))
)


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = OPERATOR.config(SYSTEM, ACCOUNT, PLAIN).replace("resolver_preload {", f"resolver_preload {{\n{OLD_TOKENS}")
    with Server(request.param, directory=tmp_path_factory.mktemp("signed"), config=config) as started:
        for account in (ACCOUNT, PLAIN, OLD):
            use(started, account)
        yield started


def use(server: Server, account: TokenAccount) -> None:
    """Log in: nats-server shows nothing of accounts before that."""
    with RawClient(server.address, connect=False) as client:
        client.connect(**account.user().login(client.info["nonce"]))
        client.settle()


def page(server: Server, account: TokenAccount) -> dict[str, Any]:
    found: dict[str, Any] = server.get(f"/accountz?acc={account.key}")[1]["account_detail"]
    return found


def test_an_account_shows_its_token_and_what_that_says(server: Server) -> None:
    found = page(server, ACCOUNT)
    assert (found["name_tag"], found["issuer_key"]) == ("A", OPERATOR.keys.public)
    assert (found["expired"], found["complete"]) == (False, True)
    assert found["exports"] == [{"subject": "e.>", "type": "stream", "token_req": True}]
    assert found["revoked_user"] == {"*": "1970-01-01T00:01:40Z", REVOKED: "2023-11-14T22:13:20Z"}
    claims = found["decoded_jwt"]
    assert (claims["sub"], claims["iss"], claims["name"]) == (ACCOUNT.key, OPERATOR.keys.public, "A")
    assert claims["nats"]["revocations"] == {REVOKED: 1_700_000_000, "*": 100}
    assert claims["nats"]["default_permissions"] == {"pub": {}, "sub": {}}
    assert claims["nats"]["authorization"] == {}
    assert (claims["nats"]["type"], claims["nats"]["version"]) == ("account", 2)
    assert found["jwt"].count(".") == 2
    assert "validation_result_jwt" not in found


def test_an_account_without_revocations_shows_none(server: Server) -> None:
    found = page(server, PLAIN)
    assert found["name_tag"] == "B"
    assert "revoked_user" not in found


def test_an_account_of_version_1_shows_what_counts_of_its_token(server: Server) -> None:
    found = page(server, OLD)
    assert (found["name_tag"], found["revoked_user"]) == (OLD.key, {REVOKED: "1970-01-01T00:00:05Z"})
    nats = found["decoded_jwt"]["nats"]
    assert (nats["type"], nats["version"], nats["tags"]) == ("account", 1, ["x"])
    assert (nats["limits"], nats["revocations"]) == (UNLIMITED, {REVOKED: 5})
    assert "trace" not in nats


def test_an_account_of_version_1_that_says_nothing_has_a_page(server: Server) -> None:
    with RawClient(server.address, connect=False) as client:  # it has no connections; trying makes nats-server know it
        client.connect(**OLD_AND_EMPTY.user().login(client.info["nonce"]))
        client.rest()
    assert page(server, OLD_AND_EMPTY)["decoded_jwt"]["nats"]["limits"] == {}


def test_the_system_account_is_told_the_same(server: Server) -> None:
    with RawClient(server.address, connect=False) as client:
        client.connect(**SYSTEM.user().login(client.info["nonce"]))
        (answer,) = client.request(f"$SYS.REQ.ACCOUNT.{ACCOUNT.key}.INFO")
    told, found = json.loads(answer.payload)["data"], page(server, ACCOUNT)
    for name in ("jwt", "issuer_key", "name_tag", "decoded_jwt", "revoked_user", "expired"):
        assert told[name] == found[name]


@pytest.mark.parametrize("kind", KINDS)
def test_an_account_whose_time_is_over_says_so(kind: Any, tmp_path: Path) -> None:
    ends_s = int(time.time()) + 15
    account = OPERATOR.account("C", claims={"exp": ends_s})
    with Server(kind, directory=tmp_path, config=OPERATOR.config(SYSTEM, account)) as server:
        use(server, account)
        server.running.wait_until(
            lambda: "validation_result_jwt" in page(server, account), what="the end of the token", timeout_s=60
        )
        found = page(server, account)
        assert found["expired"]
        assert found["decoded_jwt"]["exp"] == ends_s
        assert found["validation_result_jwt"] == [
            {"description": "claim is expired", "blocking": False, "time_check": True}
        ]


def test_a_time_that_has_not_come_is_a_problem_too() -> None:
    claims = {"nbf": 10, "exp": 20, "iss": "O", "sub": "A", "nats": {}}
    assert [problem_at(claims, now_s) for now_s in (9, 10, 20, 21)] == [
        "claim is not yet valid", "", "", "claim is expired"
    ]  # fmt: skip
    assert signed_fields("t", claims, 15)["name_tag"] == "A"
