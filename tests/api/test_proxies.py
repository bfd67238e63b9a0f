"""Proxies that are trusted speak for clients, and some clients have to come through one; both servers agree."""

from collections.abc import Iterator
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from jetraft.api.config.build import build_options
from jetraft.api.config.file import load_settings
from jetraft.api.config.settings import OptionsError
from tests.api.auth.test_claims_service import KINDS, OPERATOR, SYSTEM
from tests.harness.raw import Line, RawClient, connect_line
from tests.harness.server import Server
from tests.harness.tokens import Keys

PROXY, STRANGER = Keys.new("server"), Keys.new("server")
TRUSTED = f"proxies {{ trusted: [{{ key: {PROXY.public} }}] }}"
USERS = """
authorization { users: [
  { user: free, password: x }, { user: bound, password: x, proxy_required: true }
] }
"""
FREE, BOUND = {"user": "free", "pass": "x"}, {"user": "bound", "pass": "x"}
VIOLATION = "-ERR 'Authorization Violation'"


@pytest.fixture(params=KINDS, scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("proxies")
    with Server(request.param, directory=directory, config=TRUSTED + USERS) as started:
        yield started


def said(server: Server, login: dict[str, Any], proxy: Keys | None = None, nonce: str = "") -> list[str]:
    """What a client hears, through a proxy or not."""
    with RawClient(server.address, connect=False) as client:
        signature = {} if proxy is None else {"proxy_sig": proxy.sign((nonce or client.info["nonce"]).encode())}
        client.send(connect_line(**login, **signature) + b"PING\r\n")
        events = list(takewhile(lambda event: event != Line(text="PONG"), iter(client.next_event, None)))
    return [event.text for event in events if isinstance(event, Line) and not event.text.startswith("INFO")]


def test_some_users_come_through_a_trusted_proxy_only(server: Server) -> None:
    assert said(server, BOUND) == [VIOLATION]
    assert said(server, BOUND, PROXY) == []
    assert said(server, FREE) == said(server, FREE, PROXY) == []


def test_a_proxy_that_is_not_trusted_lets_nobody_in(server: Server) -> None:
    assert said(server, FREE, STRANGER) == [VIOLATION]
    assert said(server, FREE, PROXY, nonce="another") == [VIOLATION]
    assert said(server, {"user": "free", "pass": "y"}, PROXY) == [VIOLATION]


def test_pages_name_the_proxy_and_why_a_client_was_refused(server: Server) -> None:
    assert server.get("/varz")[1]["proxies"] == {"trusted": [{"key": PROXY.public}]}
    for login, proxy, reason in ((BOUND, None, "Proxy Required"), (BOUND, STRANGER, "Proxy Not Trusted")):
        assert said(server, login, proxy) == [VIOLATION]
        server.running.wait_until(partial(ended_so, server, reason), what="the page shows it")
        assert "proxy" not in last(server)
    assert said(server, BOUND, PROXY) == []
    server.running.wait_until(partial(ended_so, server, "Client Closed"), what="the page shows it")
    assert last(server)["proxy"] == {"key": PROXY.public}


def ended_so(server: Server, reason: str) -> bool:
    return bool(last(server)["reason"] == reason)


def last(server: Server) -> dict[str, Any]:
    """The connection that ended last."""
    found = server.get("/connz?state=closed")[1]["connections"]
    newest = max(found, key=lambda row: row["cid"])
    assert isinstance(newest, dict)
    return newest


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_may_ask_for_a_proxy(kind: Any, tmp_path: Path) -> None:
    account = OPERATOR.account("A")
    with Server(kind, directory=tmp_path, config=f"{OPERATOR.config(SYSTEM, account)}{TRUSTED}") as started:
        user = account.user(bearer_token=True, proxy_required=True).login("")
        assert said(started, user) == [VIOLATION]
        assert said(started, user, PROXY) == []


@pytest.mark.parametrize("kind", KINDS)
def test_all_clients_may_have_to_come_through_a_proxy(kind: Any, tmp_path: Path) -> None:
    config = f"{TRUSTED}\nauthorization {{ proxy_required: true, user: a, password: x }}"
    with Server(kind, directory=tmp_path, config=config) as started:
        assert said(started, {"user": "a", "pass": "x"}) == [VIOLATION]
        assert said(started, {"user": "a", "pass": "x"}, PROXY) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("proxies: 3", "expected proxies to be a map/struct, got int64"),
        ("proxies { trusted: 3 }", "expected proxies' trusted field to be an array, got int64"),
        ("proxies { trusted: [{ key: x }] }", 'invalid proxy key "x"'),
        ("proxies { other: 3 }", "unknown field"),
    ],
)
def test_proxies_that_cannot_be_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "c.conf"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(OptionsError, match=words):
        build_options(load_settings(path))
