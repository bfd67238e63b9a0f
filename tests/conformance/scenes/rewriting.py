"""Streams that change subjects, and streams that publish what they store."""

from typing import Any

from tests.conformance.steps import Call, Expect, Publish, Scene, Step, Subscribe, Until, consumer, stream


def publish(name: str, subject: str, *headers: tuple[str, str], payload: bytes = b"x") -> Call:
    """An acknowledged publish with these headers."""
    return Call(name=name, subject=subject, payload=payload, headers=headers)


def stored(name: str, stream_name: str, seq: int) -> Call:
    """A message as the store has it."""
    return Call(name=name, subject=f"$JS.API.STREAM.MSG.GET.{stream_name}", payload={"seq": seq})


def try_create(name: str, **config: Any) -> Call:
    """A stream create that is the question itself."""
    payload = {"name": "TRY", "subjects": ["try.>"], "storage": "memory", **config}
    return Call(name=name, subject="$JS.API.STREAM.CREATE.TRY", payload=payload)


def delete(name: str) -> Call:
    """Room for the next attempt, whatever came of the last."""
    return Call(name=name, subject="$JS.API.STREAM.DELETE.TRY", payload=b"")


PAIRS = (
    ("try.*", "b.{{wildcard(2)}}"),
    ("try.*", "b.{{wildcard(1)}}"),
    ("try.*", ""),
    ("", "b.>"),
    ("", ""),
    ("try.*", "a b"),
    ("try.>", "b"),
    ("try.*", "b.$1..c"),
    ("try.*", "b.*"),
    ("try.*", "b.{{foo(1)}}"),
    ("try.*", "b.{{split(1)}}"),
    ("try..b", "c"),
    ("other", "c"),
    ("try.>", ">"),
    (">", "try.>"),
    (">", ">"),
    ("try", "$JS.API.x"),
    ("try.>", "$1.>"),
    ("try.>", "{{wildcard(1)}}.>"),
    ("try.>", "{{split(1,-)}}.>"),
    ("try.>", "{{left(2,1)}}.>"),
    ("try.>", "{{partition(3,1)}}.>"),
)


def attempts(field: str) -> tuple[Step, ...]:
    """Creates of a stream with each pair, deleted again."""
    return tuple(
        step
        for src, dest in PAIRS
        for step in (
            try_create(f"{src} to {dest}", **{field: {"src": src, "dest": dest}}),
            delete(f"delete {src} to {dest}"),
        )
    )


CUTS = "{{splitfromleft(1,2)}}.{{slicefromright(1,3)}}.{{split(1,-)}}"
HASHES = "{{partition(10)}}.{{partition(10,1,2)}}.{{partition(10,2)}}"

TRANSFORMS: tuple[Step, ...] = (
    *attempts("subject_transform"),
    stream(
        "T",
        subject_transform={"src": "t.*.*", "dest": "m.{{wildcard(2)}}.{{partition(7,1)}}"},
        max_msgs_per_subject=1,
        discard="new",
        discard_new_per_subject=True,
        allow_direct=True,
        allow_rollup_hdrs=True,
    ),
    publish("first", "t.a.b"),
    publish("at the limit of the mapped subject", "t.a.b"),
    publish("not mapped", "t.a"),
    publish("expected of the mapped subject", "t.a.c", ("Nats-Expected-Last-Subject-Sequence", "0")),
    publish("it is there now", "t.a.c", ("Nats-Expected-Last-Subject-Sequence", "0")),
    publish("with an id", "t.a.d", ("Nats-Msg-Id", "1")),
    publish("a repeat under another subject", "t.a.e", ("Nats-Msg-Id", "1")),
    stored("stored", "T", 1),
    stored("stored as it came", "T", 2),
    Call(name="direct, mapped", subject="$JS.API.DIRECT.GET.T.m.b.1"),
    Call(name="direct, as published", subject="$JS.API.DIRECT.GET.T.t.a.b"),
    Call(name="subjects", subject="$JS.API.STREAM.INFO.T", payload={"subjects_filter": ">"}),
    consumer("T", "mapped", filter_subject="m.b.*"),
    consumer("T", "published", filter_subject="t.a.b"),
    Call(
        name="delivered",
        subject="$JS.API.CONSUMER.MSG.NEXT.T.mapped",
        payload={"batch": 2, "no_wait": True},
        replies=2,
    ),
    Call(name="purge", subject="$JS.API.STREAM.PURGE.T", payload={"filter": "m.b.>"}),
    Call(
        name="another transform",
        subject="$JS.API.STREAM.UPDATE.T",
        payload={
            "name": "T",
            "subjects": ["t.>"],
            "storage": "file",
            "subject_transform": {"src": "t.>", "dest": "n.>"},
        },
    ),
    publish("mapped otherwise", "t.a.b"),
    stored("stored otherwise", "T", 5),
    stream("P", subject_transform={"src": "p.*", "dest": CUTS}),
    publish("cut", "p.ab-cdef--gh"),
    publish("cut a short one", "p.a"),
    publish("cut at its end", "p.-b-"),
    stream("Q", subject_transform={"src": "q.*.*", "dest": HASHES}),
    publish("hashed", "q.foo.bar"),
    stored("hashed as", "Q", 1),
    stored("cut as", "P", 1),
    stored("short as", "P", 2),
    stored("at its end as", "P", 3),
)

REPUBLISH: tuple[Step, ...] = (
    *attempts("republish"),
    Subscribe(name="copies", subject="rp.>"),
    stream("R", republish={"src": "r.a.*", "dest": "rp.$1"}, max_msgs_per_subject=2),
    publish("first", "r.a.x"),
    publish("second", "r.a.x"),
    publish("with headers", "r.a.x", ("Other", "a"), ("Nats-Msg-Id", "1")),
    publish("a repeat", "r.a.x", ("Other", "a"), ("Nats-Msg-Id", "1")),
    publish("of no interest", "r.b.x"),
    publish("refused", "r.a.x", ("Nats-Expected-Last-Sequence", "77")),
    publish("last", "r.a.y"),
    Expect(name="republished", of="copies", count=4),
    Call(
        name="headers only",
        subject="$JS.API.STREAM.UPDATE.R",
        payload={
            "name": "R",
            "subjects": ["r.>"],
            "storage": "file",
            "republish": {"src": ">", "dest": "rp.>", "headers_only": True},
        },
    ),
    publish("long", "r.a.x", ("Other", "a"), ("Nats-Stream", "Z"), payload=b"12345"),
    publish("longer", "r.b.x", payload=b"123456"),
    Call(name="purge", subject="$JS.API.STREAM.PURGE.R", payload=b""),
    publish("after the purge", "r.b.x"),
    Expect(name="republished in short", of="copies", count=3),
    Call(
        name="cycle",
        subject="$JS.API.STREAM.UPDATE.R",
        payload={
            "name": "R",
            "subjects": ["r.>", "rp.>"],
            "storage": "file",
            "republish": {"src": ">", "dest": "rp.>"},
        },
    ),
    stream("B", ["rp.>"]),
    publish("into another stream", "r.q"),
    Expect(name="on its way", of="copies", count=1),
    Until(name="it is there", subject="$JS.API.STREAM.INFO.B", field="state.messages", value=1),
    stream(
        "M", subject_transform={"src": "m.*", "dest": "n.$1"}, republish={"src": "n.*", "dest": "rp.n.$1"}, no_ack=True
    ),
    Publish(name="mapped first", subject="m.a"),
    Expect(name="republished under both", of="copies", count=1),
    stream("I", ["i.>"], subject_transform={"src": "i.>", "dest": "rp.i.>"}, republish={"src": ">", "dest": ">"}),
    publish("implied", "i.a"),
    Expect(name="republished as it is stored", of="copies", count=1),
)

PERSISTENCE: tuple[Step, ...] = (
    *(
        step
        for name, config in (
            ("file", {"storage": "file"}),
            ("memory", {}),
            ("replicas", {"storage": "file", "num_replicas": 3}),
            ("atomic", {"storage": "file", "allow_atomic": True}),
        )
        for step in (try_create(name, persist_mode="async", **config), delete(f"delete {name}"))
    ),
    try_create("unknown", persist_mode="bogus"),
    stream("P", persist_mode="async"),
    publish("acknowledged", "p.a"),
    stored("stored", "P", 1),
    Call(
        name="no longer",
        subject="$JS.API.STREAM.UPDATE.P",
        payload={"name": "P", "subjects": ["p.>"], "storage": "file"},
    ),
    Call(name="info", subject="$JS.API.STREAM.INFO.P"),
)

SCENES = (
    Scene(name="rewriting/persistence", steps=PERSISTENCE),
    Scene(name="rewriting/transforms", steps=TRANSFORMS),
    Scene(name="rewriting/republish", steps=REPUBLISH),
)
