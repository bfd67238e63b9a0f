"""The pages of a real server: nats-server's fields with its types, and nothing that a stranger asks ends the server."""

import json
import socket
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.raw import RawClient
from tests.harness.server import Kind, Server

pytestmark = pytest.mark.reference
PAGES: Final = (
    "/healthz",
    "/varz",
    "/connz?subs=1",
    "/leafz",
    "/gatewayz",
    "/jsz",
    "/jsz?accounts=1",
    "/jsz?streams=1",
    "/jsz?consumers=1",
    "/jsz?consumers=1&config=1",
)
NOT_SERVED: Final = {
    "/varz": """
        disk_io_wait_stats feature_flags.js_raft_delete_range http_req_stats jetstream.limits.default_max_consumers
    """,
    "/jsz": "limits.default_max_consumers",
}
NUMBERS: Final = (int, float)
COUNTS: Final = frozenset(
    ("streams", "consumers", "messages", "bytes", "storage", "memory", "accounts", "total", "num_pending", "first_seq")
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Kind, Server]]:
    """One of each kind, with a stream, a consumer, messages and a client that stays."""
    kinds: tuple[Kind, ...] = ("reference", "jetraft")
    running = {kind: Server(kind, directory=tmp_path_factory.mktemp(kind)) for kind in kinds}
    clients = []
    try:
        for server in running.values():
            server.start()
            client = RawClient(server.address)
            clients.append(client)
            client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "max_bytes": 1 << 20})
            client.api(
                "CONSUMER.CREATE.S.d", {"stream_name": "S", "config": {"durable_name": "d", "ack_policy": "explicit"}}
            )
            assert "seq" in json.loads(client.request("s.a", b"x")[0].payload)
        yield running
    finally:
        for client in clients:
            client.close()
        for server in running.values():
            server.close()


def fields(document: Any, path: str = "") -> dict[str, Any]:
    """Every field by its path; the elements of a list share one."""
    found: dict[str, Any] = {}
    if isinstance(document, list):
        for element in document:
            found |= fields(element, path)
    elif isinstance(document, dict):
        for name, value in document.items():
            found |= {f"{path}{name}": value} | fields(value, f"{path}{name}.")
    return found


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_fields_of_the_reference_with_their_types(servers: dict[Kind, Server], page: str) -> None:
    status, theirs = servers["reference"].get(page)
    ours_status, ours = servers["jetraft"].get(page)
    assert (status, ours_status) == (200, 200)
    wanted, found = fields(theirs), fields(ours)
    left_out = NOT_SERVED.get(page.partition("?")[0], "").split()
    missing = wanted.keys() - found.keys()
    assert {name for name in missing if name not in left_out and name.partition(".")[0] not in left_out} == set()
    for name in wanted.keys() & found.keys():
        both = (wanted[name], found[name])
        assert type(both[0]) is type(both[1]) or all(isinstance(value, NUMBERS) for value in both), (name, *both)


@pytest.mark.parametrize("page", ["/jsz", "/jsz?streams=1", "/jsz?consumers=1"])
def test_what_a_page_counts_is_what_the_reference_counts(servers: dict[Kind, Server], page: str) -> None:
    counts = [
        {name: value for name, value in fields(server.get(page)[1]).items() if name.rpartition(".")[2] in COUNTS}
        for server in servers.values()
    ]
    assert "messages" in counts[0]
    assert counts[1] == counts[0]


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"//[", 400),
        (b"/connz?offset=" + b"9" * 5000, 400),
        (b"/connz?limit=-1&offset=x", 400),
        (b"/nothing", 404),
        (b"/varz?" + b"&".join(b"a%d=1" % number for number in range(1000)), 200),
    ],
    ids=["no URL", "a long number", "no numbers", "no page", "many arguments"],
)
def test_nonsense_is_answered_and_the_server_goes_on(servers: dict[Kind, Server], target: bytes, status: int) -> None:
    server = servers["jetraft"]
    with socket.create_connection((HOST, server.http_port), timeout=PATIENCE_S) as client:
        client.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert client.makefile("rb").readline().split()[1] == str(status).encode()
    assert server.healthy()
