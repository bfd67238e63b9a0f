"""Accounts: who is where, the same names in two of them, JetStream where it is enabled, and its limits."""

from tests.conformance.steps import Call, Expect, Login, Publish, Scene, Subscribe, consumer, stream

CONFIG = """
accounts {
  A { users [{user: a, password: x}], jetstream: enabled }
  B { users [{user: b, password: x}], jetstream: enabled }
  C { users [{user: c, password: x}] }
  L { users [{user: l, password: x}]
      jetstream: {max_mem: 1mb, max_file: 10mb, max_streams: 2, max_consumers: 1, max_ack_pending: 100} }
  R { users [{user: r, password: x}]
      jetstream: {max_file: 10mb, max_bytes_required: true, disk_max_stream_bytes: 2mb} }
  S { users [{user: s, password: x}] }
}
system_account: S
"""


def login(user: str) -> Login:
    return Login(name=f"login of {user}", user=user, password="x")


def ask(name: str, subject: str, payload: object = b"") -> Call:
    return Call(name=name, subject=f"$JS.API.{subject}", payload=payload)


ISOLATED = (
    login("a"),
    Subscribe(name="a listens", subject=">"),
    stream("S", ["s.>"]),
    consumer("S", "c"),
    login("b"),
    Subscribe(name="b listens", subject="s.>"),
    Publish(name="b publishes", subject="s.1", payload=b"of b"),
    Expect(name="b hears itself", of="b listens", count=1),
    Call(name="no stream in b", subject="s.1", payload=b"to nobody but b", replies=0),
    ask("names of b", "STREAM.NAMES"),
    ask("info of a's stream from b", "STREAM.INFO.S"),
    ask("pull from a's consumer from b", "CONSUMER.MSG.NEXT.S.c"),
    ask("get from a's stream from b", "DIRECT.GET.S", {"seq": 1}),
    Call(name="acknowledge in a from b", subject="$JS.ACK.S.c.1.1.1.1.0"),
    Call(name="the same stream in b", subject="$JS.API.STREAM.CREATE.S", payload={"name": "S", "subjects": ["s.>"]}),
    ask("account of b", "INFO"),
    login("c"),
    Call(name="nobody in c", subject="s.1"),
)

NOT_ENABLED = (
    login("c"),
    ask("account", "INFO"),
    ask("create", "STREAM.CREATE.S", {"name": "S"}),
    ask("names", "STREAM.NAMES"),
    ask("delete", "STREAM.DELETE.S"),
    ask("consumer", "CONSUMER.INFO.S.c"),
    ask("pull", "CONSUMER.MSG.NEXT.S.c"),
    login("s"),
    ask("account of the system", "INFO"),
)

LIMITS = (
    login("l"),
    ask("account", "INFO"),
    stream("ONE", ["one"], max_bytes=1_000_000),
    Call(name="too large", subject="$JS.API.STREAM.CREATE.BIG", payload={"name": "BIG", "max_bytes": 100_000_000}),
    Call(
        name="too large in memory",
        subject="$JS.API.STREAM.CREATE.BIG",
        payload={"name": "BIG", "max_bytes": 100_000_000, "storage": "memory"},
    ),
    stream("TWO", ["two"]),
    stream("THREE", ["three"]),
    Call(
        name="grow too much",
        subject="$JS.API.STREAM.UPDATE.ONE",
        payload={"name": "ONE", "subjects": ["one"], "max_bytes": 100_000_000},
    ),
    consumer("TWO", "c", max_ack_pending=101),
    consumer("ONE", "c"),
    consumer("ONE", "d"),
    ask("account afterwards", "INFO"),
    login("r"),
    stream("UNBOUND", ["unbound"]),
    stream("HUGE", ["huge"], max_bytes=3_000_000),
    stream("FITS", ["fits"], max_bytes=1_000_000),
    ask("account of the other", "INFO"),
)

SCENES = (
    Scene(name="accounts/isolated", steps=ISOLATED, config=CONFIG),
    Scene(name="accounts/jetstream not enabled", steps=NOT_ENABLED, config=CONFIG),
    Scene(name="accounts/limits", steps=LIMITS, config=CONFIG),
)
