"""Messages that expire, and the markers that take the place of the last one of a subject."""

from tests.conformance.steps import Call, Scene, Step, Until, stream

SECOND = 1_000_000_000


def publish(name: str, subject: str, *headers: tuple[str, str]) -> Call:
    """An acknowledged publish with these headers."""
    return Call(name=name, subject=subject, payload=b"x", headers=headers)


def last(name: str, stream_name: str, subject: str) -> Call:
    """The last message of a subject, as the store has it."""
    return Call(name=name, subject=f"$JS.API.STREAM.MSG.GET.{stream_name}", payload={"last_by_subj": subject})


MARKERS: tuple[Step, ...] = (
    stream("T", subject_delete_marker_ttl=2 * SECOND),
    publish("not the last", "t.3", ("Nats-TTL", "1s")),
    publish("the last", "t.3"),
    publish("short", "t.1", ("Nats-TTL", "1s")),
    publish("number", "t.2", ("Other", "a"), ("Nats-TTL", "1"), ("More", "b")),
    publish("never", "t.4", ("Nats-TTL", "never")),
    publish("long", "t.5", ("Nats-TTL", "1h")),
    publish("zero", "t.6", ("Nats-TTL", "0")),
    publish("less than a second", "t.6", ("Nats-TTL", "999ms")),
    publish("fraction", "t.6", ("Nats-TTL", "1.5")),
    publish("nothing", "t.6", ("Nats-TTL", "")),
    last("lengthened", "T", "t.1"),
    last("lengthened number", "T", "t.2"),
    last("kept", "T", "t.5"),
    Until(name="markers", subject="$JS.API.STREAM.INFO.T", field="state.last_seq", value=9),
    last("marker", "T", "t.1"),
    last("marker of the number", "T", "t.2"),
    last("no marker", "T", "t.3"),
    Call(name="subjects", subject="$JS.API.STREAM.INFO.T", payload={"subjects_filter": ">", "deleted_details": True}),
    Until(name="markers expire", subject="$JS.API.STREAM.INFO.T", field="state.messages", value=4),
    Call(name="no marker of a marker", subject="$JS.API.STREAM.INFO.T", payload={"subjects_filter": ">"}),
)

AGE: tuple[Step, ...] = (
    stream("U", max_age=SECOND, subject_delete_marker_ttl=4 * SECOND),
    publish("first", "u.1"),
    publish("second", "u.1"),
    publish("third", "u.2"),
    Until(name="markers", subject="$JS.API.STREAM.INFO.U", field="state.last_seq", value=5),
    last("marker", "U", "u.1"),
)

ONE_EACH: tuple[Step, ...] = (
    stream("V", max_msgs_per_subject=1, subject_delete_marker_ttl=9 * SECOND),
    publish("first", "v.1", ("Nats-TTL", "1s")),
    publish("second", "v.1", ("Nats-TTL", "1s")),
    last("not lengthened", "V", "v.1"),
    Until(name="marker", subject="$JS.API.STREAM.INFO.V", field="state.last_seq", value=3),
    publish("over the marker", "v.1"),
    Call(name="purge leaves none", subject="$JS.API.STREAM.PURGE.V", payload={"filter": "v.1"}),
    Call(name="info", subject="$JS.API.STREAM.INFO.V"),
)

PURGES: tuple[Step, ...] = (
    stream("X", subject_delete_marker_ttl=2 * SECOND, allow_msg_ttl=True, allow_rollup_hdrs=True),
    publish("purge", "x.1", ("KV-Operation", "PURGE"), ("Nats-TTL", "2s")),
    publish("delete", "x.2", ("KV-Operation", "DEL"), ("Nats-TTL", "2s")),
    publish("purge in small letters", "x.3", ("KV-Operation", "purge"), ("Nats-TTL", "2s")),
    publish("stays", "x.4"),
    Until(name="markers", subject="$JS.API.STREAM.INFO.X", field="state.last_seq", value=6),
    Call(name="subjects", subject="$JS.API.STREAM.INFO.X", payload={"subjects_filter": ">"}),
    last("no marker of a purge", "X", "x.1"),
    last("marker of a delete", "X", "x.2"),
)

CONFIGURATIONS: tuple[Step, ...] = (
    stream("too short", ["w.>"], subject_delete_marker_ttl=SECOND // 2),
    stream("W", deny_purge=True, subject_delete_marker_ttl=SECOND),
)

SCENES = (
    Scene(name="ttl/markers", steps=MARKERS),
    Scene(name="ttl/age", steps=AGE),
    Scene(name="ttl/one each", steps=ONE_EACH),
    Scene(name="ttl/purges", steps=PURGES),
    Scene(name="ttl/configurations", steps=CONFIGURATIONS),
)
