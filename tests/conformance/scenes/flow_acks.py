"""Consumers that are acknowledged by flow control, and the mirrors and sources that read through them."""

from typing import Any

from tests.conformance.scenes.origins import API, caught_up, create, get
from tests.conformance.steps import Call, Expect, Publish, Scene, Step, Subscribe, Until, messages, stream

CONSUMER = "$JS.API.CONSUMER"
STALLED = {"question": "header:Nats-Consumer-Stalled"}
READER: dict[str, Any] = {
    "name": "JS_SRC_x",
    "deliver_policy": "all",
    "ack_policy": "none",
    "ack_wait": 79_200_000_000_000,
    "max_deliver": 1,
    "replay_policy": "instant",
    "flow_control": True,
    "deliver_subject": "$JS.S.a",
    "idle_heartbeat": 1_000_000_000,
    "inactive_threshold": 10_000_000_000,
    "direct": True,
    "sourcing": True,
}
DURABLE: dict[str, Any] = {"durable_name": "c", "deliver_subject": "to.c", "ack_policy": "flow_control"}


def ask(title: str, of: str, /, **config: object) -> Call:
    """A consumer, by the subject without its name."""
    body = {"stream_name": of, "config": config}
    return Call(name=title, subject=f"{CONSUMER}.CREATE.{of}", payload=body)


def durable(title: str, of: str, name: str, /, **config: object) -> Call:
    body = {"stream_name": of, "config": {"durable_name": name, **config}}
    return Call(name=title, subject=f"{CONSUMER}.CREATE.{of}.{name}", payload=body)


def answer(title: str, seq: int) -> Publish:
    """What a reader says when it has stored everything up to a sequence."""
    hdr = (("Nats-Last-Consumer", str(seq)), ("Nats-Last-Stream", str(seq)))
    return Publish(name=title, subject="<question>", headers=hdr)


def info(title: str) -> Call:
    return Call(name=title, subject=f"{CONSUMER}.INFO.S.c")


DELIVERED: tuple[Step, ...] = (
    stream("S"),
    Subscribe(name="to", subject="to.c"),
    durable("consumer", "S", "c", deliver_subject="to.c", ack_policy="flow_control", max_ack_pending=3),
    *messages("s.1", "a", "b", "c", "d", "e"),
    Expect(name="up to the limit, a question, a heartbeat", of="to", count=5),
    info("unacknowledged"),
    Call(name="an ack", subject="$JS.ACK.S.c.1.1.1.1.0"),
    Expect(name="the question again", of="to", count=1, capture=STALLED),
    answer("stored up to 2", 2),
    Expect(name="two more, a question, a heartbeat", of="to", count=4),
    info("two are acknowledged"),
    Expect(name="that question again", of="to", count=1, capture=STALLED),
    Publish(name="an answer that says nothing", subject="<question>"),
    Expect(name="a heartbeat and another question", of="to", count=2),
    info("three are not"),
    Expect(name="the third question again", of="to", count=1, capture=STALLED),
    answer("stored up to 5", 5),
    Call(name="reset", subject=f"{CONSUMER}.RESET.S.c", payload={"seq": 3}),
    Expect(name="again from the third", of="to", count=4),
)
ASKED: tuple[Step, ...] = (
    stream("W", ["w.>"], retention="workqueue"),
    *messages("w.1", "a", "b", "c", "d", "e"),
    ask("reader", "W", **READER),
    ask("again, elsewhere", "W", **{**READER, "deliver_subject": "$JS.S.b"}),
    ask("again, from 3", "W", **{**READER, "deliver_policy": "by_start_sequence", "opt_start_seq": 3}),
    ask("with a filter", "W", **{**READER, "filter_subject": "w.1"}),
    ask("another", "W", **{**READER, "name": "JS_SRC_y"}),
    Call(name="both are listed", subject=f"{CONSUMER}.NAMES.W"),
    durable("beside them", "W", "d", ack_policy="explicit"),
    durable("flow control beside them", "W", "f", ack_policy="flow_control", deliver_subject="to.f"),
    Call(name="delete", subject=f"{CONSUMER}.DELETE.W.JS_SRC_x"),
    Call(name="delete the other", subject=f"{CONSUMER}.DELETE.W.JS_SRC_y"),
    ask("new, from 3", "W", **{**READER, "deliver_policy": "by_start_sequence", "opt_start_seq": 3}),
    stream("I", ["i.>"], retention="interest"),
    ask("of interest", "I", **READER),
    stream("L", ["l.>"]),
    Call(
        name="of limits",
        subject=f"{CONSUMER}.CREATE.L",
        payload={"stream_name": "L", "config": READER},
        capture={"name": "name"},
    ),
    durable("explicit, for a reader", "L", "e", ack_policy="explicit", sourcing=True),
    durable("flow control, for a reader", "L", "f", ack_policy="flow_control", sourcing=True, deliver_subject="to"),
    durable("the same elsewhere", "L", "f", ack_policy="flow_control", sourcing=True, deliver_subject="to.2"),
    durable("pull", "L", "g", ack_policy="flow_control"),
    durable("no limit", "L", "g", ack_policy="flow_control", deliver_subject="to", max_ack_pending=-1),
    durable("backoff", "L", "g", ack_policy="flow_control", deliver_subject="to", backoff=[1_000_000_000]),
    durable("max deliver", "L", "g", ack_policy="flow_control", deliver_subject="to", max_deliver=3),
    durable("group", "L", "g", ack_policy="flow_control", deliver_subject="to", deliver_group="g"),
)
COPIED: tuple[Step, ...] = (
    create("W", "work queue", subjects=["w.>"], retention="workqueue"),
    *messages("w.1", "a", "b", "c"),
    create("S", "source", sources=[{"name": "W"}]),
    caught_up("S", 3, "source has come up"),
    Until(name="nothing is left", subject=f"{API}.INFO.W", field="state.messages", value=0),
    get("S", 3, "copy"),
    Call(name="delete the source", subject=f"{API}.DELETE.S"),
    Until(name="its consumer is gone", subject=f"{API}.INFO.W", field="state.consumer_count", value=0),
    *messages("w.2", "d"),
    create("M", "mirror", mirror={"name": "W"}),
    caught_up("M", 4, "mirror has come up"),
    get("M", 4, "under its own sequence"),
    Until(name="nothing is left again", subject=f"{API}.INFO.W", field="state.messages", value=0),
    create("I", "interest", subjects=["i.>"], retention="interest"),
    create("SI", "of interest", sources=[{"name": "I", "subject_transforms": [{"src": "i.1", "dest": "x.1"}]}]),
    Until(name="interest is there", subject=f"{API}.INFO.I", field="state.consumer_count", value=1),
    *messages("i.1", "e"),
    *messages("i.2", "f"),
    caught_up("SI", 1, "copied"),
    Until(name="nothing is kept", subject=f"{API}.INFO.I", field="state.messages", value=0),
    get("SI", 1, "transformed"),
)
NAMED: tuple[Step, ...] = (
    create("W", "work queue", subjects=["w.>"], retention="workqueue"),
    *messages("w.1", "a", "b", "c"),
    durable("wrong policy", "W", "c", deliver_subject="to.c", ack_policy="explicit"),
    create("M", "mirror", mirror={"name": "W", "consumer": {"name": "c", "deliver_subject": "to.c"}}),
    Until(name="refused", subject=f"{API}.INFO.M", field="mirror.error.err_code", value=10214),
    Call(name="delete the mirror", subject=f"{API}.DELETE.M"),
    Call(name="delete the consumer", subject=f"{CONSUMER}.DELETE.W.c"),
    durable("consumer", "W", "c", deliver_subject="to.c", ack_policy="flow_control", max_ack_pending=2),
    create("S", "source", sources=[{"name": "W", "consumer": {"name": "c", "deliver_subject": "to.c"}}]),
    caught_up("S", 3, "source has come up"),
    Until(name="all is acknowledged", subject=f"{API}.INFO.W", field="state.messages", value=0),
    Call(name="consumer info", subject=f"{CONSUMER}.INFO.W.c"),
    Call(name="delete the source", subject=f"{API}.DELETE.S"),
    Call(name="the consumer stays", subject=f"{CONSUMER}.NAMES.W"),
    *messages("w.1", "d"),
    create("MW", "a mirror of it", mirror={"name": "W", "consumer": {"name": "c", "deliver_subject": "to.c"}}),
    caught_up("MW", 4, "mirror has come up"),
    create("L", "limits", subjects=["l.>"]),
    *messages("l.1", "a", "b"),
    *messages("l.2", "c"),
    durable(
        "last of each", "L", "p", deliver_policy="last_per_subject", deliver_subject="to.p", ack_policy="flow_control"
    ),
    create("SL", "source of limits", sources=[{"name": "L", "consumer": {"name": "p", "deliver_subject": "to.p"}}]),
    caught_up("SL", 2, "the last ones"),
    get("SL", 1, "first"),
    get("SL", 2, "second"),
)

SCENES = (
    Scene(name="flow acks/delivered", steps=DELIVERED),
    Scene(name="flow acks/asked for", steps=ASKED),
    Scene(name="flow acks/copied", steps=COPIED),
    Scene(name="flow acks/named", steps=NAMED),
)
