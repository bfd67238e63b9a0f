"""TLS on both servers: INFO, what is refused, what the log says, the monitoring pages, side by side."""

import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from cryptography import x509

from tests.harness.certificates import Authority, Signed
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import exchange_to_end
from tests.harness.raw_tls import TlsClient, read_line
from tests.harness.server import Kind, Server

pytestmark = [pytest.mark.reference]
TLS_FIELDS = ("auth_required", "tls_required", "tls_verify", "tls_available")
LINES = (" TLS ", "Client connection closed: ", "pinned cert")  # an id of a server may have these letters too
# Two timers of the reference end a silent handshake, and either may be first, so that its log has these lines or not;
# "cert for auth" is logged for some connections only. tests/api/tls says when jetraft logs them.
RACING = ("cert for auth", "handshake timeout", "i/o timeout")
VARZ = ("tls_required", "tls_verify", "tls_timeout", "tls_cert_not_after", "auth_timeout")
CONNZ = ("tls_version", "tls_cipher_suite", "tls_first", "tls_peer_certs")
# What OpenSSL does not tell: the lists behind these texts.
WITHOUT_LISTS = re.compile(r"(unsupported versions): \[.*\]|(client and server); client offered: \[.*\]")
Seen = dict[str, Any]


@attrs.frozen(kw_only=True)
class Stage:
    """Certificates of the test, and one running server."""

    authority: Authority
    strangers: Authority
    server: Server

    def context(self, label: str = "") -> ssl.SSLContext:
        """A client that trusts the authority and shows a certificate of this name."""
        signed = signed_as(self.strangers if label == "stranger" else self.authority, label) if label else None
        return self.authority.client_context(signed)


def signed_as(authority: Authority, label: str) -> Signed:
    """The certificate of a name that was signed before."""
    path = authority.directory / f"{label}.pem"
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    return Signed(cert_file=path, key_file=authority.directory / f"{label}-key.pem", certificate=certificate)


def talk(stage: Stage, label: str = "", *, first: bool = False, version: ssl.TLSVersion | None = None) -> Seen:
    """A client that shakes hands, connects and asks for its row."""
    context = stage.context(label)
    if version is not None:
        context.maximum_version = version
    seen: Seen = {}
    with noting_alert(seen), TlsClient(stage.server.address, context, first=first, protocol=1) as client:
        info = {name: client.info.get(name) for name in TLS_FIELDS}
        order = [name for name in client.info if name in TLS_FIELDS or name in ("headers", "max_payload")]
        events = [getattr(event, "text", "")[:60].split(" {")[0] for event in client.settle()]
        seen |= {"info": info, "order": order, "events": events, "closed": client.closed}
        rows = [] if client.closed else stage.server.get("/connz?auth=1")[1]["connections"]
        seen["rows"] = [{name: row.get(name) for name in CONNZ} for row in rows]
    page = stage.server.get("/varz")[1]
    return seen | {"varz": {name: page.get(name, False) for name in VARZ}}


@contextmanager
def noting_alert(seen: Seen) -> Iterator[None]:
    """Note the alert with which the other end gives up."""
    try:
        yield
    except ssl.SSLError as error:
        seen["alert"] = error.reason


def say(data: bytes, *, greeted: bool = True) -> Callable[[Stage], Seen]:
    """A client that sends bytes as they are and reads to the end."""

    def step(stage: Stage) -> Seen:
        with socket.create_connection(stage.server.address) as sock:
            sock.settimeout(PATIENCE_S)
            info = read_line(sock) if greeted else b""
            rest = exchange_to_end(sock, data)
        return {"info": b"tls_required" in info, "rest": rest.hex()}

    return step


def begin(data: bytes) -> Callable[[Stage], Seen]:
    """A client with a certificate that sends these lines, CONNECT or not: whether it may, and as whom."""

    def step(stage: Stage) -> Seen:
        with TlsClient(stage.server.address, stage.context("client"), connect=False) as client:
            client.send(data)
            client.settle()
            rows = [] if client.closed else stage.server.get("/connz?auth=1")[1]["connections"]
            return {"closed": client.closed, "rows": [{name: row.get(name) for name in CONNZ} for row in rows]}

    return step


FIRST: Callable[[Stage], Seen] = lambda stage: talk(stage, first=True)  # noqa: E731
PLAIN: Callable[[Stage], Seen] = talk
SHOWN: Callable[[Stage], Seen] = lambda stage: talk(stage, "client")  # noqa: E731
VERIFY = "ca_file: CA\nverify: true"
MAP = "ca_file: CA\nverify_and_map: true"
WITH_PASSWORD = 'authorization {\nusers = [\n{ user: "CN=client", password: p }\n]\n}'
NOBODY_IS_B = 'authorization {{\nusers = [\n{{ user: "{0}" }}, {{ user: b, password: x }}\n]\n}}\nno_auth_user: b'
SCENES: dict[str, tuple[str, str, Callable[[Stage], Seen]]] = {
    "plain": ("", "", PLAIN),
    "1.2": ("", "", lambda stage: talk(stage, version=ssl.TLSVersion.TLSv1_2)),
    "1.2 refused": ('min_version: "1.3"', "", lambda stage: talk(stage, version=ssl.TLSVersion.TLSv1_2)),
    "rsa": ("RSA", "", PLAIN),
    "verified": (VERIFY, "", SHOWN),
    "verified, none shown": (VERIFY, "", PLAIN),
    "verified, stranger": (VERIFY, "", lambda stage: talk(stage, "stranger")),
    "verified, stranger of its name": (VERIFY, "", lambda stage: talk(stage, "namesake")),
    "not verified, shown": ("ca_file: CA", "", SHOWN),
    "pinned": (f'{VERIFY}\npinned_certs: ["{"0" * 64}"]', "", SHOWN),
    "first": ("handshake_first: true", "", FIRST),
    "first, auto": ("handshake_first: 300ms", "", FIRST),
    "first, auto, not first": ("handshake_first: 100ms", "", PLAIN),
    "allowed without": ("", "allow_non_tls: true", PLAIN),
    "allowed without, verified": (VERIFY, "allow_non_tls: true", SHOWN),
    "allowed without, first": ("handshake_first: true", "allow_non_tls: true", FIRST),
    "in the clear": ("", "", say(b"CONNECT {}\r\nPING\r\n")),
    "in the clear, first": ("handshake_first: true", "", say(b"CONNECT {}\r\nPING\r\n", greeted=False)),
    "http": ("", "", say(b"GET / HTTP/1.0\r\n\r\n")),
    "injected": ("", "", say(b"PUB a 1\r\nx\r\n\x16\x03\x01\x00\x05")),
    "silent": ("timeout: 0.3", "", say(b"")),
    "half": ("timeout: 0.3", "", say(b"\x16\x03\x01\x02\x00\x01")),
    "silent, first": ("timeout: 0.3\nhandshake_first: true", "", say(b"", greeted=False)),
    "timeout and users": ("timeout: 5", "authorization {\nuser: a\npassword: b\n}", PLAIN),
    "mapped": (
        "ca_file: CA\nverify_and_map: true",
        'authorization {\nusers = [\n{ user: "CN=client" }\n]\n}',
        SHOWN,
    ),
    "mapped to nobody": (
        "ca_file: CA\nverify_and_map: true",
        'authorization {\nusers = [\n{ user: "somebody" }\n]\n}',
        SHOWN,
    ),
    "mapped, with its password": (MAP, WITH_PASSWORD, begin(b'CONNECT {"pass":"p"}\r\n')),
    "mapped, with another's name": (MAP, WITH_PASSWORD, begin(b'CONNECT {"user":"b","pass":"p"}\r\n')),
    "mapped, without its password": (MAP, WITH_PASSWORD, begin(b"CONNECT {}\r\n")),
    "mapped, with a wrong password": (MAP, WITH_PASSWORD, begin(b'CONNECT {"pass":"q"}\r\n')),
    "mapped, silent": (MAP, NOBODY_IS_B.format("CN=client"), begin(b"PUB a 0\r\n\r\n")),
    "mapped to nobody, silent": (MAP, NOBODY_IS_B.format("somebody"), begin(b"PUB a 0\r\n\r\n")),
    "mapped to nobody, as b": (MAP, NOBODY_IS_B.format("somebody"), begin(b'CONNECT {"user":"b","pass":"x"}\r\n')),
}  # fmt: skip


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    """Whom the servers trust, and whom not."""
    directory = tmp_path_factory.mktemp("certificates")
    authority, strangers = Authority.make(directory), Authority.make(directory, "other ca")
    authority.server()
    authority.server("rsa", uses_rsa=True)
    authority.sign("client")
    strangers.sign("stranger")
    elsewhere = directory / "elsewhere"
    elsewhere.mkdir()
    namesake = Authority.make(elsewhere, authority.name).sign("namesake")
    for file in (namesake.cert_file, namesake.key_file):
        file.rename(directory / file.name)
    return authority, strangers


def observed(kind: Kind, scene: str, authorities: tuple[Authority, Authority], directory: Path) -> Seen:
    """What one server shows."""
    authority, strangers = authorities
    block, rest, step = SCENES[scene]
    label = "rsa" if block == "RSA" else "server"
    block = "" if block == "RSA" else block.replace("CA", f'"{authority.ca_file}"')
    directory.mkdir()
    config = f"tls {{\n{signed_as(authority, label).block}{block}\n}}\n{rest}\n"
    with ExitStack() as stack:
        server = stack.enter_context(Server(kind, directory=directory, config=config, flags=("-D",)))
        seen = step(Stage(authority=authority, strangers=strangers, server=server))
        server.running.wait_for_line("Client connection closed: ")
        lines = [normal(line) for line in server.running.lines if any(word in line for word in LINES)]
        return seen | {"log": sorted(set(lines))}


def normal(line: str) -> str:
    """A log line without what differs from run to run."""
    text = line.partition("[")[2].partition("[")[2]
    text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)
    text = re.sub(r"cid:\d+", "CID", text)
    text = re.sub(r'"(v1:raw|\$G/user:[^"]*)" - ', "", text)  # jetraft does not name the client's library and user
    return WITHOUT_LISTS.sub(lambda match: match.group(1) or match.group(2), text)


@pytest.mark.parametrize("scene", SCENES)
def test_tls_is_as_the_reference_has_it(authorities: tuple[Authority, Authority], tmp_path: Path, scene: str) -> None:
    expected = observed("reference", scene, authorities, tmp_path / "reference")
    actual = observed("jetraft", scene, authorities, tmp_path / "jetraft")
    for seen in (expected, actual):
        seen["log"] = [line for line in seen["log"] if not any(words in line for words in RACING)]
    assert actual == expected
