"""No password, token, seed, signature or payload that was sent is in the log, whatever form it came in."""

import json
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.harness.log_lines import FORMS, wait_for_event
from tests.harness.raw import RawClient
from tests.harness.server import Server

ROUNDS = 150
MARK = "hush"  # each secret has it, and nothing else that is sent
USERS = """
authorization { users: [
  { user: alice, password: "hush-of-alice" }
  { user: bob, password: "hush-of-bob", permissions: { publish: "allowed", subscribe: "_INBOX.>" } }
] }
"""
TOKEN = 'authorization { token: "hush-of-all" }\n'
WRONG_FILES = (  # what a failed reload reads
    'authorization { user: alice, password: ["hush-1"] }\n',
    'authorization { user: alice, password: "hush-2\n',
    "authorization { user: alice, pasword: hush-3 }\n",
    'authorization { users: [ { user: alice, password: "hush-4", permissions: 7 } ] }\n',
    'cluster { name: C, routes: [ "nats://alice:hush-5@[::1" ] }\n',
    'cluster { name: C, authorization { user: alice, password: hush-6, timeout: "x y" } }\n',
    'leafnodes { remotes: [ { url: "nats://alice:hush-7@a b:x" } ] }\n',
)


def secret(rng: random.Random) -> str:
    """A secret, of characters that a log may have to quote."""
    return MARK + "".join(rng.choice('abc"\\ \t{}=:é\u2028') for _ in range(rng.randrange(12)))


def connect_line(rng: random.Random) -> bytes:
    fields: dict[str, Any] = {"verbose": False, "name": "c", "lang": "x"}
    for name in ("pass", "auth_token", "jwt", "sig", "nkey_seed", "seed", "proxy_sig"):
        if rng.random() < 0.5:
            fields[name] = secret(rng)
    if rng.random() < 0.7:
        fields["user"] = rng.choice(("alice", "bob", "carol"))
    text = json.dumps(fields, ensure_ascii=rng.random() < 0.5)
    return f"CONNECT {text[: rng.randrange(len(text))] if rng.random() < 0.2 else text}\r\n".encode()


def publish(rng: random.Random) -> bytes:
    payload = secret(rng).encode()
    subject = rng.choice((b"allowed", b"denied", b"$JS.API.STREAM.CREATE.S", b"$JS.API.STREAM.INFO.S", b"a..b"))
    size = len(payload) + rng.choice((0, 0, 0, -3, 5))
    header = b"NATS/1.0\r\nAuthorization: %s\r\n\r\n" % secret(rng).encode().replace(b"\r", b"")
    if rng.random() < 0.3:
        return b"HPUB %s %d %d\r\n%s%s\r\n" % (subject, len(header), len(header) + size, header, payload)
    return b"PUB %s %d\r\n%s\r\n" % (subject, size, payload)


def attempt(server: Server, rng: random.Random, first: Callable[[random.Random], bytes]) -> None:
    """A connection that begins so, and goes on with publishes."""
    with suppress(AssertionError, OSError), RawClient(server.address, connect=False) as client:
        client.send(first(rng) + b"".join(publish(rng) for _ in range(rng.randrange(5))) + b"PING\r\n")
        client.next_event(0.02)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("users", [USERS, TOKEN], ids=["users", "token"])
def test_what_was_sent_as_a_secret_is_in_no_line(tmp_path: Path, form: str, users: str) -> None:
    rng = random.Random(form + users)
    rights = {USERS: {"user": "bob", "pass": "hush-of-bob"}, TOKEN: {"auth_token": "hush-of-all"}}[users]
    known = f"CONNECT {json.dumps(rights)}\r\n".encode()
    head = f"log_format: {form}\n"
    with Server("jetraft", directory=tmp_path, config=head + users, flags=("-D",)) as server:
        for number in range(ROUNDS):
            attempt(server, rng, connect_line if number % 2 else lambda _: known)
        for number, text in enumerate(WRONG_FILES):
            (tmp_path / "server.conf").write_text(head + text, encoding="utf-8")
            server.running.signal(signal.SIGHUP)
            server.running.wait_until(
                lambda number=number: failed_reloads(server) > number,  # type: ignore[misc]
                what="the reload has failed",
            )
        wait_for_event(server.running, form, "client_refused")
        server.stop()
        lines = list(server.running.lines)
        assert [line for line in lines if MARK in line] == []
        assert sum("Client connection closed" in line for line in lines) >= ROUNDS // 2, "debug lines are on"


def failed_reloads(server: Server) -> int:
    return sum("Failed to reload" in line for line in list(server.running.lines))
