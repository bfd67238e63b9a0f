"""Servers of one kind with everything on them that pages and events tell of: one node, three, a leaf node, tokens.

A site has accounts that share, mappings, streams of each kind with consumers of each kind, clients that are there and
clients that have left. What it is asked is in `documents.py`.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from tests.harness.cluster import Cluster
from tests.harness.leafs import remote
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.raw import Event, Message, RawClient
from tests.harness.raw_websocket import WebSocketClient
from tests.harness.server import Kind, Server
from tests.harness.tokens import JETSTREAM, TokenOperator

MORE: Final = """
server_tags: ["az:1"]
server_metadata { rack: one }
jetstream { domain: hub }
websocket { host: "127.0.0.1", port: -1, no_tls: true, compression: true }
max_traced_msg_len: 100
"""
ACCOUNTS: Final = """
accounts {
  SYS { users: [{user: sys, password: x}] }
  A { users: [{user: a, password: x, permissions: { publish: ">", subscribe: { deny: "no" }, allow_responses: true }}]
      jetstream: enabled, mappings { "m.*": "mapped.$1" }
      exports [ {service: "q.*", latency: lat.q}, {stream: "news.>"}, {stream: "for.b", accounts: [B]} ] }
  B { users: [{user: b, password: x}], jetstream: { max_mem: 1M, max_store: 10M, max_streams: 5 }
      imports [ {service: {account: A, subject: "q.*"}, share: true}
                {stream: {account: A, subject: "news.>"}, prefix: p} ] }
}
system_account: SYS
no_auth_user: a
"""
LEAF_LISTENER: Final = 'leafnodes { host: "127.0.0.1", port: -1, authorization { account: A } }\n'
OPERATOR: Final = TokenOperator()
SYSTEM, FIRST = OPERATOR.account("SYS"), OPERATOR.account("A", limits=JETSTREAM)
SECOND = OPERATOR.account("B", default_permissions={"pub": {"deny": ["never"]}, "sub": {}})
USERS: Final = {
    "sys": SYSTEM.user(claims={"name": "sys"}),
    "a": FIRST.user(claims={"name": "a"}, sub={"deny": ["no"]}),
    "b": SECOND.user(claims={"name": "b"}),
}
HEARD: Final = ("$SYS.ACCOUNT.>", "$SYS.SERVER.>")
COME_S: Final = 0.02  # what has come is read in this time
CONSUMERS: Final[tuple[dict[str, Any], ...]] = (
    {"durable_name": "d", "ack_policy": "explicit"},
    {"durable_name": "p", "ack_policy": "explicit", "deliver_subject": "pushed", "deliver_group": "g"},
    {"durable_name": "q", "ack_policy": "none", "deliver_subject": "nobody"},
    {"name": "e", "ack_policy": "explicit", "inactive_threshold": 600_000_000_000},
    {
        "durable_name": "rich",
        "description": "all of it",
        "ack_policy": "explicit",
        "max_deliver": 3,
        "backoff": [1_000_000_000, 2_000_000_000],
        "filter_subjects": ["R1.x", "R1.y"],
        "max_ack_pending": 5,
        "max_waiting": 7,
        "max_batch": 3,
        "max_bytes": 1000,
        "max_expires": 5_000_000_000,
        "sample_freq": "50%",
        "metadata": {"k": "v"},
        "headers_only": True,
        "opt_start_seq": 1,
        "deliver_policy": "by_start_sequence",
    },
    {"durable_name": "paused", "ack_policy": "explicit", "pause_until": "2099-01-01T00:00:00Z"},
    {
        "durable_name": "pinned",
        "ack_policy": "explicit",
        "priority_policy": "pinned_client",
        "priority_groups": ["g"],
        "priority_timeout": 120_000_000_000,
    },
)
STREAMS: Final[tuple[dict[str, Any], ...]] = (
    {"name": "R1", "subjects": ["R1.>"], "max_bytes": 1 << 20},
    {"name": "MEM", "subjects": ["MEM"], "storage": "memory"},
    {"name": "MIR", "mirror": {"name": "R1"}},
    {"name": "SRC", "sources": [{"name": "R1", "filter_subject": "R1.x"}]},
    {
        "name": "RICH",
        "subjects": ["rich.*", "rich.in.>"],
        "description": "all of it",
        "retention": "interest",
        "max_consumers": 9,
        "max_msgs": 99,
        "max_age": 600_000_000_000,
        "max_msg_size": 1000,
        "max_msgs_per_subject": 9,
        "discard": "new",
        "discard_new_per_subject": True,
        "duplicate_window": 60_000_000_000,
        "compression": "s2",
        "allow_direct": True,
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": 60_000_000_000,
        "allow_rollup_hdrs": True,
        "subject_transform": {"src": "rich.in.>", "dest": "rich.out.>"},
        "republish": {"src": "rich.a", "dest": "again"},
        "consumer_limits": {"inactive_threshold": 900_000_000_000, "max_ack_pending": 50},
        "metadata": {"k": "v"},
        "placement": {"tags": ["az:1"]},
        "allow_atomic": True,
        "allow_batched": True,
    },
    {"name": "COUNTS", "subjects": ["counts.>"], "allow_msg_counter": True, "allow_direct": True},
    {"name": "LATER", "subjects": ["later.>"], "allow_msg_schedules": True, "allow_msg_ttl": True},
    {"name": "CLOSED", "subjects": ["closed"], "deny_delete": True, "deny_purge": True},
    {"name": "FAR", "mirror": {"name": "GONE", "external": {"api": "$JS.leaf.API", "deliver": "far"}}},
    {
        "name": "MADE",
        "sources": [{"name": "R1", "subject_transforms": [{"src": "R1.x", "dest": "made.x"}], "opt_start_seq": 1}],
    },
)


@attrs.define(eq=False)
class Site:
    """Running servers; `clients` by name, `heard` is what the system account has heard of until now."""

    kind: Kind
    accounts: tuple[str, str]
    nodes: list[Server]
    leaf: Server | None = None
    users: Mapping[str, Any] | None = None
    clients: dict[str, RawClient] = attrs.field(factory=dict)
    heard: list[Message] = attrs.field(factory=list)

    def client(self, user: str, name: str, node: int = 0) -> RawClient:
        """A client that is admitted when this returns."""
        return self.let_in(RawClient(self.nodes[node % len(self.nodes)].address, connect=False), user, name)

    def web_client(self, user: str, name: str) -> RawClient:
        """The same over WebSocket, to the first node."""
        port = self.nodes[0].get("/varz")[1]["websocket"]["port"]
        return self.let_in(WebSocketClient((HOST, port), connect=False), user, name)

    def let_in(self, client: RawClient, user: str, name: str) -> RawClient:
        """Say who a client is."""
        login = {"user": user, "pass": "x"} if self.users is None else self.users[user].login(client.info["nonce"])
        client.connect(**login, name=name)
        client.settle()
        self.clients[name] = client
        return client

    def leave(self, name: str) -> None:
        """Close a client and wait until its server knows."""
        client = self.clients.pop(name)
        client.close()
        self.wait_closed(client)

    def wait_closed(self, client: RawClient) -> None:
        """Wait until a connection to the first node is among those that have ended."""
        cid, node = client.info["client_id"], self.nodes[0]
        node.running.wait_until(
            lambda: any(row["cid"] == cid for row in node.get("/connz?state=closed")[1]["connections"]),
            what=f"{cid} is closed",
        )

    def hear(self, wanted: Callable[[Message], bool]) -> None:
        """Return when an event of a kind is among those that were heard, with all others that have come by then."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            waits = not any(map(wanted, self.heard))
            event: Event | None = self.clients["listener"].next_event(1.0 if waits else COME_S)
            if isinstance(event, Message):
                self.heard.append(event)
            elif event is None and not waits:
                return
        raise AssertionError(f"not heard by {self.kind}; heard: {sorted({one.subject for one in self.heard})}")


def populate(site: Site) -> None:
    """Make what pages tell of."""
    listener = site.client("sys", "listener")
    for subject in HEARD:
        listener.subscribe(subject)
    listener.settle()
    one, two, three = (site.client(user, f"{user}{node}", node) for node, user in enumerate("aba"))
    one.subscribe("q.*")
    one.subscribe("pushed", "g")
    three.subscribe("foo", "group")
    two.subscribe("p.news.>")
    for each in (one, two, three):
        each.settle()
    clustered = len(site.nodes) > 1
    r3: tuple[dict[str, Any], ...] = ({"name": "R3", "subjects": ["R3.>"], "num_replicas": 3},) if clustered else ()
    for stream in (*STREAMS, *r3):
        assert "error" not in one.api(f"STREAM.CREATE.{stream['name']}", stream), stream
    for stream_name in ("R1", "R3") if clustered else ("R1",):
        for config in CONSUMERS:
            body = {"stream_name": stream_name, "config": config}
            name = config.get("durable_name", config.get("name"))
            answer = one.api(f"CONSUMER.CREATE.{stream_name}.{name}", body)
            assert "error" not in answer, answer
        one.acknowledged(f"{stream_name}.x", b"x")
    wait_copied(one)
    site.web_client("a", "web").subscribe("web")
    site.web_client("b", "web gone")
    site.leave("web gone")
    site.client("a", "left")
    site.leave("left")
    passing = site.client("b", "passing")
    passing.subscribe("own")
    for subject in ("own", "other", "other"):
        passing.publish(subject, b"0123456789")
    passing.settle()
    site.leave("passing")
    stranger: dict[str, Any] = {"user": "nobody", "pass": "y"}
    refused = RawClient(site.nodes[0].address, **stranger, name="refused")
    refused.rest(PATIENCE_S)
    refused.close()
    site.wait_closed(refused)


def wait_copied(client: RawClient) -> None:
    """Wait until the mirror and the stream with a source have what they copy."""
    deadline = time.monotonic() + PATIENCE_S
    for name in ("MIR", "SRC"):
        while not client.api(f"STREAM.INFO.{name}").get("state", {}).get("messages"):
            assert time.monotonic() < deadline, f"{name} has not copied"


@contextmanager
def alone(kind: Kind, directory: Path) -> Iterator[Site]:
    """One node with a leaf node behind it."""
    with Server(kind, directory=directory, config=MORE + ACCOUNTS + LEAF_LISTENER, name="n1") as server:
        site = Site(kind, ("A", "B"), [server])
        with leaf_of(site, directory), closing(site):
            populate(site)
            yield site


@contextmanager
def three(kind: Kind, directory: Path) -> Iterator[Site]:
    """Three nodes with a leaf node behind the first."""
    with Cluster(kind, 3, directory=directory, config=MORE + ACCOUNTS + LEAF_LISTENER) as cluster:
        site = Site(kind, ("A", "B"), list(cluster))
        with leaf_of(site, directory), closing(site):
            populate(site)
            yield site


@contextmanager
def signed(kind: Kind, directory: Path) -> Iterator[Site]:
    """One node in operator mode."""
    config = MORE + OPERATOR.config(SYSTEM, FIRST, SECOND)
    with Server(kind, directory=directory, config=config, name="n1") as server:
        site = Site(kind, (FIRST.key, SECOND.key), [server], users=USERS)
        with closing(site):
            populate(site)
            yield site


SITES: Final = {"alone": alone, "three": three, "signed": signed}


@contextmanager
def leaf_of(site: Site, directory: Path) -> Iterator[None]:
    """A leaf node of the first node, in the account A."""
    hub = site.nodes[0]
    (directory / "leaf").mkdir()
    config = "jetstream { domain: leaf }\n" + remote(hub.get("/varz")[1]["leaf"]["port"])
    with Server(site.kind, directory=directory / "leaf", name="leaf", config=config) as leaf:
        hub.running.wait_until(lambda: hub.get("/leafz")[1]["leafnodes"] > 0, what="a leaf node")
        hub.running.wait_until(lambda: leaf.get("/leafz")[1]["leafnodes"] > 0, what="its hub")
        site.leaf = leaf
        with RawClient(leaf.address, name="behind") as behind:
            behind.subscribe("behind.the.leaf")
            behind.settle()
            yield


@contextmanager
def closing(site: Site) -> Iterator[None]:
    """End the clients of a site."""
    try:
        yield
    finally:
        for client in site.clients.values():
            client.close()
