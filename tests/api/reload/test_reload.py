"""A running server follows its configuration, or nothing of it."""

import json
import os
import signal
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from jetraft.api.options.options import ClusterOptions, ClusterTls, Options
from jetraft.api.reload.certificates import MeshCertificates
from jetraft.raft.mesh.connection import Tls, TlsFiles
from tests.doubles.callout_service import CalloutService, Request, answer, user_token
from tests.harness.certificates import Authority
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST, free_port
from tests.harness.raw import Line, RawClient
from tests.harness.raw_tls import TlsClient
from tests.harness.server import Kind, Server
from tests.harness.tokens import JETSTREAM, Keys, TokenOperator

DONE = "Reloaded server configuration"
REFUSED = "Failed to reload server configuration"


def reload(server: Server, config: str, answer: str = DONE) -> str:
    """Let a server read another configuration; returns the line that says what came of it."""
    before = len(server.running.lines)
    (server.directory / "server.conf").write_text(config, encoding="utf-8")
    server.running.signal(signal.SIGHUP)

    def answers() -> list[str]:
        return [line for line in server.running.lines[before:] if DONE in line or REFUSED in line]

    server.running.wait_until(lambda: bool(answers()), what="the end of the reload")
    assert answer in answers()[0]
    return answers()[0]


def login(user: str) -> dict[str, Any]:
    return {"user": user, "pass": "x"}


def test_a_bad_file_changes_nothing(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path, config="max_payload: 2000\n") as server:
        others = ("accounts { A: { imports: [ { stream: { account: B, subject: b } } ] } }",)
        for bad in ("port: [", "no_such_key: 1", "http_base_path: x", *others):
            reload(server, f"max_payload: 100\n{bad}", REFUSED)
        with RawClient(server.address) as client:
            assert client.info["max_payload"] == 2000
            client.publish("a", b"x" * 1000)
            assert client.settle() == []


def test_a_smaller_and_a_larger_payload_are_followed_by_those_who_are_connected(tmp_path: Path) -> None:
    with (
        Server("jetraft", directory=tmp_path, config="max_payload: 2000\n") as server,
        RawClient(server.address) as one,
    ):
        sid = one.subscribe("a")
        one.settle()
        one.send(b"PUB a 1900\r\n" + b"x" * 1000)  # what is on its way was within the limit
        reload(server, "max_payload: 4000000\nmax_control_line: 1024\n")
        one.send(b"x" * 900 + b"\r\n")
        one.publish("a", b"y" * 3_000_000)
        assert [len(message.payload) for message in one.messages(sid, 2)] == [1900, 3_000_000]
        reload(server, "max_payload: 100\n")
        one.publish("a", b"z" * 200)
        assert any("Maximum Payload Violation" in str(event) for event in one.settle())
        assert one.closed


def test_an_account_that_comes_has_jetstream(tmp_path: Path) -> None:
    account = "{ jetstream: enabled, users: [ {user: %s, password: x} ] }"
    before = f"accounts {{\n A {account % 'a'}\n }}\n"
    with (
        Server("jetraft", directory=tmp_path, config=before) as server,
        RawClient(server.address, **login("a")) as one,
    ):
        one.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        reload(server, f"accounts {{\n A {account % 'a'}\n B {account % 'b'}\n }}\n")
        with RawClient(server.address, **login("b")) as other:
            assert "error" not in other.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
            assert other.acknowledged("s", b"1")["seq"] == 1
        assert one.acknowledged("s", b"1")["seq"] == 1
        limited = "accounts {\n A { jetstream { max_streams: 1 }, users: [ {user: a, password: x} ] }\n }\n"
        line = reload(server, limited, REFUSED)
        assert "JetStream limits of account A" in line


def test_certificates_are_replaced_under_their_names(tmp_path: Path) -> None:
    old, new = Authority.make(tmp_path, "old"), Authority.make(tmp_path, "new")
    signed = old.server()
    config = f"tls {{ {signed.block} }}\n"
    with (
        Server("jetraft", directory=tmp_path, config=config) as server,
        TlsClient(server.address, old.client_context()) as before,
    ):
        later = new.server("later")
        signed.cert_file.write_bytes(later.cert_file.read_bytes())
        signed.key_file.write_bytes(later.key_file.read_bytes())
        reload(server, config)
        with TlsClient(server.address, new.client_context()) as after:
            assert after.settle() == []
        assert before.settle() == []
        signed.key_file.write_text("no key")
        reload(server, config, REFUSED)
        with TlsClient(server.address, new.client_context()) as still:
            assert still.settle() == []


@pytest.mark.reference
@pytest.mark.parametrize("kind", ["jetraft", "reference"])
def test_tls_is_turned_on_and_off_for_the_clients_that_come(kind: Kind, tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    plain, secure = "server_name: n1\n", f"server_name: n1\ntls {{ {authority.server().block} }}\n"
    with Server(kind, directory=tmp_path, config=plain, jetstream=False) as server:
        with RawClient(server.address) as before:
            write_and_signal(server, secure)
            server.running.wait_for_line("Reloaded: tls = enabled")
            server.running.wait_for_line("Reloaded server configuration")
            with TlsClient(server.address, authority.client_context()) as during:
                assert is_served(before)
                assert is_served(during)
                write_and_signal(server, plain)
                server.running.wait_for_line("Reloaded: tls = disabled")
                deadline = time.monotonic() + PATIENCE_S
                while needs_tls(server):
                    assert time.monotonic() < deadline
                with RawClient(server.address) as after:
                    assert all(is_served(client) for client in (before, during, after))
        write_and_signal(server, secure)
        server.running.wait_until(lambda: needs_tls(server), what="TLS is on again")
        with TlsClient(server.address, authority.client_context()) as again:
            assert is_served(again)


def test_tls_with_wrong_files_is_not_turned_on(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path, config="ping_max: 5\n", jetstream=False) as server:
        line = reload(server, 'ping_max: 6\ntls { cert_file: "/nope", key_file: "/nope" }\n', REFUSED)
        assert "/nope" in line
        with RawClient(server.address) as client:
            assert client.settle() == []


def write_and_signal(server: Server, config: str) -> None:
    """Let a server read another configuration."""
    (server.directory / "server.conf").write_text(config, encoding="utf-8")
    server.running.signal(signal.SIGHUP)


def is_served(client: RawClient) -> bool:
    """Whether a PING is answered, and nothing is said but INFO."""
    said = client.settle()
    return not client.closed and all(isinstance(event, Line) and event.text.startswith("INFO") for event in said)


def needs_tls(server: Server) -> bool:
    """Whether INFO asks for a handshake."""
    with RawClient(server.address, connect=False) as client:
        return bool(client.info.get("tls_required"))


def shown_certificate(port: int, context: ssl.SSLContext) -> bytes | None:
    """What the listener shows to one who begins with the handshake."""
    with (
        socket.create_connection((HOST, port), PATIENCE_S) as sock,
        context.wrap_socket(sock, server_hostname="localhost") as tls,
    ):
        return tls.getpeercert(binary_form=True)


def test_certificates_of_all_listeners_are_replaced_or_none(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    signed = authority.server()
    block = f"tls {{ {signed.block} }}"
    web, leaf = free_port(), free_port()
    config = (
        f"{block}\nwebsocket {{ host: {HOST}, port: {web}\n{block} }}\n"
        f"leafnodes {{ host: {HOST}, port: {leaf}\ntls {{ {signed.block}handshake_first: true }} }}\n"
    )
    with Server("jetraft", directory=tmp_path, config=config, monitor="-ms") as server:
        assert server.http_port is not None
        listeners = (web, leaf, server.http_port)
        old = [shown_certificate(port, authority.client_context()) for port in listeners]
        later = authority.server("later")
        signed.cert_file.write_bytes(later.cert_file.read_bytes())
        reload(server, config, REFUSED)  # the key is of the old one
        assert [shown_certificate(port, authority.client_context()) for port in listeners] == old
        signed.key_file.write_bytes(later.key_file.read_bytes())
        reload(server, config)
        assert not set(old) & {shown_certificate(port, authority.client_context()) for port in listeners}
        reload(server, config.replace(f"port: {web}\n{block}", f"port: {web}, no_tls: true"), REFUSED)


def test_links_between_nodes_begin_with_the_certificates_that_were_read_last(tmp_path: Path) -> None:
    signed = Authority.make(tmp_path).server()
    certificate, key = str(signed.cert_file), str(signed.key_file)
    files: dict[str, Any] = {"cert_file": certificate, "key_file": key, "ca_file": certificate}
    options = Options(cluster=ClusterOptions(tls=ClusterTls(**files)))
    tls = Tls.load(TlsFiles(**files))
    before = tls.accepting, tls.dialling
    take = MeshCertificates(tls).read(options)
    assert (tls.accepting, tls.dialling) == before
    assert take is not None
    take()
    assert tls.accepting is not before[0]
    assert tls.dialling is not before[1]


def test_the_log_goes_on_in_another_file(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path, config="") as server:
        log = tmp_path / "other.log"
        (tmp_path / "server.conf").write_text(f'log_file: "{log}"\n')
        server.running.signal(signal.SIGHUP)
        server.running.wait_until(lambda: log.exists() and DONE in log.read_text(), what="the line in the other file")
        (tmp_path / "server.conf").write_text('log_file: "/no/such/directory/x.log"\n')
        server.running.signal(signal.SIGHUP)
        server.running.wait_until(lambda: REFUSED in log.read_text(), what="the refusal")


def test_an_account_that_comes_is_shown_and_may_ask_about_itself(tmp_path: Path) -> None:
    before = "accounts { A { users: [ {user: a, password: x} ] } }\n"
    after = "accounts { B { users: [ {user: b, password: x} ] } }\n"
    with Server("jetraft", directory=tmp_path, config=before) as server:
        reload(server, after)
        assert server.get("/accountz")[1]["accounts"] == ["$G", "$SYS", "B"]
        with RawClient(server.address, **login("b")) as client:
            [message] = client.request("$SYS.REQ.USER.INFO", b"")
            assert json.loads(message.payload)["data"]["account"] == "B"
            assert client.api("INFO")["error"]["err_code"] == 10039


def test_a_reload_leaves_clients_with_tokens_alone(tmp_path: Path) -> None:
    operator = TokenOperator()
    account = operator.account("A", limits=JETSTREAM)
    config = operator.config(operator.account("SYS"), account)
    with (
        Server("jetraft", directory=tmp_path, config=config) as server,
        RawClient(server.address, connect=False) as client,
    ):
        client.connect(**account.user().login(client.info["nonce"]))
        reload(server, config + "\nmax_payload: 1000\n")
        assert client.info["max_payload"] == 1048576
        assert client.api("INFO")["streams"] == 0
        line = reload(server, operator.config(operator.account("SYS"), operator.account("B")), REFUSED)
        assert "config reload not supported for" in line
        with RawClient(server.address, connect=False) as other:
            other.connect(**account.user().login(other.info["nonce"]))
            assert other.info["max_payload"] == 1000
        assert not client.closed


def test_the_service_is_not_asked_again_about_those_whom_it_let_in(tmp_path: Path) -> None:
    issuer = Keys.new("account")

    def good(request: Request) -> bytes:
        return answer(issuer, request, jwt=user_token(issuer, request))

    callout = f"auth_callout {{ issuer: {issuer.public}, auth_users: [service], account: AUTH }}"
    auth = "AUTH { users: [ { user: service, password: s }, { user: other, password: o } ] }"
    config = f"accounts {{\n {auth}\n A {{}}\n }}\nauthorization {{ timeout: 60, {callout} }}\n"
    with (
        Server("jetraft", directory=tmp_path, config=config) as server,
        CalloutService(server.address, {"user": "service", "pass": "s"}, good) as service,
        RawClient(server.address, user="x") as client,
    ):
        client.settle()
        reload(server, config.replace(", { user: other, password: o }", ""))
        client.settle()
        assert not client.closed
        assert len(service.requests) == 1
        with RawClient(server.address, user="y") as later:
            later.settle()
            assert not later.closed
        assert len(service.requests) == 2


def test_clients_are_served_while_the_file_is_read(tmp_path: Path) -> None:
    """A file of 50,000 users takes seconds. Here its reading takes until the test lets it go on."""
    included = tmp_path / "users.conf"
    included.write_text("max_payload: 2000\n")
    with (
        Server("jetraft", directory=tmp_path, config='include "users.conf"\n') as server,
        RawClient(server.address) as client,
    ):
        included.unlink()
        os.mkfifo(included)
        server.running.signal(signal.SIGHUP)
        with included.open("w") as pipe:  # it is read from now on
            assert client.settle() == []
            pipe.write("max_payload: 1000\n")
        server.running.wait_for_line(DONE)
        with RawClient(server.address) as other:
            assert other.info["max_payload"] == 1000


def test_a_reload_that_another_one_overtakes_reads_the_file_again(tmp_path: Path) -> None:
    included = tmp_path / "users.conf"
    included.write_text("max_payload: 2000\n")
    with Server("jetraft", directory=tmp_path, config='include "users.conf"\n') as server:
        included.unlink()
        os.mkfifo(included)
        server.running.signal(signal.SIGHUP)
        with included.open("w") as pipe:
            included.unlink()
            included.write_text("max_payload: 1000\n")
            server.running.signal(signal.SIGHUP)
            server.running.wait_for_line(DONE)
            pipe.write("max_payload: 3000\n")
        server.running.wait_until(
            lambda: sum(DONE in line for line in server.running.lines) == 2, what="the end of both reloads"
        )
        with RawClient(server.address) as other:
            assert other.info["max_payload"] == 1000


def test_a_server_stops_while_a_file_is_read(tmp_path: Path) -> None:
    included = tmp_path / "users.conf"
    included.write_text("max_payload: 2000\n")
    with Server("jetraft", directory=tmp_path, config='include "users.conf"\n') as server:
        included.unlink()
        os.mkfifo(included)
        server.running.signal(signal.SIGHUP)
        with included.open("w"):
            server.running.signal(signal.SIGTERM)
            server.running.wait_for_line("Server Exiting")
