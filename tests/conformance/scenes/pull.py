"""Pull requests in all their forms, acknowledgements of all kinds, redelivery."""

from typing import Any

from tests.conformance.steps import (
    Ack,
    Call,
    Expect,
    Publish,
    Raw,
    Scene,
    Step,
    Subscribe,
    Until,
    consumer,
    messages,
    stream,
)

NEXT = "$JS.API.CONSUMER.MSG.NEXT.P"
INFO = "$JS.API.CONSUMER.INFO.P"
MS = 1_000_000


def pull(title: str, body: Any, *, of: str = "d", replies: int = 1) -> Call:
    """A pull request and its answers, statuses included."""
    return Call(name=title, subject=f"{NEXT}.{of}", payload=body, replies=replies)


FORMS: tuple[Step, ...] = (
    stream("P"),
    consumer("P", "d"),
    pull("no_wait on nothing", {"batch": 1, "no_wait": True}),
    pull("no_wait with expires on nothing", {"batch": 1, "no_wait": True, "expires": 100 * MS}),
    pull("expires on nothing", {"batch": 1, "expires": 100 * MS}),
    pull("expires too small", {"batch": 1, "expires": 1}),
    pull("heartbeat", {"batch": 1, "expires": 500 * MS, "idle_heartbeat": 200 * MS}, replies=3),
    pull("heartbeat above half of expires", {"batch": 1, "expires": 300 * MS, "idle_heartbeat": 200 * MS}),
    pull("heartbeat without expires", {"batch": 1, "idle_heartbeat": 200 * MS}),
    *messages("p.a", *"123456789"),
    pull("empty body", b""),
    pull("a number", b"2", replies=2),
    pull("batch and expires", {"batch": 2, "expires": 1000 * MS}, replies=2),
    pull("more than there are, no_wait", {"batch": 9, "no_wait": True}, replies=5),
    pull("nothing left", {"batch": 1, "no_wait": True}),
    pull("batch zero", {"batch": 0, "no_wait": True}),
    pull("negative batch", {"batch": -1, "no_wait": True}),
    pull("negative expires", {"batch": 1, "expires": -1}),
    pull("not json", b"{x"),
    pull("not a number", b"x", replies=0),
    pull("wrong type", {"batch": "x"}),
    pull("unknown field", {"batch": 1, "no_wait": True, "zzz": 1}),
    pull("group on a plain consumer", {"batch": 1, "no_wait": True, "group": "A"}),
    Call(name="info", subject=f"{INFO}.d"),
    Call(name="next of none", subject=f"{NEXT}.none"),
    Call(name="next of no stream", subject="$JS.API.CONSUMER.MSG.NEXT.NOPE.d"),
)
CAPS: tuple[Step, ...] = (
    stream("P"),
    *messages("p.a", "x" * 10, "y" * 10, "z" * 10, "w" * 200),
    consumer("P", "caps", max_batch=2, max_expires=1000 * MS, max_bytes=200, max_waiting=2),
    pull("batch above the cap", {"batch": 3, "no_wait": True}, of="caps"),
    pull("expires above the cap", {"batch": 1, "expires": 5000 * MS}, of="caps"),
    pull("bytes above the cap", {"batch": 1, "no_wait": True, "max_bytes": 300}, of="caps"),
    consumer("P", "bytes"),
    pull("max_bytes for two", {"batch": 10, "no_wait": True, "max_bytes": 150}, of="bytes", replies=3),
    pull("max_bytes too small for the first", {"batch": 10, "no_wait": True, "max_bytes": 10}, of="bytes"),
    consumer("P", "w", max_waiting=1, deliver_policy="new"),
    pull("one waits", {"batch": 1, "expires": 3000 * MS}, of="w", replies=0),
    pull("two are too many", {"batch": 1, "expires": 1000 * MS}, of="w"),
    Call(name="one is waiting", subject=f"{INFO}.w"),
    Call(name="delete while it waits", subject="$JS.API.CONSUMER.DELETE.P.w"),
    consumer("P", "mp", max_ack_pending=2),
    pull("up to max_ack_pending", {"batch": 4, "expires": 150 * MS}, of="mp", replies=3),
    Call(name="two pending", subject=f"{INFO}.mp"),
    consumer("P", "h", headers_only=True),
    pull("headers only", {"batch": 1}, of="h"),
)
ACKS: tuple[Step, ...] = (
    stream("P"),
    *messages("p.a", *"123456789"),
    consumer("P", "d", ack_wait=60_000 * MS),
    pull("three", {"batch": 3}, replies=3),
    Ack(name="ack of the first", of="three", payload=b"+ACK", replies=1),
    Call(name="floor moved", subject=f"{INFO}.d"),
    Ack(name="empty ack of the third", of="three", position=2, payload=b"", replies=1),
    Call(name="floor waits for the second", subject=f"{INFO}.d"),
    Ack(name="ack of the third again", of="three", position=2, payload=b"+ACK", replies=1),
    Ack(name="in progress", of="three", position=1, payload=b"+WPI", replies=1),
    Ack(name="nak of the second", of="three", position=1, payload=b"-NAK", replies=1),
    pull("the second again", {"batch": 1, "expires": 1000 * MS}),
    Call(name="one redelivered", subject=f"{INFO}.d"),
    Ack(name="nak with delay", of="the second again", payload=b'-NAK {"delay": 100000000}', replies=1),
    pull("the fourth meanwhile", {"batch": 1, "expires": 1000 * MS}),
    pull("the second after the delay, or the fifth", {"batch": 1, "no_wait": True}),
    pull("rest", {"batch": 9, "expires": 400 * MS}, replies=6),
    Ack(name="terminate", of="the fourth meanwhile", payload=b"+TERM why", replies=1),
    Ack(name="unknown ack", of="the fourth meanwhile", payload=b"+WHAT", replies=0),
    Ack(name="next", of="the second after the delay, or the fifth", payload=b"+NXT", replies=0),
    Until(name="state", subject=f"{INFO}.d", field="num_ack_pending", value=5),  # nobody says when a +NXT is applied
)
ACK_ALL: tuple[Step, ...] = (
    stream("P"),
    *messages("p.a", *"12345"),
    consumer("P", "d", ack_policy="all"),
    pull("four", {"batch": 4}, replies=4),
    Ack(name="ack of the third", of="four", position=2, payload=b"+ACK", replies=1),
    Call(name="three are acked", subject=f"{INFO}.d"),
    consumer("P", "n", ack_policy="none"),
    pull("two without acks", {"batch": 2}, of="n", replies=2),
    Call(name="nothing pending", subject=f"{INFO}.n"),
)
REDELIVERY: tuple[Step, ...] = (
    stream("P"),
    *messages("p.a", "1", "2"),
    consumer("P", "d", ack_wait=150 * MS, max_deliver=2),
    pull("first delivery", {"batch": 2}, replies=2),
    pull("second delivery", {"batch": 2, "expires": 2000 * MS}, replies=2),
    pull("no third", {"batch": 2, "expires": 500 * MS}),
    Call(name="given up", subject=f"{INFO}.d"),
    consumer("P", "b", backoff=[100 * MS, 200 * MS], max_deliver=3),
    pull("backoff 1", {"batch": 1}, of="b"),
    pull("backoff 1, other", {"batch": 1}, of="b"),
    pull("backoff 2", {"batch": 2, "expires": 2000 * MS}, of="b", replies=2),
    pull("backoff 3", {"batch": 2, "expires": 2000 * MS}, of="b", replies=2),
)
WAITING: tuple[Step, ...] = (
    stream("P"),
    consumer("P", "d"),
    pull("waits", {"batch": 2, "expires": 400 * MS}, replies=0),
    Call(name="publish wakes it", subject="p.a", payload=b"1"),
    Until(name="delivered", subject=f"{INFO}.d", field="delivered.consumer_seq", value=1),
    Publish(name="publish without ack", subject="p.b", payload=b"2", headers=(("A", "b"),)),
    Until(name="delivered both", subject=f"{INFO}.d", field="delivered.consumer_seq", value=2),
)
NOT_WAITED_FOR: tuple[Step, ...] = (
    stream("P"),
    *messages("p.a", "1", "2"),
    consumer("P", "n", ack_policy="none"),
    pull("without acks", {"batch": 2}, of="n", replies=2),
    Ack(name="ack request without acks", of="without acks", payload=b"+ACK", replies=1),
    Ack(name="nak request without acks", of="without acks", payload=b"-NAK", replies=1),
    Ack(name="progress request without acks", of="without acks", payload=b"+WPI", replies=1),
    Ack(name="term request without acks", of="without acks", payload=b"+TERM", replies=1),
    Ack(name="next request without acks", of="without acks", payload=b"+NXT", replies=1),
    Call(name="info without acks", subject=f"{INFO}.n"),
)
LATE: tuple[Step, ...] = (
    stream("P", retention="workqueue"),
    *messages("p.a", "1", "2", "3", "4"),
    consumer("P", "d", ack_wait=100 * MS, max_deliver=1),
    pull("the only delivery", {"batch": 4}, replies=4),
    Until(name="all given up", subject=f"{INFO}.d", field="num_ack_pending", value=0),
    Ack(name="late ack", of="the only delivery", position=0, payload=b"+ACK", replies=1),
    Until(name="one is removed", subject="$JS.API.STREAM.INFO.P", field="state.messages", value=3),
    Ack(name="late term", of="the only delivery", position=1, payload=b"+TERM", replies=1),
    Until(name="two are removed", subject="$JS.API.STREAM.INFO.P", field="state.messages", value=2),
    Ack(name="late nak", of="the only delivery", position=2, payload=b"-NAK", replies=1),
    pull("nothing again", {"batch": 1, "no_wait": True}),
    Ack(name="late ack after the nak", of="the only delivery", position=2, payload=b"+ACK", replies=1),
    Until(name="three are removed", subject="$JS.API.STREAM.INFO.P", field="state.messages", value=1),
)
LATE_INTEREST: tuple[Step, ...] = (
    stream("P", retention="interest"),
    consumer("P", "d", ack_wait=100 * MS, max_deliver=1),
    *messages("p.a", "1", "2"),
    pull("the only delivery", {"batch": 2}, replies=2),
    Until(name="all given up", subject=f"{INFO}.d", field="num_ack_pending", value=0),
    Ack(name="late ack", of="the only delivery", position=0, payload=b"+ACK", replies=1),
    Until(name="one is removed", subject="$JS.API.STREAM.INFO.P", field="state.messages", value=1),
)
LATE_ALL: tuple[Step, ...] = (
    stream("P", retention="interest"),
    consumer("P", "d", ack_wait=100 * MS, max_deliver=1, ack_policy="all"),
    *messages("p.a", "1", "2", "3"),
    pull("the only delivery", {"batch": 3}, replies=3),
    Until(name="all given up", subject=f"{INFO}.d", field="num_ack_pending", value=0),
    Ack(name="late ack", of="the only delivery", position=1, payload=b"+ACK", replies=1),
    Call(name="none are removed", subject="$JS.API.STREAM.INFO.P"),
)
PARTLY: tuple[Step, ...] = (
    stream("P"),
    *messages("p.a", *"123456"),
    consumer("P", "d", max_ack_pending=2),
    pull(
        "partly filled",
        {"batch": 4, "no_wait": True, "expires": 2000 * MS, "idle_heartbeat": 500 * MS},
        replies=3,
    ),
    Call(name="it is over", subject=f"{INFO}.d"),
    Ack(name="ack one", of="partly filled", position=0, payload=b"+ACK", replies=1),
    Ack(name="ack two", of="partly filled", position=1, payload=b"+ACK", replies=1),
    pull("the next gets the rest", {"batch": 2, "expires": 1000 * MS}, replies=2),
)
PARTLY_OTHER: tuple[Step, ...] = (
    stream("P"),
    *messages("p.a", *"123456"),
    consumer("P", "d", max_ack_pending=2),
    pull("partly filled, no heartbeat", {"batch": 4, "no_wait": True, "expires": 2000 * MS}, replies=2),
    Call(name="it waits", subject=f"{INFO}.d"),
    pull("another's timer", {"batch": 1, "expires": 100 * MS}, replies=1),
    Until(name="both are over", subject=f"{INFO}.d", field="num_waiting", value=0),
)
LEFT: tuple[Step, ...] = (
    stream("P"),
    consumer("P", "d"),
    Raw(name="a client asks and leaves", data=b"SUB r 1\r\nPUB %s.d r 1\r\n5\r\n" % NEXT.encode()),
    Until(name="nobody waits", subject=f"{INFO}.d", field="num_waiting", value=0),
)
WORKQUEUE: tuple[Step, ...] = (
    stream("P", retention="workqueue"),
    *messages("p.a", "1", "2", "3"),
    consumer("P", "d"),
    pull("two", {"batch": 2}, replies=2),
    Ack(name="ack one", of="two", position=0, payload=b"+ACK", replies=1),
    Until(name="one is removed", subject="$JS.API.STREAM.INFO.P", field="state.messages", value=2),
    Ack(name="terminate two", of="two", position=1, payload=b"+TERM", replies=1),
    Until(name="two are removed", subject="$JS.API.STREAM.INFO.P", field="state.messages", value=1),
    stream("I", ["i.>"], retention="interest"),
    Call(
        name="consumer of interest",
        subject="$JS.API.CONSUMER.CREATE.I.d",
        payload={"stream_name": "I", "config": {"durable_name": "d", "name": "d", "ack_policy": "explicit"}},
    ),
    *messages("i.a", "1", "2"),
    Call(name="interest keeps", subject="$JS.API.STREAM.INFO.I"),
    Call(name="one of interest", subject="$JS.API.CONSUMER.MSG.NEXT.I.d", payload={"batch": 1}),
    Ack(name="ack of interest", of="one of interest", payload=b"+ACK", replies=1),
    Until(name="interest removes", subject="$JS.API.STREAM.INFO.I", field="state.messages", value=1),
)

PAUSE = "$JS.API.CONSUMER.PAUSE.P"
FAR = "2199-01-01T00:00:00Z"
PAUSED: tuple[Step, ...] = (
    stream("P"),
    *messages("p.a", *"12345"),
    consumer("P", "d", pause_until=FAR),
    pull("no_wait while paused", {"batch": 2, "no_wait": True}),
    pull("no_wait with expires while paused", {"batch": 2, "no_wait": True, "expires": 100 * MS}),
    pull("expires while paused", {"batch": 2, "expires": 100 * MS}),
    pull("heartbeats while paused", {"batch": 1, "expires": 500 * MS, "idle_heartbeat": 200 * MS}, replies=3),
    Call(
        name="update while paused",
        subject="$JS.API.CONSUMER.CREATE.P.d",
        payload={"stream_name": "P", "config": {"durable_name": "d", "ack_policy": "explicit", "max_batch": 100}},
    ),
    Call(name="an update leaves the pause", subject=f"{INFO}.d"),
    Call(name="a pause that is over", subject=f"{PAUSE}.d", payload={"pause_until": "2001-01-01T00:00:00Z"}),
    pull("after a pause", {"batch": 2, "no_wait": True}, replies=2),
    Call(name="info after a pause", subject=f"{INFO}.d"),
    Call(name="pause again", subject=f"{PAUSE}.d", payload={"pause_until": FAR}),
    Ack(name="an ack while paused", of="after a pause", position=0, replies=1),
    Ack(name="a nak while paused", of="after a pause", position=1, payload=b"-NAK"),
    pull("nothing while paused", {"batch": 2, "expires": 100 * MS}),
    Call(name="resume", subject=f"{PAUSE}.d", payload={}),
    pull("redelivered after the pause", {"batch": 2, "no_wait": True}, replies=2),
    Call(name="pause with nonsense", subject=f"{PAUSE}.d", payload={"pause_until": "tomorrow"}),
)
METRICS: tuple[Step, ...] = (
    stream("P"),
    Subscribe(name="metrics", subject="$JS.EVENT.METRIC.CONSUMER.ACK.P.>"),
    *messages("p.a", *"1234"),
    consumer("P", "d", sample_freq="100%"),
    pull("sampled", {"batch": 4, "no_wait": True}, replies=4),
    Ack(name="ack one", of="sampled", position=0),
    Ack(name="double ack two", of="sampled", position=1, replies=1),
    Ack(name="term three", of="sampled", position=2, payload=b"+TERM"),
    Expect(name="two were acknowledged", of="metrics", count=2),
    consumer("P", "none", sample_freq="0"),
    consumer("P", "all", sample_freq="100", ack_policy="all"),
    pull("of all", {"batch": 2, "no_wait": True}, of="all", replies=2),
    Ack(name="ack of all", of="of all", position=1, replies=1),
    Ack(name="ack four", of="sampled", position=3, replies=1),
    Expect(name="only explicit acks are sampled", of="metrics", count=1),
)

SCENES = (
    Scene(name="pull/acks that nobody waits for", steps=NOT_WAITED_FOR),
    Scene(name="pull/late acks", steps=LATE),
    Scene(name="pull/late acks by interest", steps=LATE_INTEREST),
    Scene(name="pull/late acks of all", steps=LATE_ALL),
    Scene(name="pull/partly filled", steps=PARTLY),
    Scene(name="pull/partly filled beside another", steps=PARTLY_OTHER),
    Scene(name="pull/left", steps=LEFT),
    Scene(name="pull/forms", steps=FORMS),
    Scene(name="pull/caps", steps=CAPS),
    Scene(name="pull/acks", steps=ACKS),
    Scene(name="pull/ack all and none", steps=ACK_ALL),
    Scene(name="pull/redelivery", steps=REDELIVERY),
    Scene(name="pull/waiting", steps=WAITING),
    Scene(name="pull/workqueue and interest", steps=WORKQUEUE),
    Scene(name="pull/paused", steps=PAUSED),
    Scene(name="pull/metrics", steps=METRICS),
)
