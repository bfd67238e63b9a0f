from pathlib import Path

import pytest

from jetraft.api.config.build import build_options
from jetraft.api.config.file import load_settings
from jetraft.api.config.flags import FlagError, parse_flags
from jetraft.api.config.settings import OptionsError, split_url
from jetraft.api.config.values import duration_ns
from jetraft.api.options.options import ClusterTls, ScrubOptions

CLUSTERED = """
server_name: n1
listen: 127.0.0.1:-1
http: 127.0.0.1:-1
jetstream { store_dir: /tmp/x, max_file_store: 10G, sync_interval: always }
cluster {
  name: C, listen: "127.0.0.1:6222", routes: [nats-route://127.0.0.1:6223]
  authorization { user: r, password: s }
}
authorization { users: [ {user: a, password: b} ] }
ping_interval: 30s
max_payload: 2MB
"""


def test_flags_take_one_or_two_dashes_an_equals_sign_or_a_blank() -> None:
    expected = {"port": 4333, "jetstream": True, "store_dir": "x", "debug": True}
    assert parse_flags(["-p", "4333", "-js", "-sd", "x", "-D"]) == expected
    assert parse_flags(["--port=4333", "--jetstream=true", "-store_dir=x", "--debug"]) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-p", "abc"], 'invalid value "abc" for flag -p: parse error'),
        (["-bogus"], "flag provided but not defined: -bogus"),
        (["run"], 'unrecognized command: "run"'),
        (["-p"], "flag needs an argument: -p"),
        (["--profile=1"], "-profile: profiling is not served by jetraft yet"),
    ],
)
def test_wrong_flags_say_so_in_one_line(words: list[str], message: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse_flags(words)
    assert str(caught.value) == message


def test_a_file_fills_the_options_and_flags_win(tmp_path: Path) -> None:
    path = tmp_path / "n.conf"
    path.write_text(CLUSTERED)
    options = build_options(load_settings(path) | parse_flags(["-p", "5000"]))
    assert (options.host, options.port, options.http_port) == ("127.0.0.1", 5000, -1)
    assert options.jetstream is not None
    assert options.jetstream.max_file_store_bytes == 10 * 10**9
    assert options.cluster is not None
    assert (options.cluster.name, options.cluster.port, options.cluster.secret) == ("C", 6222, "r:s")
    assert [user.name for user in options.auth.users] == ["a"]
    assert options.auth.users[0].password.equals("b")
    assert options.ping_interval_ns == 30 * 10**9
    assert options.max_payload_bytes == 2 * 1024 * 1024


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot: 1", '1:1: unknown field "prot"'),
        ("\njetstream { bogus: 1 }", '2:13: unknown field "bogus" in jetstream'),
        ("port: abc", "1:1: port: expected a number, got 'abc'"),
        ("port: true", "1:1: port: expected a number, got True"),
        ("debug: loud", "1:1: debug: expected true or false, got 'loud'"),
        ("server_name: 33", "1:1: server_name: expected a string, got 33"),
        ("ping_interval: soon", '1:1: ping_interval: invalid duration "soon"'),
        ("ping_interval: 1.2.3s", '1:1: ping_interval: invalid duration "1.2.3s"'),
        ("cluster: 5", "1:1: expected cluster to be a map, got 5"),
        ("jetstream { cipher: rot13, key: k }", '1:13: Unknown cipher type: "rot13"'),
        ("jetstream { key: 12 }", "1:13: encryption_key: expected a string, got a number"),
        ("jetstream { sync_interval: never }", '1:13: sync_interval: invalid duration "never"'),
    ],
)
def test_wrong_files_name_the_place_and_the_key(tmp_path: Path, text: str, message: str) -> None:
    assert wrong(tmp_path, text) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prof_port: 6060", '1:1: "prof_port" is not served by jetraft yet'),
        ("mqtt { port: 1 }", '1:1: "mqtt" is not served by jetraft yet'),
    ],
)
def test_what_is_not_served_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    assert wrong(tmp_path, text) == message


@pytest.mark.parametrize("text", ["port: 65536", "http_port: -2", "cluster { name: C, port: 70000 }"])
def test_a_port_out_of_range_is_refused(tmp_path: Path, text: str) -> None:
    assert "expected a port from -1 to 65535, got" in wrong(tmp_path, text)


def wrong(tmp_path: Path, text: str) -> str:
    """Why a file is refused, without the file's name."""
    path = tmp_path / "n.conf"
    path.write_text(text)
    with pytest.raises(OptionsError) as caught:
        build_options(load_settings(path))
    return str(caught.value).removeprefix(f"{path}:")


@pytest.mark.parametrize("names", [("key", "prev_key"), ("ek", "prev_ek"), ("encryption_key", "prev_encryption_key")])
@pytest.mark.parametrize(("cipher", "kind"), [("aes", "aes"), ("ChaCha", "chachapoly"), ("chachapoly", "chachapoly")])
def test_keys_of_the_store_come_from_the_environment(
    tmp_path: Path, names: tuple[str, str], cipher: str, kind: str
) -> None:
    path = tmp_path / "n.conf"
    path.write_text(f"jetstream {{ cipher: {cipher}, {names[0]}: $NEW_KEY, {names[1]}: $OLD_KEY }}")
    options = build_options(load_settings(path, {"NEW_KEY": "n", "OLD_KEY": "o"})).jetstream
    assert options is not None
    assert (options.cipher, options.key, options.prev_key) == (kind, "n", "o")
    assert "'n'" not in repr(options)


def test_a_cluster_without_a_name_or_routes_is_refused() -> None:
    with pytest.raises(OptionsError, match="server_name"):
        build_options({"jetstream": True, "cluster_listen": "nats://127.0.0.1:1", "routes": ("a",)})
    with pytest.raises(OptionsError, match=r"cluster\.name"):
        build_options({"jetstream": True, "server_name": "a", "routes": ("a",)})


@pytest.mark.parametrize(
    ("value", "ns"), [("2m", 120 * 10**9), ("1h30m", 5400 * 10**9), ("250ms", 250 * 10**6), (2, 2 * 10**9)]
)
def test_durations(value: object, ns: int) -> None:
    assert duration_ns("key", value) == ns


TLS = "cluster { name: C, listen: ':6222', tls { cert_file: c, key_file: k, ca_file: a%s } }"


def test_cluster_tls_is_named_as_nats_server_names_it(tmp_path: Path) -> None:
    path = tmp_path / "n.conf"
    path.write_text(TLS % ", verify: true")
    options = build_options(load_settings(path))
    assert options.cluster is not None
    assert options.cluster.tls == ClusterTls(cert_file="c", key_file="k", ca_file="a")
    assert options.cluster.bulk_bytes_per_s == 64 << 20


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("tls { cert_file: c }", "1:37: missing 'key_file' in TLS configuration"),
        ("tls { cert_file: c, key_file: k }", "1:37: cluster.tls needs cert_file, key_file and ca_file"),
        (
            "tls { cert_file: c, key_file: k, ca_file: a, verify_and_map: true }",
            '1:82: "verify_and_map" in cluster.tls is not served by jetraft yet',
        ),
        (
            "tls { cert_file: c, key_file: k, ca_file: a, ocsp_peer: true }",
            '1:82: "ocsp_peer" in tls is not served by jetraft yet',
        ),
        ("bulk_rate: 0", "1:37: cluster: bulk_rate must be positive, got 0"),
    ],
)
def test_wrong_cluster_blocks_say_what_is_wrong(tmp_path: Path, block: str, message: str) -> None:
    assert wrong(tmp_path, f"cluster {{ name: C, listen: ':6222', {block} }}") == message


def test_every_key_of_cluster_tls_that_means_something_between_nodes_is_kept(tmp_path: Path) -> None:
    path, pin = tmp_path / "n.conf", "ab" * 32
    more = (
        f', verify: false, insecure: true, pinned_certs: ["{pin}"], timeout: 3, verify_cert_and_check_known_urls: true'
    )
    path.write_text(f"{TLS[:-2] % more}, routes: [ 'nats://u:p@A.b:1', 'nats://A.b:2' ] }}")
    options = build_options(load_settings(path))
    assert options.cluster is not None
    found = options.cluster.tls
    assert found == ClusterTls(
        cert_file="c", key_file="k", ca_file="a", insecure=True, known_hosts=("a.b",), pinned_certs=frozenset({pin})
    )


def test_the_scrub_block_says_how_often_everything_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "n.conf"
    path.write_text("jetstream { store_dir: s, scrub { period: 48h, rate: 1048576, compare: off } }")
    options = build_options(load_settings(path)).jetstream
    assert options is not None
    assert options.scrub == ScrubOptions(period_ns=48 * 3600 * 10**9, bytes_per_s=1 << 20, compare_ns=None)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("rate: 0", "1:27: jetstream.scrub: period, rate and compare must be positive, or times off"),
        ("period: 0s", "1:27: jetstream.scrub: period, rate and compare must be positive, or times off"),
        ("period: soon", '1:35: period: invalid duration "soon"'),
        ("rate: fast", "1:35: rate: expected a number, got 'fast'"),
        ("often: 1", '1:35: unknown field "often" in jetstream.scrub'),
    ],
)
def test_wrong_scrub_blocks_say_what_is_wrong(tmp_path: Path, block: str, message: str) -> None:
    assert wrong(tmp_path, f"jetstream {{ store_dir: s, scrub {{ {block} }} }}") == message


def test_a_secret_in_a_url_may_be_quoted() -> None:
    assert split_url("nats://u%40:p%3A%2f@h:1", default_port=2) == ("h", 1, "u@:p:/")


@pytest.mark.parametrize("text", ["nats://u:secret@[host:1", "nats://u:secret/@host:x", "u:secret@h\u2100st:1"])
def test_a_url_that_is_refused_is_told_without_its_secret(text: str) -> None:
    with pytest.raises(OptionsError, match="error parsing URL") as told:
        split_url(text, default_port=1)
    assert "secret" not in str(told.value)
    assert told.value.__cause__ is None
