"""What a key-value bucket asks of its stream, step by step as the clients do it."""

from tests.conformance.steps import Call, Scene, Step

BUCKET = {
    "name": "KV_B",
    "subjects": ["$KV.B.>"],
    "max_msgs_per_subject": 3,
    "discard": "new",
    "allow_rollup_hdrs": True,
    "deny_delete": True,
    "allow_direct": True,
    "num_replicas": 1,
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "duplicate_window": 120_000_000_000,
}
FRESH = (("Nats-Expected-Last-Subject-Sequence", "0"),)
STEPS: tuple[Step, ...] = (
    Call(name="bucket", subject="$JS.API.STREAM.CREATE.KV_B", payload=BUCKET),
    Call(name="create", subject="$KV.B.k", payload=b"1", headers=FRESH),
    Call(name="create again", subject="$KV.B.k", payload=b"2", headers=FRESH),
    Call(
        name="update",
        subject="$KV.B.k",
        payload=b"2",
        headers=(("Nats-Expected-Last-Subject-Sequence", "1"),),
    ),
    Call(
        name="update of an old revision",
        subject="$KV.B.k",
        payload=b"3",
        headers=(("Nats-Expected-Last-Subject-Sequence", "1"),),
    ),
    Call(name="get", subject="$JS.API.DIRECT.GET.KV_B.$KV.B.k"),
    Call(name="get of none", subject="$JS.API.DIRECT.GET.KV_B.$KV.B.none"),
    Call(name="delete", subject="$KV.B.k", headers=(("KV-Operation", "DEL"),)),
    Call(name="get deleted", subject="$JS.API.DIRECT.GET.KV_B.$KV.B.k"),
    Call(name="put 1", subject="$KV.B.h", payload=b"1"),
    Call(name="put 2", subject="$KV.B.h", payload=b"2"),
    Call(name="put 3", subject="$KV.B.h", payload=b"3"),
    Call(name="put 4", subject="$KV.B.h", payload=b"4"),
    Call(
        name="watch",
        subject="$JS.API.CONSUMER.CREATE.KV_B.w",
        payload={
            "stream_name": "KV_B",
            "config": {
                "name": "w",
                "deliver_policy": "last_per_subject",
                "ack_policy": "none",
                "max_deliver": 1,
                "mem_storage": True,
                "num_replicas": 1,
                "filter_subject": "$KV.B.>",
                "inactive_threshold": 300_000_000_000,
            },
        },
    ),
    Call(
        name="watched",
        subject="$JS.API.CONSUMER.MSG.NEXT.KV_B.w",
        payload={"batch": 10, "no_wait": True},
        replies=3,
    ),
    Call(name="purge", subject="$KV.B.h", headers=(("KV-Operation", "PURGE"), ("Nats-Rollup", "sub"))),
    Call(name="status", subject="$JS.API.STREAM.INFO.KV_B", payload={"subjects_filter": ">"}),
)

SCENES = (Scene(name="kv/bucket", steps=STEPS),)
