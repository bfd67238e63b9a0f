"""Priority groups of pull consumers: overflow, a pinned client, priorities; who is served, and who is told what."""

import json
from typing import Any

from tests.conformance.steps import Call, Expect, Publish, Scene, Step, Subscribe, Until, consumer, messages, stream

API = "$JS.API.CONSUMER"
SECOND = 1_000_000_000
EXPIRES = 30 * SECOND


def group(name: str, policy: str, **config: Any) -> Call:
    """A consumer with one group, `g`."""
    return consumer("P", name, priority_policy=policy, priority_groups=["g"], **config)


def ask(title: str, of: str, **fields: Any) -> Call:
    """A pull that does not wait; one answer unless said otherwise."""
    replies, capture = fields.pop("replies", 1), fields.pop("capture", {})
    asked = {"batch": 1, "no_wait": True, "group": "g"} | fields
    return Call(name=title, subject=f"{API}.MSG.NEXT.P.{of}", payload=asked, replies=replies, capture=capture)


def wait(title: str, of: str, to: str, **fields: Any) -> Publish:
    """A pull that waits; what comes goes to a subscription."""

    asked = {"batch": 1, "expires": EXPIRES, "group": "g"} | fields
    return Publish(name=title, subject=f"{API}.MSG.NEXT.P.{of}", payload=json.dumps(asked).encode(), reply=to)


def info(title: str, of: str) -> Call:
    """The consumer now."""
    return Call(name=title, subject=f"{API}.INFO.P.{of}")


def unpin(title: str, of: str, payload: Any = None) -> Call:
    """Take the pin away."""
    return Call(name=title, subject=f"{API}.UNPIN.P.{of}", payload={"group": "g"} if payload is None else payload)


def clients(*names: str) -> list[Subscribe]:
    """Places where answers to pulls go."""
    return [Subscribe(name=f"client {name}", subject=f"to.{name}") for name in names]


REQUESTS: tuple[Step, ...] = (
    stream("P"),
    *messages("p.a", *"123"),
    consumer("P", "plain"),
    group("over", "overflow"),
    group("pin", "pinned_client"),
    group("pri", "prioritized"),
    *(
        ask(f"{of}: {title}", of, **fields)
        for of in ("plain", "over", "pin", "pri")
        for title, fields in (
            ("no group", {"group": ""}),
            ("another group", {"group": "h"}),
            ("min_pending", {"min_pending": 1}),
            ("min_pending of another group", {"min_pending": 1, "group": "h"}),
            ("min_pending without a group", {"min_pending": 1, "group": ""}),
            ("negative min_pending", {"min_pending": -1}),
            ("min_ack_pending", {"min_ack_pending": 1}),
            ("negative min_ack_pending", {"min_ack_pending": -1}),
            ("an id", {"id": "x"}),
            ("priority", {"priority": 9, "capture": {"pin": "header:Nats-Pin-Id"} if of == "pin" else {}}),
            ("too high a priority", {"priority": 10}),
            ("negative priority", {"priority": -1}),
        )
    ),
    group("few", "overflow", max_batch=1),
    ask("limit and group", "few", batch=2, group="h"),
    ask("limit and minimum", "few", batch=2, min_pending=1),
    ask("limit and id", "few", batch=2, id="x"),
)
PLAIN_BODIES: tuple[Step, ...] = (
    stream("P"),
    *messages("p.a", *"12345678"),
    group("over", "overflow"),
    group("pin", "pinned_client"),
    group("pri", "prioritized"),
    *(
        Call(name=f"{of}: {body.decode()!r}", subject=f"{API}.MSG.NEXT.P.{of}", payload=body, replies=replies)
        for of in ("over", "pin", "pri")
        for body, replies in ((b"", 1), (b"2", 2), (b'{"batch":1}', 1))
    ),
    *clients("A", "B", "C"),
    *(ask(f"take {number}", "pri") for number in range(5)),
    wait("nine", "pri", "to.A", priority=9),
    Publish(name="no JSON", subject=f"{API}.MSG.NEXT.P.pri", payload=b"1", reply="to.B"),
    wait("zero", "pri", "to.C", priority=0),
    Until(name="they wait", subject=f"{API}.INFO.P.pri", field="num_waiting", value=3),
    *messages("p.a", "9"),
    Expect(name="zero is first", of="client C", count=1),
    *messages("p.a", "10"),
    Expect(name="nine is next, no JSON is last", of="client A", count=1),
)
CONFIGS: tuple[Step, ...] = (
    stream("P"),
    group("a", "overflow"),
    group("b", "pinned_client"),
    group("c", "prioritized"),
    group("d", "pinned_client", priority_timeout=SECOND),
    group("e", "pinned_client", priority_timeout=-1),
    group("f", "overflow", priority_timeout=SECOND),
    consumer("P", "g", priority_policy="overflow", priority_groups=["a", "b"]),
    consumer("P", "h", priority_policy="overflow", priority_groups=["a" * 17]),
    consumer("P", "i", priority_policy="overflow", priority_groups=["a b"]),
    consumer("P", "j", priority_policy="overflow", priority_groups=[""]),
    consumer("P", "k", priority_policy="overflow", priority_groups=[]),
    consumer("P", "l", priority_groups=["a"]),
    consumer("P", "m", priority_timeout=SECOND),
    consumer("P", "n", priority_policy="none"),
    consumer("P", "o", priority_policy="pinned_client", priority_groups=["g"], deliver_subject="x"),
    consumer("P", "p", priority_policy="overflow", priority_groups=["g", "g"]),
    *(info(f"info {of}", of) for of in "abcd"),
    Call(name="list", subject=f"{API}.LIST.P"),
    *(
        Call(
            name=f"update {of} to {policy}",
            subject=f"{API}.CREATE.P.{of}",
            payload={
                "stream_name": "P",
                "config": {
                    "durable_name": of,
                    "ack_policy": "explicit",
                    "priority_policy": policy,
                    "priority_groups": groups,
                },
            },
        )
        for of, policy, groups in (
            ("a", "pinned_client", ["g"]),
            ("a", "prioritized", ["g"]),
            ("b", "overflow", ["g"]),
            ("b", "pinned_client", ["h"]),
            ("c", "none", []),
            ("n", "overflow", ["g"]),
        )
    ),
    *(info(f"info {of} then", of) for of in "abcn"),
)
OVERFLOW: tuple[Step, ...] = (
    stream("P"),
    group("c", "overflow"),
    *clients("A", "B", "C", "D"),
    wait("A waits for three", "c", "to.A", min_pending=3, batch=2),
    *messages("p.a", "1", "2"),
    Expect(name="nothing yet", of="client A", count=0),
    *messages("p.a", "3"),
    Expect(name="A", of="client A", count=1),
    info("A waits for more", "c"),
    wait("B has no minimum", "c", "to.B", batch=1),
    Expect(name="B", of="client B", count=1),
    wait("C waits for acks", "c", "to.C", min_ack_pending=3, batch=1),
    Expect(name="C gets nothing", of="client C", count=0),
    ask("another takes it", "c"),
    *messages("p.a", "5"),
    wait("D takes one", "c", "to.D", batch=1),
    Expect(name="D", of="client D", count=1),
    Expect(name="C", of="client C", count=1),
    ask("no_wait below its minimum", "c", min_pending=5),
    *messages("p.a", "6", "7"),
    ask("no_wait below, with messages", "c", min_pending=5),
    ask("no_wait below acks, with messages", "c", min_ack_pending=50),
    ask("either", "c", min_pending=50, min_ack_pending=1),
    ask("or", "c", min_pending=1, min_ack_pending=50),
    info("at the end", "c"),
)
PRIORITIES: tuple[Step, ...] = (
    stream("P"),
    group("c", "prioritized"),
    *clients("A", "B", "C", "D"),
    wait("A has five", "c", "to.A", priority=5, batch=3),
    wait("B has one", "c", "to.B", priority=1, batch=2),
    wait("C has none", "c", "to.C", batch=1),
    wait("D has one too", "c", "to.D", priority=1, batch=3),
    *messages("p.a", "1"),
    Expect(name="C first", of="client C", count=1),
    *messages("p.a", "2"),
    *messages("p.a", "3"),
    *messages("p.a", "4"),
    *messages("p.a", "5"),
    Expect(name="B", of="client B", count=2),
    Expect(name="D", of="client D", count=2),
    *messages("p.a", "6"),
    Expect(name="D again", of="client D", count=1),
    *messages("p.a", "7"),
    Expect(name="A at last", of="client A", count=1),
    wait("C again", "c", "to.C", priority=2),
    wait("B again", "c", "to.B", priority=7),
    *messages("p.a", "8"),
    Expect(name="C before A", of="client C", count=1),
    *messages("p.a", "9", "10"),
    Expect(name="A before B", of="client A", count=2),
    info("at the end", "c"),
)
PINS: tuple[Step, ...] = (
    stream("P"),
    group("c", "pinned_client", ack_wait=300 * SECOND),
    Subscribe(name="told", subject="$JS.EVENT.ADVISORY.CONSUMER.>"),
    info("nobody is pinned", "c"),
    *clients("A", "B", "C"),
    wait("A waits", "c", "to.A", batch=2),
    wait("B waits", "c", "to.B", batch=2),
    Until(name="nobody yet", subject=f"{API}.INFO.P.c", field="num_waiting", value=2),
    *messages("p.a", "1"),
    Expect(name="A is pinned", of="client A", count=1, capture={"pin": "header:Nats-Pin-Id"}),
    Expect(name="pinned is told", of="told", count=1),
    info("A", "c"),
    *messages("p.a", "2", "3"),
    Expect(name="A has its second, without an id", of="client A", count=1),
    Expect(name="B gets nothing", of="client B", count=0),
    ask("wrong id", "c", id="wrong"),
    ask("without an id, no wait", "c", replies=1),
    wait("A with its id", "c", "to.A", batch=4, id="<pin>"),
    Expect(name="A goes on", of="client A", count=1),
    ask("A is queued: no wait", "c", id="<pin>"),
    unpin("unpin: not json", "c", b"{"),
    unpin("unpin: empty", "c", b""),
    unpin("unpin: no group", "c", {}),
    unpin("unpin: empty group", "c", {"group": ""}),
    unpin("unpin: bad name", "c", {"group": "a b"}),
    unpin("unpin: another group", "c", {"group": "h"}),
    unpin("unpin: unknown field", "c", {"group": "g", "x": 1}),
    Call(name="unpin: no stream", subject=f"{API}.UNPIN.none.c", payload={"group": "g"}),
    Call(name="unpin: no consumer", subject=f"{API}.UNPIN.P.none", payload={"group": "g"}),
    unpin("unpin", "c"),
    Expect(name="unpinned is told", of="told", count=2),
    info("nobody again", "c"),
    *messages("p.a", "4"),
    Expect(name="A is refused", of="client A", count=1),
    Expect(name="B is pinned", of="client B", count=1, capture={"pin2": "header:Nats-Pin-Id"}),
    Expect(name="B is told", of="told", count=1),
    ask("the old id", "c", id="<pin>"),
    unpin("unpin again", "c"),
    Expect(name="unpinned again", of="told", count=1),
    unpin("unpin nobody", "c"),
    Expect(name="whether that is told", of="told", count=1),
    ask("an old id, no pin, nothing there", "c", id="<pin2>"),
    wait("B asks with its old id", "c", "to.B", id="<pin2>"),
    *messages("p.a", "5"),
    Expect(name="B is refused", of="client B", count=2),
    ask("C without an id", "c", batch=2, replies=2, capture={"pin3": "header:Nats-Pin-Id"}),
    Expect(name="C is told", of="told", count=1),
    info("at the end", "c"),
)
TIMEOUT: tuple[Step, ...] = (
    stream("P"),
    group("c", "pinned_client", priority_timeout=SECOND),
    Subscribe(name="told", subject="$JS.EVENT.ADVISORY.CONSUMER.>"),
    *clients("A", "B"),
    wait("A waits", "c", "to.A", batch=1),
    wait("B waits", "c", "to.B", batch=1),
    Call(name="with a header", subject="p.a", payload=b"1", headers=(("X", "y"),)),
    Expect(name="A is pinned", of="client A", count=1, capture={"pin": "header:Nats-Pin-Id"}),
    Expect(name="pinned", of="told", count=1),
    *messages("p.a", "2"),
    Expect(name="B is next", of="client B", count=1, capture={"pin2": "header:Nats-Pin-Id"}),
    Expect(name="unpinned by time, pinned, unpinned by time too", of="told", count=3),
    info("at the end", "c"),
)

SCENES = (
    Scene(name="priorities/requests", steps=REQUESTS),
    Scene(name="priorities/plain bodies", steps=PLAIN_BODIES),
    Scene(name="priorities/configurations", steps=CONFIGS),
    Scene(name="priorities/overflow", steps=OVERFLOW),
    Scene(name="priorities/prioritized", steps=PRIORITIES),
    Scene(name="priorities/pins", steps=PINS),
    Scene(name="priorities/pin timeout", steps=TIMEOUT),
)
