"""Messages that are schedules: what is refused, what they produce, how they end."""

from tests.conformance.scenes.rewriting import publish, stored
from tests.conformance.scenes.ttl import last
from tests.conformance.steps import Call, Scene, Step, Until, stream

SCHEDULE, TARGET, NEXT = "Nats-Schedule", "Nats-Schedule-Target", "Nats-Schedule-Next"
FAR = "@at 2099-01-01T00:00:00Z"
PAST = "@at 2020-01-01T00:00:00Z"
Given = tuple[str, tuple[tuple[str, str], ...]]


def schedule(
    name: str, subject: str, pattern: str, target: str, *headers: tuple[str, str], payload: bytes = b"x"
) -> Call:
    """A publish of a schedule."""
    return publish(name, subject, (SCHEDULE, pattern), (TARGET, target), *headers, payload=payload)


PATTERNS = (
    "", "@at", "@at ", "@at x", "@at 2099-01-01T00:00:00", FAR, "@at 2099-01-01T00:00:00.5Z",
    "@at 2099-01-01T00:00:00+02:00", "@every", "@every x", "@every 999ms", "@every 24h", "@every 90.5m",
    "@every -5s", "@every 3000000h", "@daily", "@DAILY", "@hourly", "@weekly", "@monthly", "@yearly",
    "@annually", "@midnight", "@reboot", "* * * * *", "0 0 0 1 1 *", "* * * * * * *", "60 * * * * *",
    "0 */5 1 * * *", "0 0/5 2 * * *", "0 0-10/3 3 * * *", "10-5 * * * * *", "1,2,3 0 0 1 * *", "* * 24 * * *",
    "* * * 0 * *", "* * * 32 * *", "0 0 0 31 feb *", "0 0 0 30 2 *", "0 0 0 1 JAN-mar *", "0 0 0 * * sun",
    "0 0 0 * * 7", "0 0 0 * * SUN-SAT", "0 0 0 * * mon,wed", "? 0 0 * * ?", "*/0 * * * * *", "0 */70 0 * * *",
    "a * * * * *", "  0 0 0 * * *", "0  0 0 * * *", "CRON_TZ=UTC 0 0 0 * * *", "-1 * * * * *", "1- * * * * *",
    "1, 0 0 * * *", "*-5 0 0 * * *", "0 0 0 L * *", "0 0 0 29 2 *", "+5 0 0 * * *", "*,5 0 0 * * *",
    "5/ * * * * *", "5/2/2 * * * * *", "1-2-3 * * * * *", "01 0 0 * * *", "*/5,1 0 0 * * *", "0 0 0 * foo *",
    "0 0 0 * * foo",
)  # fmt: skip

HEADERS: tuple[Given, ...] = (
    *(("s.a", ((SCHEDULE, FAR), (TARGET, target)))
      for target in ("", "s.a", "s.b", "n.x", "s.*", "s.>", "s..b", "s.b c", "s")),
    ("s.a", ((SCHEDULE, FAR),)),
    *(("s.a", ((SCHEDULE, FAR), (TARGET, "s.t"), ("Nats-Schedule-Source", source)))
      for source in ("", "s.a", "s.t", "s.src", "s.*", "s.>", "s..b", "s.b c", "x.y")),
    *(("s.a", ((SCHEDULE, FAR), (TARGET, "s.t"), ("Nats-Schedule-TTL", ttl)))
      for ttl in ("", "1", "0", "x", "never", "500ms", "5m")),
    *(("n.a", ((SCHEDULE, FAR), (TARGET, "n.t"), ("Nats-Schedule-TTL", ttl))) for ttl in ("", "5m", "x")),
    *(("s.a", ((SCHEDULE, FAR), (TARGET, "s.t"), (header, rollup)))
      for rollup in ("", "sub", "all", "SUB", "x") for header in ("Nats-Rollup", "Nats-Schedule-Rollup")),
    *(("s.a", ((SCHEDULE, pattern), (TARGET, "s.t"), ("Nats-Schedule-Time-Zone", zone)))
      for zone in ("", "UTC", "Europe/Amsterdam", "x/y", "utc", "+02:00", "../UTC")
      for pattern in ("0 0 5 * * *", FAR, "@daily", "@every 5h", "x")),
    ("s.a", ((SCHEDULE, "x"), (TARGET, "s.*"), ("Nats-Schedule-TTL", "x"))),
    ("s.a", ((SCHEDULE, FAR), (TARGET, "s.*"), ("Nats-Schedule-TTL", "x"), ("Nats-Rollup", "all"))),
    ("s.a", ((SCHEDULE, FAR), (TARGET, "s.*"), ("Nats-Schedule-Source", "s.*"), ("Nats-Rollup", "all"))),
    ("s.a", ((SCHEDULE, FAR), (TARGET, "s.t"), ("Nats-Schedule-Source", "s.*"), ("Nats-Rollup", "all"))),
    ("s.a", ((SCHEDULE, FAR), (TARGET, "n.t"), ("Nats-Schedule-Source", "s.*"), ("Nats-Schedule-Rollup", "x"))),
    ("s.a", ((SCHEDULE, FAR), (TARGET, "n.t"), ("Nats-Schedule-Source", "s.*"))),
    ("s.a", ((SCHEDULE, FAR), (TARGET, "n.t"), ("Nats-Rollup", "all"))),
    ("n.a", ((SCHEDULE, FAR), (TARGET, "n.*"), ("Nats-Schedule-TTL", "5m"))),
    ("n.a", ((SCHEDULE, FAR), (TARGET, "n.*"), ("Nats-Schedule-TTL", "5m"), ("Nats-Schedule-Rollup", "x"))),
    ("s.a", ((SCHEDULE, FAR), (TARGET, "s.t"), ("Nats-Stream-Source", "x"))),
    ("s.a", ((SCHEDULE, "x"), (TARGET, "s.t"), ("Nats-Stream-Source", "x"))),
    ("s.a", ((SCHEDULE, "x"), (TARGET, "s.t"), ("Nats-Expected-Last-Sequence", "9999"))),
    ("s.a", ((SCHEDULE, "x"), (TARGET, "s.t"), ("Nats-Expected-Stream", "T"))),
    ("s.a", ((SCHEDULE, "x"), (TARGET, "s.t"), ("Nats-Expected-Last-Msg-Id", "T"))),
    ("s.a", ((SCHEDULE, "x"), (TARGET, "s.t"), ("Nats-Incr", "1"))),
    ("s.a", ((SCHEDULE, FAR), (TARGET, "s.t"), ("Nats-Msg-Id", "i"))),
    ("s.a", ((SCHEDULE, FAR), (TARGET, "s.t"), ("Nats-Msg-Id", "i"))),
    ("s.a", ((SCHEDULE, "x"), (TARGET, "s.t"), ("Nats-Msg-Id", "i"))),
    ("x.a", ((SCHEDULE, "x"), (TARGET, "s.t"))),
    ("x.a", ((SCHEDULE, ""), (TARGET, "s.t"))),
    ("x.a", ((SCHEDULE, FAR), (TARGET, "s.*"), ("Nats-Schedule-TTL", "x"))),
    ("x.a", ((TARGET, "s.a"),)),
)  # fmt: skip

SCHEDULER = "Nats-Scheduler"
ENDINGS: tuple[Given, ...] = (
    *(("s.x", ((SCHEDULER, scheduler),)) for scheduler in ("s.far", "s.none", "s.*", "")),
    *(("s.x", ((NEXT, following),)) for following in ("purge", "x", "2099-01-01T00:00:00Z", "")),
    *(("s.x", ((SCHEDULER, "s.far"), (NEXT, following))) for following in ("x", "2098-01-01T00:00:00Z", "", "PURGE")),
    *(("s.x", ((SCHEDULER, scheduler), (NEXT, "purge")))
      for scheduler in ("s.none", "s.*", "q.a", "s.x", "", "s.x x", "s.>")),
    ("s.x", ((SCHEDULER, "s.*"), (NEXT, "purge"), ("Nats-Stream-Source", "x"))),
    ("s.x", ((SCHEDULER, "s.*"), (NEXT, "purge"), ("Nats-Expected-Last-Sequence", "999"))),
    ("s.x", ((SCHEDULER, "s.*"), (NEXT, "purge"), ("Nats-Expected-Last-Msg-Id", "x"))),
    ("s.x", ((SCHEDULER, "s.*"), (NEXT, "purge"), ("Nats-Incr", "x"))),
    ("s.x", ((SCHEDULE, "x"), (TARGET, "s.t"), (SCHEDULER, "s.*"))),
    ("s.x", ((SCHEDULE, FAR), (TARGET, "s.t"), (SCHEDULER, "s.*"))),
    ("x.a", ((SCHEDULER, "s.a"),)),
    ("x.a", ((NEXT, "purge"),)),
    ("x.a", ((SCHEDULER, "s.a"), (NEXT, "purge"))),
    ("x.a", ((SCHEDULE, "x"), (SCHEDULER, "s.*"), (NEXT, "purge"))),
)  # fmt: skip

CHECKS: tuple[Step, ...] = (
    stream("S", allow_msg_schedules=True, allow_msg_ttl=True),
    stream("N", allow_msg_schedules=True),
    stream("X"),
    *(schedule(f"pattern {pattern!r}", "s.a", pattern, "s.t") for pattern in PATTERNS),
    *(publish(f"{number}: {subject} with {given}", subject, *given) for number, (subject, given) in enumerate(HEADERS)),
    last("stored with a rollup", "S", "s.a"),
)

ENDS: tuple[Step, ...] = (
    stream("S", allow_msg_schedules=True, allow_msg_ttl=True),
    stream("X"),
    schedule("far", "s.far", FAR, "s.t"),
    *(publish(f"{number}: {subject} with {given}", subject, *given) for number, (subject, given) in enumerate(ENDINGS)),
    last("it is still there", "S", "s.far"),
    publish("ended by a message", "s.x", (SCHEDULER, "s.far"), (NEXT, "purge")),
    last("it is gone", "S", "s.far"),
    schedule("far again", "s.far", FAR, "s.t"),
    schedule("a schedule ends another", "s.y", FAR, "s.t", (SCHEDULER, "s.far"), (NEXT, "purge")),
    last("it is gone again", "S", "s.far"),
    last("the other is there", "S", "s.y"),
    Call(
        name="no longer with schedules",
        subject="$JS.API.STREAM.UPDATE.S",
        payload={"name": "S", "subjects": ["s.>"], "storage": "file", "allow_msg_ttl": True},
    ),
    Call(name="info", subject="$JS.API.STREAM.INFO.S", payload={"subjects_filter": ">"}),
)

FIRING: tuple[Step, ...] = (
    stream("S", allow_msg_schedules=True, allow_msg_ttl=True),
    publish("source", "s.src", ("Kept", "1"), ("Nats-TTL", "1h"), ("Nats-Msg-Id", "q"), payload=b"source"),
    schedule(
        "past",
        "s.1",
        PAST,
        "s.t1",
        ("Kept", "1"),
        ("Nats-Msg-Id", "z"),
        ("Nats-Schedule-TTL", "1h"),
        ("Nats-Expected-Stream", "S"),
        payload=b"one",
    ),
    Until(name="1 has fired", subject="$JS.API.STREAM.INFO.S", field="state.last_seq", value=3),
    last("1 produced", "S", "s.t1"),
    last("1 is gone", "S", "s.1"),
    schedule("with a rollup", "s.2", PAST, "s.t1", ("Nats-Schedule-Rollup", "sub"), payload=b"two"),
    Until(name="2 has fired", subject="$JS.API.STREAM.INFO.S", field="state.last_seq", value=5),
    last("2 produced", "S", "s.t1"),
    stored("2 rolled up", "S", 3),
    schedule("of a source", "s.3", PAST, "s.t3", ("Nats-Schedule-Source", "s.src"), payload=b"three"),
    Until(name="3 has fired", subject="$JS.API.STREAM.INFO.S", field="state.last_seq", value=7),
    last("3 produced", "S", "s.t3"),
    schedule("of no source", "s.4", PAST, "s.t4", ("Nats-Schedule-Source", "s.none"), payload=b"four"),
    Until(name="4 has fired", subject="$JS.API.STREAM.INFO.S", field="state.last_seq", value=9),
    last("4 produced", "S", "s.t4"),
    schedule("a schedule as source", "s.5", FAR, "s.t5", ("Kept", "1"), payload=b"five"),
    schedule("of a schedule", "s.6", PAST, "s.t6", ("Nats-Schedule-Source", "s.5"), payload=b"six"),
    Until(name="6 has fired", subject="$JS.API.STREAM.INFO.S", field="state.last_seq", value=12),
    last("6 produced", "S", "s.t6"),
    schedule("again and again", "s.7", "@every 1s", "s.t7", payload=b"seven"),
    Until(name="7 has fired twice", subject="$JS.API.STREAM.INFO.S", field="state.last_seq", value=15),
    publish("plain in its place", "s.7"),
    stored("7 is still there", "S", 13),
    schedule("every second", "s.8", "* * * * * *", "s.t8", payload=b"eight"),
    Until(name="8 has fired", subject="$JS.API.STREAM.INFO.S", field="state.last_seq", value=18),
    Call(name="8 is purged", subject="$JS.API.STREAM.PURGE.S", payload={"filter": "s.8"}),
    schedule("last", "s.9", PAST, "s.t9"),
    Until(name="9 has fired", subject="$JS.API.STREAM.INFO.S", field="state.last_seq", value=20),
    stream("M", ["m.>", "k.>"], allow_msg_schedules=True, subject_transform={"src": "m.*", "dest": "k.$1"}),
    schedule("mapped", "m.a", PAST, "m.t"),
    schedule("its target is mapped to its subject", "m.b", FAR, "k.b"),
    Until(name="it has fired", subject="$JS.API.STREAM.INFO.M", field="state.last_seq", value=2),
    stored("mapped twice", "M", 2),
)

SCENES = (
    Scene(name="schedules/checks", steps=CHECKS),
    Scene(name="schedules/ends", steps=ENDS),
    Scene(name="schedules/firing", steps=FIRING),
)
