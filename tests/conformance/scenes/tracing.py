"""Traces of messages: what is told to the destination, and what a message that is for a trace only leaves alone."""

from tests.conformance.steps import Call, Expect, Publish, Raw, Scene, Step, Subscribe, stream

DEST = ("Nats-Trace-Dest", "tr.d")
ONLY = ("Nats-Trace-Only", "true")
SAMPLED = ("TraceParent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
NOT_SAMPLED = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")


def traced(name: str, subject: str, *headers: tuple[str, str], events: int = 1) -> tuple[Step, ...]:
    """A publish and the traces that it leads to."""
    return (
        Publish(name=name, subject=subject, payload=b"hello", headers=headers),
        *([Expect(name=f"trace: {name}", of="traces", count=events)] if events else []),
    )


def asked(name: str, subject: str, *headers: tuple[str, str], replies: int = 1) -> tuple[Step, ...]:
    """A request, and its trace."""
    return (
        Call(name=name, subject=subject, payload=b"hello", headers=(DEST, *headers), replies=replies),
        Expect(name=f"trace: {name}", of="traces", count=1),
    )


RECEIVERS: tuple[Step, ...] = (
    Subscribe(name="traces", subject="tr.d"),
    Subscribe(name="plain", subject="foo"),
    Subscribe(name="member", subject="foo", queue="q"),
    *traced("delivered", "foo", DEST, ("x", "1"), ("x", "2"), ("empty", "")),
    Expect(name="plain got it", of="plain", count=1),
    Expect(name="member got it", of="member", count=1),
    *traced("only", "foo", DEST, ONLY),
    *traced("only, in other words", "foo", DEST, ("Nats-Trace-Only", "ON")),
    *traced("not only", "foo", DEST, ("Nats-Trace-Only", "yes")),
    Expect(name="plain got one more", of="plain", count=1),
    Expect(name="member got one more", of="member", count=1),
    *traced("nobody", "bar", DEST),
    *traced("a hop that a client names", "foo", DEST, ONLY, ("Nats-Trace-Hop", "1.2")),
    *traced("no such encoding", "bar", DEST, ("Accept-Encoding", "br")),
    *traced("no destination", "bar", ONLY, events=0),
    *traced("a destination that is none", "foo", ("Nats-Trace-Dest", "a.*"), ONLY, events=0),
    *traced("a destination that is none, delivered", "foo", ("Nats-Trace-Dest", "a.*"), events=0),
    *traced("another case", "foo", ("nats-trace-dest", "tr.d"), ONLY, events=0),
    *traced("disabled", "foo", ("Nats-Trace-Dest", "trace disabled"), ONLY, events=0),
    *traced("an account of old servers", "foo", DEST, ("Nats-Trace-Origin-Account", "A"), events=0),
    *traced("an account of old servers, only", "foo", DEST, ONLY, ("Nats-Trace-Origin-Account", "A"), events=0),
    *traced("the account has no destination", "foo", SAMPLED, ONLY, events=0),
    Expect(name="plain got those that were not only", of="plain", count=5),
)

STREAM: tuple[Step, ...] = (
    Subscribe(name="traces", subject="tr.d"),
    stream("T", ["t.*"], max_msg_size=200),
    *asked("stored", "t.a", ("Nats-Msg-Id", "1")),
    *asked("only", "t.a", ONLY, replies=0),
    *asked("a duplicate", "t.a", ("Nats-Msg-Id", "1")),
    *asked("a duplicate, only", "t.a", ("Nats-Msg-Id", "1"), ONLY),
    *asked("a wrong sequence", "t.a", ("Nats-Expected-Last-Sequence", "10")),
    *asked("a wrong sequence, only", "t.a", ("Nats-Expected-Last-Sequence", "10"), ONLY),
    *asked("a wrong sequence of a subject", "t.b", ("Nats-Expected-Last-Subject-Sequence", "7"), ONLY),
    *asked("a wrong id", "t.a", ("Nats-Expected-Last-Msg-Id", "7"), ONLY),
    *asked("too large", "t.a", ("x", "y" * 200), ONLY),
    Call(name="what is stored", subject="$JS.API.STREAM.MSG.GET.T", payload={"last_by_subj": "t.a"}),
    Call(name="how much is stored", subject="$JS.API.STREAM.INFO.T"),
    Call(
        name="create an interest stream",
        subject="$JS.API.STREAM.CREATE.I",
        payload={"name": "I", "subjects": ["i.*"], "retention": "interest"},
    ),
    *asked("without interest", "i.a", ONLY, replies=0),
    *asked("without interest, stored", "i.a"),
    *asked("a request of the api", "$JS.API.STREAM.NAMES"),
    *asked("a request of the api, only", "$JS.API.STREAM.NAMES", ONLY),
)

CONFIG = """accounts {
    A {
        users: [
            {user: a, password: a},
            {user: b, password: b, permissions: {publish: {allow: ["foo", "tr.d"]}}},
            {user: c, password: c, permissions: {publish: {allow: ["foo"]}}}
        ]
        msg_trace: {dest: "tr.d", sampling: "100%"}
    }
    B { users: [ {user: x, password: x} ] }
}"""


def publish(*headers: tuple[str, str], subject: str = "foo") -> bytes:
    """The bytes of a publish."""
    block = "NATS/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n"
    return f"HPUB {subject} {len(block)} {len(block)}\r\n{block}\r\n".encode()


ACCOUNTS: tuple[Step, ...] = (
    Subscribe(name="traces", subject="tr.d"),
    *traced("sampled", "foo", SAMPLED, ONLY),
    *traced("not sampled", "foo", NOT_SAMPLED, events=0),
    *traced("a broken parent", "foo", ("traceparent", "00-1-01"), events=0),
    *traced("both", "foo", SAMPLED, DEST, ONLY),
    Raw(
        name="may not publish the message",
        data=publish(DEST, subject="bar"),
        options={"user": "b", "pass": "b", "headers": True},
    ),
    Expect(name="trace of what was refused", of="traces", count=1),
    Raw(
        name="may not publish to the destination",
        data=publish(DEST) + publish(DEST, ONLY),
        options={"user": "c", "pass": "c", "headers": True},
    ),
    Raw(
        name="another account",
        data=b"SUB tr.d 1\r\nSUB foo 2\r\n" + publish(SAMPLED),
        options={"user": "x", "pass": "x", "headers": True},
    ),
    Raw(
        name="without echo",
        data=b"SUB foo 1\r\n" + publish(DEST, ONLY),
        options={"user": "a", "pass": "a", "headers": True, "echo": False, "name": "me"},
    ),
    Expect(name="trace without echo", of="traces", count=1),
)

SCENES = (
    Scene(name="tracing/receivers", steps=RECEIVERS),
    Scene(name="tracing/streams", steps=STREAM),
    Scene(name="tracing/accounts", steps=ACCOUNTS, config=CONFIG, login={"user": "a", "pass": "a"}),
)
