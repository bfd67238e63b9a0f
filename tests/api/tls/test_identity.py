"""Names of certificates as Go writes them, and the users that they map to."""

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from jetraft.api.tls.identity import TlsIdentity, map_user, parse_parts, subject_text
from tests.harness.certificates import named

ORG, UNIT, COUNTRY = NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.COUNTRY_NAME


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (named("derek", (ORG, "Synadia"), (COUNTRY, "US")), "CN=derek,O=Synadia,C=US"),
        (named("a", (UNIT, "one"), (UNIT, "two")), "CN=a,OU=one+OU=two"),
        (named('x,y+"z"\\<>;'), 'CN=x\\,y\\+\\"z\\"\\\\\\<\\>\\;'),
        (named(" #a "), "CN=\\ #a\\ "),
        (named("#a"), "CN=\\#a"),
        (named("a", (NameOID.SERIAL_NUMBER, "7")), "SERIALNUMBER=7,CN=a"),
        (x509.Name([]), ""),
    ],
)
def test_a_subject_is_written_as_go_writes_it(name: x509.Name, text: str) -> None:
    assert subject_text(name) == text


def test_parts_are_read_with_their_escapes() -> None:
    assert parse_parts("CN=a\\,b, o = c+OU=d") == (("CN", "a,b"), ("O", "c"), ("OU", "d"))
    assert parse_parts("derek@nats.io") is None
    assert parse_parts("") is None


def test_addresses_come_before_names_and_names_before_the_subject() -> None:
    identity = TlsIdentity(
        subject="CN=s", parts=(("CN", "s"),), emails=("e@x",), dns_names=("d.x",), uris=("spiffe://u",)
    )
    names = ["CN=s", "spiffe://u", "d.x", "e@x"]
    for expected in ("e@x", "d.x", "spiffe://u", "CN=s"):
        assert map_user(identity, names) == expected
        names.remove(expected)
    assert map_user(identity, names) is None


def test_a_part_more_or_less_is_another_name() -> None:
    identity = TlsIdentity(subject="CN=s,O=o", parts=(("O", "o"), ("CN", "s")))
    assert map_user(identity, ["cn=s,o=o"]) == "cn=s,o=o"
    assert map_user(identity, ["CN=s"]) is None
    assert map_user(identity, ["CN=s,O=o,O=o"]) is None
    assert map_user(identity, ["CN=S,O=o"]) is None


def test_a_certificate_without_names_is_nobody() -> None:
    assert map_user(TlsIdentity(), ["", "a"]) is None
