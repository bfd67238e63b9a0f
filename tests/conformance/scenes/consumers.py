"""Consumer management: create in all its forms, update, info, names, list, pause, delete; where a consumer starts."""

from typing import Any

from tests.conformance.steps import Call, Scene, Step, Until, consumer, messages, stream

API = "$JS.API.CONSUMER"
FIVE = ("1", "2", "3", "4", "5")


def create(title: str, name: str, *, on: str = "C", request: dict[str, Any] | None = None, **config: Any) -> Call:
    """A create under test on the new-style subject."""
    body = {"stream_name": on, "config": {"name": name, "ack_policy": "explicit", **config}, **(request or {})}
    return Call(name=title, subject=f"{API}.CREATE.{on}.{name}", payload=body)


def next_of(name: str, title: str, *, on: str = "C", batch: int = 1, replies: int = 1) -> Call:
    """What the consumer hands out first."""
    return Call(
        name=title, subject=f"{API}.MSG.NEXT.{on}.{name}", payload={"batch": batch, "no_wait": True}, replies=replies
    )


LIFE: tuple[Step, ...] = (
    Call(name="names without stream", subject=f"{API}.NAMES.C"),
    Call(name="info without stream", subject=f"{API}.INFO.C.d"),
    create("create without stream", "d", durable_name="d"),
    stream("C"),
    *messages("c.a", *FIVE),
    Call(name="names of none", subject=f"{API}.NAMES.C"),
    Call(name="list of none", subject=f"{API}.LIST.C"),
    Call(name="info of none", subject=f"{API}.INFO.C.d"),
    Call(name="delete of none", subject=f"{API}.DELETE.C.d"),
    create("durable", "d", durable_name="d"),
    create("durable again, same", "d", durable_name="d"),
    create("durable again, action create", "d", durable_name="d", request={"action": "create"}),
    create("durable again, action create, other", "d", durable_name="d", ack_wait=10**9, request={"action": "create"}),
    create("update of none", "u", durable_name="u", request={"action": "update"}),
    create("action unknown", "u", durable_name="u", request={"action": "replace"}),
    create("update", "d", durable_name="d", description="new", max_deliver=5, request={"action": "update"}),
    create("update of the deliver policy", "d", durable_name="d", deliver_policy="last"),
    create("update of the ack policy", "d", durable_name="d", ack_policy="none"),
    create("update of max_waiting", "d", durable_name="d", max_waiting=7),
    create("update to push", "d", durable_name="d", deliver_subject="x"),
    create("update of the filter", "d", durable_name="d", filter_subject="c.a"),
    create("named ephemeral", "e", inactive_threshold=60 * 10**9),
    Call(
        name="unnamed ephemeral",
        subject=f"{API}.CREATE.C",
        payload={"stream_name": "C", "config": {"ack_policy": "explicit"}},
        capture={"eph": "name"},
    ),
    Call(name="info of the unnamed", subject=f"{API}.INFO.C.<eph>"),
    Call(name="delete the unnamed", subject=f"{API}.DELETE.C.<eph>"),
    Call(
        name="legacy durable",
        subject=f"{API}.DURABLE.CREATE.C.l",
        payload={"stream_name": "C", "config": {"durable_name": "l", "ack_policy": "explicit"}},
    ),
    Call(
        name="legacy durable, names differ",
        subject=f"{API}.DURABLE.CREATE.C.l",
        payload={"stream_name": "C", "config": {"durable_name": "m", "ack_policy": "explicit"}},
    ),
    Call(
        name="legacy durable without name",
        subject=f"{API}.DURABLE.CREATE.C.l",
        payload={"stream_name": "C", "config": {"ack_policy": "explicit"}},
    ),
    Call(
        name="ephemeral subject with a durable name",
        subject=f"{API}.CREATE.C",
        payload={"stream_name": "C", "config": {"durable_name": "l", "ack_policy": "explicit"}},
    ),
    Call(name="names", subject=f"{API}.NAMES.C"),
    Call(name="names with offset", subject=f"{API}.NAMES.C", payload={"offset": 2}),
    Call(name="list", subject=f"{API}.LIST.C"),
    Call(name="info", subject=f"{API}.INFO.C.d"),
    Call(name="stream counts consumers", subject="$JS.API.STREAM.INFO.C"),
    Call(name="pause", subject=f"{API}.PAUSE.C.d", payload={"pause_until": "2199-01-01T00:00:00Z"}),
    Call(name="info when paused", subject=f"{API}.INFO.C.d"),
    Call(name="resume", subject=f"{API}.PAUSE.C.d"),
    Call(name="pause of none", subject=f"{API}.PAUSE.C.none", payload={"pause_until": "2199-01-01T00:00:00Z"}),
    Call(name="delete", subject=f"{API}.DELETE.C.d"),
    Call(name="delete again", subject=f"{API}.DELETE.C.d"),
    Call(name="next of a deleted one", subject=f"{API}.MSG.NEXT.C.d"),
)
CONFIGS: tuple[Step, ...] = (
    stream("C", ["c.>"]),
    create("defaults", "a"),
    create("ack none", "b", ack_policy="none"),
    create("ack all", "c", ack_policy="all"),
    create("ack unknown", "x", ack_policy="some"),
    create("deliver unknown", "x", deliver_policy="some"),
    create("replay unknown", "x", replay_policy="fast"),
    create("filter in the subject only", "x1"),
    Call(
        name="filter in subject and config",
        subject=f"{API}.CREATE.C.f.c.a",
        payload={"stream_name": "C", "config": {"name": "f", "filter_subject": "c.a", "ack_policy": "explicit"}},
    ),
    Call(
        name="filter in subject differs",
        subject=f"{API}.CREATE.C.f2.c.a",
        payload={"stream_name": "C", "config": {"name": "f2", "filter_subject": "c.b", "ack_policy": "explicit"}},
    ),
    create("two filters", "g", filter_subjects=["c.a", "c.b"]),
    create("one of filters", "g1", filter_subjects=["c.a"]),
    create("both forms of filters", "x", filter_subject="c.a", filter_subjects=["c.b"]),
    create("overlapping filters", "x", filter_subjects=["c.*", "c.a"]),
    create("empty filter in a list", "x", filter_subjects=["", "c.a"]),
    create("filter outside of the stream", "h", filter_subject="other"),
    create("invalid filter", "x", filter_subject="c..a"),
    create("by sequence without one", "x", deliver_policy="by_start_sequence"),
    create("sequence without policy", "x", opt_start_seq=5),
    create("by time without one", "x", deliver_policy="by_start_time"),
    create("time without policy", "x", opt_start_time="2024-01-01T00:00:00Z"),
    create("last per subject without filter", "i", deliver_policy="last_per_subject"),
    create("backoff", "j", backoff=[10**9, 2 * 10**9], max_deliver=5),
    create("backoff longer than max_deliver", "x", backoff=[10**9] * 3, max_deliver=2),
    create("negative ack_wait", "x", ack_wait=-1),
    create("max_waiting on pull", "k", max_waiting=1),
    create("max_batch and friends", "m", max_batch=10, max_expires=10**9, max_bytes=1000),
    create("max_ack_pending", "n", max_ack_pending=2),
    create("max_ack_pending without acks", "n2", ack_policy="none", max_ack_pending=2),
    create("replicas 3 on one node", "x", num_replicas=3),
    create("replicas 1", "o", num_replicas=1),
    create("replicas negative", "x", num_replicas=-1),
    create("memory", "p", mem_storage=True),
    create("headers only", "q", headers_only=True),
    create("sample", "r", sample_freq="50%"),
    create("sample bad", "x", sample_freq="often"),
    create("rate limit on pull", "x", rate_limit_bps=1000),
    create("heartbeat on pull", "x", idle_heartbeat=10**9),
    create("flow control on pull", "x", flow_control=True),
    create("deliver group on pull", "x", deliver_group="g"),
    create("description too long", "x", description="y" * 5000),
    create("metadata", "s", metadata={"k": "v"}),
    create("durable name differs", "t", durable_name="u"),
    create("stream name differs", "x", request={"stream_name": "D"}),
    create("stream name missing", "x2", request={"stream_name": ""}),
    create("inactive threshold", "v", durable_name="v", inactive_threshold=10**9 * 60),
    create("paused", "w", pause_until="2199-01-01T00:00:00Z"),
    create("paused beyond 64 bits", "w9", pause_until="9999-12-31T23:59:59Z"),
    create("start beyond 64 bits", "s9", deliver_policy="by_start_time", opt_start_time="9999-12-31T23:59:59Z"),
    create("priority group", "y", priority_policy="overflow", priority_groups=["A"]),
    create("priority without group", "x", priority_policy="overflow"),
    create("priority unknown", "x", priority_policy="x", priority_groups=["A"]),
    create("direct", "x", direct=True),
    Call(name="no config", subject=f"{API}.CREATE.C.none", payload={"stream_name": "C"}),
    Call(name="empty", subject=f"{API}.CREATE.C.none"),
    stream("W", ["w.>"], retention="workqueue"),
    create("workqueue", "a", on="W", durable_name="a"),
    create("second unfiltered on a workqueue", "b", on="W", durable_name="b"),
    create("workqueue without acks", "c", on="W", durable_name="c", ack_policy="none"),
    create("workqueue deliver new", "d", on="W", durable_name="d", deliver_policy="new"),
    stream("MC", ["mc.>"], max_consumers=1),
    create("first of one", "a", on="MC"),
    create("second of one", "b", on="MC"),
)
STARTS: tuple[Step, ...] = (
    stream("C"),
    *messages("c.a", "1", "2"),
    *messages("c.b", "3", "4"),
    *messages("c.a", "5"),
    create("all", "all"),
    next_of("all", "first of all"),
    create("last", "last", deliver_policy="last"),
    next_of("last", "first of last"),
    create("last filtered", "lastb", deliver_policy="last", filter_subject="c.b"),
    next_of("lastb", "first of last filtered"),
    create("new", "new", deliver_policy="new"),
    next_of("new", "first of new"),
    create("by sequence", "seq", deliver_policy="by_start_sequence", opt_start_seq=3),
    next_of("seq", "first by sequence"),
    create("by sequence in the future", "fut", deliver_policy="by_start_sequence", opt_start_seq=50),
    next_of("fut", "first in the future"),
    create("by time long ago", "old", deliver_policy="by_start_time", opt_start_time="2001-01-01T00:00:00Z"),
    next_of("old", "first by time"),
    create("by time to come", "later", deliver_policy="by_start_time", opt_start_time="2199-01-01T00:00:00Z"),
    next_of("later", "first by time to come"),
    create("last per subject", "lps", deliver_policy="last_per_subject", filter_subject="c.*"),
    next_of("lps", "last of each", batch=5, replies=3),
    create("filtered", "fb", filter_subject="c.b"),
    next_of("fb", "both of b", batch=5, replies=3),
    create("two filters", "two", filter_subjects=["c.a", "c.b"]),
    next_of("two", "five of two filters", batch=10, replies=6),
    Call(name="pending after it", subject=f"{API}.INFO.C.two"),
    *messages("c.a", "6"),
    # The reference acknowledges before its consumers have heard of the message.
    Until(name="new has heard of it", subject=f"{API}.INFO.C.new", field="num_pending", value=1),
    next_of("new", "new one for new"),
    Call(name="info of new", subject=f"{API}.INFO.C.new"),
    Call(name="purge", subject="$JS.API.STREAM.PURGE.C"),
    Call(name="info after a purge", subject=f"{API}.INFO.C.all"),
    next_of("all", "nothing after a purge"),
)
RETENTION: tuple[Step, ...] = (
    stream("W", ["w.>"], retention="workqueue"),
    *messages("w.a", "1", "2", "3"),
    consumer("W", "d"),
    next_of("d", "take two", on="W", batch=2, replies=2),
    Call(name="nothing removed before the ack", subject="$JS.API.STREAM.INFO.W"),
)

SCENES = (
    Scene(name="consumers/life", steps=LIFE),
    Scene(name="consumers/configurations", steps=CONFIGS),
    Scene(name="consumers/starts", steps=STARTS),
    Scene(name="consumers/workqueue", steps=RETENTION),
)
