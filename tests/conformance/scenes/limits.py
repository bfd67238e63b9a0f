"""`jetstream { limits { ... } }`: what requests may ask of a server that bounds them, and what they get by default."""

from typing import Any

from tests.conformance.steps import Call, Scene, Step, consumer, stream

SECOND = 1_000_000_000
CONFIG = """
jetstream {
  limits {
    max_ack_pending: 10, max_request_batch: 5, duplicate_window: "10s", default_max_consumers: 2
    batch { max_inflight_per_stream: 2, max_inflight_total: 3, max_msgs: 3, timeout: "30s" }
  }
}
"""


def make(title: str, name: str, **config: Any) -> Call:
    """A stream create under test."""
    body = {"name": name, "subjects": [f"{name}.>"], "storage": "file", **config}
    return Call(name=title, subject=f"$JS.API.STREAM.CREATE.{name}", payload=body)


def ask(title: str, name: str, on: str = "L", **config: Any) -> Call:
    """A consumer create under test."""
    pedantic = config.pop("pedantic", False)
    body = {"stream_name": on, "config": {"name": name, "ack_policy": "explicit", **config}, "pedantic": pedantic}
    return Call(name=title, subject=f"$JS.API.CONSUMER.CREATE.{on}.{name}", payload=body)


def member(title: str, batch: str, seq: int, *, commit: bool = False, replies: int = 1) -> Call:
    """A message of an atomic batch."""
    fields = (("Nats-Batch-Id", batch), ("Nats-Batch-Sequence", str(seq)))
    return Call(
        name=title,
        subject="B.x",
        headers=fields + ((("Nats-Batch-Commit", "1"),) if commit else ()),
        replies=replies,
    )


STREAMS: tuple[Step, ...] = (
    make("default window", "A"),
    make("wide window", "W", duplicate_window=60 * SECOND),
    make("narrow window", "N", duplicate_window=5 * SECOND),
    make("age below the window", "G", max_age=2 * SECOND),
    make("pedantic", "Q", pedantic=True),
    make("pedantic with a window", "Q2", pedantic=True, duplicate_window=5 * SECOND),
    make("consumers", "C", max_consumers=5),
    make("no limit of consumers", "D", max_consumers=-1),
    Call(
        name="update to a wide window",
        subject="$JS.API.STREAM.UPDATE.A",
        payload={"name": "A", "subjects": ["A.>"], "duplicate_window": 60 * SECOND},
    ),
    Call(name="account", subject="$JS.API.INFO"),
)
CONSUMERS: tuple[Step, ...] = (
    stream("L"),
    ask("default", "a"),
    ask("above max_ack_pending", "b", max_ack_pending=11),
    ask("at max_ack_pending", "c", max_ack_pending=10),
    ask("no limit of acks", "d", max_ack_pending=-1),
    stream("M"),
    ask("large batches", "e", on="M", max_batch=6),
    ask("small batches", "f", on="M", max_batch=4),
    ask("pedantic without a batch", "g", on="M", pedantic=True),
    ask("pedantic", "h", on="M", pedantic=True, max_batch=5, max_ack_pending=5, ack_wait=SECOND),
    ask("push", "i", on="M", deliver_subject="to.i"),
    ask("push with acks", "j", on="M", deliver_subject="to.j", max_ack_pending=11),
    consumer("M", "k", ack_policy="none"),
    Call(name="pull of the default", subject="$JS.API.CONSUMER.MSG.NEXT.L.a", payload={"batch": 6, "no_wait": True}),
    stream("T", max_consumers=4),
    *(ask(f"number {number}", f"n{number}", on="T") for number in range(5)),
)
BATCHES: tuple[Step, ...] = (
    stream("B", ["B.>"], allow_atomic=True),
    member("one: first", "one", 1),
    member("two: first", "two", 1),
    member("three: one too many of the stream", "three", 1),
    member("one: second", "one", 2),
    member("one: third", "one", 3),
    member("one: fourth is one too many", "one", 4, commit=True),
    member("two: commit", "two", 2, commit=True),
    Call(name="what is stored", subject="$JS.API.STREAM.INFO.B"),
)

SCENES = (
    Scene(name="limits/streams", steps=STREAMS, config=CONFIG),
    Scene(name="limits/consumers", steps=CONSUMERS, config=CONFIG),
    Scene(name="limits/batches", steps=BATCHES, config=CONFIG),
)
