"""Leaf nodes that prove who they are with a key or a token, with jetraft at either end or at both."""

import json
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.harness.leafs import PAIR_IDS, PAIRS, RawLeaf, joined, listener, real_messages, remote, wait_interest
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import free_port
from tests.harness.raw import Line, RawClient
from tests.harness.server import Kind, Server
from tests.harness.tokens import Keys, TokenAccount, TokenOperator, TokenUser

pytestmark = [pytest.mark.reference]
REFUSED = "authentication error"


def hub_of(more: str = "") -> str:
    return listener(0, more).replace("port: 0", "port: LEAFPORT")


def leaf_with(more: str) -> str:
    return remote(0, more).replace(":0", ":LEAFPORT")


def hides(server: Server, *secrets: str) -> bool:
    """Whether neither the log nor the pages of a server show one of these; nats-server's /connz has tokens."""
    if server.kind == "reference":
        return True
    pages = [server.get(path)[1] for path in ("/varz", "/leafz?subs=1", "/connz?auth=1")]
    shown = server.running.tail(10_000) + json.dumps(pages)
    return not any(secret in shown for secret in secrets)


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
@pytest.mark.parametrize("where", ["block", "clients"])
def test_a_key_is_proved(where: str, hub: Kind, leaf: Kind, tmp_path: Path) -> None:
    keys = Keys.new("user")
    accounts = "accounts { B { users: [{user: b, password: b}] } }\n"
    if where == "block":
        hub_more = accounts + hub_of(f"authorization {{ nkey: {keys.public}, account: B }}")
    else:
        hub_more = accounts.replace("[{", f"[{{nkey: {keys.public}}}, {{") + hub_of()
    with joined(hub, leaf, tmp_path, hub_more=hub_more, leaf_more=leaf_with(f"nkey: {keys.seed}")) as pair:
        with RawClient(pair.hub.address, connect=False) as receiver, RawClient(pair.leaf.address) as sender:
            receiver.connect(**{"user": "b", "pass": "b"})
            sid = receiver.subscribe("x")
            wait_interest(sender, "x")
            sender.publish("x", b"1")
            assert real_messages(receiver, sid, 1) == [b"1"]
        assert hides(pair.leaf, keys.seed)


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
def test_another_key_is_refused(hub: Kind, leaf: Kind, tmp_path: Path) -> None:
    hub_more = hub_of(f"authorization {{ nkey: {Keys.new('user').public} }}")
    other = Keys.new("user")
    with joined(hub, leaf, tmp_path, hub_more=hub_more, leaf_more=leaf_with(f"nkey: {other.seed}")) as pair:
        pair.hub.running.wait_for_line(REFUSED)
        assert pair.hub.get("/leafz")[1]["leafnodes"] == 0
        assert hides(pair.leaf, other.seed)


@attrs.frozen
class Operated:
    """An operator with two accounts, each with a user."""

    operator: TokenOperator
    system: TokenAccount
    first: TokenAccount
    second: TokenAccount

    @classmethod
    def make(cls, **limits: Any) -> "Operated":
        operator = TokenOperator()
        system, first, second = operator.account("SYS"), operator.account("A"), operator.account("B")
        if limits:
            first = operator.account("A", limits=limits)
        return cls(operator, system, first, second)

    @property
    def config(self) -> str:
        return self.operator.config(self.system, self.first, self.second)


def credentials(directory: Path, user: TokenUser) -> Path:
    path = directory / "user.creds"
    path.write_text(user.creds)
    return path


def client_of(server: Server, account: TokenAccount) -> RawClient:
    client = RawClient(server.address, connect=False)
    client.connect(**account.user().login(client.info["nonce"]))
    return client


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
def test_a_token_binds_to_its_account(hub: Kind, leaf: Kind, tmp_path: Path) -> None:
    operated = Operated.make()
    user = operated.first.user(pub={"deny": ["denied"]})
    more = leaf_with(f'credentials: "{credentials(tmp_path, user)}"')
    with joined(hub, leaf, tmp_path, hub_more=operated.config + hub_of(), leaf_more=more) as pair:
        with (
            client_of(pair.hub, operated.first) as receiver,
            client_of(pair.hub, operated.second) as stranger,
            RawClient(pair.leaf.address) as sender,
        ):
            sid, other = receiver.subscribe(">"), stranger.subscribe(">")
            wait_interest(sender, "x")
            sender.publish("denied", b"0")
            sender.publish("x", b"1")
            assert real_messages(receiver, sid, 1) == [b"1"]
            assert stranger.messages(other, 0) == []
        assert pair.hub.get("/leafz")[1]["leafs"][0]["account"] == operated.first.key
        for server in (pair.hub, pair.leaf):
            assert hides(server, user.token, user.keys.seed)


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
def test_both_ends_have_operators(hub: Kind, leaf: Kind, tmp_path: Path) -> None:
    centre, edge = Operated.make(), Operated.make()
    path = credentials(tmp_path, centre.first.user())
    more = edge.config + leaf_with(f'credentials: "{path}", account: {edge.second.key}')
    with (
        joined(hub, leaf, tmp_path, hub_more=centre.config + hub_of(), leaf_more=more) as pair,
        client_of(pair.hub, centre.first) as receiver,
        client_of(pair.leaf, edge.second) as sender,
    ):
        sid = receiver.subscribe("x")
        wait_interest(sender, "x")
        sender.publish("x", b"1")
        assert real_messages(receiver, sid, 1) == [b"1"]


@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
@pytest.mark.parametrize("case", ["operator", "signature", "kind"])
def test_a_token_that_does_not_hold_is_refused(case: str, hub: Kind, leaf: Kind, tmp_path: Path) -> None:
    operated = Operated.make()
    user = {
        "operator": Operated.make().first.user(),
        "signature": TokenUser(Keys.new("user"), operated.first.user().token),
        "kind": operated.first.user(allowed_connection_types=["STANDARD"]),
    }[case]
    more = leaf_with(f'credentials: "{credentials(tmp_path, user)}"')
    with joined(hub, leaf, tmp_path, hub_more=operated.config + hub_of(), leaf_more=more) as pair:
        pair.hub.running.wait_for_line(REFUSED)
        assert pair.hub.get("/leafz")[1]["leafnodes"] == 0
        assert hides(pair.hub, user.token)


def until_err(leaf: RawLeaf) -> str:
    """The error that a connection ends with."""
    while True:
        event = leaf.next_event(PATIENCE_S)
        if isinstance(event, Line) and event.text.startswith("-ERR"):
            return event.text
        assert event is not None


def raw_leaf(port: int, user: TokenUser, name: str) -> RawLeaf:
    leaf = RawLeaf(port)
    fields = {"server_id": f"N{name}", "name": name, "cluster": name, "version": "2.15.1", "remote_account": "$G"}
    leaf.send(b"CONNECT " + json.dumps({**fields, **user.login(leaf.info["nonce"])}).encode() + b"\r\n")
    return leaf


@pytest.mark.parametrize("kind", ["jetraft", "reference"])
def test_an_account_has_as_many_leaf_nodes_as_its_token_says(kind: Kind, tmp_path: Path) -> None:
    operated, port = Operated.make(leaf=1), free_port()
    config = operated.config + hub_of().replace("LEAFPORT", str(port))
    with (
        Server(kind, directory=tmp_path, config="jetstream { domain: hub }\n" + config),
        raw_leaf(port, operated.first.user(), "one") as one,
    ):
        one.until("LS+ $LDS")
        with raw_leaf(port, operated.first.user(), "two") as two:
            assert "maximum account active connections exceeded" in until_err(two)


@pytest.mark.parametrize("kind", ["jetraft", "reference"])
def test_a_connection_ends_with_its_token(kind: Kind, tmp_path: Path) -> None:
    operated, port = Operated.make(), free_port()
    config = operated.config + hub_of().replace("LEAFPORT", str(port))
    with Server(kind, directory=tmp_path, config="jetstream { domain: hub }\n" + config):
        user = operated.first.user(claims={"exp": int(time.time()) + 2})
        with raw_leaf(port, user, "one") as one:
            assert "User Authentication Expired" in until_err(one)


@pytest.mark.parametrize("kind", ["jetraft", "reference"])
def test_a_revoked_user_is_a_leaf_node_no_more(kind: Kind, tmp_path: Path) -> None:
    operated, port = Operated.make(), free_port()
    resolver = f'{{ type: full, dir: "{tmp_path / "jwt"}", interval: "1s" }}'
    config = operated.operator.config(operated.system, operated.first, resolver=resolver)
    config += hub_of().replace("LEAFPORT", str(port))
    user = operated.first.user()
    with (
        Server(kind, directory=tmp_path, config="jetstream { domain: hub }\n" + config) as hub,
        client_of(hub, operated.system) as admin,
        raw_leaf(port, user, "one") as one,
    ):
        one.until("LS+ $LDS")
        token = operated.first.token(revocations={user.keys.public: int(time.time()) + 1})
        admin.request("$SYS.REQ.CLAIMS.UPDATE", token.encode())
        while one.next_event(PATIENCE_S) is not None:
            pass
        hub.running.wait_for_line("Credentials Revoked" if kind == "jetraft" else "closed: ")
        assert hub.get("/leafz")[1]["leafnodes"] == 0
