"""The walk-throughs of JetStream's first documents (2020) with today's requests: orders, and a log shipper.

Each step is what one command of theirs asks today.
"""

from typing import Any

from tests.conformance.steps import Ack, Call, Expect, Scene, Step, Subscribe

API = "$JS.API"
SECOND = 1_000_000_000
YEAR = 365 * 24 * 3600 * SECOND


def ask(name: str, subject: str, payload: Any = b"", **options: Any) -> Call:
    """A request of the API."""
    return Call(name=name, subject=f"{API}.{subject}", payload=payload, **options)


def add(stream: str, name: str, **config: Any) -> Call:
    """`consumer add`."""
    body = {"stream_name": stream, "config": {"durable_name": name, "name": name, **config}, "action": "create"}
    return ask(f"consumer add {stream} {name}", f"CONSUMER.CREATE.{stream}.{name}", body)


def following(title: str, stream: str, name: str) -> Call:
    """`consumer next`: one message, for which it waits."""
    return ask(title, f"CONSUMER.MSG.NEXT.{stream}.{name}", {"batch": 1, "expires": 5 * SECOND})


ORDERS_CONFIG = {
    "name": "ORDERS",
    "subjects": ["ORDERS.*"],
    "retention": "limits",
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": YEAR,
    "max_msg_size": -1,
    "storage": "file",
    "discard": "old",
    "num_replicas": 1,
}
WORK = {"ack_policy": "explicit", "deliver_policy": "all", "max_deliver": 20, "replay_policy": "instant"}
ORDERS: tuple[Step, ...] = (
    ask("stream add ORDERS", "STREAM.CREATE.ORDERS", ORDERS_CONFIG),
    add("ORDERS", "NEW", filter_subject="ORDERS.received", sample_freq="100", **WORK),
    add("ORDERS", "DISPATCH", filter_subject="ORDERS.processed", sample_freq="100", **WORK),
    Subscribe(name="monitor", subject="monitor.ORDERS"),
    Subscribe(name="metrics", subject="$JS.EVENT.METRIC.CONSUMER.ACK.ORDERS.>"),
    add(
        "ORDERS",
        "MONITOR",
        deliver_subject="monitor.ORDERS",
        ack_policy="none",
        deliver_policy="last",
        replay_policy="instant",
    ),
    ask("stream ls", "STREAM.NAMES"),
    ask("consumer ls ORDERS", "CONSUMER.NAMES.ORDERS"),
    Call(name="req ORDERS.received", subject="ORDERS.received", payload=b"order 1"),
    Call(name="req another", subject="ORDERS.received", payload=b"order 2"),
    Expect(name="the monitor sees both", of="monitor", count=2),
    following("consumer next ORDERS NEW", "ORDERS", "NEW"),
    Ack(name="it is received", of="consumer next ORDERS NEW", payload=b"", replies=1),
    Expect(name="how long that took", of="metrics", count=1),
    Call(name="req ORDERS.processed", subject="ORDERS.processed", payload=b"order 1"),
    Expect(name="the monitor sees it", of="monitor", count=1),
    following("consumer next ORDERS DISPATCH", "ORDERS", "DISPATCH"),
    Ack(name="in progress", of="consumer next ORDERS DISPATCH", payload=b"+WPI", replies=1),
    Ack(name="not now", of="consumer next ORDERS DISPATCH", payload=b"-NAK", replies=1),
    following("it comes again", "ORDERS", "DISPATCH"),
    Ack(name="it is dispatched", of="it comes again", payload=b"+ACK", replies=1),
    Expect(name="how long that took too", of="metrics", count=1),
    Call(name="req ORDERS.completed", subject="ORDERS.completed", payload=b"order 1"),
    Expect(name="the monitor sees the end", of="monitor", count=1),
    following("the second order", "ORDERS", "NEW"),
    Ack(name="acknowledge and ask for more", of="the second order", payload=b"+NXT", replies=0),
    *(ask(f"consumer info ORDERS {name}", f"CONSUMER.INFO.ORDERS.{name}") for name in ("NEW", "DISPATCH", "MONITOR")),
    ask("stream info ORDERS", "STREAM.INFO.ORDERS"),
    ask("stream get ORDERS 3", "STREAM.MSG.GET.ORDERS", {"seq": 3}),
    ask("stream rmm ORDERS 1", "STREAM.MSG.DELETE.ORDERS", {"seq": 1}),
    ask("stream edit ORDERS", "STREAM.UPDATE.ORDERS", ORDERS_CONFIG | {"max_msgs": 100}),
    ask("stream cp ORDERS ARCHIVE", "STREAM.CREATE.ARCHIVE", ORDERS_CONFIG | {"name": "ARCHIVE", "subjects": ["A.*"]}),
    ask("stream purge ORDERS", "STREAM.PURGE.ORDERS"),
    ask("consumer rm ORDERS NEW", "CONSUMER.DELETE.ORDERS.NEW"),
    ask("stream rm ORDERS", "STREAM.DELETE.ORDERS"),
    ask("account info", "INFO"),
)
LINES = 20
SHIPPER: tuple[Step, ...] = (
    ask(
        "stream add LOGS",
        "STREAM.CREATE.LOGS",
        {"name": "LOGS", "subjects": ["logs.>"], "max_age": 24 * 3600 * SECOND, "storage": "file", "discard": "old"},
    ),
    *(
        Call(name=f"line {number}", subject=f"logs.host{number % 2}.app", payload=b"line %d" % number)
        for number in range(LINES)
    ),
    Subscribe(name="shipper", subject="ship.host0"),
    add(
        "LOGS",
        "SHIP",
        deliver_subject="ship.host0",
        filter_subject="logs.host0.>",
        ack_policy="all",
        deliver_policy="all",
        replay_policy="instant",
    ),
    Expect(name="the lines of a host", of="shipper", count=LINES // 2),
    Ack(name="the last of them for all", of="the lines of a host", position=LINES // 2 - 1, replies=1),
    ask("what is shipped", "CONSUMER.INFO.LOGS.SHIP"),
    add("LOGS", "TAIL", ack_policy="none", deliver_policy="last_per_subject", filter_subject="logs.>"),
    ask("the last line of each host", "CONSUMER.MSG.NEXT.LOGS.TAIL", {"batch": 2, "no_wait": True}, replies=2),
    add("LOGS", "PULL", ack_policy="all", deliver_policy="by_start_sequence", opt_start_seq=11),
    ask("ten at a time", "CONSUMER.MSG.NEXT.LOGS.PULL", {"batch": 10, "no_wait": True}, replies=10),
    Ack(name="ack the last", of="ten at a time", position=9, replies=1),
    ask("nothing is left", "CONSUMER.INFO.LOGS.PULL"),
    ask("lines by host", "STREAM.INFO.LOGS", {"subjects_filter": "logs.>"}),
    ask("purge a host", "STREAM.PURGE.LOGS", {"filter": "logs.host1.>", "keep": 2}),
    ask("what is kept", "STREAM.INFO.LOGS", {"subjects_filter": "logs.>"}),
)

SCENES = (
    Scene(name="walk-throughs/orders", steps=ORDERS),
    Scene(name="walk-throughs/log shipper", steps=SHIPPER),
)
