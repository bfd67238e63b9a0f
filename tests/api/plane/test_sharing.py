"""Imports, exports and mappings of accounts against a plain Python model, on two nodes."""

import re
from collections import Counter

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.api.exchange.setup import SharedAccounts, set_up
from jetraft.api.exchange.values import Destination, Export, Import, Mapping, Sharing, SharingKind
from jetraft.api.plane._plane import Plane
from jetraft.cluster.capture._capture import captures, encode_capture
from jetraft.cluster.capture.reach import MessageOrigin
from tests.api.plane.test_accounts import Link, client
from tests.api.plane.test_plane import matches

STREAM, SERVICE = SharingKind.STREAM, SharingKind.SERVICE
NAMES = ("$G", "A", "B")
STREAM_SUBJECTS = (
    ("a", "a"),
    ("a", "b.a"),
    ("*.*", "p.$2.$1"),
    ("a.>", "b.>"),
    (">", "p.>"),
    ("a.*", "a.*"),
    ("b.>", "b.>"),
)
SERVICE_SUBJECTS = (("a", "b"), ("a.>", "b.>"), ("*.*", "p.$2.$1"), (">", "p.>"), ("b", "b"), ("a.b", "cc.*"))
MAPPED = (("a", "b"), ("a.*", "b.$1"), ("*.b", "$1"), ("b.>", "a.>"), ("cc", "p.a"))


@attrs.frozen
class Got:
    """A message as a receiver sees it."""

    subject: str
    payload: bytes
    reply: str
    hdr: bytes


def received(plane: Plane, cid: int) -> list[Got]:
    """What a connection got on its subscription 1."""
    data, found = plane.take(cid), []
    while data:
        line, _, data = data.partition(b"\r\n")
        verb, subject, _, *reply, size = line.split(b" ")
        hdr = int(reply.pop()) if verb == b"HMSG" else 0
        body, data = data[: int(size)], data[int(size) + 2 :]
        found.append(Got(subject.decode(), body[hdr:], b"".join(reply).decode(), body[:hdr]))
    return found


def translate(source: str, destination: str, subject: str) -> str:
    """What a subject that matches `source` becomes; a wildcard of the destination stands for the next of the source."""
    tokens, wanted = subject.split("."), source.split(".")
    caught = [token for token, pattern in zip(tokens, wanted, strict=False) if pattern == "*"]
    made, star = list[str](), iter(caught)
    for token in destination.split("."):
        if token == "*":
            made.append(next(star))
        elif token.startswith("$"):
            made.append(caught[int(token[1:]) - 1])
        elif token == ">":
            made += tokens[len(wanted) - 1 :]
        else:
            made.append(token)
    return ".".join(made)


def untranslate(source: str, local: str, subject: str) -> str:
    """The exporter's subject of what an importer publishes on its own."""
    if "*" not in source and ">" not in source:
        return source
    caught = [
        token
        for token, pattern in zip(subject.split("."), local.split("."), strict=False)
        if re.match(r"\*|\$", pattern)
    ]
    order = [int(token[1:]) - 1 for token in local.split(".") if token.startswith("$")] or range(len(caught))
    places = dict(zip(order, caught, strict=True))
    stars, made = iter(range(len(caught))), list[str]()
    for token in source.split("."):
        if token == ">":
            made += subject.split(".")[len(local.split(".")) - 1 :]
        else:
            made.append(places[next(stars)] if token == "*" else token)
    return ".".join(made)


def pattern_of(local: str) -> str:
    return re.sub(r"\$\d", "*", local)


@attrs.frozen
class Delivery:
    """To a listener (its number), on a subject, through services or not."""

    listener: int
    subject: str
    crossed: bool


@attrs.frozen
class Listening:
    """A subscription of a client, or of a sink, at a node."""

    node: int
    account: str
    pattern: str
    queue: str
    sink: bool


@attrs.define
class Model:
    """Who receives what is published, by the rules alone."""

    sharing: dict[str, Sharing]
    listeners: list[Listening]
    plain: Counter[Delivery] = attrs.field(factory=Counter)
    groups: list[set[Delivery]] = attrs.field(factory=list)
    requests: int = 0  # that the account's own imports handed over to a receiver; each has one answer

    def publish(
        self, account: str, subject: str, chain: tuple[tuple[str, str], ...] = (), *, mapped: bool = True
    ) -> bool:
        """Deliver; returns whether there was a receiver."""
        if mapped:
            subject = self.map(account, subject)
        reached = self.deliver(account, subject, crossed=bool(chain))
        for one in self.sharing[account].imports:
            service = (one.account, one.subject)
            local = one.local or one.subject
            if one.kind is SERVICE and matches(pattern_of(local), subject) and service not in chain:
                there = untranslate(one.subject, local, subject)
                answered = self.publish(one.account, there, (*chain, service))
                self.requests += answered and not chain
                reached |= answered
        return reached

    def map(self, account: str, subject: str) -> str:
        for mapping in self.sharing[account].mappings:
            if matches(mapping.source, subject):
                return translate(mapping.source, mapping.destinations[0].subject, subject)
        return subject

    def deliver(self, account: str, subject: str, *, crossed: bool) -> bool:
        groups: dict[str, set[Delivery]] = {}
        reached = False
        for number, one in enumerate(self.listeners):
            for shown in self.shown(one, account, subject):
                reached = True
                delivery = Delivery(number, shown, crossed)
                if one.queue:
                    groups.setdefault(one.queue, set()).add(delivery)
                else:
                    self.plain[delivery] += 1
        self.groups += groups.values()
        return reached

    def shown(self, listener: Listening, account: str, subject: str) -> list[str]:
        """The subjects on which a listener gets a message of an account."""
        found = [subject] if listener.account == account and matches(listener.pattern, subject) else []
        for one in self.sharing[listener.account].imports:
            if one.kind is STREAM and one.account == account and matches(one.subject, subject):
                here = translate(one.subject, one.local or one.subject, subject)
                found += [here] if matches(listener.pattern, here) else []
        return found


def sharing_of(
    streams: list[tuple[str, str, int]], services: list[tuple[str, str, int]], mapped: list[tuple[str, int]]
) -> dict[str, Sharing]:
    """Accounts with these imports, each exported to all, and these mappings; of two imports with one name the first."""
    imports: dict[str, list[Import]] = {name: [] for name in NAMES}
    for kind, drawn, subjects in ((STREAM, streams, STREAM_SUBJECTS), (SERVICE, services, SERVICE_SUBJECTS)):
        for importer, exporter, number in drawn:
            source, local = subjects[number % len(subjects)]
            one = Import(kind=kind, account=exporter, subject=source, local=local)
            taken = {
                (found.account, found.subject) if kind is STREAM else found.local
                for found in imports[importer]
                if found.kind is kind
            }
            if importer != exporter and ((exporter, source) if kind is STREAM else local) not in taken:
                imports[importer].append(one)
    exports = {
        name: tuple(
            {
                Export(kind=one.kind, subject=one.subject)
                for found in imports.values()
                for one in found
                if one.account == name
            }
        )
        for name in NAMES
    }
    mappings = {
        name: dict(MAPPED[number % len(MAPPED)] for account, number in mapped if account == name) for name in NAMES
    }
    return {
        name: Sharing(
            exports=exports[name],
            imports=tuple(imports[name]),
            mappings=tuple(
                Mapping(source=source, destinations=(Destination(subject=to),)) for source, to in mappings[name].items()
            ),
        )
        for name in NAMES
    }  # fmt: skip


PATTERNS = st.sampled_from([">", "*", "a", "b", "a.*", "*.*", "b.>", "p.>", "*.a", "p.*.b", "b.a"])
LITERALS = st.sampled_from(["a", "b", "cc", "a.b", "b.a", "a.a", "a.b.cc"])
NAME, NUMBER = st.sampled_from(NAMES), st.integers(0, 41)
SHARED = st.builds(
    sharing_of,
    st.lists(st.tuples(NAME, NAME, NUMBER), min_size=4, max_size=8),
    st.lists(st.tuples(NAME, NAME, NUMBER), min_size=4, max_size=8),
    st.lists(st.tuples(NAME, NUMBER), max_size=2),
)
LISTENERS = st.lists(
    st.builds(Listening, st.integers(0, 1), NAME, PATTERNS, st.sampled_from(["", "", "q", "r"]), st.booleans()),
    min_size=3,
    max_size=8,
)
PUBLISHES = st.lists(
    st.tuples(st.integers(0, 1), NAME, LITERALS, st.sampled_from(["client", "client", "send", "batch"])),
    min_size=1,
    max_size=6,
)


@attrs.define
class Nodes:
    """Two nodes with the same accounts, and the listeners at them."""

    sharing: dict[str, Sharing]
    listeners: list[Listening]
    link: Link = attrs.field(factory=Link)
    cids: list[int] = attrs.field(factory=list)
    batches: list[list[bytes]] = attrs.field(factory=list)
    held: list[SharedAccounts] = attrs.field(factory=list)

    def start(self, before: dict[str, Sharing] | None, *, late: bool) -> None:
        """Set up, and connect the nodes; `late`: when the listeners are there already.

        `before` is what the accounts share until then; None: the same.
        """
        for node in self.link.nodes:
            self.held.append(set_up(node, self.sharing if before is None else before, ""))
        if not late:
            self.link.up()
        for one in self.listeners:
            plane, batch = self.link.nodes[one.node], list[bytes]()
            self.batches.append(batch)
            self.cids.append(0 if one.sink else client(plane, one.account))
            if one.sink:
                plane.add_sink(plane.account(one.account), one.pattern.encode(), batch.append, queue=one.queue.encode())
            else:
                plane.feed(self.cids[-1], f"SUB {one.pattern} {one.queue} 1\r\n".encode())
        for held in self.held:
            held.follow(self.sharing)
        if late:
            self.link.up()
        self.link.pump()

    def publish(self, node: int, account: str, subject: str, how: str) -> int:
        """Publish, with a reply subject where a client does; returns that client."""
        plane = self.link.nodes[node]
        cid = client(plane, account)
        plane.feed(cid, b"SUB _INBOX.me 1\r\n")
        if how == "client":
            plane.feed(cid, f"PUB {subject} _INBOX.me 4\r\nbody\r\n".encode())
        elif how == "send":
            plane.send(plane.account(account), subject.encode(), payload=b"body", origin=MessageOrigin.SERVER)
        else:
            records = encode_capture(subject.encode(), payload=b"body")
            plane.send_batch(plane.account(account), records, origin=MessageOrigin.SERVER)
        self.link.pump()
        return cid

    def take(self) -> list[list[Got]]:
        """What every listener got."""
        found = []
        for one, cid, batch in zip(self.listeners, self.cids, self.batches, strict=True):
            if one.sink:
                got = [
                    Got(message.subject.decode(), message.payload, message.reply.decode(), message.hdr)
                    for records in batch
                    for message in captures(records)
                ]
                batch.clear()
            else:
                got = received(self.link.nodes[one.node], cid)
            found.append(got)
        return found


def check(model: Model, found: list[list[Got]]) -> None:
    """Plain listeners have every copy, each group has one, and there is nothing else."""
    left = Counter(
        Delivery(number, got.subject, crossed=got.hdr != b"") for number, got_all in enumerate(found) for got in got_all
    )
    assert all(got.payload == b"body" for got_all in found for got in got_all)
    sinks = {number for number, one in enumerate(model.listeners) if one.sink}
    seen = [  # a sink does not see who asked
        attrs.evolve(one, crossed=one.crossed and one.listener not in sinks) for one in model.plain.elements()
    ]
    for delivery in seen:
        assert left[delivery] > 0, delivery
        left[delivery] -= 1
    groups = [
        {attrs.evolve(one, crossed=one.crossed and one.listener not in sinks) for one in group}
        for group in model.groups
    ]
    for group in sorted(groups, key=len):
        chosen = [delivery for delivery in group if left[delivery] > 0]
        assert chosen, group
        left[chosen[0]] -= 1
    assert sum(left.values()) == 0 or len(groups) > 1, left
    assert sum(map(len, found)) == len(seen) + len(groups)


@given(SHARED, st.none() | SHARED, LISTENERS, PUBLISHES, st.booleans())
@settings(deadline=None, max_examples=400)
def test_what_is_shared_reaches_whom_the_rules_say_on_all_nodes(
    sharing: dict[str, Sharing],
    before: dict[str, Sharing] | None,
    listeners: list[Listening],
    publishes: list[tuple[int, str, str, str]],
    late: bool,  # noqa: FBT001  (drawn)
) -> None:
    nodes = Nodes(sharing, listeners)
    nodes.start(before, late=late)
    for node, account, subject, how in publishes:
        model = Model(sharing, listeners)
        reached = model.publish(account, subject, mapped=how == "client")
        publisher = nodes.publish(node, account, subject, how)
        found = nodes.take()
        check(model, found)
        told = received(nodes.link.nodes[node], publisher)
        assert [got.hdr.startswith(b"NATS/1.0 503") for got in told] == (
            [True] if how == "client" and not reached else []
        )
        assert all(
            got.reply in ("", "_INBOX.me") or got.reply.startswith("_R_.") for all_got in found for got in all_got
        )
        answer_all(nodes, found)
        answers = received(nodes.link.nodes[node], publisher)
        assert len(answers) == (model.requests if how == "client" else 0)
        nodes.link.nodes[node].close(publisher, 1)
        nodes.link.pump()
        nodes.take()  # who listens to everything hears the answers as well


def answer_all(nodes: Nodes, found: list[list[Got]]) -> None:
    """Every listener answers what came through a service, twice, from its node, in the account that has the reply."""
    for one, all_got in zip(nodes.listeners, found, strict=True):
        plane = nodes.link.nodes[one.node]
        for got in all_got:
            for name in NAMES if got.reply.startswith("_R_.") else ():
                plane.send(plane.account(name), got.reply.encode(), payload=b"answer")
                plane.send(plane.account(name), got.reply.encode(), payload=b"answer")
    nodes.link.pump()
