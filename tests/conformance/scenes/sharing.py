"""What accounts export, import and map: services and their answers, streams, limits, JetStream of another account."""

from typing import Any

from tests.conformance.steps import (
    Ack,
    Back,
    Call,
    Expect,
    Login,
    Publish,
    Raw,
    Scene,
    Step,
    Subscribe,
    consumer,
    stream,
)

CONFIG = """
accounts {
  A { users [{user: a, password: x}]
      mappings { "mapped.*": "service.by.$1" }
      exports [
        {service: "service.>"}, {service: "own.*.x", account_token_position: 2}, {service: "listed", accounts: [B]}
        {service: "stream", response_type: stream}, {service: "chunked", response_type: chunked}
        {service: "one"}, {service: "mapped.*"}, {service: "swap.*.*"}
        {stream: "news.>"}, {stream: "single"}, {stream: "for.*.only", account_token_position: 2}
      ] }
  B { users [{user: b, password: x}, {user: p, password: x, permissions: {publish: ["local.>", "$JS.>"]}}]
      mappings { "map.me": "local.mapped", "map.stream": "here.stream" }
      imports [
        {service: {account: A, subject: "service.>"}, to: "local.>"}
        {service: {account: A, subject: "own.B.x"}, to: "mine"}
        {service: {account: A, subject: "listed"}, share: true}
        {service: {account: A, subject: "stream"}}, {service: {account: A, subject: "chunked"}}
        {service: {account: A, subject: "one"}, to: "uno"}
        {service: {account: A, subject: "mapped.*"}}
        {service: {account: A, subject: "swap.*.*"}, to: "swapped.$2.here.$1"}
        {stream: {account: A, subject: "news.>"}, prefix: "from.a"}
        {stream: {account: A, subject: "single"}, to: "only.one"}
        {stream: {account: A, subject: "for.B.only"}}
      ]
      exports [{service: "local.chain"}, {stream: "from.a.>"}] }
  C { users [{user: c, password: x}]
      imports [
        {service: {account: B, subject: "local.chain"}, to: "far"}
        {stream: {account: B, subject: "from.a.>"}}
      ] }
}
"""


def login(user: str) -> Login:
    return Login(name=user, user=user, password="x")


def ask(name: str, subject: str, payload: bytes = b"question", **more: Any) -> Publish:
    """A request of user b, or of c, whose answers come to its subscription."""
    return Publish(name=name, subject=subject, payload=payload, reply="answers", **more)


def back(to: str, number: int) -> Back:
    return Back(name=f"{to} again ({number})", to=to)


SERVICES: tuple[Step, ...] = (
    login("a"),
    Subscribe(name="requests", subject="service.>"),
    Subscribe(name="others", subject="own.*.x"),
    Subscribe(name="listed", subject="listed"),
    Subscribe(name="swap", subject="swap.>"),
    login("b"),
    Subscribe(name="answers", subject="answers"),
    ask("ask", "local.one"),
    ask("ask with headers", "local.two.three", headers=(("Key", "value"),)),
    ask("pretend", "local.two", headers=(("Nats-Request-Info", '{"acc":"Z"}'), ("Key", "value"))),
    Publish(name="no answer wanted", subject="local.four", payload=b"note"),
    ask("ask with a mapped subject", "map.me"),
    ask("ask where the exporter maps", "mapped.here"),
    ask("ask by name", "mine"),
    ask("ask and share", "listed"),
    ask("ask with tokens in another order", "swapped.1.here.2"),
    back("a", 1),
    Expect(name="got requests", of="requests", count=6),
    Expect(name="got another", of="others", count=1),
    Expect(name="got the listed", of="listed", count=1),
    Expect(name="got the swapped", of="swap", count=1),
    Ack(name="answer", of="got requests", payload=b"first"),
    Ack(name="answer once more", of="got requests", payload=b"too many"),
    Ack(name="answer the second", of="got requests", position=1, payload=b"second"),
    Ack(name="answer the shared", of="got the listed", payload=b""),
    back("b", 1),
    Expect(name="answers of a", of="answers", count=3),
)

MANY: tuple[Step, ...] = (
    login("a"),
    Subscribe(name="stream", subject="stream"),
    Subscribe(name="chunked", subject="chunked"),
    login("b"),
    Subscribe(name="answers", subject="answers"),
    Subscribe(name="further", subject="further"),
    ask("ask for a stream", "stream"),
    ask("ask for chunks", "chunked"),
    back("a", 1),
    Expect(name="got stream", of="stream", count=1),
    Expect(name="got chunked", of="chunked", count=1),
    Subscribe(name="back", subject="back"),
    *(Ack(name=f"stream {n}", of="got stream", payload=payload) for n, payload in enumerate((b"1", b"2", b"", b"3"))),
    *(Ack(name=f"chunk {n}", of="got chunked", payload=payload) for n, payload in enumerate((b"4", b"", b"5"))),
    back("b", 1),
    Expect(name="all answers", of="answers", count=5),
)

NOBODY: tuple[Step, ...] = (
    login("b"),
    Call(name="nobody answers", subject="uno"),
    Call(name="nobody answers what is mapped", subject="map.me"),
    Call(name="nobody at all", subject="neither"),
    login("p"),
    Publish(name="may not: mapped to what is denied", subject="map.stream"),
    Publish(name="may: mapped to what is allowed", subject="map.me"),
    login("c"),
    Call(name="nobody two accounts away", subject="far"),
)

CHAIN: tuple[Step, ...] = (
    login("a"),
    Subscribe(name="requests", subject="service.>"),
    login("c"),
    Subscribe(name="answers", subject="answers"),
    ask("ask through b", "far"),
    back("a", 1),
    Expect(name="got", of="requests", count=1),
    Ack(name="answer", of="got", payload=b"from afar"),
    back("c", 1),
    Expect(name="answer from afar", of="answers", count=1),
)

STREAMS: tuple[Step, ...] = (
    login("b"),
    Subscribe(name="equal", subject="from.a.news.>"),
    Subscribe(name="narrower", subject="from.a.news.x.*"),
    Subscribe(name="literal", subject="from.a.news.x.y"),
    Subscribe(name="crossing", subject="*.a.*.x.>"),
    Subscribe(name="everything", subject=">"),
    Subscribe(name="renamed", subject="only.one"),
    Subscribe(name="by name", subject="for.*.only"),
    Subscribe(name="not there", subject="news.x.y"),
    login("c"),
    Subscribe(name="not passed on", subject="from.a.>"),
    Publish(name="c itself", subject="from.a.c"),
    Expect(name="c hears itself only", of="not passed on", count=1),
    login("a"),
    Publish(name="x.y", subject="news.x.y", payload=b"1", reply="somewhere", headers=(("Key", "value"),)),
    Publish(name="x", subject="news.x", payload=b"2"),
    Publish(name="single", subject="single", payload=b"3"),
    Publish(name="for b", subject="for.B.only", payload=b"4"),
    Publish(name="for c", subject="for.C.only", payload=b"5"),
    Publish(name="the end", subject="news.end", payload=b"6"),
    back("b", 1),
    *(
        Expect(name=f"got {name}", of=name, count=count)
        for name, count in (
            ("equal", 3), ("narrower", 1), ("literal", 1), ("crossing", 1), ("everything", 5), ("renamed", 1),
            ("by name", 1),
        )
    ),
    back("c", 1),
    Publish(name="c once more", subject="from.a.again"),
    Expect(name="c still hears itself only", of="not passed on", count=1),
)  # fmt: skip

QUEUES: tuple[Step, ...] = (
    login("b"),
    Subscribe(name="one of the group", subject="from.a.news.>", queue="g"),
    login("a"),
    *(Publish(name=f"publish {n}", subject="news.q", payload=b"%d" % n) for n in range(3)),
    back("b", 1),
    Expect(name="b is alone", of="one of the group", count=3),
    back("a", 1),
    Publish(name="a stream has receivers in b", subject="news.q", reply="somewhere"),
    back("b", 2),
    Expect(name="received", of="one of the group", count=1),
)

JETSTREAM_CONFIG = """
accounts {
  A { users [{user: a, password: x}], jetstream: enabled
      exports [
        {service: "$JS.API.>", response_type: stream}, {service: "$JS.ACK.>"}, {service: "orders.>"}
        {stream: "deliver.>"}, {stream: "events.>"}
      ] }
  B { users [{user: b, password: x}], jetstream: enabled
      imports [
        {service: {account: A, subject: "$JS.API.>"}, to: "a.api.>"}
        {service: {account: A, subject: "$JS.ACK.>"}}
        {service: {account: A, subject: "orders.>"}, to: "a.orders.>"}
        {stream: {account: A, subject: "deliver.>"}}, {stream: {account: A, subject: "events.>"}, prefix: "a"}
      ] }
}
"""

JETSTREAM: tuple[Step, ...] = (
    login("a"),
    stream("ORDERS", ["orders.>"]),
    consumer("ORDERS", "pull"),
    login("b"),
    Call(name="publish into a", subject="a.orders.1", payload=b"one"),
    Call(name="publish with headers", subject="a.orders.2", payload=b"two", headers=(("Key", "value"),)),
    Call(name="ask for the stream", subject="a.api.STREAM.INFO.ORDERS"),
    Call(name="names in a", subject="a.api.STREAM.NAMES"),
    Call(name="names in b", subject="$JS.API.STREAM.NAMES"),
    Call(name="what is stored", subject="a.api.STREAM.MSG.GET.ORDERS", payload={"seq": 1}),
    Call(name="what is stored with headers", subject="a.api.STREAM.MSG.GET.ORDERS", payload={"seq": 2}),
    Call(name="pull", subject="a.api.CONSUMER.MSG.NEXT.ORDERS.pull", payload={"batch": 2}, replies=2),
    Ack(name="acknowledge", of="pull"),
    Ack(name="acknowledge with an answer", of="pull", position=1, replies=1),
    Call(name="what is acknowledged", subject="a.api.CONSUMER.INFO.ORDERS.pull"),
    Subscribe(name="pushed", subject="deliver.b"),
    Call(
        name="a consumer that pushes to b",
        subject="a.api.CONSUMER.CREATE.ORDERS.push",
        payload={
            "stream_name": "ORDERS",
            "config": {
                "name": "push",
                "durable_name": "push",
                "deliver_subject": "deliver.b",
                "ack_policy": "explicit",
            },
        },
    ),
    Expect(name="pushed to b", of="pushed", count=2),
    Ack(name="acknowledge what was pushed", of="pushed to b", replies=1),
    stream("EVENTS", ["a.events.>"]),
    back("a", 1),
    Publish(name="an event of a", subject="events.1", payload=b"event"),
    Call(name="an event that is acknowledged by b", subject="events.2", payload=b"event"),
    back("b", 1),
    Call(name="stored in b", subject="$JS.API.STREAM.MSG.GET.EVENTS", payload={"seq": 1}),
    Call(name="stored in b too", subject="$JS.API.STREAM.MSG.GET.EVENTS", payload={"seq": 2}),
)

BORROWED_CONFIG = """
accounts {
  A { users [{user: a, password: x}], jetstream: enabled
      exports [{service: "$JS.API.INFO"}, {service: "$JS.API.STREAM.INFO.ORDERS"}] }
  B { users [{user: b, password: x}]
      imports [
        {service: {account: A, subject: "$JS.API.INFO"}}, {service: {account: A, subject: "$JS.API.STREAM.INFO.ORDERS"}}
      ] }
  C { users [{user: c, password: x}], imports [{service: {account: A, subject: "$JS.API.INFO"}, to: "info.of.a"}] }
}
"""

BORROWED: tuple[Step, ...] = (
    login("a"),
    stream("ORDERS", ["orders.>"]),
    login("b"),
    Call(name="b asks of the account", subject="$JS.API.INFO"),
    Call(name="b asks of the stream", subject="$JS.API.STREAM.INFO.ORDERS"),
    Call(name="b asks for what it does not import", subject="$JS.API.STREAM.NAMES"),
    login("c"),
    Call(name="the other account's", subject="info.of.a"),
    Call(name="its own, which it has not", subject="$JS.API.INFO"),
)

MAPPINGS_CONFIG = """
mappings {
  "old": "new"
  "orders.*.*": "by.{{wildcard(2)}}.{{wildcard(1)}}"
  "part.*": "p.{{partition(3,1)}}.$1"
  "whole.*": "p.{{partition(10)}}"
  "split.*": "s.{{split(1,-)}}"
  "sliced.*": "s.{{slicefromleft(1,2)}}.{{SliceFromRight(1,2)}}"
  "cut.*": "s.{{splitFromLeft(1,1)}}.{{splitfromright(1,1)}}"
  "ends.*": "s.{{left(1,2)}}.{{right(1,2)}}"
  "tail.*.>": "t.$1.>"
  "lost": [{destination: "lost", weight: 0}, {destination: "nowhere", weight: "0%"}]
  "rest": {dest: "unused", weight: 0}
  "elsewhere": [{dest: "not.here", weight: 100, cluster: "other"}]
}
"""

MAPPINGS: tuple[Step, ...] = (
    Call(name="a lost request", subject="lost"),
    Subscribe(name="all", subject=">"),
    *(
        Publish(name=f"publish {subject}", subject=subject)
        for subject in (
            "old", "new", "orders.a.b", "orders.a", "part.a", "part.b", "part.c", "whole.a", "whole.b", "split.a-b--c-",
            "split.-", "sliced.abcde", "sliced.a", "cut.abc", "cut.a", "ends.abc", "ends.a", "tail.a.b.c", "tail.a",
            "lost", "rest", "elsewhere",
        )
    ),
    Expect(name="what arrives", of="all", count=20),
)  # fmt: skip

LIMITS_CONFIG = """
accounts {
  A { users [{user: a, password: x}], limits { max_subs: 2, max_payload: 20 } }
  B { users [{user: b, password: x}], limits { max_conn: 2 } }
}
"""

AS_A = {"user": "a", "pass": "x", "verbose": False}
LIMITS: tuple[Step, ...] = (
    login("a"),
    Raw(
        name="payload",
        data=b"PUB s 20\r\n01234567890123456789\r\nPUB s 21\r\n012345678901234567890\r\n",
        options=AS_A,
        closes=True,
    ),
    Raw(name="subscriptions", data=b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nSUB b 2\r\nUNSUB 1\r\nSUB d 4\r\n", options=AS_A),
    login("b"),
    Login(name="the second of b", user="b", password="x"),
    Raw(name="the third of b", data=b"PING\r\n", options={**AS_A, "user": "b"}, closes=True),
)

SCENES = (
    Scene(name="sharing/services", steps=SERVICES, config=CONFIG),
    Scene(name="sharing/several answers", steps=MANY, config=CONFIG),
    Scene(name="sharing/nobody answers", steps=NOBODY, config=CONFIG),
    Scene(name="sharing/chain", steps=CHAIN, config=CONFIG),
    Scene(name="sharing/streams", steps=STREAMS, config=CONFIG),
    Scene(name="sharing/queues", steps=QUEUES, config=CONFIG),
    Scene(name="sharing/jetstream", steps=JETSTREAM, config=JETSTREAM_CONFIG),
    Scene(name="sharing/borrowed jetstream", steps=BORROWED, config=BORROWED_CONFIG),
    Scene(name="sharing/mappings", steps=MAPPINGS, config=MAPPINGS_CONFIG),
    Scene(name="sharing/limits", steps=LIMITS, config=LIMITS_CONFIG),
)
