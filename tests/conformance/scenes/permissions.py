"""What a user may do: lists with wildcards, queues, what is delivered, answers, and every text."""

from typing import Any

from tests.conformance.steps import Expect, Raw, Scene, Step, Subscribe, consumer, messages, stream

A: dict[str, Any] = {"user": "a", "pass": "b"}
Z: dict[str, Any] = {"user": "z", "pass": "z"}


def config(permissions: str) -> str:
    """A user with these permissions, and one without any."""
    return (
        f"authorization {{ users: [ {{user: a, password: b, permissions: {permissions}}}, {{user: z, password: z}} ] }}"
    )


def pubs(*subjects: str) -> bytes:
    """Publishes without a payload."""
    return "".join(f"PUB {subject} 0\r\n\r\n" for subject in subjects).encode()


def subs(*lines: str) -> bytes:
    """Subscriptions, numbered."""
    return "".join(f"SUB {line} {sid}\r\n" for sid, line in enumerate(lines, 1)).encode()


def as_a(name: str, data: bytes, **options: Any) -> Raw:
    """Bytes of the user with permissions."""
    return Raw(name=name, data=data, options={**A, **options})


PUBLISH: tuple[Step, ...] = (
    as_a("allowed and not", pubs("foo", "x", "bar.a", "bar.no", "bar.a.b", "baz", "baz.a.b")),
    as_a("with headers", b"HPUB x 12 12\r\nNATS/1.0\r\n\r\n\r\n"),
    as_a("verbose", pubs("foo", "x", "foo"), verbose=True),
    as_a("pedantic", pubs("x..y", "foo..y", "foo"), pedantic=True),
    as_a("wildcards and empty tokens", pubs("bar.*", "baz.>", ">", "bar.>", "*.x", "bar.", "baz..x")),
    as_a("odd bytes", 'PUB x"\\é\x01 0\r\n\r\n'.encode() + b"PUB x\xff\xe2\x80 0\r\n\r\n"),
    as_a("reserved replies", pubs("foo $JS.ACK.x", "foo _R_.x", "foo _GR_.x", "foo $GR.x", "foo $JS.ACK.", "foo _R_.")),
    as_a("reserved reply of what is refused", pubs("x _R_.x")),
    as_a("reserved reply, verbose", pubs("foo _R_.x"), verbose=True),
    as_a("reserved subjects", pubs("_GR_.x", "$GR.x", "$GNR.x")),
    as_a("everything may be subscribed to", subs("anything", ">", "_INBOX.>", "a q")),
    as_a("the queue of the system", subs("foo _sys_")),
    as_a("no responders, refused", subs("i.*") + pubs("foo i.1", "x i.2")),
    as_a("too large", b"PUB x 2000000\r\n"),
    as_a("the api of JetStream", pubs("$JS.API.INFO i.1", "$JS.ACK.S.c.1.1.1.1.0")),
    Raw(
        name="another user from the second connect on",
        data=pubs("x") + b'CONNECT {"user":"a","pass":"b"}\r\n' + pubs("x", "foo"),
        options=Z,
    ),
    Raw(
        name="no subscription outlives a connect",
        data=b'SUB foo 1\r\nSUB foo q 2\r\nCONNECT {"user":"a","pass":"b"}\r\n' + pubs("foo"),
        options=Z,
    ),
    Raw(
        name="nor one of the same user",
        data=b'SUB foo 1\r\nCONNECT {"verbose":false}\r\n' + pubs("foo") + b"SUB foo 1\r\n" + pubs("foo"),
        options=Z,
    ),
    Raw(name="no more from the second connect on", data=b'CONNECT {"user":"z","pass":"z"}\r\n' + pubs("x"), options=A),
)
SUBSCRIBE: tuple[Step, ...] = (
    as_a("plain", subs("foo", "x", "bar.a", "bar.no", "bar.*", "baz.a.b", "baz.>", "baz.*.x", "foo q")),
    as_a("wider than allowed", subs("*", "*.*", "bar.a.>", "> q")),
    as_a("invalid", subs("foo..", "baz..x", "baz.>.x", "x..y", "foo.. _sys_")),
    as_a("queues", subs("q.a", "q.a v1", "q.a v2", "q.b v1", "q.b v2", "q.b v2.no", "q.b", "q.z zz", "q.a zz")),
    as_a("queues with wildcards", subs("q.c v*.x", "q.c vq.x", "q.d q.x", "q.d x", "q.e any", "q.d *.x")),
    as_a("denied for a queue", subs("baz.x dq", "baz.x dd", "baz.* dq", "baz.x")),
    as_a("unknown queue", subs("nope x")),
    as_a("verbose", subs("foo", "x"), verbose=True),
    as_a("same id twice", b"SUB foo 1\r\nSUB x 1\r\nSUB foo 1\r\n", verbose=True),
    as_a("everything may be published", pubs("x", "_INBOX.x", "bar.no")),
)
DELIVER: tuple[Step, ...] = (
    as_a("below a wildcard", subs("foo.*") + pubs("foo.secret", "foo.ok")),
    as_a("below the full wildcard", subs(">") + pubs("foo.secret", "foo.ok", "bar.a.x", "bar.a.y")),
    as_a("denied altogether", subs("foo.secret", "bar.a.x", "bar.*.x")),
    as_a("nothing is denied there", subs("zz.*", "foo.a") + pubs("foo.secret", "foo.a", "zz.a")),
    as_a("counts not", subs("foo.*") + b"UNSUB 1 2\r\n" + pubs("foo.secret", "foo.a", "foo.secret", "foo.b", "foo.c")),
    as_a("in a queue", subs("foo.* q") + pubs("foo.secret", "foo.ok")),
    as_a("for one queue", subs("pool.* q") + pubs("pool.one", "pool.two")),
    as_a("for others not", subs("pool.* r") + pubs("pool.one", "pool.two")),
    as_a("is nobody", subs("i.*", "foo.*") + pubs("foo.secret i.1")),
)
ANSWERS: tuple[Step, ...] = (
    as_a("unasked", pubs("r.1")),
    as_a("as often as allowed", subs("zzz") + pubs("zzz r.1", "r.1", "r.1", "r.1")),
    as_a("asked twice", subs("zzz") + pubs("zzz r.1", "zzz r.1", "r.1", "r.1")),
    as_a("asked four times", subs("zzz") + pubs("zzz r.1", "zzz r.1", "zzz r.1", "zzz r.1", "r.1", "r.1", "r.1")),
    as_a("what is denied", subs("zzz") + pubs("zzz r.no", "r.no")),
    as_a("what is allowed anyway", subs("zzz") + pubs("zzz zzz", "zzz", "zzz", "zzz")),
    as_a("not what another was asked", subs("r.*") + pubs("zzz r.9", "r.9")),
)
UNLIMITED: tuple[Step, ...] = (as_a("again and again", subs("zz") + pubs("zz r.1", *["r.1"] * 5)),)
LISTS = '{ publish: { allow: ["foo", "bar.*", "baz.>"], deny: "bar.no" } }'
QUEUES = """{ subscribe: {
    allow: ["foo", "bar.*", "baz.>", "q.a v1", "q.b", "q.b v2", "q.c v*.x", "q.d *.x", "q.e >", "q.> zz"],
    deny: ["bar.no", "q.b v2.no", "baz.x dq"]
} }"""
WIDER: tuple[Step, ...] = (
    as_a("the tail of one token", subs("bar.>", "bar.*")),
    as_a("overlapping", subs("over.a.*") + pubs("over.a.b")),
    as_a("denied with empty tokens", pubs("gone..x", "gone.x")),
)
JETSTREAM: tuple[Step, ...] = (
    stream("S"),
    *messages("s.yes", "1"),
    *messages("s.no", "2"),
    consumer("S", "c"),
    Raw(
        name="pull below a wildcard",
        data=subs("s.*", "in") + b'PUB $JS.API.CONSUMER.MSG.NEXT.S.c in 30\r\n{"batch":2,"expires":300000000}\r\n',
        options=A,
    ),
    Raw(name="may not create", data=subs("in") + pubs("$JS.API.STREAM.NAMES in"), options=A),
    Subscribe(name="all", subject="s.*"),
    Expect(name="nothing more", of="all", count=0),
)

SCENES = (
    Scene(name="permissions/publish", steps=PUBLISH, config=config(LISTS), login=Z),
    Scene(name="permissions/subscribe", steps=SUBSCRIBE, config=config(QUEUES), login=Z),
    Scene(
        name="permissions/deliver",
        steps=DELIVER,
        config=config('{ subscribe: { deny: ["foo.secret", "bar.*.x", "pool.one q"] } }'),
        login=Z,
    ),
    Scene(
        name="permissions/answers",
        steps=ANSWERS,
        config=config("{ publish: { allow: zzz, deny: r.no }, allow_responses: { max: 2, expires: '1m' } }"),
        login=Z,
    ),
    Scene(
        name="permissions/answers without a limit",
        steps=UNLIMITED,
        config=config("{ publish: zz, allow_responses: { max: -1, expires: '-1s' } }"),
        login=Z,
    ),
    Scene(
        name="permissions/answers alone",
        steps=(as_a("unasked", pubs("r.1")), as_a("denied only", pubs("x"))),
        config=config("{ publish: { deny: y }, allow_responses: true }"),
        login=Z,
    ),
    Scene(
        name="permissions/empty lists",
        steps=(as_a("everything", pubs("r.1") + subs("foo")),),
        config=config("{ publish: [], subscribe: { allow: [] } }"),
        login=Z,
    ),
    Scene(
        name="permissions/default",
        steps=(
            as_a("default", pubs("d", "x") + subs("x")),
            Raw(name="own", data=pubs("d", "x") + subs("x"), options=Z),
        ),
        config="""authorization { default_permissions: { publish: "d" }
            users: [ {user: a, password: b}, {user: z, password: z, permissions: { subscribe: ">" }} ] }""",
        login=Z,
    ),
    Scene(
        name="permissions/no_auth_user",
        steps=(Raw(name="begins at once", data=subs("a", "b") + pubs("a", "z"), options=None),),
        config="""authorization { users: [ {user: a, password: b, permissions: { publish: a, subscribe: a }},
            {user: z, password: z} ] }\nno_auth_user: a""",
        login=Z,
    ),
    Scene(
        name="permissions/wider",
        steps=WIDER,
        config=config('{ publish: { deny: "gone.>" }, subscribe: { allow: ["bar.*", "over.>"], deny: "over.*.b" } }'),
        login=Z,
    ),
    Scene(
        name="permissions/jetstream",
        steps=JETSTREAM,
        config=config('{ publish: ["$JS.API.CONSUMER.MSG.NEXT.>"], subscribe: { deny: "s.no" } }'),
        login=Z,
    ),
)
