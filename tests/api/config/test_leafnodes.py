"""The `leafnodes` block and `jetstream { domain }`. Texts are those of `nats-server -t`, where it has one."""

from pathlib import Path

import pytest

from jetraft.api.config.build import build_options
from jetraft.api.config.file import load_settings
from jetraft.api.config.settings import OptionsError
from jetraft.api.options.leafnodes import LeafOptions
from jetraft.api.options.options import Options
from tests.harness.tokens import Keys, TokenOperator

HUB = 'url: "nats://127.0.0.1:1"'
MINE = "is not served by jetraft yet"
KEYS = Keys.new("user")
SEED, USER, ACCOUNT_SEED = KEYS.seed, KEYS.public, Keys.new("account").seed


def options_of(tmp_path: Path, text: str) -> Options:
    path = tmp_path / "n.conf"
    path.write_text(text)
    return build_options(load_settings(path))


def leaf_of(tmp_path: Path, text: str) -> LeafOptions:
    options = options_of(tmp_path, f"accounts {{ A {{}} }}\nleafnodes {{ {text} }}").leafnodes
    assert options is not None
    return options


def wrong(tmp_path: Path, text: str) -> str:
    with pytest.raises(OptionsError) as caught:
        options_of(tmp_path, text)
    return str(caught.value).removeprefix(f"{tmp_path / 'n.conf'}:")


def test_a_listener_and_its_users(tmp_path: Path) -> None:
    users = 'users: [{user: x, password: hidden, account: A}, {user: z, pass: "$2a$11$abc"}], timeout: 3'
    listener = 'listen: "127.0.0.1:-1", no_advertise: true, min_version: 2.9.1'
    found = leaf_of(tmp_path, f"{listener}, authorization {{ {users} }}")
    assert (found.host, found.port, found.no_advertise, found.min_version) == ("127.0.0.1", -1, True, (2, 9, 1))
    assert [(user.name, user.account) for user in found.auth.users] == [("x", "A"), ("z", "$G")]
    assert found.auth_timeout_ns == 3_000_000_000
    assert "hidden" not in repr(found.auth)


def test_remotes_and_what_they_deny(tmp_path: Path) -> None:
    text = 'urls: ["nats://u:p%40@a:1", "b"], account: A, deny_imports: x, deny_exports: ["y.>", z], no_randomize: true'
    (remote,) = leaf_of(tmp_path, f'reconnect: "3s", remotes: [ {{ {text} }}, {{ {HUB}, disabled: true }} ]').remotes
    urls = [(url.host, url.port, url.user, url.password) for url in remote.urls]
    assert urls == [("a", 1, "u", "p@"), ("b", 7422, "", "")]
    assert (remote.account, remote.deny_imports, remote.deny_exports) == ("A", ("x",), ("y.>", "z"))
    assert remote.no_randomize
    assert "p@" not in repr(remote)


@pytest.mark.parametrize("scheme", ["nats", "leaf", "nats-leaf", "leafnode", "anything", "tls"])
def test_the_scheme_of_a_remote_has_any_name(scheme: str, tmp_path: Path) -> None:
    (remote,) = leaf_of(tmp_path, f'remotes: [{{url: "{scheme}://a"}}]').remotes
    (url,) = remote.urls
    assert (url.host, url.port, url.tls, url.web) == ("a", 7422, scheme == "tls", False)


def test_without_a_port_or_a_remote_there_are_no_leaf_nodes(tmp_path: Path) -> None:
    assert options_of(tmp_path, "leafnodes { remotes: [] }").leafnodes is None


@pytest.mark.parametrize(
    ("said", "mode"),
    [
        ("off", "off"),
        ("false", "off"),
        ("accept", "accept"),
        ("disabled", "off"),
        ("on", "s2_auto"),
        ("S2_Fast", "s2_fast"),
        ("best", "s2_best"),
        ("{}", "s2_auto"),
        ('{ mode: better, rtts: ["9ms", "1ms"] }', "s2_better"),
    ],
)
def test_compression_is_a_word_a_boolean_or_a_block(said: str, mode: str, tmp_path: Path) -> None:
    assert leaf_of(tmp_path, f"port: 1, compression: {said}").compression.mode == mode
    (remote,) = leaf_of(tmp_path, f"remotes: [{{{HUB}, compression: {said}}}]").remotes
    assert remote.compression.mode == mode


def test_thresholds_of_compression_are_round_trips(tmp_path: Path) -> None:
    found = leaf_of(tmp_path, 'port: 1, compression: { mode: auto, rtt: ["-1ms", "0s", "3ms", "0s"] }').compression
    assert found.rtts_ns == (0, 0, 3_000_000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port: 1234, foo: 1", '1:25: unknown field "foo" in leafnodes'),
        ("port: 1, authorization { token: x }", 'unknown field "token" in leafnodes.authorization'),
        (
            "port:1, authorization {user: a, password: b, users: [{user: x, password: y}]}",
            "can not have a single user/pass and a users array",
        ),
        (
            "port:1, authorization {users: [{user: x, password: y, permissions: {}}]}",
            'unknown field "permissions" in leafnodes.authorization.users',
        ),
        ("remotes: {url: x}", "Expected remotes field to be an array"),
        (f"remotes: [{{{HUB}, foo: 1}}]", 'unknown field "foo" in leafnodes.remotes'),
        (f'remotes: [{{{HUB}, deny_imports: "a b"}}]', 'subject "a b" is not a valid subject'),
        ('remotes: [{url: "leaf://"}]', "error parsing leafnode url"),
        ("remotes: [{url: 5}]", "Expected remote leafnode url to be an array or string, got 5"),
        ('remotes: [{urls: ["nats://a:1","nats://a:1"]}]', "Duplicate leafnode entry detected"),
        (f"remotes: [{{{HUB}}},{{{HUB}}}]", 'duplicate remote urls=["nats://127.0.0.1:1"], account="$G"'),
        ("port: 1, min_version: 2.7.0", "the minimum version should be at least 2.8.0"),
        ("port: 1, min_version: x", "invalid leafnode's minimum version: invalid semver"),
        ("port: 70000", "expected a port from -1 to 65535, got 70000"),
        ("port: 1, authorization {user: x, password: y, account: NOPE}", 'cannot find local account "NOPE"'),
        (f"remotes: [{{{HUB}, account: NOPE}}]", 'cannot find local account "NOPE"'),
        ("port: 1, compression: zip", 'unsupported compression mode "zip"'),
        ("port: 1, compression: 5", 'field "compression" should be a boolean or a structure, got int64'),
        ("port: 1, compression: { mode: fast, nope: 1 }", 'unknown field "nope"'),
        ("port: 1, compression: { mode: 5 }", "interface conversion: interface {} is int64, not string"),
        (
            'port: 1, compression: { mode: auto, rtts: "5ms" }',
            "interface conversion: interface {} is string, not []interface {}",
        ),
        ('port: 1, compression: { mode: auto, rtts: ["x"] }', 'time: invalid duration "x"'),
        (
            'port: 1, compression: { mode: auto, rtts: ["10ms", "5ms"] }',
            "RTT threshold values [10ms 5ms] should be in ascending order",
        ),
        ("port: 1, tls { foo: 1 }", 'error parsing tls config, unknown field "foo"'),
        ('port: 1, tls { ca_file: "/nope" }', "open /nope: no such file or directory"),
        (f'remotes: [{{{HUB}, credentials: "/x", nkey: {SEED}}}]', "can not have both creds and nkey defined"),
        (f"remotes: [{{{HUB}, nkey: SUBAD}}]", "Remote leafnode nkey is not a valid seed"),
        (f"remotes: [{{{HUB}, seed: {ACCOUNT_SEED}}}]", "Remote leafnode nkey is not a valid seed"),
        ("port: 1, authorization { nkey: UBAD }", "Not a valid public nkey for leafnode authorization"),
        (f"port: 1, authorization {{ users: [{{nkey: {USER}}}] }}", "nkey"),
        (f'remotes: [{{{HUB}, tls {{ ca_file: "/nope" }}}}]', "open /nope: no such file or directory"),
        (f"remotes: [{{{HUB}, tls {{ ocsp_peer: true }}}}]", MINE),
        (
            'remotes: [{urls: ["ws://u:p@a:1", "nats://a:1"]}]',
            'cannot have a mix of websocket and non-websocket urls: ["ws://xxxxx@a:1" "nats://a:1"]',
        ),
        (f'remotes: [{{{HUB}, proxy {{ url: "https://a" }}}}]', MINE),
        (f'remotes: [{{{HUB}, proxy {{ url: "socks://a" }}}}]', "proxy URL scheme must be http or https, got: socks"),
        (f'remotes: [{{{HUB}, proxy {{ url: "a" }}}}]', "proxy URL scheme must be http or https, got: "),
        (f"remotes: [{{{HUB}, proxy {{ username: a }}}}]", "proxy URL must be specified when other proxy options"),
        (f'remotes: [{{{HUB}, proxy {{ url: "http://a", username: a }}}}]', "must both be specified or both be empty"),
        (f"remotes: [{{{HUB}, proxy: 1}}]", "Expected proxy to be a map, got int64"),
        ('remotes: [{url: "wss://h", proxy { url: "http://a" }}]', "no TLS configuration is provided"),
        ("remotes: [{}]", "a remote leafnode needs an url"),
    ],
)
def test_what_is_wrong_is_refused(tmp_path: Path, text: str, message: str) -> None:
    assert message in wrong(tmp_path, f"leafnodes {{ {text} }}")


def test_no_error_shows_a_password(tmp_path: Path) -> None:
    for text in ('remotes: [{url: "nats://u:secret@a:x"}]', "port: 1, authorization { password: [secret] }"):
        assert "secret" not in wrong(tmp_path, f"leafnodes {{ {text} }}")


def test_no_error_and_no_value_shows_a_seed(tmp_path: Path) -> None:
    for key in ("nkey", "seed"):
        found = leaf_of(tmp_path, f"remotes: [{{{HUB}, {key}: {SEED}}}]")
        assert SEED not in repr(found)
        assert SEED[:-1] not in wrong(tmp_path, f"leafnodes {{ remotes: [{{{HUB}, {key}: {SEED[:-1]}X}}] }}")


def test_operators_name_users_and_accounts(tmp_path: Path) -> None:
    operator = TokenOperator()
    account = operator.account("A")
    base = operator.config(operator.account("SYS"), account)
    found = options_of(tmp_path, f"{base}leafnodes {{ remotes: [{{{HUB}, account: {account.key}}}] }}").leafnodes
    assert found is not None
    assert [remote.account for remote in found.remotes] == [account.key]
    assert "requires account nkeys" in wrong(tmp_path, f"{base}leafnodes {{ remotes: [{{{HUB}}}] }}")
    users = "leafnodes { port: 1, authorization { users: [{user: a, password: b}] } }"
    assert "does not allow specifying users" in wrong(tmp_path, base + users)


def test_a_domain_is_one_token(tmp_path: Path) -> None:
    jetstream = options_of(tmp_path, "jetstream { domain: hub }").jetstream
    assert jetstream is not None
    assert jetstream.domain == "hub"
    for name in ("a.b", "a b", "*", ">"):
        assert "not one token of a subject" in wrong(tmp_path, f'jetstream {{ domain: "{name}" }}')


def test_a_callout_is_not_passed_by(tmp_path: Path) -> None:
    issuer = "ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA"
    callout = f"auth_callout {{ issuer: {issuer}, auth_users: [s] }}"
    text = f"authorization {{ users: [{{user: s, password: p}}] {callout} }}"
    assert options_of(tmp_path, f"{text}\nleafnodes {{ port: 1 }}").leafnodes is not None
    own = "leafnodes { port: 1, authorization { user: x, password: y } }"
    assert options_of(tmp_path, f"{text}\n{own}").leafnodes is not None
