"""A client of a real server names itself: what is said, what waits and what is logged."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from jetraft.api.auth.login import build_authenticator
from jetraft.api.credentials.rules import AuthRules, PasswordUser
from jetraft.api.credentials.secret import Secret
from jetraft.api.options.options import Options
from jetraft.api.sessions.session import ServerIdentity, Sessions
from jetraft.api.turns.clock import SystemClock
from tests.harness.raw import Event, Line, RawClient
from tests.harness.server import Server

SLOW = bcrypt.hashpw(b"secret", bcrypt.gensalt(10)).decode()
CONFIG = f"""
authorization {{
  timeout: 60
  users: [ {{user: plain, password: hush}}, {{user: hashed, password: "{SLOW}"}} ]
}}
"""
PLAIN: dict[str, Any] = {"user": "plain", "pass": "hush"}
HASHED: dict[str, Any] = {"user": "hashed", "pass": "secret"}
VIOLATION = Line(text="-ERR 'Authorization Violation'")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server("jetraft", directory=tmp_path_factory.mktemp("login"), config=CONFIG, flags=("-D",)) as started:
        yield started


def connect_line(**fields: Any) -> bytes:
    wish = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1}
    return b"CONNECT " + json.dumps(wish | fields).encode() + b"\r\n"


def texts(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Line) and not event.text.startswith("INFO")]


def test_what_follows_a_connect_waits_until_its_password_was_hashed(server: Server) -> None:
    with RawClient(server.address, connect=False) as client:
        client.send(connect_line(**HASHED) + b"SUB a 1\r\nPUB a 2\r\nhi\r\n")
        found = client.messages("1", 1)
    assert [message.payload for message in found] == [b"hi"]


def test_a_server_that_cannot_hash_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    user = PasswordUser(name="hashed", password=Secret(SLOW))
    identity = ServerIdentity(server_id="N", server_name="n")
    sessions = Sessions(Options(auth=AuthRules(users=(user,))), identity, SystemClock())
    monkeypatch.setitem(sys.modules, "bcrypt", None)
    with pytest.raises(ImportError):
        build_authenticator(sessions.options.auth)


def test_nothing_of_a_refused_client_is_acted_on(server: Server) -> None:
    with RawClient(server.address, **PLAIN) as listener:
        sid = listener.subscribe("refused")
        listener.settle()
        with RawClient(server.address, connect=False) as client:
            client.send(connect_line(user="hashed", **{"pass": "wrong"}) + b"PUB refused 2\r\nhi\r\nPING\r\n")
            assert client.rest() == [VIOLATION]
        assert listener.messages(sid, 0) == []


def test_others_are_served_meanwhile_and_who_leaves_harms_nobody(server: Server) -> None:
    waiting = [RawClient(server.address, connect=False) for _ in range(20)]
    for client in waiting:
        client.send(connect_line(user="hashed", **{"pass": "wrong"}) + b"PING\r\n")
    for client in waiting[::2]:
        client.close()
    with RawClient(server.address, **PLAIN) as other:
        assert texts(other.settle()) == []
    for client in waiting[1::2]:
        assert client.rest() == [VIOLATION]
        client.close()


def test_a_second_connect_is_judged_with_what_the_first_named(server: Server) -> None:
    with RawClient(server.address, **HASHED) as client:
        assert texts(client.settle()) == []
        client.send(b'CONNECT {"verbose":true}\r\nSUB a 1\r\n')
        assert texts(client.settle()) == ["+OK", "+OK"]
        client.send(b'CONNECT {"pass":"wrong"}\r\nPUB a 0\r\n\r\n')
        assert client.rest() == [VIOLATION]


@pytest.mark.parametrize("first", [b"PING\r\n", b"PUB a 0\r\n\r\n", b"XYZ\r\n", b"P"])
def test_who_begins_without_a_connect_is_refused(server: Server, first: bytes) -> None:
    with RawClient(server.address, connect=False) as client:
        client.send(first)
        assert client.rest() == [VIOLATION]


def test_pages_show_the_user_when_asked_and_never_a_secret(server: Server) -> None:
    with RawClient(server.address, **PLAIN) as client:
        client.settle()
        for query, shown in (("", False), ("?auth=1", True)):
            _, page = server.get(f"/connz{query}")
            rows = [row for row in page["connections"] if row.get("lang") == "raw"]
            assert any(row.get("authorized_user") == "plain" for row in rows) is shown
            assert "hush" not in json.dumps(page)


def test_a_refusal_is_logged_with_the_name_and_without_the_secret(server: Server) -> None:
    offered: dict[str, Any] = {"name": "me", "user": 'a"b', "pass": "hush-hush"}
    with RawClient(server.address, **offered) as client:
        client.rest()
    line = server.running.wait_for_line('authentication error - User "a\\"b"')
    assert re.search(r"\[ERR\] 127\.0\.0\.1:\d+ - cid:\d+ - authentication error - User", line)
    assert "hush" not in server.running.tail(10_000)


@pytest.mark.parametrize("begin", [b"", b'CONNECT {"user":"plain"', b"C"])
def test_who_does_not_finish_its_connect_in_time_is_told_so(tmp_path: Path, begin: bytes) -> None:
    config = "authorization { users: [{user: plain, password: hush}], timeout: 0.2 }"
    with (
        Server("jetraft", directory=tmp_path, config=config) as server,
        RawClient(server.address, connect=False) as client,
    ):
        client.send(begin)
        assert client.rest() == [Line(text="-ERR 'Authentication Timeout'")]
