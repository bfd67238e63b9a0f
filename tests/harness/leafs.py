"""A hub and a leaf node, each of either kind, and raw peers of the protocol between them."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST, free_port
from tests.harness.raw import Event, Line, Message, RawClient
from tests.harness.server import Kind, Server

PAIRS: tuple[tuple[Kind, Kind], ...] = (("jetraft", "jetraft"), ("jetraft", "reference"), ("reference", "jetraft"))
PAIR_IDS = ["-".join(pair) for pair in PAIRS]
PROBE = b"probe"


@attrs.frozen
class Pair:
    """Two servers that a leaf node connection joins, or did."""

    hub: Server
    leaf: Server

    @contextmanager
    def clients(self) -> Iterator[tuple[RawClient, RawClient]]:
        """A client of the hub and one of the leaf node."""
        with RawClient(self.hub.address) as hub, RawClient(self.leaf.address) as leaf:
            wait_linked(hub, leaf)
            yield hub, leaf


def block(text: str) -> str:
    """A `leafnodes` block."""
    return f"leafnodes {{\n{text}\n}}\n"


def listener(port: int, more: str = "") -> str:
    """The block of a hub."""
    return block(f'host: "{HOST}", port: {port}\n{more}')


def remote(port: int, more: str = "", user: str = "") -> str:
    """The block of a leaf node, which connects again after a tenth of a second."""
    url = f"nats://{user}{HOST}:{port}"
    return block(f'reconnect: "100ms"\nremotes: [ {{ url: "{url}"\n{more} }} ]')


@contextmanager
def joined(hub: Kind, leaf: Kind, directory: Path, *, hub_more: str = "", leaf_more: str = "") -> Iterator[Pair]:
    """A hub with the domain `hub` and a leaf node with the domain `leaf`. The rest is configuration of each."""
    port = free_port()
    for name in ("hub", "leaf"):
        (directory / name).mkdir(parents=True)
    hub_config = "jetstream { domain: hub }\n" + (hub_more or listener(port))
    leaf_config = "jetstream { domain: leaf }\n" + (leaf_more or remote(port))
    first = Server(hub, directory=directory / "hub", name="hub", config=hub_config.replace("LEAFPORT", str(port)))
    second = Server(leaf, directory=directory / "leaf", name="leaf", config=leaf_config.replace("LEAFPORT", str(port)))
    with first, second:
        yield Pair(first, second)


def has_interest(client: RawClient, subject: str) -> bool:
    """Whether a message of a client has a receiver; one that has gets PROBE."""
    inbox = client.new_inbox()
    sid = client.subscribe(inbox)
    client.publish(subject, PROBE, reply=inbox)
    answers = [message for message in client.messages(sid, 0) if message.sid == sid]
    client.send(f"UNSUB {sid}\r\n".encode())
    return not any(answer.status.startswith("503") for answer in answers)


def wait_interest(client: RawClient, subject: str, *, wanted: bool = True) -> None:
    """Wait until the server of a client knows, or does not know any more, of interest in a subject."""
    deadline = time.monotonic() + PATIENCE_S
    while has_interest(client, subject) is not wanted:
        assert time.monotonic() < deadline, f"interest in {subject} is not {wanted}"


def wait_heard(sender: RawClient, receivers: list[RawClient]) -> None:
    """Wait until the server of one client knows of everything that others have subscribed to.

    Interest is told in order, so that whoever hears of a subscription of this receiver knows its earlier ones.
    """
    for receiver in receivers:
        marker = f"heard.{receiver.new_inbox()}"
        sid = receiver.subscribe(marker)
        wait_interest(sender, marker)
        receiver.messages(sid, 1)
        receiver.send(f"UNSUB {sid}\r\n".encode())


def real_messages(client: RawClient, sid: str, count: int) -> list[bytes]:
    """Exactly so many messages that are no probe. One that does not come is a failure, and so is one too many."""
    deadline = time.monotonic() + PATIENCE_S
    seen: list[bytes] = []
    while len(seen) < count:
        assert time.monotonic() < deadline, f"{len(seen)} of {count} messages came: {seen}"
        seen += real(client.messages(sid, 1))
    assert len(seen) == count, seen
    return seen


def real(messages: list[Message]) -> list[bytes]:
    """What is no probe."""
    return [message.payload for message in messages if message.payload != PROBE]


def wait_linked(one: RawClient, other: RawClient) -> None:
    """Wait until interest goes from each to the other."""
    for here, there in ((one, other), (other, one)):
        subject = f"linked.{here.inbox}"
        sid = here.subscribe(subject)
        wait_interest(there, subject)
        here.messages(sid, 1)
        here.send(f"UNSUB {sid}\r\n".encode())


class RawLeaf(RawClient):
    """A peer of the protocol between servers, over a socket."""

    def __init__(self, port: int, **fields: Any) -> None:
        super().__init__((HOST, port), connect=False)
        if fields:
            self.introduce(**fields)

    def introduce(self, **fields: Any) -> None:
        """Say who this is."""
        named = {"pass" if name == "password" else name: value for name, value in fields.items()}
        self.send(b"CONNECT " + json.dumps(named).encode() + b"\r\n")

    def lines(self) -> list[str]:
        """What comes until the answer to a PING."""
        return [event.text for event in self.settle() if isinstance(event, Line) and event.text != "PING"]

    def until(self, *texts: str) -> list[str]:
        """The lines up to one that begins like one of these."""
        found: list[str] = []
        while True:
            event: Event | None = self.next_event(PATIENCE_S)
            assert isinstance(event, Line), (texts, found)
            found.append(event.text)
            if event.text.startswith(texts):
                return found
