"""Every page of a cluster with JetStream, accounts that share and a leaf node: both servers have the same fields.

`KNOWN` is what differs, by page and path, with its reason; a difference that is gone has to leave the list.
"""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from tests.conformance.monitored import KINDS, page, shape
from tests.harness.cluster import Cluster
from tests.harness.leafs import remote
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import Message, RawClient
from tests.harness.server import Kind, Server

pytestmark = [pytest.mark.reference]
ACCOUNTS: Final = """
server_tags: ["az:1"]
server_metadata { rack: one }
jetstream { domain: hub }
accounts {
  SYS { users: [{user: sys, password: x}] }
  A { users: [{user: a, password: x}], jetstream: enabled, mappings { "m.*": "mapped.$1" }
      exports [ {service: "q.*", latency: lat.q}, {stream: "news.>"}, {stream: "for.b", accounts: [B]} ] }
  B { users: [{user: b, password: x}], jetstream: { max_mem: 1M, max_store: 10M, max_streams: 5 }
      imports [ {service: {account: A, subject: "q.*"}, share: true}
                {stream: {account: A, subject: "news.>"}, prefix: p} ] }
}
system_account: SYS
no_auth_user: a
"""
TARGETS: Final = """
    /varz /connz?subs=detail&auth=1&state=all /routez?subs=1 /routez?subs=detail /leafz?subs=1 /leafz /subsz?subs=1
    /accountz /accountz?acc=A /accountz?acc=B /accstatz?unused=1 /jsz?accounts=1&streams=1&consumers=1&config=1&raft=1
    /healthz /healthz?details=1 /raftz /ipqueuesz /gatewayz?accs=1
"""
PLAIN: Final = re.compile("(?!meta$)[a-z][a-z0-9_]*")  # names of fields; those of accounts, groups and queues are not
KNOWN: Final = {
    # What describes Go or its file layer.
    "-*feature_flags*": "there are no features that are turned on or off",
    "-disk_io_wait_stats*": "no semaphore is waited for; `jetraft.writer` has the figures of the writer threads",
    "-*limits.default_max_consumers": "a stream has any number of consumers unless the configuration says otherwise",
    "+jetraft*": "figures of the parts that exist here alone",
    "+http_req_stats*": "every page is counted",
    # Links between nodes.
    "-cluster.pool_size": "two nodes have one link, and one for bulk",
    "-cluster.auth_timeout": "links have a handshake of their own, with one time for all of it",
    "-cluster.tls_timeout": "the same",
    "-routes.account": "no account has a link of its own",
    "-routes.rtt": "links have heartbeats, which are not answered one by one",
    "+routes.subscriptions_list_detail.account": "what a link carries is of several accounts",
    "+routes.subscriptions_list_detail.account_tag": "the same",
    "-leafs.rtt": "measured with the first PING, which is sent when nothing else has come for a time",
    # JetStream.
    "+*config.sync_always": "every acknowledgement waits for its fsync",
    "+*config.store_dir": "STATSZ of nats-server leaves it out",
    "+*scrub*": "blocks are read again and compared",
    "+*compare*": "the same",
    "+*raft_groups*": "`raft=1` shows each group with its figures, which consumers share with their stream",
    "-*consumer_raft_groups*": "a consumer is part of the group of its stream",
    "-*cluster.system_account": "replication has links of its own, in no account",
    "-*cluster.traffic_account": "the same",
    "+*stream_detail.domain": "stream info has it, and this is the same document",
    "+*stream_detail.leads": "says whether the figures are the leader's",
    "+*stream_detail.mandate.*": "says whether the replica may be read, and why not",
    "+*stream_detail.mandate": "says whether the replica may be read, and why not",
    "+*stream_detail.ts": "as `domain`",
    "+*s_leader": "nats-server leaves these two out of some answers",
    "-*ipq_*_len": "queues of nats-server's engine",
    "-*pterm": "of nats-server's engine",
    "-*voted_for": "votes are in the ledger of the node",
    "-*wal*": "the log of a group is not a stream here; /varz has the figures of storage",
    "-*last_replicated_index": "`raft_groups` of /jsz has the indexes",
    "-*last_seen": "the same",
    "-*in_progress": "queues of nats-server, while something waits in them",
    "-*pending": "the same",
    "-[*]": "the same",
    # Accounts.
    "-account_detail.imports*": "nats-server shows its own services of the system account as imports",
    "-account_detail.mappings*": "and the names of a domain as mappings",
}
AT_TIMES: Final = ("-*in_progress", "-*pending", "-[*]", "+http_req_stats*", "-*last_seen", "+*s_leader", "-leafs.rtt")
PINGED: Final = "VARZ CONNZ ROUTEZ LEAFZ SUBSZ ACCOUNTZ JSZ HEALTHZ RAFTZ IPQUEUESZ GATEWAYZ STATSZ IDZ"
REQUESTS: Final = (*(f"SERVER.PING.{name}" for name in PINGED.split()), "ACCOUNT.A.LEAFZ", "ACCOUNT.A.CONNZ")


def pattern_of(path: str) -> str:
    """A path of KNOWN as a regular expression: what is answered to a request is within `data` or `statsz`."""
    kind, rest = path[0], path[1:]
    return (
        re.escape(kind)
        + r"(data\.|statsz\.|server\.)?"
        + "".join(
            r"\*" if part == "[*]" else ".*" if part == "*" else re.escape(part)
            for part in re.split(r"(\[\*\]|\*)", rest)
        )
    )


PATTERNS: Final = tuple(re.compile(pattern_of(path)) for path in KNOWN)


@attrs.define(eq=False)
class Site:
    """A cluster of three with streams and consumers, a leaf node of the same kind, and clients."""

    kind: Kind
    cluster: Cluster
    system: RawClient
    clients: list[RawClient]

    def pages(self, target: str) -> dict[str, str]:
        """The fields of a page of all nodes, with their types."""
        found: dict[str, str] = {}
        for node in self.cluster.nodes:
            status, _, document = page(node, target)
            assert status == 200, (target, document)
            found |= shape(keyless(document))
        return found

    def answers(self, request: str) -> dict[str, str]:
        """The fields of what all nodes answer to a request of the system account."""
        found: dict[str, str] = {}
        inbox = self.system.new_inbox()
        sid = self.system.subscribe(inbox)
        self.system.publish(f"$SYS.REQ.{request}", b'{"auth":true}', reply=inbox)
        for _ in self.cluster.nodes:
            while not isinstance(answer := self.system.next_event(PATIENCE_S), Message):
                assert answer is not None, request
            found |= shape(keyless(json.loads(answer.payload)))
        self.system.send(f"UNSUB {sid}\r\n".encode())
        self.system.settle()
        return found


def keyless(document: Any) -> Any:
    """A document whose maps with names of accounts, groups and queues for keys have one name for all."""
    if isinstance(document, list):
        return [keyless(item) for item in document]
    if not isinstance(document, dict):
        return document
    merged: dict[str, list[Any]] = {}
    for name, value in document.items():
        merged.setdefault(name if PLAIN.fullmatch(name) else "*", []).append(keyless(value))
    return {name: values[0] if len(values) == 1 else values for name, values in merged.items()}


def staged_cluster(kind: Kind, directory: Path, stack: ExitStack) -> Site:
    """Start it all, and wait until it is there."""
    config = ACCOUNTS + 'leafnodes { host: "127.0.0.1", port: -1, authorization { account: A } }\n'
    cluster = stack.enter_context(Cluster(kind, 3, directory=directory, config=config))
    first = cluster.nodes[0]
    port = page(first, "/varz")[2]["leaf"]["port"]
    (directory / "leaf").mkdir()
    config = "jetstream { domain: leaf }\n" + remote(port)
    stack.enter_context(Server(kind, directory=directory / "leaf", name="leaf", config=config))
    first.running.wait_until(lambda: first.get("/leafz")[1]["leafnodes"] > 0, what="a leaf node")

    def client(user: str, node: int) -> RawClient:
        login: dict[str, Any] = {"user": user, "pass": "x", "name": f"{user}{node}"}
        made = stack.enter_context(RawClient(cluster.nodes[node].address, **login))
        made.settle()
        return made

    clients = [client("a", 0), client("b", 1), client("a", 2)]
    one, two, three = clients
    one.subscribe("q.*")
    three.subscribe("foo", "group")
    two.subscribe("p.news.>")
    for each in clients:
        each.settle()
    for name, replicas in (("R1", 1), ("R3", 3)):
        body = {"name": name, "subjects": [f"{name}.>"], "num_replicas": replicas, "max_bytes": 1 << 20}
        assert "error" not in one.api(f"STREAM.CREATE.{name}", body)
        consumer = {"durable_name": "d", "ack_policy": "explicit"}
        assert "error" not in one.api(f"CONSUMER.CREATE.{name}.d", {"stream_name": name, "config": consumer})
        one.acknowledged(f"{name}.x", b"x")
    client("a", 0).close()
    return Site(kind, cluster, client("sys", 0), clients)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Site]]:
    """One of each kind."""
    with ExitStack() as stack:
        yield [staged_cluster(kind, tmp_path_factory.mktemp(kind), stack) for kind in KINDS]


def differing(theirs: dict[str, str], ours: dict[str, str]) -> set[str]:
    """`-`: missing here, `+`: only here, `~`: of another type."""
    missing = {f"-{path}" for path in theirs.keys() - ours.keys()}
    other = {f"~{path}" for path in theirs.keys() & ours.keys() if theirs[path] != ours[path]}
    return missing | other | {f"+{path}" for path in ours.keys() - theirs.keys()}


def unexplained(found: set[str]) -> list[str]:
    """The differences that no entry of KNOWN explains."""
    return sorted(path for path in found if not any(pattern.fullmatch(path) for pattern in PATTERNS))


@pytest.mark.parametrize("target", TARGETS.split())
def test_a_page_of_a_cluster_has_the_same_fields(sites: list[Site], target: str) -> None:
    assert unexplained(differing(*(site.pages(target) for site in sites))) == []


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_to_a_cluster_is_answered_with_the_same_fields(sites: list[Site], name: str) -> None:
    assert unexplained(differing(*(site.answers(name) for site in sites))) == []


def test_every_known_difference_is_one(sites: list[Site]) -> None:
    found = set[str]()
    for target in TARGETS.split():
        found |= differing(*(site.pages(target) for site in sites))
    for name in REQUESTS:
        found |= differing(*(site.answers(name) for site in sites))
    idle = {pattern.pattern for pattern in PATTERNS if not any(map(pattern.fullmatch, found))}
    assert idle <= {pattern_of(path) for path in AT_TIMES}
