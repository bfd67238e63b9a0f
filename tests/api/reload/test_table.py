"""Every option says how it reloads, and what is refused is said without secrets."""

from typing import Any

import attrs
import pytest

from jetraft.api.credentials.rules import AuthRules, CalloutRules, PasswordUser
from jetraft.api.credentials.secret import Secret
from jetraft.api.credentials.trust import TrustRules
from jetraft.api.options.leafnodes import LeafOptions, RemoteOptions, RemoteUrl
from jetraft.api.options.options import (
    ClusterOptions,
    JetStreamOptions,
    Options,
    ReloadError,
    ResolverOptions,
    TrustOptions,
)
from jetraft.api.options.tls import TlsOptions
from jetraft.api.options.websocket import WebSocketOptions
from jetraft.api.reload import leafnodes
from jetraft.api.reload.table import HOW, changes, flat

SECRET = "a-secret-that-no-text-may-show"


def full() -> Options:
    """Options of which every part is configured."""
    trust = TrustOptions(rules=TrustRules(), resolver=ResolverOptions(), preload=("a token",))
    web = WebSocketOptions(tls=TlsOptions())
    return Options(websocket=web, jetstream=JetStreamOptions(), cluster=ClusterOptions(), tls=TlsOptions(), trust=trust)


def test_every_option_is_in_the_table_and_nothing_else() -> None:
    assert set(flat(full())) == set(HOW)


def test_every_part_of_the_leaf_node_block_reloads_in_a_way_that_is_written_down() -> None:
    followed = {"remotes", "tls", "compression"}
    assert {one.name for one in attrs.fields(LeafOptions)} == {*leafnodes.BLOCK, *followed}
    known_by = {"urls", "account"}
    assert {one.name for one in attrs.fields(RemoteOptions)} == {*leafnodes.REMOTE, *known_by, "tls", "compression"}


def test_nothing_differs_from_itself() -> None:
    assert changes(Options(config_digest="a"), Options(config_digest="a")) == []


def test_changes_come_in_the_order_of_the_table() -> None:
    new = Options(max_payload_bytes=5, debug=True, ping_max=7, config_digest="new")
    assert [change.line for change in changes(Options(), new)] == [
        "Reloaded: debug = true",
        "Reloaded: ping_max = 7",
        "Reloaded: max_payload = 5",
        "",
    ]


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (Options(server_name="b"), "config reload not supported for ServerName: old=, new=b"),
        (Options(port=7), "config reload not supported for Port: old=4222, new=7"),
        (Options(lame_duck_duration_ns=10**9), "config reload not supported for LameDuckDuration: old=2m0s, new=1s"),
        (Options(system_account=""), "config reload not supported for NoSystemAccount: old=false, new=true"),
        (Options(jetstream=JetStreamOptions()), "config reload not supported for JetStream"),
        (Options(cluster=ClusterOptions(secret=SECRET)), "config reload not supported for Cluster"),
        (Options(https_port=7), "config reload not supported for HTTPSPort: old=0, new=7"),
        (Options(max_closed_clients=7), "config reload not supported for MaxClosedClients: old=10000, new=7"),
        (Options(trust=full().trust), "config reload not supported for TrustedOperators"),
        (
            Options(auth=AuthRules(callout=CalloutRules(issuer="A", account="A", users=frozenset()))),
            "config reload not supported for AuthCallout",
        ),
    ],
)
def test_what_cannot_change_is_refused(new: Options, text: str) -> None:
    with pytest.raises(ReloadError) as refused:
        changes(Options(), new)
    assert str(refused.value) == text


HUB = RemoteUrl(host="h", port=1, user="u", password=SECRET)
REMOTE = RemoteOptions(urls=(HUB,))
TITLE = 'LeafNode: remote urls=["nats://h:1"], account="$G": field'


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"host": "a"}, 'LeafNode: field "Host": old=0.0.0.0, new=a'),
        ({"auth_timeout_ns": 3 * 10**9}, 'LeafNode: field "AuthTimeout": old=2, new=3'),
        ({"min_version": (2, 10, 0)}, 'LeafNode: field "MinVersion": old=, new=2.10.0'),
        ({"auth": AuthRules(username="a", password=Secret(SECRET))}, 'LeafNode: field "Users"'),
        ({"remotes": (attrs.evolve(REMOTE, deny_imports=("a", "b")),)}, f'{TITLE} "DenyImports": old=[], new=[a b]'),
        ({"remotes": (attrs.evolve(REMOTE, seed=Secret(SECRET)),)}, f'{TITLE} "Nkey"'),
        ({"remotes": (attrs.evolve(REMOTE, tls=TlsOptions()),)}, f'{TITLE} "TLSConfig": it is on now'),
    ],
)
def test_of_leaf_nodes_remotes_alone_may_change(changed: dict[str, Any], text: str) -> None:
    before = LeafOptions(port=1, remotes=(REMOTE,))
    with pytest.raises(ReloadError) as refused:
        changes(Options(leafnodes=before), Options(leafnodes=attrs.evolve(before, **changed)))
    assert str(refused.value) == f"config reload not supported for {text}"


def test_remotes_come_and_go() -> None:
    other = attrs.evolve(REMOTE, account="B")
    before, after = (Options(leafnodes=LeafOptions(port=1, remotes=(one,))) for one in (REMOTE, other))
    assert [change.key for change in changes(before, after)] == ["leafnodes"]


def test_certificates_are_read_again_at_every_reload() -> None:
    assert [change.line for change in changes(full(), full())] == ["Reloaded: tls = enabled"]


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("rules", "TrustedOperators"),
        ("resolver", "AccountResolver"),
        ("preload", "resolver_preload"),
        ("system_account", "SystemAccount: old=, new=A"),
    ],
)
def test_operator_mode_is_refused_by_the_name_of_its_key(part: str, text: str) -> None:
    old = full()
    assert old.trust is not None
    other: dict[str, Any] = {
        "rules": TrustRules(pinned=frozenset({"A"})),
        "resolver": ResolverOptions(limit=1),
        "preload": (SECRET,),
        "system_account": "A",
    }
    new = attrs.evolve(old, trust=attrs.evolve(old.trust, **{part: other[part]}))
    with pytest.raises(ReloadError) as refused:
        changes(old, new)
    assert str(refused.value) == f"config reload not supported for {text}"


@pytest.mark.parametrize("part", ["jetstream.key", "jetstream.prev_key", "cluster.secret", "auth"])
def test_no_text_shows_a_secret(part: str) -> None:
    block, _, name = part.partition(".")
    old = full()
    if block == "auth":
        user = PasswordUser(name="u", password=Secret(SECRET))
        new = attrs.evolve(old, auth=AuthRules(users=(user,), token=Secret(SECRET)))
        assert not any(SECRET in change.line for change in changes(old, new))
        return
    new = attrs.evolve(old, **{block: attrs.evolve(getattr(old, block), **{name: SECRET})})
    with pytest.raises(ReloadError) as refused:
        changes(old, new)
    assert SECRET not in str(refused.value)
