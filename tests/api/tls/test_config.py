"""The `tls` block: what it means, and nats-server's words for what is wrong with it."""

from pathlib import Path

import pytest

from jetraft.api.config.build import build_options
from jetraft.api.config.file import load_settings
from jetraft.api.config.flags import parse_flags
from jetraft.api.config.settings import OptionsError
from jetraft.api.options.options import Options
from tests.harness.certificates import Authority

PIN = "7f83b1657ff1fc53b92dc18148a1d65dfc2d4b1fa3d677284addd200126d9069"

PINNED = "hex-encoded sha256 of DER encoded SubjectPublicKeyInfo"
PAIR = "1:1: error parsing X509 certificate/key pair: "
INSECURE = "insecure cipher suites configured without 'allow_insecure_cipher_suites' option set: "
SWITCHED = (
    "tls: failed to find certificate PEM data in certificate input, but did find a private key; "
    "PEM inputs may have been switched"
)


def options_of(text: str, authority: Authority, tmp_path: Path) -> Options:
    """The options of a configuration whose $DIR is where the certificates are."""
    (authority.directory / "nothing.pem").write_text("nothing")
    path = tmp_path / "n.conf"
    path.write_text(text.replace("DIR", str(authority.directory)))
    return build_options(load_settings(path))


GOOD = 'cert_file: "DIR/server.pem"\nkey_file: "DIR/server-key.pem"\n'


def test_a_block_becomes_options(authority: Authority, tmp_path: Path) -> None:
    more = f'verify_and_map: true\ntimeout: "1500ms"\npinned_certs: ["{PIN.upper()}"]\n'
    more += "handshake_first: auto\ninsecure: true"
    options = options_of(f"tls {{\n{GOOD}{more}\n}}\nallow_non_tls: true", authority, tmp_path)
    assert options.tls is not None
    assert options.tls.verify
    assert options.tls.verify_and_map
    assert options.tls.allow_non_tls
    assert (options.tls.timeout_ns, options.auth_timeout_ns) == (1_500_000_000, 2_500_000_000)
    assert options.tls.pinned_certs == {PIN}
    assert (options.tls.handshake_first, options.tls.first_delay_ns) == (True, 50_000_000)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (
            'cert_file: "DIR/nope.pem"\nkey_file: "DIR/server-key.pem"',
            PAIR + "open DIR/nope.pem: no such file or directory",
        ),
        ('cert_file: "DIR/server.pem"', "1:1: missing 'key_file' in TLS configuration"),
        ('key_file: "DIR/server.pem"', "1:1: missing 'cert_file' in TLS configuration"),
        (
            'cert_file: "DIR/server.pem"\nkey_file: "DIR/client-key.pem"',
            PAIR + "tls: private key does not match public key",
        ),
        (
            'cert_file: "DIR/server.pem"\nkey_file: "DIR/server.pem"',
            PAIR + "tls: found a certificate rather than a key in the PEM for the private key",
        ),
        (
            'cert_file: "DIR/nothing.pem"\nkey_file: "DIR/server-key.pem"',
            PAIR + "tls: failed to find any PEM data in certificate input",
        ),
        (
            'cert_file: "DIR/server-key.pem"\nkey_file: "DIR/server-key.pem"',
            PAIR + SWITCHED,
        ),
        (GOOD + 'ca_file: "DIR/nope.pem"', "1:1: open DIR/nope.pem: no such file or directory"),
        (GOOD + 'ca_file: "DIR/nothing.pem"', "1:1: failed to parse root ca certificate"),
        ("cert_file: []", "2:1: error parsing tls config, expected 'cert_file' to be filename"),
        ("verify: 1", "2:1: error parsing tls config, expected 'verify' to be a boolean"),
        (
            "verify_cert_and_check_known_urls: true",
            "2:1: verify_cert_and_check_known_urls not supported in this context",
        ),
        ("timeout: true", "2:1: error parsing tls config, 'timeout' wrong type"),
        ('timeout: "xx"', "2:1: error parsing tls config, 'timeout' time: invalid duration \"xx\""),
        ("cipher_suites: []", "2:1: error parsing tls config, 'cipher_suites' cannot be empty"),
        ('cipher_suites: ["X"]', "2:1: unrecognized cipher X"),
        ("cipher_suites: [[1], {a: 1}]", "2:1: unrecognized cipher [1]"),
        ("curve_preferences: [{a: 1}]", "2:1: unrecognized curve preference {'a': 1}"),
        (
            GOOD + 'cipher_suites: ["TLS_RSA_WITH_AES_128_CBC_SHA"]',
            "1:1: " + INSECURE + "TLS_RSA_WITH_AES_128_CBC_SHA",
        ),
        ('curve_preferences: ["X"]', "2:1: unrecognized curve preference X"),
        ('min_version: "1.1"', "2:1: error parsing tls config: unsupported TLS version: TLS 1.1"),
        ('min_version: "1.4"', "2:1: error parsing tls config: unknown version: 1.4"),
        ('handshake_first: "x"', '2:1: field "handshake_first"\'s value "x" is invalid'),
        (
            'pinned_certs: ["x"]',
            "2:1: error parsing tls config, 'pinned_certs' key x does not look like " + PINNED,
        ),
        ('connection_rate_limit: "x"', "2:1: error parsing tls config, 'connection_rate_limit' wrong type"),
        (
            'certificates: [\n{\ncert_file: "DIR/server.pem"\n}\n]',
            "2:1: error parsing certificates config: both 'cert_file' and 'cert_key' options are required",
        ),
        ("foo: 1", '2:1: error parsing tls config, unknown field "foo"'),
        ("ocsp_peer: true", '2:1: "ocsp_peer" in tls is not served by jetraft yet'),
    ],
)
def test_what_is_wrong_is_named_with_its_place(authority: Authority, tmp_path: Path, block: str, message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        options_of(f"tls {{\n{block}\n}}", authority, tmp_path)
    expected = f"{tmp_path}/n.conf:{message}".replace("DIR", str(authority.directory))
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tls"], "TLS Server certificate must be present and valid"),
        (["--tlsverify", "--tlscert", "a"], "TLS Server private key must be present and valid"),
        (
            ["--tlscert", "nope.pem", "--tlskey", "k"],
            "error parsing X509 certificate/key pair: open nope.pem: no such file or directory",
        ),
    ],
)
def test_flags_without_files_say_so(words: list[str], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        build_options(parse_flags(words))
    assert str(caught.value) == message


def test_a_key_is_in_no_text(authority: Authority, tmp_path: Path) -> None:
    options = options_of(f"tls {{\n{GOOD}}}", authority, tmp_path)
    from jetraft.api.tls.material import load_pairs  # noqa: PLC0415

    assert options.tls is not None
    (pair,) = load_pairs(options.tls)
    assert "key" not in repr(pair)
