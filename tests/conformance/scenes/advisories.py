"""What JetStream tells about itself to those who listen: streams, consumers, messages that are refused or given up."""

from tests.conformance.steps import Ack, Call, Expect, Scene, Step, Subscribe, consumer, messages, stream

MILLISECOND = 1_000_000

STREAMS: tuple[Step, ...] = (
    Subscribe(name="advisories", subject="$JS.EVENT.ADVISORY.STREAM.>"),
    stream("S"),
    Call(name="again", subject="$JS.API.STREAM.CREATE.S", payload={"name": "S", "subjects": ["s.>"]}),
    Expect(name="created", of="advisories", count=1),
    Call(
        name="update",
        subject="$JS.API.STREAM.UPDATE.S",
        payload={"name": "S", "subjects": ["s.>"], "storage": "file", "max_msgs": 9},
    ),
    Expect(name="updated", of="advisories", count=1),
    Call(name="delete", subject="$JS.API.STREAM.DELETE.S"),
    Expect(name="deleted", of="advisories", count=1),
    Call(name="delete again", subject="$JS.API.STREAM.DELETE.S"),
    Expect(name="nothing more", of="advisories", count=0),
)

CONSUMERS: tuple[Step, ...] = (
    Subscribe(name="advisories", subject="$JS.EVENT.ADVISORY.CONSUMER.>"),
    stream("S"),
    consumer("S", "d", max_deliver=2, ack_wait=30_000 * MILLISECOND),
    Expect(name="created", of="advisories", count=1),
    *messages("s.1", "a", "b", "c", "d"),
    Call(name="pull", subject="$JS.API.CONSUMER.MSG.NEXT.S.d", payload={"batch": 4}, replies=4),
    Ack(name="refuse", of="pull", position=0, payload=b"-NAK", replies=1),
    Expect(name="refused", of="advisories", count=1),
    Ack(name="terminate", of="pull", position=1, payload=b"+TERM", replies=1),
    Expect(name="terminated", of="advisories", count=1),
    Ack(name="terminate with a reason", of="pull", position=2, payload=b"+TERM it is wrong", replies=1),
    Expect(name="terminated with a reason", of="advisories", count=1),
    Ack(name="acknowledge", of="pull", position=3, replies=1),
    Expect(name="not told", of="advisories", count=0),
    Call(name="delete", subject="$JS.API.CONSUMER.DELETE.S.d"),
    Expect(name="deleted", of="advisories", count=1),
)

GIVEN_UP: tuple[Step, ...] = (
    Subscribe(name="advisories", subject="$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>"),
    stream("S"),
    consumer("S", "d", max_deliver=1, ack_wait=100 * MILLISECOND),
    *messages("s.1", "a"),
    Call(name="pull", subject="$JS.API.CONSUMER.MSG.NEXT.S.d", payload={"batch": 1}),
    Expect(name="given up", of="advisories", count=1),
)

AUDITS: tuple[Step, ...] = (
    Subscribe(name="advisories", subject="$JS.EVENT.ADVISORY.API"),
    Call(name="no stream", subject="$JS.API.STREAM.INFO.NONE"),
    Expect(name="told", of="advisories", count=1),
)

SCENES = (
    Scene(name="advisories/streams", steps=STREAMS),
    Scene(name="advisories/consumers", steps=CONSUMERS),
    Scene(name="advisories/given up", steps=GIVEN_UP),
    Scene(name="advisories/audits", steps=AUDITS),
)
