"""Login with keys and tokens, against what the package nkeys does, and against a server."""

import base64
import ipaddress
import sys
from pathlib import Path

import nkeys
import pytest
from cryptography import x509

from pyspark_jetstream.client import Connection, ConnectionCache
from pyspark_jetstream.credentials import Credentials, seed_of, sign
from pyspark_jetstream.errors import BadOptionError, LoginRefusedError, ServersUnavailableError, StreamNotFoundError
from pyspark_jetstream.options import parse_options
from pyspark_jetstream.planner import Planner
from pyspark_jetstream.source import BatchReader, DefaultSource, StreamReader
from tests.harness.certificates import Authority
from tests.harness.server import Kind, Server

SEEDS = [bytes([number]) * 32 for number in (1, 77, 255)]
JWT = "e30.e30.c2ln"


def text_of(raw: bytes) -> str:
    return str(nkeys.encode_seed(raw, nkeys.PREFIX_BYTE_USER).decode())


def creds(seed: str) -> str:
    return (
        f"-----BEGIN NATS USER JWT-----\n{JWT}\n------END NATS USER JWT------\n\nIMPORTANT: keep it.\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


@pytest.mark.parametrize("raw", SEEDS)
def test_keys_and_signatures_are_those_of_nkeys(raw: bytes) -> None:
    pair = nkeys.from_seed(text_of(raw).encode())
    public, signature = sign(seed_of(text_of(raw), "seed"), b"nonce", "seed")
    assert public == pair.public_key.decode()
    assert base64.urlsafe_b64decode(signature + "==") == pair.sign(b"nonce")


def test_a_file_of_credentials_has_a_token_and_a_seed(tmp_path: Path) -> None:
    path = tmp_path / "user.creds"
    path.write_text(creds(text_of(SEEDS[0])))
    access = parse_options({"servers": "a", "stream": "S", "credsFile": str(path)}).access
    assert access.credentials is not None
    assert access.credentials.login("n") == {"jwt": JWT, "sig": sign(SEEDS[0], b"n", "")[1]}
    path.unlink()  # as on an executor that does not have it
    assert access.credentials.login("n")["jwt"] == JWT
    assert text_of(SEEDS[0]) not in repr(access)
    assert JWT not in repr(access)


def test_a_token_may_be_an_option_beside_its_seed() -> None:
    access = parse_options({"servers": "a", "stream": "S", "jwt": JWT, "nkeySeed": text_of(SEEDS[0])}).access
    assert access.credentials is not None
    assert set(access.credentials.login("n")) == {"jwt", "sig"}


def test_a_damaged_seed_or_that_of_another_kind_is_named_and_not_shown() -> None:
    good = text_of(SEEDS[0])
    damaged = good[:10] + ("A" if good[10] != "A" else "B") + good[11:]
    account = nkeys.encode_seed(SEEDS[0], nkeys.PREFIX_BYTE_ACCOUNT).decode()
    for text, said in ((damaged, "damaged"), (account, "seed of an account")):
        with pytest.raises(BadOptionError, match=said) as raised:
            seed_of(text, "file 'x'")
        assert text not in str(raised.value)


def test_without_a_package_that_signs_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cryptography.hazmat.primitives.asymmetric.ed25519", "nacl.signing"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BadOptionError, match="pip install cryptography"):
        Credentials(text=text_of(SEEDS[0])).login("n")


def test_a_key_logs_in_and_another_one_is_refused_at_once(kind: Kind, tmp_path: Path) -> None:
    public = nkeys.from_seed(text_of(SEEDS[0]).encode()).public_key.decode()
    config = f'authorization {{ users = [ {{ nkey: "{public}" }} ] }}\n'
    with Server(kind, directory=tmp_path, config=config) as server:
        given = {"servers": server.url, "stream": "S", "queryName": "billing"}
        access = parse_options({**given, "nkeySeed": text_of(SEEDS[0])}).access
        connection = Connection(server.url, access)
        shown = server.get("/connz")[1]["connections"]
        connection.close()
        assert [one["name"] for one in shown] == ["spark billing"]
        planner = Planner(parse_options({**given, "nkeySeed": text_of(SEEDS[1])}), ConnectionCache())
        with pytest.raises(LoginRefusedError, match="Authorization Violation"):
            planner.view()


def test_the_handshake_may_come_before_the_servers_info_and_jetstream_be_in_a_domain(
    kind: Kind, tmp_path: Path
) -> None:
    authority = Authority.make(tmp_path)
    signed = authority.sign("server", names=[x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    config = f"tls {{\n{signed.block}handshake_first: true\n}}\njetstream {{ domain: hub }}\n"
    with Server(kind, directory=tmp_path, config=config) as server:
        given = {"servers": server.url, "stream": "S", "tlsHandshakeFirst": "true", "tlsCaFile": str(authority.ca_file)}
        options = parse_options({**given, "domain": "hub", "retryTimeout": "2s"})
        connections = ConnectionCache()
        with pytest.raises(StreamNotFoundError):
            Planner(options, connections).view()
        elsewhere = parse_options({**given, "domain": "other", "retryTimeout": "100ms"})
        with pytest.raises(ServersUnavailableError, match="503 no responders"):
            Planner(elsewhere, connections).view()
        connections.close()


def test_a_reader_describes_what_it_reads_and_shows_no_secret() -> None:
    given = {"servers": "a,b:5", "streams": "EU_*,US", "subject": "x.>", "user": "me", "password": "hidden-thing"}
    options = parse_options(given)
    assert repr(StreamReader(options)) == "jetstream EU_*, US subjects x.> from nats://a:4222, nats://b:5"
    assert repr(BatchReader(options)) == repr(StreamReader(options)) == repr(DefaultSource(given))
