"""Backups: the answers, and what is refused. The archives themselves are compared in tests/cluster/backup."""

from tests.conformance.steps import Call, Expect, Scene, Step, Subscribe, messages, stream

SNAPSHOT = "$JS.API.STREAM.SNAPSHOT.S"
RESTORE = "$JS.API.STREAM.RESTORE.S"
CONFIG = {"name": "S", "subjects": ["s.>"]}
STATE = {"messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0, "consumer_count": 0}


def upload(name: str, *chunks: bytes) -> list[Call]:
    """A restore with these chunks; the empty one that ends it is added."""
    begun = Call(
        name=name,
        subject=RESTORE,
        payload={"config": CONFIG, "state": STATE},
        capture={f"to {name}": "deliver_subject"},
    )
    sent = [
        Call(name=f"{name}: chunk {number}", subject=f"<to {name}>", payload=chunk)
        for number, chunk in enumerate((*chunks, b""))
    ]
    return [begun, *sent]


TAKEN: tuple[Step, ...] = (
    Call(name="of none", subject=SNAPSHOT, payload={"deliver_subject": "d"}),
    stream("S"),
    *messages("s.1", "a", "b"),
    Call(name="no body", subject=SNAPSHOT),
    Call(name="nothing asked", subject=SNAPSHOT, payload={}),
    Call(name="not JSON", subject=SNAPSHOT, payload=b"x"),
    Call(name="no subject", subject=SNAPSHOT, payload={"deliver_subject": ""}),
    Call(name="wildcard", subject=SNAPSHOT, payload={"deliver_subject": "d.*"}),
    Call(name="unknown field", subject=SNAPSHOT, payload={"deliver_subject": "d", "no": 1}),
    Call(name="nobody listens", subject=SNAPSHOT, payload={"deliver_subject": "nobody"}),
    Call(
        name="with all fields",
        subject=SNAPSHOT,
        payload={"deliver_subject": "nobody", "no_consumers": True, "chunk_size": 5, "window_size": 5, "jsck": True},
    ),
)

PUT: tuple[Step, ...] = (
    Call(name="no body", subject=RESTORE),
    Call(name="nothing", subject=RESTORE, payload={}),
    Call(name="not JSON", subject=RESTORE, payload=b"x"),
    Call(name="another name", subject=RESTORE, payload={"config": {"name": "T"}, "state": STATE}),
    Call(name="bad config", subject=RESTORE, payload={"config": {**CONFIG, "max_age": 1}, "state": STATE}),
    *upload("nothing sent"),
    *upload("garbage", b"x" * 3000),
    *upload("cut off", b"\xff\x06\x00\x00S2sTwO\x00"),
    Call(name="no stream is left", subject="$JS.API.STREAM.NAMES"),
    stream("S"),
    Call(name="in use", subject=RESTORE, payload={"config": CONFIG, "state": STATE}),
)

SILENT: tuple[Step, ...] = (
    stream("S"),
    *messages("s.1", "a"),
    Subscribe(name="receiver", subject="receiver"),
    Call(name="no one", subject=SNAPSHOT, payload={"deliver_subject": "nobody"}),
    Expect(name="nothing for the receiver", of="receiver", count=0),
)

SCENES = (
    Scene(name="backup/snapshots", steps=TAKEN),
    Scene(name="backup/restores", steps=PUT),
    Scene(name="backup/silence", steps=SILENT),
)
