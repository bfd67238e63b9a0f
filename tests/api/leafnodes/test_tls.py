"""Leaf node connections with TLS, with jetraft at either end or at both: who is believed, and what is never sent."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.api.leafnodes.test_remotes import GREETING, FakeHub, leaf_of
from tests.harness.certificates import Authority, Signed
from tests.harness.leafs import PAIR_IDS, PAIRS, joined, listener, remote, wait_interest
from tests.harness.ports import HOST
from tests.harness.server import Kind

pytestmark = [pytest.mark.reference]
TLS_REFUSED = "TLS leafnode handshake error"


@attrs.frozen
class Certificates:
    """What the servers of these tests show and believe."""

    authority: Authority
    server: Signed
    client: Signed
    other: Authority

    @property
    def ca(self) -> str:
        return f'ca_file: "{self.authority.ca_file}"\n'


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    directory = tmp_path_factory.mktemp("certificates")
    authority = Authority.make(directory)
    return Certificates(authority, authority.server(), authority.sign("leaf"), Authority.make(directory, "other ca"))


def configs(hub_tls: str, leaf_tls: str, scheme: str = "nats", host: str = HOST, more: str = "") -> dict[str, str]:
    """The two configurations; the port is filled in by `joined`."""
    leaf = remote(0, f"tls {{ {leaf_tls} }}" if leaf_tls else "").replace(
        f"nats://{HOST}:0", f"{scheme}://{host}:LEAFPORT"
    )
    hub = listener(0, f"tls {{ {hub_tls} }}\n{more}" if hub_tls else more).replace("port: 0", "port: LEAFPORT")
    return {"hub_more": hub, "leaf_more": leaf}


CASES = ("plain", "verify", "first", "auto", "insecure", "url")


def blocks_of(case: str, certificates: Certificates) -> dict[str, str]:
    own, ca, client = certificates.server.block, certificates.ca, certificates.client.block
    return {
        "plain": configs(own, ca),
        "verify": configs(f"{own}{ca}verify: true", ca + client),
        "first": configs(f"{own}handshake_first: true", f"{ca}handshake_first: true"),
        "auto": configs(f"{own}handshake_first: auto", ca),
        "insecure": configs(own, "insecure: true"),
        "url": configs(own, ca, "tls", "localhost"),
    }[case]


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
@pytest.mark.parametrize("case", CASES)
def test_messages_cross_in_records(
    case: str, hub: Kind, leaf: Kind, certificates: Certificates, tmp_path: Path
) -> None:
    with joined(hub, leaf, tmp_path, **blocks_of(case, certificates)) as pair, pair.clients() as (centre, edge):
        for receiver, sender in ((centre, edge), (edge, centre)):
            sid = receiver.subscribe("big")
            wait_interest(sender, "big")
            receiver.messages(sid, 1)
            sender.publish("big", b"x" * 300_000)
            assert [len(message.payload) for message in receiver.messages(sid, 1)] == [300_000]
            receiver.send(f"UNSUB {sid}\r\n".encode())
            wait_interest(sender, "big", wanted=False)
        assert pair.hub.get("/varz")[1]["leaf"]["tls_required"] is True


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
def test_a_certificate_names_the_user(hub: Kind, leaf: Kind, certificates: Certificates, tmp_path: Path) -> None:
    name = "CN=leaf"
    users = f'authorization {{ users: [ {{user: "{name}", account: B}} ] }}'
    own = f"{certificates.server.block}{certificates.ca}verify_and_map: true"
    found = configs(own, certificates.ca + certificates.client.block, more=users)
    accounts = "accounts { B { users: [{user: b, password: b}] } }\nno_auth_user: b\n"
    joining = joined(hub, leaf, tmp_path, hub_more=accounts + found["hub_more"], leaf_more=found["leaf_more"])
    with joining as pair, pair.clients():
        (row,) = pair.hub.get("/leafz")[1]["leafs"]
        assert row["account"] == "B"


def refusals(certificates: Certificates) -> dict[str, tuple[dict[str, str], str, str]]:
    """Configurations that do not fit, whose log says why, and what it says behind TLS_REFUSED."""
    own, ca = certificates.server.block, certificates.ca
    other = f'ca_file: "{certificates.other.ca_file}"\n'
    nameless = certificates.client.block
    return {
        "another authority": (configs(own, other), "leaf", "signed by unknown authority"),
        "nobody is trusted": (configs(own, ""), "leaf", "signed by unknown authority"),
        "another name": (configs(nameless, ca), "leaf", "cannot validate certificate for 127.0.0.1"),
        "no certificate": (
            configs(f"{own}{ca}verify: true", ca),
            "hub",
            "client didn't provide a certificate",
        ),
        "not pinned": (
            configs(f"{own}{ca}verify: true\npinned_certs: [{'ab' * 32}]", ca + nameless),
            "hub",
            "certificate not pinned",
        ),
    }


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
@pytest.mark.parametrize(
    "case", ["another authority", "nobody is trusted", "another name", "no certificate", "not pinned"]
)
def test_who_does_not_prove_its_name_is_left(
    case: str, hub: Kind, leaf: Kind, certificates: Certificates, tmp_path: Path
) -> None:
    found, where, says = refusals(certificates)[case]
    with joined(hub, leaf, tmp_path, **found) as pair:
        server = pair.hub if where == "hub" else pair.leaf
        line = server.running.wait_for_line(TLS_REFUSED)
        assert says in line
        assert pair.hub.get("/leafz")[1]["leafnodes"] == 0


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    found = FakeHub()
    yield found
    found.close()


@pytest.mark.parametrize("scheme", ["nats", "tls"])
def test_a_password_is_not_sent_to_a_hub_without_tls(
    scheme: str, hub: FakeHub, certificates: Certificates, tmp_path: Path
) -> None:
    more = f"tls {{ {certificates.ca} }}" if scheme == "nats" else ""
    with leaf_of(tmp_path, f'url: "{scheme}://u:secret@{HOST}:{hub.port}", {more}') as server:
        for _ in range(2):
            hub.accept()
            hub.send(b"-ERR 'go on'\r\nPING\r\n" if scheme == "tls" else b"")
            hello = hub.some()
            assert hello == b"" or hello[0] == 0x16  # a handshake, or nothing at all
            assert b"secret" not in hello
            hub.send(b"+OK, go on\r\n")
            assert b"secret" not in hub.rest()
        assert "secret" not in server.running.tail()


def test_what_comes_in_the_clear_behind_info_is_not_the_hubs(
    hub: FakeHub, certificates: Certificates, tmp_path: Path
) -> None:
    admission: dict[str, Any] = {**GREETING, "connect_info": True}
    lines = [{**GREETING, "tls_required": True}, admission]
    text = b"".join(b"INFO " + json.dumps(line).encode() + b"\r\n" for line in lines)
    with leaf_of(tmp_path, f'url: "{HOST}:{hub.port}", tls {{ {certificates.ca} }}'):
        hub.accept(silent=True)
        hub.send(text + b"LS+ stolen\r\n")
        assert hub.rest() == b""


def test_a_silent_hub_is_left_when_the_time_for_a_handshake_is_over(
    hub: FakeHub, certificates: Certificates, tmp_path: Path
) -> None:
    with leaf_of(tmp_path, f'url: "{HOST}:{hub.port}", tls {{ {certificates.ca} timeout: "50ms" }}') as server:
        hub.accept()
        server.running.wait_for_line("i/o timeout")
        hub.accept()
