"""Who waits for a hash of a password, or for a service's answer, is judged by the rules of when it comes in.

Meanwhile a reload may remove the user, change its rights or its password, or end the account that a service puts it
into; in operator mode an account's token may change (tests/api/auth/test_signed_callout.py). The answer that was asked
for before says nothing of that.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from tests.api.reload.test_reload import reload
from tests.doubles.callout_service import CalloutService, Request, answer, user_token
from tests.harness.raw import Line, RawClient, connect_line
from tests.harness.server import Server
from tests.harness.tokens import Keys

LOGIN: dict[str, Any] = {"user": "a", "pass": "x"}
SLOW_ROUNDS = 12  # of bcrypt: a quarter of a second and more
VIOLATION = "-ERR 'Authorization Violation'"


def hashed(password: bytes, rounds: int = SLOW_ROUNDS) -> str:
    return bcrypt.hashpw(password, bcrypt.gensalt(rounds)).decode()


HASH = hashed(b"x")
FAST = hashed(b"x", 4)
LISTED = f'authorization {{ timeout: 60, users: [ {{user: a, password: "{HASH}"}}, {{user: b, password: x}} ] }}\n'


def lines_until_end(client: RawClient) -> list[str]:
    """What the server says to a client until it answers its PING, or closes."""
    found = []
    for event in iter(client.next_event, None):
        if isinstance(event, Line):
            if event.text == "PONG":
                break
            found.append(event.text)
    return [text for text in found if not text.startswith("INFO")]


@contextmanager
def held(server: Server) -> Iterator[RawClient]:
    """A client whose CONNECT has been read and is not answered: its password is being hashed."""
    with RawClient(server.address, connect=False) as client:
        client.send(connect_line(**LOGIN))
        server.running.wait_until(lambda: len(waiting(server)) > 0, what="a client that waits")
        yield client


def waiting(server: Server) -> list[dict[str, Any]]:
    """The connections that have not been let in yet."""
    return [one for one in server.get("/connz?auth=1")[1]["connections"] if not one.get("authorized_user")]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (LISTED.replace(f'{{user: a, password: "{HASH}"}}, ', ""), [VIOLATION]),
        (LISTED.replace(HASH, hashed(b"y", 4)), [VIOLATION]),
        (LISTED.replace(HASH, FAST), []),
        (LISTED + "max_payload: 1000\n", []),
    ],
    ids=["no such user", "another password", "another hash of the same", "nothing that matters"],
)
def test_a_password_that_is_hashed_during_a_reload_counts_for_the_rules_after_it(
    tmp_path: Path, after: str, expected: list[str]
) -> None:
    with Server("jetraft", directory=tmp_path, config=LISTED) as server, held(server) as client:
        reload(server, after)
        client.send(b"PING\r\n")
        assert lines_until_end(client) == expected


def test_rights_that_a_reload_takes_are_not_given_by_a_password_that_was_hashed_meanwhile(tmp_path: Path) -> None:
    after = LISTED.replace(f'"{HASH}"', f'"{HASH}", permissions: {{ publish: {{ deny: "secret" }} }}')
    with Server("jetraft", directory=tmp_path, config=LISTED) as server, held(server) as client:
        reload(server, after)
        client.send(b"PUB secret 0\r\n\r\nPING\r\n")
        assert lines_until_end(client) == ["-ERR 'Permissions Violation for Publish to \"secret\"'"]


def test_of_two_reloads_the_later_one_counts_for_who_is_connected(tmp_path: Path) -> None:
    """The first one has the password hashed again, because the hash is another."""
    with (
        Server("jetraft", directory=tmp_path, config=LISTED.replace(HASH, FAST)) as server,
        RawClient(server.address, **LOGIN) as client,
    ):
        client.settle()
        reload(server, LISTED)
        reload(server, LISTED.replace(f'"{HASH}"', f'"{HASH}", permissions: {{ publish: {{ deny: "secret" }} }}'))
        with RawClient(server.address, **LOGIN) as later:  # its hash ends behind the others
            later.settle()
        client.send(b"PUB secret 0\r\n\r\nPING\r\n")
        assert lines_until_end(client) == ["-ERR 'Permissions Violation for Publish to \"secret\"'"]


ISSUER = Keys.new("account")
CALLOUT = f"auth_callout {{ issuer: {ISSUER.public}, auth_users: [service], account: AUTH }}"
ACCOUNTS = "AUTH { users: [ { user: service, password: s } ] }\n A {}\n B {}\n"
CALLED = f"accounts {{\n {ACCOUNTS} }}\nauthorization {{ timeout: 60, {CALLOUT} }}\n"
SERVICE: dict[str, Any] = {"user": "service", "pass": "s"}


def test_an_account_that_a_reload_ends_takes_nobody_whom_a_service_puts_there(tmp_path: Path) -> None:
    asked, may_answer = threading.Event(), threading.Event()

    def decide(request: Request) -> bytes:
        asked.set()
        assert may_answer.wait(30)
        return answer(ISSUER, request, jwt=user_token(ISSUER, request))

    with (
        Server("jetraft", directory=tmp_path, config=CALLED) as server,
        CalloutService(server.address, SERVICE, decide),
        RawClient(server.address, connect=False) as client,
    ):
        client.send(connect_line(user="x"))
        assert asked.wait(30)
        reload(server, CALLED.replace(" A {}\n", ""))
        may_answer.set()
        client.send(b"PING\r\n")
        assert lines_until_end(client) == [VIOLATION]
        assert "A" not in server.get("/accountz")[1]["accounts"]
