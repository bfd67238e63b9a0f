"""Push consumers: delivery, heartbeats, queue groups, and what their configuration refuses."""

from typing import Any

from tests.conformance.steps import Ack, Call, Expect, Scene, Step, Subscribe, messages, stream


def push(title: str, name: str, **config: Any) -> Call:
    """A create of a push consumer."""
    return Call(
        name=title,
        subject=f"$JS.API.CONSUMER.CREATE.U.{name}",
        payload={"stream_name": "U", "config": {"name": name, "ack_policy": "explicit", **config}},
    )


DELIVERY: tuple[Step, ...] = (
    stream("U"),
    *messages("u.a", "1", "2"),
    Subscribe(name="deliver", subject="to.me"),
    push("create", "d", durable_name="d", deliver_subject="to.me"),
    Expect(name="both", of="deliver", count=2),
    Ack(name="ack", of="both", position=0, payload=b"+ACK", replies=1),
    Call(name="info", subject="$JS.API.CONSUMER.INFO.U.d"),
    *messages("u.b", "3"),
    Expect(name="the third", of="deliver", count=1),
    Call(name="pull from push", subject="$JS.API.CONSUMER.MSG.NEXT.U.d", payload={"batch": 1}),
    push("deliver to a wildcard", "x", deliver_subject="to.*"),
    push("deliver into the stream", "x", deliver_subject="u.x"),
    push("max_waiting", "x", deliver_subject="to.x", max_waiting=5),
    push("heartbeat too small", "x", deliver_subject="to.x", idle_heartbeat=1),
    push("flow control without heartbeat", "x", deliver_subject="to.x", flow_control=True),
    Subscribe(name="group a", subject="to.group", queue="g"),
    push("group", "q", deliver_subject="to.group", deliver_group="g"),
    Expect(name="group gets all", of="group a", count=3),
    Subscribe(name="no member", subject="to.members"),
    push("group without members", "m", deliver_subject="to.members", deliver_group="g"),
    Call(name="nothing is delivered", subject="$JS.API.CONSUMER.INFO.U.m"),
    Subscribe(name="member of another", subject="to.members", queue="other"),
    Call(name="still nothing", subject="$JS.API.CONSUMER.INFO.U.m"),
    Subscribe(name="member", subject="to.members", queue="g"),
    Expect(name="the member gets all", of="member", count=3),
    Call(name="all is delivered", subject="$JS.API.CONSUMER.INFO.U.m"),
    Subscribe(name="hb", subject="to.hb"),
    push("heartbeat", "h", deliver_subject="to.hb", idle_heartbeat=200_000_000, deliver_policy="new"),
    Expect(name="one heartbeat", of="hb", count=1),
    Call(name="delete heartbeat", subject="$JS.API.CONSUMER.DELETE.U.h"),
)

SCENES = (Scene(name="push/delivery", steps=DELIVERY),)
