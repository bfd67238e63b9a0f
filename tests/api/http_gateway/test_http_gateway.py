"""Publishing and reading by HTTP: what a client with the same login would be answered, and nothing else."""

import base64
import http.client
import json
import os
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.certificates import Authority
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.raw import RawClient, exchange_to_end
from tests.harness.server import Server

LISTEN = f'http_gateway {{ listen: "{HOST}:-1" }}'
USERS = """
authorization { users: [
  { user: all, password: secret }
  { user: some, password: less, permissions: { publish: "s.open", subscribe: "_INBOX.>" } }
] }
"""


def port_of(server: Server) -> int:
    line = server.running.wait_for_line("Listening for HTTP publishes on")
    return int(re.findall(r":(\d+)$", line.strip())[0])


def basic(login: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


class Browser:
    """One HTTP connection."""

    def __init__(self, server: Server, login: str = "", context: ssl.SSLContext | None = None) -> None:
        port = port_of(server)
        self.connection = (
            http.client.HTTPConnection(HOST, port, timeout=PATIENCE_S)
            if context is None
            else http.client.HTTPSConnection(HOST, port, timeout=PATIENCE_S, context=context)
        )
        self.headers = basic(login) if login else {}

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(method, path, body, {**self.headers, **named})
        self.response = self.connection.getresponse()
        return self.response.status, self.response.read()

    def told(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
        status, answer = self.ask(method, path, body, **headers)
        return status, json.loads(answer)

    def close(self) -> None:
        self.connection.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server("jetraft", directory=tmp_path_factory.mktemp("plain"), config=LISTEN) as running:
        with RawClient(running.address) as client:
            client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "max_msg_size": 1000})
        yield running


@pytest.fixture
def browser(server: Server) -> Iterator[Browser]:
    opened = Browser(server)
    yield opened
    opened.close()


def test_a_payload_that_does_not_fit_the_schema_is_a_bad_request(server: Server, browser: Browser) -> None:
    metadata = {"jetraft.schema_type": "json", "jetraft.schema": '{"required":["id"]}'}
    with RawClient(server.address) as client:
        client.api("STREAM.CREATE.J", {"name": "J", "subjects": ["j"], "metadata": metadata})
    status, answer = browser.told("POST", "/pub/j", b"{}")
    assert (status, answer["error"]["err_code"]) == (400, 19001)
    assert answer["error"]["description"] == "message does not fit the schema: /id: missing"
    assert browser.told("POST", "/pub/j", b'{"id":1}')[0] == 200


def test_a_publish_waits_for_its_ack_and_the_message_is_read_again(browser: Browser) -> None:
    headers = {"Nats_Msg_Id": "one", "X_Header_Colour": "red", "Cookie": "not of the message"}
    status, ack = browser.told("POST", "/pub/s.a%2Fb", b"hello \x00\xff", **headers)
    assert (status, ack["stream"]) == (200, "S")
    status, again = browser.told("POST", "/pub/s.a%2Fb", b"hello", **headers)
    assert (again["seq"], again["duplicate"]) == (ack["seq"], True)
    for path in (f"/stream/S/msg/{ack['seq']}", "/stream/S/last/s.a%2Fb"):
        status, message = browser.told("GET", path)
        assert (status, message["subject"], message["seq"]) == (200, "s.a/b", ack["seq"])
        assert base64.b64decode(message["data"]) == b"hello \x00\xff"
        assert message["headers"] == {"Nats-Msg-Id": ["one"], "Colour": ["red"]}
        status, body = browser.ask("GET", path, Accept="application/octet-stream")
        assert (status, body) == (200, b"hello \x00\xff")
        assert browser.response.headers["Nats-Subject"] == "s.a/b"


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("POST", "/pub/nobody", 404, "no stream takes this subject"),
        ("POST", "/pub/s.*", 400, "it is no subject that one can publish to"),
        ("POST", "/pub/s.%0d%0aPUB%20s.b%200", 400, "it is no subject that one can publish to"),
        ("POST", "/pub/", 400, "it is no subject that one can publish to"),
        ("GET", "/pub/s.a", 405, "it is POST"),
        ("PUT", "/stream/S/msg/1", 405, "it is GET"),
        ("GET", "/stream/S/msg/0", 400, "the sequence is a number from 1 on"),
        ("GET", "/stream/S/msg/99999", 404, "no message found"),
        ("GET", "/stream/S/last/s.none", 404, "no message found"),
        ("GET", "/stream/NONE/msg/1", 404, "stream not found"),
        ("GET", "/stream/S.>/msg/1", 400, "it is no name of a stream"),
        ("GET", "/", 404, "there is /pub/<subject>, /stream/<name>/msg/<seq> and /stream/<name>/last/<subject>"),
    ],
)
def test_what_cannot_be_is_refused(browser: Browser, method: str, path: str, status: int, text: str) -> None:
    found, answer = browser.told(method, path)
    assert (found, answer["error"]["code"], answer["error"]["description"]) == (status, status, text)


def test_the_errors_of_streams_come_with_their_code(browser: Browser) -> None:
    status, answer = browser.told("POST", "/pub/s.a", b"x" * 1001)
    assert (status, answer["error"]["err_code"]) == (400, 10054)
    status, answer = browser.told("POST", "/pub/s.a", b"x", Nats_Expected_Last_Sequence="99999")
    assert (status, answer["error"]["err_code"]) == (400, 10071)


def test_a_body_is_bounded_and_the_connection_goes_on(browser: Browser) -> None:
    status, answer = browser.told("POST", "/pub/s.a", b"x" * ((1 << 20) + 1))
    assert (status, answer["error"]["description"]) == (413, "a message has 1048576 bytes at most")
    assert browser.ask("POST", "/pub/s.a", b"x")[0] == 200


def processor_s(server: Server) -> float:
    """The processor time that the server has used, in seconds."""
    fields = Path(f"/proc/{server.running.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_body_of_many_small_chunks_costs_little(tmp_path: Path) -> None:
    """When each chunk copied the body again, as many as one read has took seconds of the server's turn."""
    first = b"x" * 15_000_000
    with Server("jetraft", directory=tmp_path, config=f"{LISTEN}\nmax_payload: 16MB\nmax_pending: 64MB") as server:
        port, before_s = port_of(server), processor_s(server)
        with socket.create_connection((HOST, port), timeout=PATIENCE_S) as connection:
            connection.sendall(b"POST /pub/nobody HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            connection.sendall(b"%x\r\n%b\r\n" % (len(first), first) + b"1\r\ny\r\n" * 10_000 + b"0\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 404"
        assert processor_s(server) - before_s < 4.0


def test_a_body_is_not_read_before_the_login(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path, config=LISTEN + USERS) as server:
        with socket.create_connection((HOST, port_of(server)), timeout=PATIENCE_S) as connection:
            connection.sendall(
                b"POST /pub/s.open HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 900000\r\nExpect: 100-continue\r\n\r\n"
            )
            assert connection.recv(12) == b"HTTP/1.1 401", "instead of 100"
        other = Browser(server)
        status, answer = other.told("POST", "/pub/s.open", b"x" * ((1 << 20) + 1))
        assert status == 401, answer
        other.close()


def test_the_subject_of_a_response_is_written_as_that_of_a_request(browser: Browser) -> None:
    for subject in ("s.%C3%BC", "s.100%25"):
        _, ack = browser.told("POST", f"/pub/{subject}", b"x")
        path = f"/stream/S/msg/{ack['seq']}"
        assert browser.ask("GET", path, Accept="application/octet-stream") == (200, b"x")
        assert browser.response.headers["Nats-Subject"] == subject


def test_head_is_refused_without_a_body_and_the_connection_goes_on(browser: Browser) -> None:
    assert browser.ask("HEAD", "/stream/S/msg/1") == (405, b"")
    assert browser.ask("POST", "/pub/s.a", b"x")[0] == 200


def test_after_an_answer_that_does_not_come_in_time_the_next_request_has_another_client(
    server: Server, browser: Browser
) -> None:
    with RawClient(server.address) as silent:
        silent.send(b"SUB silent 7\r\n")
        silent.settle()
        assert browser.ask("POST", "/pub/silent", b"x")[0] == 504
        silent.send(b"UNSUB 7\r\n")
        silent.settle()
        before = server.get("/connz")[1]["connections"]
    assert browser.ask("POST", "/pub/s.a", b"x")[0] == 200
    after = server.get("/connz")[1]["connections"]
    cids = [{one["cid"] for one in page if one.get("name") == "http gateway"} for page in (before, after)]
    assert not cids[0] & cids[1], "half of a message may be on its way on the first one"


def test_a_stream_that_answers_as_in_2020_refuses_with_a_status_too(server: Server, browser: Browser) -> None:
    with RawClient(server.address) as client:
        config = {"name": "OLD", "subjects": ["old"], "max_msg_size": 10, "metadata": {"jetraft.legacy_ack": "true"}}
        assert "error" not in client.api("STREAM.CREATE.OLD", config)
    assert browser.ask("POST", "/pub/old", b"x") == (200, b"+OK")
    status, answer = browser.told("POST", "/pub/old", b"x" * 11)
    assert (status, answer["error"]["description"]) == (400, "message size exceeds maximum allowed")


def test_a_web_page_cannot_publish(browser: Browser) -> None:
    assert browser.ask("POST", "/pub/s.a", b"x", Origin="http://elsewhere")[0] == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example"]
)
def test_a_page_whose_name_leads_here_reads_nothing(browser: Browser, host: str) -> None:
    assert browser.ask("GET", "/stream/S/msg/1", Host=host)[0] == 403
    assert browser.ask("POST", "/pub/s.a", b"x", Host=host)[0] == 403


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "10.1.2.3", "[::1]", "[::1]:8080"])
def test_a_machine_that_is_named_by_its_address_is_asked(browser: Browser, host: str) -> None:
    assert browser.ask("POST", "/pub/s.a", b"x", Host=host)[0] == 200


def test_a_browser_that_says_which_site_asks_is_refused(browser: Browser) -> None:
    assert browser.ask("POST", "/pub/s.a", b"x", Sec_Fetch_Site="cross-site")[0] == 403
    assert browser.ask("POST", "/pub/s.a", b"x", Sec_Fetch_Site="none")[0] == 200


def test_a_body_whose_length_is_said_twice_is_refused_and_the_connection_closed(server: Server) -> None:
    both = b"POST /pub/s.a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection((HOST, port_of(server)), PATIENCE_S) as sock:
        answer = exchange_to_end(sock, both + b"0\r\n\r\nGET /stream/S/msg/1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


def test_a_connection_that_speaks_no_http_or_is_broken_off_is_closed(server: Server, browser: Browser) -> None:
    with socket.create_connection((HOST, port_of(server)), timeout=PATIENCE_S) as connection:
        connection.sendall(b"CONNECT {}\r\nPING\r\n\r\n")
        assert connection.recv(100) == b""
    with socket.create_connection((HOST, port_of(server)), timeout=PATIENCE_S) as connection:
        connection.sendall(b"POST /pub/s.a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf")
    assert browser.ask("POST", "/pub/s.a", b"x")[0] == 200


def test_its_clients_are_shown_and_go_with_their_connection(server: Server, browser: Browser) -> None:
    assert browser.ask("POST", "/pub/s.a", b"x")[0] == 200
    _, page = server.get("/connz")
    mine = [one for one in page["connections"] if one.get("name") == "http gateway"]
    assert [one["ip"] for one in mine] == [HOST]
    browser.close()

    def are_gone() -> bool:
        _, shown = server.get("/connz")
        return not [one for one in shown["connections"] if one.get("name") == "http gateway"]

    server.running.wait_until(are_gone, what="the client behind the connection ended")


def test_a_login_is_a_clients_and_so_is_what_it_may_do(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path, config=LISTEN + USERS) as server:
        with RawClient(server.address, **{"user": "all", "pass": "secret"}) as client:  # type: ignore[arg-type]
            client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        for login in ("", "all:wrong", "nobody:x"):
            refused = Browser(server, login)
            assert refused.ask("POST", "/pub/s.open", b"x")[0] == 401
            assert refused.response.headers["WWW-Authenticate"].startswith("Basic")
            refused.close()
        some = Browser(server, "some:less")
        assert some.ask("POST", "/pub/s.open", b"x")[0] == 200
        status, answer = some.told("POST", "/pub/s.closed", b"x")
        assert (status, answer["error"]["description"]) == (403, 'Permissions Violation for Publish to "s.closed"')
        assert some.ask("GET", "/stream/S/msg/1")[0] == 403
        assert some.ask("POST", "/pub/s.open", b"x")[0] == 200, "the connection goes on"
        some.headers = basic("all:secret")
        assert some.ask("GET", "/stream/S/msg/1")[0] == 200, "another login on the same connection"
        some.close()
        some = Browser(server)
        assert some.ask("GET", "/stream/S/msg/1", Authorization="Digest x")[0] == 401
        some.close()


def test_a_token_is_a_bearers(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path, config=LISTEN + 'authorization { token: "t0ken" }') as server:
        with RawClient(server.address, auth_token="t0ken") as client:
            client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        browser = Browser(server)
        assert browser.ask("POST", "/pub/s.a", b"x", Authorization="Bearer t0ken")[0] == 200
        assert browser.ask("POST", "/pub/s.a", b"x", Authorization="Bearer other")[0] == 401
        browser.close()


def test_it_speaks_https_with_certificates_of_its_own(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    block = f'http_gateway {{ listen: "{HOST}:-1", tls {{ {authority.server().block} }} }}'
    with Server("jetraft", directory=tmp_path, config=block) as server:
        browser = Browser(server, context=ssl.create_default_context(cafile=str(authority.ca_file)))
        assert browser.ask("POST", "/pub/nobody", b"x")[0] == 404
        browser.close()


def test_https_may_require_certificates_of_its_clients(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    tls = f'{authority.server().block}, ca_file: "{authority.ca_file}", verify: true'
    with Server(
        "jetraft", directory=tmp_path, config=f'http_gateway {{ listen: "{HOST}:-1", tls {{ {tls} }} }}'
    ) as server:
        without = Browser(server, context=authority.client_context())
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.BadStatusLine)):
            without.ask("POST", "/pub/nobody", b"x")
        without.close()
        named = Browser(server, context=authority.client_context(authority.server("client")))
        assert named.ask("POST", "/pub/nobody", b"x")[0] == 404
        named.close()


def test_every_node_of_a_cluster_takes_publishes(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path, config=LISTEN) as cluster:
        with RawClient(cluster[0].address) as client:
            client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "num_replicas": 3})
        for number, node in enumerate(cluster.nodes, start=1):
            browser = Browser(node)
            status, ack = browser.told("POST", "/pub/s.a", b"%d" % number)
            assert (status, ack["seq"]) == (200, number)
            browser.close()
