"""Streams of counters: sums, refusals and their order, what stays of sources."""

import json

from tests.conformance.scenes.rewriting import publish, stored
from tests.conformance.steps import Call, Expect, Publish, Scene, Step, Subscribe, Until, stream

INCR = "Nats-Incr"
Given = tuple[tuple[str, str], ...]


def add(name: str, subject: str, incr: str, *headers: tuple[str, str], payload: bytes = b"") -> Call:
    """A publish that adds to a counter."""
    return publish(name, subject, (INCR, incr), *headers, payload=payload)


def until_sum(of: str, seq: int, total: str) -> Until:
    """A copy, when it is there; infos have sources in the order of a Go map."""
    name = f"{of} {seq}"
    return Until(name=name, subject=f"$JS.API.DIRECT.GET.{of}", payload={"seq": seq}, field="val", value=total)


ADDED = ("+1", "1", "-5", "0", "-0", "x", "", "+", "1_0", " 2 ", "0x10", "007", "--1", "1.0", "1e3", "9" * 5000, "1")
REFUSED: tuple[Given, ...] = (
    (),
    (("Other", "1"),),
    ((INCR, "1"), ("Nats-Rollup", "sub")),
    ((INCR, "1"), ("Nats-Rollup", "")),
    ((INCR, "1"), ("Nats-Expected-Stream", "C")),
    ((INCR, "1"), ("Nats-Expected-Stream", "")),
    ((INCR, "1"), ("Nats-Expected-Last-Msg-Id", "x")),
    ((INCR, "1"), ("Nats-Expected-Last-Msg-Id", "")),
    ((INCR, "1"), ("Nats-Expected-Last-Sequence", "3")),
    ((INCR, "1"), ("Nats-Expected-Last-Sequence", "")),
    ((INCR, "1"), ("Nats-Expected-Last-Subject-Sequence", "0")),
    ((INCR, "1"), ("Nats-Expected-Last-Subject-Sequence-Subject", "c.a")),
    ((INCR, "1"), ("Nats-TTL", "3")),
    ((INCR, "1"), ("Nats-Msg-Id", "m")),
    ((INCR, "2"), ("Nats-Msg-Id", "m")),
    ((INCR, "x"), ("Nats-Msg-Id", "m")),
    (("Nats-Msg-Id", "m"),),
    ((INCR, "1"), ("Nats-Schedule", "@at x")),
    ((INCR, "1"), ("Nats-Stream-Source", "x")),
    ((INCR, "1"), ("Nats-Batch-Id", "b")),
    ((INCR, "x"), ("Nats-Expected-Stream", "T")),
    (("Nats-Expected-Stream", "T"),),
    (("Nats-Expected-Last-Sequence", "99"),),
    (("Nats-Rollup", "bogus"),),
    (("Nats-Stream-Source", "x"),),
    (("Nats-TTL", "1"),),
)

COUNTERS: tuple[Step, ...] = (
    stream("C", allow_msg_counter=True, allow_direct=True),
    *(add(f"{number}: add {text[:9]!r}", "c.a", text) for number, text in enumerate(ADDED)),
    *(publish(f"{number}: with {given}", "c.b", *given, payload=b"") for number, given in enumerate(REFUSED)),
    *(publish(f"{number}: body and {given}", "c.b", *given) for number, given in enumerate(REFUSED)),
    stored("the first", "C", 1),
    Call(name="direct", subject="$JS.API.DIRECT.GET.C.c.b"),
    Call(name="delete the last", subject="$JS.API.STREAM.MSG.DELETE.C", payload={"seq": 19}),
    add("on what is last now", "c.b", "1"),
    Call(name="purge", subject="$JS.API.STREAM.PURGE.C", payload=b""),
    add("from zero", "c.a", "+1"),
    Call(
        name="no longer a counter",
        subject="$JS.API.STREAM.UPDATE.C",
        payload={"name": "C", "subjects": ["c.>"], "storage": "file"},
    ),
)

SOURCES: tuple[Step, ...] = (
    stream("C", allow_msg_counter=True),
    add("without", "c.a", "1"),
    add("nothing", "c.a", "1", ("Nats-Counter-Sources", "{}")),
    add("nothing is left out", "c.a", "1"),
    stored("nothing is left", "C", 3),
    add("something", "c.a", "1", ("Nats-Counter-Sources", '{"O":{"s":"7"}}')),
    add("something else", "c.a", "1", ("Other", "a"), ("Nats-Counter-Sources", '{"O":{"s":"8"}}')),
    add("is kept", "c.a", "1"),
    stored("stored something", "C", 4),
    stored("stored something else", "C", 5),
    stored("stored what was kept", "C", 6),
    add("what cannot be read", "c.b", "1", ("Nats-Counter-Sources", "bogus")),
    add("breaks the counter", "c.b", "1"),
)

AGGREGATE = {
    "name": "T",
    "subjects": ["t.>"],
    "allow_msg_counter": True,
    "allow_direct": True,
    "sources": [{"name": name, "subject_transforms": [{"src": f"{name.lower()}.>", "dest": "t.>"}]} for name in "AB"],
}
AGGREGATED: tuple[Step, ...] = (
    stream("A", allow_msg_counter=True),
    stream("B", allow_msg_counter=True),
    add("5 to a", "a.x", "5"),
    add("7 to a", "a.x", "7"),
    add("3 to another of a", "a.y", "3"),
    Publish(name="aggregate of a and b", subject="$JS.API.STREAM.CREATE.T", payload=json.dumps(AGGREGATE).encode()),
    *(until_sum("T", seq, total) for seq, total in ((1, "5"), (2, "12"), (3, "3"))),
    add("100 to b", "b.x", "100"),
    until_sum("T", 4, "112"),
    add("1 of its own", "t.x", "1"),
    add("-4 to a", "a.x", "-4"),
    until_sum("T", 6, "109"),
    stored("its own", "T", 5),
    Call(
        name="aggregate of it all",
        subject="$JS.API.STREAM.CREATE.U",
        payload={"name": "U", "allow_msg_counter": True, "allow_direct": True, "sources": [{"name": "T"}]},
    ),
    until_sum("U", 1, "5"),
    until_sum("U", 6, "109"),
    Call(name="purge", subject="$JS.API.STREAM.PURGE.T", payload=b""),
    add("2 to b", "b.x", "2"),
    until_sum("T", 7, "102"),
)

LIMITS: tuple[Step, ...] = (
    stream("C", allow_msg_counter=True, max_msg_size=60),
    add("fits", "c.a", "9" * 15),
    add("the sum does not fit", "c.a", "9" * 20),
    add("it does not fit", "c.a", "9" * 40),
    add("one body is too many", "c.a", "1", payload=b"x"),
    add("so is a long one", "c.a", "1", payload=b"x" * 60),
    stream("N", allow_msg_counter=True, no_ack=True),
    Publish(name="unacknowledged", subject="n.a", headers=((INCR, "4"),)),
    Publish(name="and refused", subject="n.a", headers=((INCR, "x"),)),
    Subscribe(name="copies", subject="rp.>"),
    stream(
        "M",
        allow_msg_counter=True,
        subject_transform={"src": "m.*.*", "dest": "m.$2"},
        republish={"src": ">", "dest": "rp.>"},
        max_msgs_per_subject=1,
    ),
    add("one subject", "m.a.x", "4"),
    add("and another are one counter", "m.b.x", "4"),
    Expect(name="republished", of="copies", count=2),
    stream("O"),
    *(
        publish(f"no counter: {given} {payload!r}", "o.a", *given, payload=payload)
        for given in (*REFUSED[2:6], ((INCR, "x"),), ((INCR, ""),), ((INCR, "1"),))
        for payload in (b"", b"p")
    ),
)

SCENES = (
    Scene(name="counters/sums", steps=COUNTERS),
    Scene(name="counters/sources", steps=SOURCES),
    Scene(name="counters/aggregated", steps=AGGREGATED),
    Scene(name="counters/limits", steps=LIMITS),
)
