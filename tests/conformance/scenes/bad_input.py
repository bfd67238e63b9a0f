"""Names, subjects and JSON that must be refused, with the answer and without a change of state."""

import json
from typing import Any

from tests.conformance.steps import Call, Scene, Step, stream

API = "$JS.API"
NAMES = {
    "space": "a b",
    "tab": "a\tb",
    "wildcard": "a*",
    "star": "*",
    "full wildcard": ">",
    "slash": "a/b",
    "backslash": "a\\b",
    "dot": "a.b",
    "nul": "a\0b",
    "newline": "a\nb",
    "256 bytes": "n" * 256,
    "255 bytes": "n" * 255,
    "control": "a\x01b",
    "unicode": "å",
    "empty": "",
}
BODIES: dict[str, Any] = {
    "empty": b"",
    "not json": b"{x",
    "array": b"[]",
    "array of objects": b"[{}]",
    "string": b'"x"',
    "number": b"5",
    "null": b"null",
    "true": b"true",
    "empty object": b"{}",
    "trailing text": b'{"name":"S","subjects":["s"]} x',
    "two objects": b'{"name":"S","subjects":["s"]}{}',
    "unknown field": {"name": "S", "subjects": ["s"], "zzz": 1},
    "unknown field, nested": {"name": "S", "subjects": ["s"], "placement": {"zzz": 1}},
    "upper case fields": {"Name": "S", "SUBJECTS": ["s2"]},
    "wrong type of name": {"name": 5},
    "wrong type of subjects": {"name": "S", "subjects": "s"},
    "wrong type in subjects": {"name": "S", "subjects": [5]},
    "wrong type of number": {"name": "S", "subjects": ["s"], "max_msgs": "many"},
    "fraction": {"name": "S", "subjects": ["s"], "max_msgs": 1.5},
    "number out of range": b'{"name":"S","subjects":["s"],"max_msgs":99999999999999999999}',
    "replicas out of range": b'{"name":"S","subjects":["s"],"num_replicas":99999999999999999999}',
    "message size out of range": {"name": "S", "subjects": ["s"], "max_msg_size": 2**40},
    "wrong type of bool": {"name": "S", "subjects": ["s"], "no_ack": "yes"},
    "wrong type of enum": {"name": "S", "subjects": ["s"], "retention": 5},
    "deep": b'{"name":"S","placement":' + b'{"cluster":' * 2000 + b"1" + b"}" * 2000 + b"}",
    "deep arrays": b'{"name":"S","subjects":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "too deep": b'{"name":"S","subjects":' + b"[" * 20000 + b"]" * 20000 + b"}",
    "duplicate keys": b'{"name":"X","name":"S","subjects":["s3"]}',
    "bad utf-8": b'{"name":"S\xff","subjects":["s"]}',
    "escaped name": b'{"name":"\\u0053","subjects":["s4"]}',
    "nan": b'{"name":"S","max_msgs":NaN}',
    "nulls": {"name": "S", "subjects": None, "max_msgs": None, "retention": None},
}
SUBJECTS = {
    "empty": "",
    "space": "a b",
    "double dot": "a..b",
    "leading dot": ".a",
    "trailing dot": "a.",
    "full wildcard inside": "a.>.b",
    "wildcard in a token": "a*.b",
    "nul": "a\0b",
    "newline": "a\nb",
    "256 tokens": ".".join("t" * 256),
    "long": "s" * 3000,
    "unicode": "å.>",
    "dollar": "$X.>",
    "sys": "$SYS.>",
    "inbox": "_INBOX.>",
    "js ack": "$JS.ACK.>",
    "js event": "$JS.EVENT.METRIC.>",  # of these there are none here; of its own advisories the stream has any number
    "kv": "$KV.x.>",
}


def stream_names() -> list[Call]:
    """Creates whose subject is plain and whose body carries the name."""
    return [
        Call(name=f"stream name: {title}", subject=f"{API}.STREAM.CREATE.S", payload={"name": name, "subjects": ["s"]})
        for title, name in NAMES.items()
    ] + [
        Call(
            name=f"both stream names: {title}",
            subject=f"{API}.STREAM.CREATE.{name}",
            payload={"name": name, "subjects": [f"s{position}"]},
        )
        for position, (title, name) in enumerate(NAMES.items())
        if title in ("slash", "backslash", "256 bytes", "255 bytes", "control", "unicode", "wildcard")
    ]


def consumer_names() -> list[Call]:
    """Consumer creates with a bad name in body, and in body and subject where a subject can carry it."""
    return [
        Call(
            name=f"consumer name: {title}",
            subject=f"{API}.CONSUMER.CREATE.B.c",
            payload={"stream_name": "B", "config": {"name": name, "ack_policy": "explicit"}},
        )
        for title, name in NAMES.items()
    ] + [
        Call(
            name=f"both consumer names: {title}",
            subject=f"{API}.CONSUMER.CREATE.B.{name}",
            payload={"stream_name": "B", "config": {"name": name, "durable_name": name, "ack_policy": "explicit"}},
        )
        for title, name in NAMES.items()
        if title in ("slash", "backslash", "256 bytes", "255 bytes", "control", "unicode", "wildcard")
    ]


def bodies(title: str, subject: str) -> list[Call]:
    """Every bad body to one API subject."""
    return [Call(name=f"{title}: {name}", subject=subject, payload=body) for name, body in BODIES.items()]


OTHERS: tuple[Step, ...] = (
    Call(name="unknown api", subject=f"{API}.NOTHING", replies=0),
    Call(name="unknown stream api", subject=f"{API}.STREAM.NOTHING.S", replies=0),
    Call(name="api without noun", subject="$JS.API"),
    Call(name="create with two names", subject=f"{API}.STREAM.CREATE.a.b", payload={"name": "a"}, replies=0),
    Call(name="account with a body", subject=f"{API}.INFO", payload={"x": 1}),
    Call(name="names with bad json", subject=f"{API}.STREAM.NAMES", payload=b"{x"),
    Call(name="names with unknown field", subject=f"{API}.STREAM.NAMES", payload={"zzz": 1}),
    Call(name="names with negative offset", subject=f"{API}.STREAM.NAMES", payload={"offset": -1}),
    Call(name="names with wrong type", subject=f"{API}.STREAM.NAMES", payload={"offset": "x"}),
    Call(name="list with bad json", subject=f"{API}.STREAM.LIST", payload=b"{x"),
    Call(name="list with bad subject", subject=f"{API}.STREAM.LIST", payload={"subject": "a..b"}),
    Call(name="info with bad json", subject=f"{API}.STREAM.INFO.B", payload=b"{x"),
    Call(name="info with unknown field", subject=f"{API}.STREAM.INFO.B", payload={"zzz": 1}),
    Call(name="info with bad filter", subject=f"{API}.STREAM.INFO.B", payload={"subjects_filter": "a..b"}),
    Call(name="info of a name with slash", subject=f"{API}.STREAM.INFO.a/b"),
    Call(name="info of a wildcard", subject=f"{API}.STREAM.INFO.a*"),
    Call(name="delete with a body", subject=f"{API}.STREAM.DELETE.B", payload=b"x"),
    Call(name="purge with bad json", subject=f"{API}.STREAM.PURGE.B", payload=b"{x"),
    Call(name="purge with unknown field", subject=f"{API}.STREAM.PURGE.B", payload={"zzz": 1}),
    Call(name="purge with bad filter", subject=f"{API}.STREAM.PURGE.B", payload={"filter": "a..b"}),
    Call(name="purge with negative keep", subject=f"{API}.STREAM.PURGE.B", payload={"keep": -1}),
    Call(name="get with bad json", subject=f"{API}.STREAM.MSG.GET.B", payload=b"{x"),
    Call(name="get with unknown field", subject=f"{API}.STREAM.MSG.GET.B", payload={"zzz": 1}),
    Call(name="message delete with bad json", subject=f"{API}.STREAM.MSG.DELETE.B", payload=b"{x"),
    Call(name="consumer names with bad json", subject=f"{API}.CONSUMER.NAMES.B", payload=b"{x"),
    Call(name="consumer list with bad json", subject=f"{API}.CONSUMER.LIST.B", payload=b"{x"),
    Call(name="consumer info with a body", subject=f"{API}.CONSUMER.INFO.B.c", payload=b"x"),
    Call(name="consumer delete with a body", subject=f"{API}.CONSUMER.DELETE.B.c", payload=b"x"),
    Call(name="consumer with unknown field", subject=f"{API}.CONSUMER.CREATE.B.c", payload={"zzz": 1}),
    Call(
        name="consumer config with unknown field",
        subject=f"{API}.CONSUMER.CREATE.B.c",
        payload={"stream_name": "B", "config": {"zzz": 1}},
    ),
    Call(
        name="consumer config of the wrong type",
        subject=f"{API}.CONSUMER.CREATE.B.c",
        payload={"stream_name": "B", "config": []},
    ),
    Call(
        name="consumer number of the wrong type",
        subject=f"{API}.CONSUMER.CREATE.B.c",
        payload={"stream_name": "B", "config": {"max_deliver": "x"}},
    ),
    Call(
        name="consumer time in a bad format",
        subject=f"{API}.CONSUMER.CREATE.B.c",
        payload={"stream_name": "B", "config": {"deliver_policy": "by_start_time", "opt_start_time": "x"}},
    ),
    Call(name="pause with bad json", subject=f"{API}.CONSUMER.PAUSE.B.c", payload=b"{x"),
    Call(name="step down on one node", subject=f"{API}.STREAM.LEADER.STEPDOWN.B"),
    Call(name="consumer step down on one node", subject=f"{API}.CONSUMER.LEADER.STEPDOWN.B.c"),
    Call(name="peer remove on one node", subject=f"{API}.STREAM.PEER.REMOVE.B", payload={"peer": "x"}),
    Call(name="meta step down on one node", subject=f"{API}.META.LEADER.STEPDOWN", replies=0),
    Call(name="large body", subject=f"{API}.STREAM.CREATE.S", payload={"name": "S", "description": "x" * 300_000}),
    Call(name="nothing was created", subject=f"{API}.STREAM.NAMES"),
    Call(name="state is unchanged", subject=f"{API}.STREAM.INFO.B"),
)
STREAM_SUBJECTS = [
    Call(name=f"subject: {title}", subject=f"{API}.STREAM.CREATE.S{position}", payload=json.loads(body))
    for position, (title, body) in enumerate(
        (title, json.dumps({"name": f"S{position}", "subjects": [given]}))
        for position, (title, given) in enumerate(SUBJECTS.items())
    )
]

SCENES = (
    Scene(name="bad input/stream names", steps=stream_names()),
    Scene(name="bad input/consumer names", steps=[stream("B"), *consumer_names()]),
    Scene(name="bad input/stream subjects", steps=STREAM_SUBJECTS),
    Scene(name="bad input/stream bodies", steps=bodies("create", f"{API}.STREAM.CREATE.S")),
    Scene(name="bad input/other requests", steps=[stream("B"), *OTHERS]),
)
