"""A new configuration on both servers: what the log says, and what clients see that are connected."""

import json
import re
import signal
from itertools import groupby
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.harness.raw import Event, Line, Message, RawClient
from tests.harness.server import Kind, Server

pytestmark = [pytest.mark.reference]
DONE = re.compile(r"Reloaded server configuration|Failed to reload server configuration")
HEAD = "server_name: n1\n"  # nats-server forgets that of the command line
# nats-server says these at every reload.
ALWAYS = ("Reloaded: authorization users", "Reloaded: accounts")
RAISED = "the cluster uses feature level"  # told once after a start, which may be during the reload
WHY = ": not authorized after the reload"  # jetraft says besides why a client goes
A: dict[str, Any] = {"user": "a", "pass": "a"}
Z: dict[str, Any] = {"user": "z", "pass": "z"}
USER_A, USER_Z = '{user: "a", password: "a"}', '{user: "z", password: "z"}'
# both of "a", with 4 rounds
HASHED = '{user: "a", password: "$2b$04$v1SMEGPv8c9k/8g7H2rf6.AdRc8lSQVcE1LnCHjguRzAXy5eYjJDu"}'


def users(*listed: str) -> str:
    """The block of these users."""
    return f"authorization {{ users: [ {', '.join(listed)} ] }}\n"


def accounts(**listed: str) -> str:
    """Accounts with one user each."""
    return "accounts {\n" + "".join(f"{name} {{ users: [ {user} ] }}\n" for name, user in listed.items()) + "}\n"


@attrs.frozen
class Client:
    """A client that is connected when the configuration changes."""

    options: dict[str, Any] = attrs.field(factory=dict)
    subscriptions: tuple[str, ...] = ("foo",)


@attrs.frozen
class Case:
    """Two configurations, one after the other."""

    before: str
    after: str
    clients: tuple[Client, ...] = ()


LISTED = (Client(A), Client(Z))
DENIED = '{user: "a", password: "a", permissions: {subscribe: {deny: ["foo", "q.>"]}, publish: ["x"]}}'
CASES = {
    "the same hash": Case(users(HASHED, USER_Z), users(HASHED), LISTED),
    "nothing": Case("", "# nothing\n"),
    "a user is gone": Case(users(USER_A, USER_Z), users(USER_Z), LISTED),
    "another password": Case(users(USER_A, USER_Z), users('{user: "a", password: "b"}', USER_Z), LISTED),
    "other permissions": Case(
        users(USER_A, USER_Z),
        users(DENIED, USER_Z),
        (Client(A, ("foo", "bar", "q.a w", ">")), Client(Z)),
    ),
    "permissions end": Case(users(DENIED), users(USER_A), (Client(A, ("bar",)),)),
    "names are needed now": Case("", users(USER_A), (Client(), Client(A))),
    "names are needed no more": Case(users(USER_A), "", (Client(A),)),
    "users are elsewhere": Case(accounts(A=USER_A, B=USER_Z), accounts(A=USER_Z, B=USER_A), LISTED),
    "an account is gone": Case(accounts(A=USER_A, B=USER_Z), accounts(A=USER_A), LISTED),
    "an account comes": Case(accounts(A=USER_A), accounts(A=USER_A, B=USER_Z), (Client(A),)),
    "another token": Case("authorization { token: a }", "authorization { token: b }", (Client({"auth_token": "a"}),)),
    "levels": Case("", "debug: true\ntrace_verbose: false\nlogtime_utc: true\n"),
    "limits": Case("", "max_payload: 500\nmax_control_line: 1024\nping_interval: 30s\nping_max: 5\n", (Client(),)),
    "a deadline": Case("", "write_deadline: 3s\n"),
    "an address": Case("", 'client_advertise: "1.2.3.4:5"\n', (Client(),)),
    "metadata": Case("", "server_metadata: {a: b}\n"),
    "a timeout": Case(users(USER_A), "authorization { timeout: 3, users: [ " + USER_A + " ] }", (Client(A),)),
    "one thing that cannot change": Case("", "ping_max: 5\nmax_subscriptions: 10\n", (Client(),)),
    "no pending": Case("", "max_pending: 100000000\n"),
    "no lame duck": Case("", "lame_duck_duration: 40s\n"),
    "no system account": Case("", "accounts { A {} }\nsystem_account: A\n"),
    "no default user": Case(users(USER_A), users(USER_A) + "no_auth_user: a\n"),
    "no log size": Case("", "log_size_limit: 100000\n"),
    "mappings": Case("", "mappings: {a: b}\n", (Client(),)),
    "payloads in the log": Case("", "max_traced_msg_len: 10\n"),
    "no headers": Case("", "no_header_support: true\n"),
    "tags": Case("", 'server_tags: ["az:1"]\n'),
    "jetstream sizes": Case("jetstream { max_mem: 100MB }\n", "jetstream { max_mem: 200MB }\n"),
    "both jetstream sizes": Case(
        "jetstream { max_mem: 100MB, max_file: 100MB }\n", "jetstream { max_mem: 200MB, max_file: 300MB }\n"
    ),
    "smaller jetstream": Case("jetstream { max_file: 200MB }\n", "jetstream { max_file: 100MB }\n"),
    "one of both": Case(
        "jetstream { max_mem: 100MB, max_file: 200MB }\n", "jetstream { max_mem: 200MB, max_file: 100MB }\n"
    ),
    "a size comes": Case("jetstream {}\n", "jetstream { max_file: 100MB }\n"),
    "a size goes": Case("jetstream { max_mem: 100MB }\n", "jetstream {}\n"),
    "a domain": Case("jetstream { domain: a }\n", "jetstream { domain: b }\n"),
    "no other strictness": Case("jetstream {}\n", "jetstream { strict: false }\n"),
    "account limits": Case(
        accounts(A=USER_A), accounts(A=USER_A).replace("users", "limits: {max_payload: 10}, users"), (Client(A),)
    ),
    "no proxy": Case("", "proxy_protocol: true\n"),
    "no policy": Case("", "write_timeout: retry\n"),
    "no flag": Case("feature_flags: {a: true}\n", "feature_flags: {a: false, b: true}\n"),
    "no deadline of leaf nodes": Case("leafnodes { port: -1 }\n", "leafnodes { port: -1, write_deadline: 3s }\n"),
    "no policy of leaf nodes": Case("leafnodes { port: -1 }\n", "leafnodes { port: -1, write_timeout: close }\n"),
    "no path": Case("", "http_base_path: /x\n"),
}


def observed(kind: Kind, case: Case, directory: Path) -> dict[str, Any]:
    """The lines of the log, and what each client sees."""
    with Server(kind, directory=directory / kind, config=HEAD + case.before) as server:
        server.running.wait_for_line("Server is ready")  # what it listens on is written before that
        clients = [RawClient(server.address, **client.options) for client in case.clients]
        for connection, client in zip(clients, case.clients, strict=True):
            for sid, subscription in enumerate(client.subscriptions, 1):
                connection.send(f"SUB {subscription} {sid}\r\n".encode())
            connection.settle()
        raw = [line for line in reload(server, HEAD + case.after) if "[DBG]" not in line and RAISED not in line]
        assert kind == "reference" or all(line.endswith(WHY) for line in raw if "authentication error" in line)
        lines = [shown(line) for line in raw]
        end = next(place for place, line in enumerate(lines) if DONE.search(line))
        seen = []
        for connection in clients:
            events = connection.settle()
            texts = [event.text for event in events if isinstance(event, Line) and not event.text.startswith("INFO")]
            seen.append({"says": sorted(text for text in texts if text != "PING"), "closed": connection.closed})
            connection.close()
    return {"log": without_order([line for line in lines[: end + 1] if not line.endswith(ALWAYS)]), "clients": seen}


def reload(server: Server, config: str) -> list[str]:
    """Let a server read another configuration; returns the lines of its log until it has followed or refused it."""
    before = len(server.running.lines)
    (server.directory / "server.conf").write_text(config, encoding="utf-8")
    server.running.signal(signal.SIGHUP)
    server.running.wait_until(
        lambda: any(DONE.search(line) for line in server.running.lines[before:]), what="the end of the reload"
    )
    return server.running.lines[before:]


def without_order(lines: list[str]) -> list[str]:
    """The subscriptions of a connection are a map in the reference: each run goes through them in another order."""
    return [
        line
        for is_removal, run in groupby(lines, lambda line: "Removed sub " in line)
        for line in (sorted(run) if is_removal else run)
    ]


def shown(line: str) -> str:
    """A line without what differs between two processes."""
    text = re.sub(r"^\[\d+\] (\S+ \S+ )?", "", line)
    text = re.sub(r"127\.0\.0\.1:\d+ - cid:\d+ - (\"v[^\"]*\" - )?", "CLIENT - ", text)
    return re.sub(r"sha256:\w+", "DIGEST", text).removesuffix(WHY)


@pytest.mark.parametrize("name", CASES)
def test_reloads_as_the_reference_does(name: str, tmp_path: Path) -> None:
    expected = observed("reference", CASES[name], tmp_path)
    assert observed("jetraft", CASES[name], tmp_path) == expected


def sharing(a: str = "", z: str = "") -> str:
    """Two accounts with a user each, and what they share."""
    return f"accounts {{\nA {{ users: [ {USER_A} ], {a} }}\nZ {{ users: [ {USER_Z} ], {z} }}\n}}\n"


STREAM, OF_STREAM = "exports: [ {stream: s} ]", "imports: [ {stream: {account: A, subject: s}, to: t} ]"
SERVICE, OF_SERVICE = "exports: [ {service: q} ]", "imports: [ {service: {account: A, subject: q}, to: r} ]"
SHARED = {
    "a stream comes": (sharing(), sharing(STREAM, OF_STREAM)),
    "a stream goes": (sharing(STREAM, OF_STREAM), sharing()),
    "an import goes": (sharing(STREAM, OF_STREAM), sharing(STREAM)),
    "a stream elsewhere": (sharing(STREAM, OF_STREAM), sharing(STREAM, OF_STREAM.replace("to: t", "to: u"))),
    "a service comes": (sharing(), sharing(SERVICE, OF_SERVICE)),
    "a service goes": (sharing(SERVICE, OF_SERVICE), sharing()),
    "a mapping comes": (sharing(), sharing("mappings: {m: n}")),
    "a mapping goes": (sharing("mappings: {m: n}"), sharing()),
    "other subjects": (sharing("mappings: {m: n}"), sharing("mappings: {m: o}")),
    "an export that is missing": (sharing(), sharing("", OF_STREAM)),
}


def exchanged(kind: Kind, before: str, after: str, directory: Path) -> dict[str, list[tuple[str, str]]]:
    """What clients of two accounts get of each other, connected before a reload and publishing after it."""
    with Server(kind, directory=directory / kind, config=HEAD + before) as server:
        clients = {"a": RawClient(server.address, **A), "z": RawClient(server.address, **Z)}
        for client in clients.values():
            client.send("".join(f"SUB {subject} {sid}\r\n" for sid, subject in enumerate("qtunom", 1)).encode())
            client.settle()
        reload(server, HEAD + after)
        got: dict[str, list[Event]] = {name: [] for name in clients}
        for subject in "sqrmt":
            for name, client in clients.items():
                client.send(f"PUB {subject} 1\r\n{name}\r\n".encode())
                got[name] += client.settle()
        for name, client in clients.items():
            got[name] += client.settle()
            client.close()
    return {
        name: [(event.subject, event.payload.decode()) for event in events if isinstance(event, Message)]
        for name, events in got.items()
    }


@pytest.mark.parametrize("name", SHARED)
def test_accounts_share_other_things_as_with_the_reference(name: str, tmp_path: Path) -> None:
    before, after = SHARED[name]
    expected = exchanged("reference", before, after, tmp_path)
    assert exchanged("jetraft", before, after, tmp_path) == expected


SYSTEM = "accounts { SYS { users: [ {user: sys, password: x} ] } }\nsystem_account: SYS\n"
SYSTEM_USER: dict[str, Any] = {"user": "sys", "pass": "x"}
REQUESTS: tuple[tuple[str, bytes], ...] = (
    ("ping_max: 5\n", b""),
    ("ping_max: 6\n", b"{}"),
    ("ping_max: 7\nmax_subscriptions: 10\n", b""),
    ("ping_max: 7\n", b"x"),
    ("ping_max: 7\n", b'{"server_name":"n1"}'),
)


def left_with_a_limit(kind: Kind, directory: Path) -> list[tuple[bool, list[str]]]:
    """What three clients of an account are told when it may have one connection, in no order."""
    with Server(kind, directory=directory / kind, config=HEAD + sharing()) as server:
        clients = [RawClient(server.address, **A) for _ in range(3)]
        for client in clients:
            client.settle()
        reload(server, HEAD + sharing("limits: {max_conn: 1}"))
        told = [
            [event.text for event in client.settle() if isinstance(event, Line) and event.text.startswith("-ERR")]
            for client in clients
        ]
        closed = [client.closed for client in clients]
        for client in clients:
            client.close()
    return sorted(zip(closed, told, strict=True))


def test_connections_that_are_too_many_for_an_account_end_as_with_the_reference(tmp_path: Path) -> None:
    expected = left_with_a_limit("reference", tmp_path)
    assert [closed for closed, _ in expected] == [False, True, True]
    assert left_with_a_limit("jetraft", tmp_path) == expected


def answered(kind: Kind, directory: Path) -> list[dict[str, Any]]:
    """What requests of the system account for a reload are told."""
    found = []
    with (
        Server(kind, directory=directory / kind, config=HEAD + SYSTEM) as server,
        RawClient(server.address, **SYSTEM_USER) as client,
    ):
        for config, body in REQUESTS:
            (directory / kind / "server.conf").write_text(HEAD + SYSTEM + config, encoding="utf-8")
            [answer] = client.request(f"$SYS.REQ.SERVER.{client.info['server_id']}.RELOAD", body)
            document = json.loads(answer.payload)
            found.append({name: value for name, value in document.items() if name != "server"})
            found.append({"ping_max": server.get("/varz")[1]["ping_max"]})
        (directory / kind / "server.conf").unlink()
        [answer] = client.request(f"$SYS.REQ.SERVER.{client.info['server_id']}.RELOAD", b"")
        found.append({"fails": "error" in json.loads(answer.payload)})
    return found


def test_a_request_of_the_system_account_reloads_as_with_the_reference(tmp_path: Path) -> None:
    expected = answered("reference", tmp_path)
    assert answered("jetraft", tmp_path) == expected
