"""Signing in with a key: the browser signs the nonce of a connection, which is then the sign-in's own."""

from collections.abc import Iterator
from typing import Any

import pytest

from jetraft.api.monitor.ui.sign_in import CHALLENGES_MAX
from tests.api.monitor.ui.test_sign_in import USERS, Dashboard
from tests.harness.server import Server
from tests.harness.tokens import JETSTREAM, Keys, TokenOperator

OPERATOR = TokenOperator()
SYSTEM = OPERATOR.account("SYS")
ACCOUNT = OPERATOR.account("A", limits=JETSTREAM)
KEY = Keys.new("user")


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose accounts an operator has signed."""
    with Server(
        "jetraft", directory=tmp_path_factory.mktemp("signed"), config=OPERATOR.config(SYSTEM, ACCOUNT)
    ) as server:
        yield server


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose users have keys."""
    config = f"accounts {{ A: {{ jetstream: enabled, users: [ {{ nkey: {KEY.public} }} ] }} }}"
    with Server("jetraft", directory=tmp_path_factory.mktemp("keyed"), config=config) as server:
        yield server


def challenged(dashboard: Dashboard) -> tuple[str, str]:
    status, found = dashboard.ask("POST", "/ui/challenge", {})
    assert status == 200
    return found["ticket"], found["nonce"]


def test_a_user_with_credentials_signs_in_with_the_users_rights(signed: Server) -> None:
    user = ACCOUNT.user(pub={"allow": ["$JS.API.INFO"]})
    with Dashboard(signed) as dashboard:
        ticket, nonce = challenged(dashboard)
        status, who = dashboard.sign_in(ticket=ticket, **user.login(nonce))
        assert (status, who["user"]) == (200, user.keys.public)
        assert dashboard.api("INFO")["streams"] == 0
        assert dashboard.request("$JS.API.STREAM.NAMES")[0] == 403


def test_a_user_with_a_key_signs_in(keyed: Server) -> None:
    with Dashboard(keyed) as dashboard:
        ticket, nonce = challenged(dashboard)
        status, who = dashboard.sign_in(ticket=ticket, nkey=KEY.public, sig=KEY.sign(nonce.encode()))
        assert (status, who["account"]) == (200, "A")


def test_a_signature_holds_for_its_own_nonce_once(keyed: Server) -> None:
    with Dashboard(keyed) as dashboard:
        first, nonce = challenged(dashboard)
        second, _ = challenged(dashboard)
        login = {"nkey": KEY.public, "sig": KEY.sign(nonce.encode())}
        assert dashboard.sign_in(ticket=second, **login)[0] == 401
        assert dashboard.sign_in(ticket=second, **login)[0] == 401, "a ticket is used up"
        assert dashboard.sign_in(ticket="guessed", **login)[0] == 401
        assert dashboard.sign_in(**login)[0] == 401
        assert dashboard.sign_in(ticket=first, **login)[0] == 200
        assert dashboard.sign_in(ticket=first, **login)[0] == 401


def test_a_token_alone_is_refused_where_it_is_no_bearers(signed: Server) -> None:
    with Dashboard(signed) as dashboard:
        status, answer = dashboard.sign_in(jwt=ACCOUNT.user().token)
        assert (status, "bearer_token" in answer["error"]["description"]) == (401, True)
        assert dashboard.sign_in(jwt=ACCOUNT.user(bearer_token=True).token)[0] == 200


def test_challenges_that_are_not_met_are_bounded(keyed: Server) -> None:
    with Dashboard(keyed) as dashboard:
        tickets = [challenged(dashboard) for _ in range(CHALLENGES_MAX + 3)]
        assert len(keyed.get("/connz")[1]["connections"]) <= CHALLENGES_MAX
        ticket, nonce = tickets[0]
        assert dashboard.sign_in(ticket=ticket, nkey=KEY.public, sig=KEY.sign(nonce.encode()))[0] == 401


@pytest.mark.parametrize("changed", [{"Origin": "http://evil.example"}, {"X_Jetraft_Dashboard": None}], ids=str)
def test_another_site_is_given_no_nonce(keyed: Server, changed: dict[str, Any]) -> None:
    with Dashboard(keyed) as dashboard:
        assert dashboard.ask("POST", "/ui/challenge", {}, **changed)[0] == 403


def test_a_server_without_keys_gives_no_nonce(tmp_path: Any) -> None:
    with Server("jetraft", directory=tmp_path, config=USERS) as server, Dashboard(server) as dashboard:
        assert dashboard.ask("POST", "/ui/challenge", {})[0] == 400
