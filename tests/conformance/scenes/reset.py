"""Consumer resets: delivery starts again at the ack floor or at a sequence that the start policy allows."""

from typing import Any

from tests.conformance.steps import Ack, Call, Expect, Publish, Scene, Step, Subscribe, consumer, messages, stream

API = "$JS.API.CONSUMER"


def reset(title: str, body: Any = b"", *, of: str = "d") -> Call:
    """A reset under test."""
    return Call(name=title, subject=f"{API}.RESET.R.{of}", payload=body)


def pull(title: str, count: int, *, of: str = "d", replies: int | None = None) -> Call:
    """The next messages."""
    asked = {"batch": count, "no_wait": True}
    replies = count if replies is None else replies
    return Call(name=title, subject=f"{API}.MSG.NEXT.R.{of}", payload=asked, replies=replies)


def info(title: str, of: str = "d") -> Call:
    """The consumer now."""
    return Call(name=title, subject=f"{API}.INFO.R.{of}")


LIFE: tuple[Step, ...] = (
    stream("R"),
    *messages("r.a", *"123456789"),
    consumer("R", "d"),
    reset("before any delivery"),
    pull("five", 5),
    Ack(name="ack one", of="five", position=0, payload=b"+ACK", replies=1),
    Ack(name="ack two", of="five", position=1, payload=b"+ACK", replies=1),
    Ack(name="ack four", of="five", position=3, payload=b"+ACK", replies=1),
    reset("to the floor"),
    info("info at the floor"),
    Ack(name="ack of before", of="five", position=4, payload=b"+ACK", replies=1),
    info("info after an ack of before"),
    pull("three from the floor", 3),
    reset("to a sequence", {"seq": 8}),
    info("info at eight"),
    pull("from eight", 2),
    reset("below what was acked", {"seq": 1}),
    pull("from one", 9),
    reset("beyond the end", {"seq": 100}),
    info("info beyond the end"),
    pull("nothing there", 1),
    reset("to zero", {"seq": 0}),
    info("info at zero"),
    reset("negative", {"seq": -1}),
    reset("not json", b"{"),
    reset("wrong type", {"seq": "x"}),
    reset("unknown field", {"seq": 1, "what": 2}),
    Call(name="unknown consumer", subject=f"{API}.RESET.R.none", replies=0),
)
POLICIES: tuple[Step, ...] = (
    stream("R"),
    *messages("r.a", *"123456789"),
    consumer("R", "by_seq", deliver_policy="by_start_sequence", opt_start_seq=4),
    reset("below its start", {"seq": 3}, of="by_seq"),
    reset("at its start", {"seq": 4}, of="by_seq"),
    reset("above its start", {"seq": 6}, of="by_seq"),
    reset("to its floor", of="by_seq"),
    consumer("R", "by_time", deliver_policy="by_start_time", opt_start_time="2020-01-01T00:00:00Z"),
    reset("by time", {"seq": 3}, of="by_time"),
    reset("by time, to its floor", of="by_time"),
    consumer("R", "by_future", deliver_policy="by_start_time", opt_start_time="2199-01-01T00:00:00Z"),
    reset("by future time", {"seq": 3}, of="by_future"),
    consumer("R", "new", deliver_policy="new"),
    reset("new", {"seq": 3}, of="new"),
    reset("new, to its floor", of="new"),
    consumer("R", "last", deliver_policy="last"),
    reset("last", {"seq": 3}, of="last"),
    reset("last, to its floor", of="last"),
    consumer("R", "each", deliver_policy="last_per_subject", filter_subject="r.>"),
    reset("last per subject", {"seq": 3}, of="each"),
    reset("last per subject, to its floor", of="each"),
    consumer("R", "none", ack_policy="none"),
    pull("without acks", 4, of="none"),
    reset("without acks, to its floor", of="none"),
    reset("without acks to two", {"seq": 2}, of="none"),
    pull("without acks again", 1, of="none"),
    consumer("R", "all", ack_policy="all"),
    pull("all", 4, of="all"),
    Ack(name="ack three", of="all", position=2, payload=b"+ACK", replies=1),
    reset("all, to its floor", of="all"),
    pull("all again", 1, of="all"),
    consumer("R", "filtered", filter_subject="r.b"),
    reset("filtered", {"seq": 5}, of="filtered"),
    info("filtered after it", of="filtered"),
)
PUSH: tuple[Step, ...] = (
    stream("R"),
    *messages("r.a", *"123"),
    Subscribe(name="to", subject="to.me"),
    consumer("R", "p", deliver_subject="to.me"),
    Expect(name="three", of="to", count=3),
    reset("back", {"seq": 2}, of="p"),
    Expect(name="two again", of="to", count=2),
    Publish(name="another", subject="r.a", payload=b"4"),
    Expect(name="the other", of="to", count=1),
    Subscribe(name="told", subject="$JS.EVENT.ADVISORY.CONSUMER.>"),
    reset("again", {"seq": 4}, of="p"),
    Expect(name="once more", of="to", count=1),
    Expect(name="nothing is told", of="told", count=0),
)

SCENES = (
    Scene(name="reset/life", steps=LIFE),
    Scene(name="reset/policies", steps=POLICIES),
    Scene(name="reset/push", steps=PUSH),
)
