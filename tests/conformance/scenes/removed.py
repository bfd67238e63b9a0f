"""What a change that clients ask for does to messages and deliveries that are there already."""

from typing import Any

from tests.conformance.steps import (
    Ack,
    Call,
    Expect,
    Publish,
    Scene,
    Step,
    Subscribe,
    Until,
    consumer,
    messages,
    stream,
)

API = "$JS.API"
NEXT = f"{API}.CONSUMER.MSG.NEXT"
MS = 1_000_000
S = 1000 * MS


def change(name: str, title: str, **config: Any) -> Publish:
    """An update whose answer is not looked at: how much is removed by then differs from run to run."""
    body = f'{{"name":"{name}","subjects":["{name.lower()}.>"],"storage":"file","retention":"{config["retention"]}"}}'
    return Publish(name=title, subject=f"{API}.STREAM.UPDATE.{name}", payload=body.encode())


def filtered(title: str, name: str, subject: str) -> Call:
    """A consumer of stream I that has this filter now."""
    config = {"durable_name": name, "name": name, "ack_policy": "explicit", "filter_subject": subject}
    body = {"stream_name": "I", "config": config}
    return Call(name=title, subject=f"{API}.CONSUMER.CREATE.I.{name}.{subject}", payload=body)


def left(name: str, count: int, title: str) -> Until:
    return Until(name=title, subject=f"{API}.STREAM.INFO.{name}", field="state.messages", value=count)


def info(title: str, of: str) -> Call:
    return Call(name=title, subject=f"{API}.CONSUMER.INFO.{of}")


BEYOND: tuple[Step, ...] = (
    stream("P"),
    consumer("P", "c"),
    *messages("p.a", "1", "2", "3"),
    Call(name="purge up to what is still to come", subject=f"{API}.STREAM.PURGE.P", payload={"seq": 100}),
    Call(name="state", subject=f"{API}.STREAM.INFO.P"),
    info("consumer", "P.c"),
    Call(name="it goes on there", subject="p.a", payload=b"x"),
    Call(name="and is delivered", subject=f"{NEXT}.P.c"),
    Call(name="everything, by a filter", subject=f"{API}.STREAM.PURGE.P", payload={"seq": 200, "filter": ">"}),
    Call(name="the next", subject="p.a", payload=b"x"),
    Call(
        name="a filter that covers everything", subject=f"{API}.STREAM.PURGE.P", payload={"seq": 300, "filter": "p.>"}
    ),
    Call(name="does not move", subject="p.a", payload=b"x"),
    Call(name="state at the end", subject=f"{API}.STREAM.INFO.P"),
)
BELOW: tuple[Step, ...] = (
    stream("B"),
    consumer("B", "c", filter_subject="b.b"),
    *messages("b.a", "1", "2"),
    *messages("b.b", "3"),
    Call(name="one waits for its ack", subject=f"{NEXT}.B.c"),
    Call(name="purge below it", subject=f"{API}.STREAM.PURGE.B", payload={"seq": 3}),
    info("no ack was heard", "B.c"),
)
MISSING: tuple[Step, ...] = (
    stream("M"),
    consumer("M", "c", max_ack_pending=2),
    *messages("m.a", "1", "2", "3", "4"),
    Subscribe(name="advisories", subject="$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>"),
    Call(name="two", subject=f"{NEXT}.M.c", payload=b"2", replies=2),
    Call(name="one is deleted", subject=f"{API}.STREAM.MSG.DELETE.M", payload={"seq": 2}),
    Until(name="one is awaited", subject=f"{API}.CONSUMER.INFO.M.c", field="num_ack_pending", value=1),
    Expect(name="advisory", of="advisories", count=1),
    Call(name="there is room for another", subject=f"{NEXT}.M.c"),
    Ack(name="an ack of what is gone", of="two", position=1, replies=1),
    Ack(name="a nak of what is gone", of="two", position=1, payload=b"-NAK", replies=1),
    info("after that", "M.c"),
    Ack(name="the other one", of="two", replies=1),
    info("at the end", "M.c"),
)
ROLLED_UP: tuple[Step, ...] = (
    stream("R", allow_rollup_hdrs=True),
    consumer("R", "c"),
    *messages("r.a", "1"),
    *messages("r.b", "1"),
    Call(name="both", subject=f"{NEXT}.R.c", payload=b"2", replies=2),
    Call(name="roll up", subject="r.a", payload=b"x", headers=(("Nats-Rollup", "sub"),)),
    info("one is awaited", "R.c"),
)
WAITS: tuple[Step, ...] = (
    stream("W"),
    consumer("W", "c", ack_wait=60 * S),
    *messages("w.a", "1"),
    Call(name="one", subject=f"{NEXT}.W.c"),
    Call(
        name="a shorter wait",
        subject=f"{API}.CONSUMER.CREATE.W.c",
        payload={
            "stream_name": "W",
            "config": {"durable_name": "c", "name": "c", "ack_policy": "explicit", "ack_wait": 200 * MS},
        },
    ),
    Call(name="again", subject=f"{NEXT}.W.c", payload={"batch": 1, "expires": 10 * S}),
)
INTEREST: tuple[Step, ...] = (
    stream("I", retention="interest"),
    filtered("a wants 1", "a", "i.1"),
    *messages("i.1", "x", "y"),
    filtered("a wants 2", "a", "i.2"),
    left("I", 0, "what it wanted before is gone"),
    *messages("i.2", "x"),
    left("I", 1, "what it wants is there"),
)
RETENTION: tuple[Step, ...] = (
    stream("K"),
    consumer("K", "c"),
    *messages("k.1", "x", "y", "z"),
    Call(name="one", subject=f"{NEXT}.K.c"),
    Ack(name="ack", of="one", replies=1),
    change("K", "to interest", retention="interest"),
    left("K", 2, "what was acknowledged is gone"),
    stream("N"),
    *messages("n.1", "x", "y"),
    change("N", "to interest of nobody", retention="interest"),
    left("N", 0, "everything is gone"),
)
GONE: tuple[Step, ...] = (
    stream("G"),
    consumer("G", "c"),
    Subscribe(name="inbox", subject="G.inbox"),
    Publish(name="a pull", subject=f"{NEXT}.G.c", payload=b'{"batch":1,"expires":20000000000}', reply="G.inbox"),
    Call(name="delete the stream", subject=f"{API}.STREAM.DELETE.G"),
    Expect(name="the pull ends", of="inbox", count=1),
)

SCENES = (
    Scene(name="removed/by a purge beyond the end", steps=BEYOND),
    Scene(name="removed/by a purge below what waits", steps=BELOW),
    Scene(name="removed/while an ack is awaited", steps=MISSING),
    Scene(name="removed/by a rollup", steps=ROLLED_UP),
    Scene(name="removed/an ack wait that is changed", steps=WAITS),
    Scene(name="removed/filters of a consumer with interest", steps=INTEREST),
    Scene(name="removed/a change to interest", steps=RETENTION),
    Scene(name="removed/a stream with pulls", steps=GONE),
)
