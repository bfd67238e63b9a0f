"""Publish acknowledgements: duplicates, expectations, rollups."""

from tests.conformance.steps import Call, Publish, Scene, Step, Until, messages, stream

ID = "Nats-Msg-Id"
LAST_SEQ = "Nats-Expected-Last-Sequence"
LAST_SUBJECT_SEQ = "Nats-Expected-Last-Subject-Sequence"
LAST_SUBJECT_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
LAST_ID = "Nats-Expected-Last-Msg-Id"
STREAM = "Nats-Expected-Stream"
ROLLUP = "Nats-Rollup"


def publish(name: str, *headers: tuple[str, str], subject: str = "e.a", payload: bytes = b"x") -> Call:
    """A publish with headers whose acknowledgement is compared."""
    return Call(name=name, subject=subject, payload=payload, headers=headers)


EXPECT: tuple[Step, ...] = (
    stream("E"),
    publish("plain"),
    publish("with id", (ID, "1")),
    publish("same id", (ID, "1")),
    publish("same id, other subject", (ID, "1"), subject="e.b"),
    publish("other id", (ID, "2")),
    publish("empty id", (ID, "")),
    publish("id in lower case", ("nats-msg-id", "1")),
    publish("stream matches", (STREAM, "E")),
    publish("stream differs", (STREAM, "F")),
    publish("last sequence matches", (LAST_SEQ, "6")),
    publish("last sequence differs", (LAST_SEQ, "1")),
    publish("last sequence not a number", (LAST_SEQ, "x")),
    publish("last sequence zero", (LAST_SEQ, "0")),
    publish("last subject sequence zero on a new subject", (LAST_SUBJECT_SEQ, "0"), subject="e.new"),
    publish("last subject sequence zero again", (LAST_SUBJECT_SEQ, "0"), subject="e.new"),
    publish("last subject sequence differs", (LAST_SUBJECT_SEQ, "1"), subject="e.new"),
    publish("last subject sequence not a number", (LAST_SUBJECT_SEQ, "x"), subject="e.new"),
    publish("last sequence of another subject", (LAST_SUBJECT_SEQ, "1"), (LAST_SUBJECT_SUBJECT, "e.a")),
    publish("last sequence of a filter", (LAST_SUBJECT_SEQ, "1"), (LAST_SUBJECT_SUBJECT, "e.*")),
    publish("subject without sequence", (LAST_SUBJECT_SUBJECT, "e.*")),
    publish("last id matches", (LAST_ID, "2"), (ID, "3")),
    publish("last id differs", (LAST_ID, "2")),
    publish("last id differs on the first", (LAST_ID, "9"), (ID, "4")),
    publish("ttl not allowed", ("Nats-TTL", "1s")),
    publish("rollup not allowed", (ROLLUP, "sub")),
    publish("counter not allowed", ("Nats-Incr", "+1")),
    publish("batch not allowed", ("Nats-Batch-Id", "b"), ("Nats-Batch-Sequence", "1")),
    publish("stream source refused", ("Nats-Stream-Source", "x")),
    Publish(name="without reply", subject="e.a", payload=b"y"),
    Until(name="without reply is stored", subject="$JS.API.STREAM.INFO.E", field="state.last_seq", value=14),
    publish("to no stream", subject="f.a"),
)
DUPLICATES: tuple[Step, ...] = (
    stream("D", duplicate_window=100_000_000),
    publish("first", (ID, "1"), subject="d.a"),
    publish("again", (ID, "1"), subject="d.a"),
    stream("W", ["w.>"], max_age=150_000_000, duplicate_window=100_000_000),
    publish("first of the second stream", (ID, "1"), subject="w.a"),
    publish("again in the second stream", (ID, "1"), subject="w.a"),
    Until(name="the window has passed", subject="$JS.API.STREAM.INFO.W", field="state.messages", value=0),
    publish("after the window", (ID, "1"), subject="w.a"),
)
ROLLUPS: tuple[Step, ...] = (
    stream("R", allow_rollup_hdrs=True),
    *messages("r.a", "1", "2"),
    *messages("r.b", "3"),
    publish("of the subject", (ROLLUP, "sub"), subject="r.a", payload=b"4"),
    Call(name="state after sub", subject="$JS.API.STREAM.INFO.R", payload={"subjects_filter": ">"}),
    publish("of all", (ROLLUP, "all"), subject="r.c", payload=b"5"),
    Call(name="state after all", subject="$JS.API.STREAM.INFO.R", payload={"subjects_filter": ">"}),
    publish("of something else", (ROLLUP, "some"), subject="r.c", payload=b"6"),
    Call(name="state at the end", subject="$JS.API.STREAM.INFO.R"),
)
NO_ACK: tuple[Step, ...] = (
    stream("Q", no_ack=True),
    Call(name="no answer", subject="q.a", payload=b"1", replies=0),
    Until(name="stored", subject="$JS.API.STREAM.INFO.Q", field="state.messages", value=1),
)
FIRST: tuple[Step, ...] = (
    stream("F", first_seq=100),
    *messages("f.a", "1", "2"),
    Call(name="state", subject="$JS.API.STREAM.INFO.F"),
)

SCENES = (
    Scene(name="publish/expectations", steps=EXPECT),
    Scene(name="publish/duplicates", steps=DUPLICATES),
    Scene(name="publish/rollups", steps=ROLLUPS),
    Scene(name="publish/no ack", steps=NO_ACK),
    Scene(name="publish/first sequence", steps=FIRST),
)
