"""Every name that nats-server 2.15.1 has for a key is one here, and a key that a `$key` refers to is a variable."""

from pathlib import Path

import attrs
import pytest

from jetraft.api.config.build import build_options
from jetraft.api.config.file import load_settings
from jetraft.api.config.settings import OptionsError
from jetraft.api.options.leafnodes import LeafOptions
from jetraft.api.options.options import Options
from tests.harness.tokens import Keys

PROXY = Keys.new("server").public


def read(tmp_path: Path, text: str) -> Options:
    path = tmp_path / "c.conf"
    path.write_text(text, encoding="utf-8")
    return build_options(load_settings(path, {"PATH": ""}))


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(OptionsError) as caught:
        read(tmp_path, text)
    return str(caught.value).partition("c.conf:")[2] or str(caught.value)


@pytest.mark.parametrize(
    "names",
    [
        ("max_sub_tokens: 7", "max_subscription_tokens: 7"),
        ("no_system_account: true", "no_system: true", "no_sys_acc: true"),
        (
            "jetstream { store_dir: s }",
            "jetstream { store: s }",
            "jetstream: on, store_dir: s",
            "storedir: s, jetstream on",
        ),
        ("leafnodes { port: -1, advertise: a }", "leafnodes { port: -1, leafnode_advertise: a }"),
        ("leafnodes { port: -1, min_version: v2.9.0 }", "leafnodes { port: -1, minimum_version: v2.9.0 }"),
        (f"proxies {{ trusted: [ {{ key: {PROXY} }} ] }}", f"proxies {{ trusted: [ {{ public_key: {PROXY} }} ] }}"),
        (
            "resolver: MEMORY, trusted: %O",
            "resolver { type: MEM }, trusted: %O",
            "resolver { type: memory }, trusted: %O",
        ),
    ],
)
def test_all_names_of_a_key_mean_the_same(tmp_path: Path, names: tuple[str, ...]) -> None:
    operator = Keys.new("operator").public
    without = attrs.evolve(read(tmp_path, "port: 4222"), config_digest="")
    found = [attrs.evolve(read(tmp_path, text.replace("%O", operator)), config_digest="") for text in names]
    assert all(options == found[0] for options in found)
    assert found[0] != without


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_subscription_tokens: 256", "1:1: max_subscription_tokens value is too big"),
        ("store_dir: a\njetstream { store: b }", "2:13: Duplicate 'store_dir' configuration"),
        (
            "jetstream { max_concurrent_io: 3 }",
            '1:13: Expected an absolute size for "max_concurrent_io" between 4 and 8192, got 3',
        ),
        ('proxies { trusted: [ { key: "" } ] }', '1:24: invalid proxy key ""'),
        ("leafnodes { dial_timeout: soon }", '1:13: dial_timeout: invalid duration "soon"'),
    ],
)
def test_a_wrong_value_is_said_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(tmp_path, text) == message


@pytest.mark.parametrize(
    ("block", "remote", "timeout_ns"),
    [("", "", 10**9), ("3s", "", 3 * 10**9), ("3s", "5s", 5 * 10**9), ("3s", "-5s", 3 * 10**9), ("-1s", "0s", 10**9)],
)
def test_a_hub_has_the_time_of_its_remote_or_of_the_block_to_accept(
    tmp_path: Path, block: str, remote: str, timeout_ns: int
) -> None:
    of_block, of_remote = (f'dial_timeout: "{text}",' if text else "" for text in (block, remote))
    leafs = read(tmp_path, f'leafnodes {{ {of_block} remotes [ {{ {of_remote} url: "nats://h" }} ] }}').leafnodes
    assert isinstance(leafs, LeafOptions)
    assert leafs.dial_timeout_of(leafs.remotes[0]) == timeout_ns


@pytest.mark.parametrize(
    "text",
    [
        "cluster { X: 5, port: $X }",
        "accounts { A { X: 5, limits { Y: 1, max_conn: $X, max_subs: $Y } } }",
        "accounts { A { msg_trace { X: a.b, dest: $X } } }",
        "accounts { A { exports [ { X: a, stream: $X } ] } }",
        "accounts { A { exports [ { stream: a } ] }, B { imports [ { stream { X: A, account: $X, subject: a } } ] } }",
        "accounts { X { users [ { user: x } ] }, B: $X }",
        'leafnodes { remotes: [ { X: "nats://a", url: $X } ], compression { X: s2_fast, mode: $X } }',
        "authorization { users: [ { P: x, user: a, password: $P } ] }",
        "authorization { users: [ { user: a, permissions { X: a, publish { Y: b, allow: [ $X, $Y ] } } } ] }",
        'jetstream { D: "/tmp", store_dir: $D, limits { X: 5, max_ack_pending: $X } }',
    ],
)
def test_what_a_variable_is_named_is_no_unknown_key(tmp_path: Path, text: str) -> None:
    read(tmp_path, text)
    words = ("nknown field", "Expected map entries")
    assert any(word in refusal(tmp_path, text.replace("$", "")) for word in words)


def test_a_key_that_is_used_as_a_variable_means_what_it_always_does(tmp_path: Path) -> None:
    options = read(tmp_path, "port: 5000\nhttp_port: $port\nhost: h\nleafnodes { port: -1, host: $host }\n")
    assert (options.port, options.http_port, options.host) == (5000, 5000, "h")


def test_a_variable_of_another_block_makes_no_key_known(tmp_path: Path) -> None:
    assert refusal(tmp_path, "X: 5\nport: $X\ncluster { X: 5 }") == '3:11: unknown field "X" in cluster'
