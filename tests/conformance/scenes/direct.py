"""Direct get: single messages, batches, the last of many subjects, and its statuses for bad requests."""

from typing import Any

from tests.conformance.steps import Call, Scene, Step, messages, stream

GET = "$JS.API.DIRECT.GET"


def get(title: str, body: Any, *, replies: int = 1, subject: str = f"{GET}.D") -> Call:
    """A direct get; `replies` counts the end of a batch too."""
    return Call(name=title, subject=subject, payload=body, replies=replies)


SINGLE: tuple[Step, ...] = (
    stream("D", allow_direct=True),
    *messages("d.a", "1", "2"),
    Call(name="with headers", subject="d.h", payload=b"3", headers=(("A", "b"), ("Nats-Msg-Id", "m"))),
    *messages("d.b", "4", "5"),
    get("by sequence", {"seq": 1}),
    get("by sequence with headers", {"seq": 3}),
    get("by sequence, no headers wanted", {"seq": 3, "no_hdr": True}),
    get("last", {"last_by_subj": "d.a"}),
    get("last of a wildcard", {"last_by_subj": "d.*"}),
    get("last of none", {"last_by_subj": "x"}),
    get("next", {"seq": 2, "next_by_subj": "d.b"}),
    get("next from the start", {"next_by_subj": "d.b"}),
    get("next beyond the end", {"seq": 100, "next_by_subj": "d.b"}),
    get("beyond the end", {"seq": 100}),
    get("sequence zero", {"seq": 0}),
    get("empty", b""),
    get("empty object", {}),
    get("not json", b"{x"),
    get("not an object", b"[]"),
    get("wrong type", {"seq": "x"}),
    get("negative", {"seq": -1}),
    get("unknown field", {"seq": 1, "zzz": 1}),
    get("seq and last", {"seq": 1, "last_by_subj": "d.a"}),
    get("last and next", {"last_by_subj": "d.a", "next_by_subj": "d.a"}),
    get("subject form", b"", subject=f"{GET}.D.d.a"),
    get("subject form of none", b"", subject=f"{GET}.D.x"),
    get("subject form of a wildcard", b"", subject=f"{GET}.D.d.*"),
    get("subject form with a body", {"seq": 1}, subject=f"{GET}.D.d.a"),
    get("of no stream", {"seq": 1}, subject=f"{GET}.NOPE"),
    Call(name="delete one", subject="$JS.API.STREAM.MSG.DELETE.D", payload={"seq": 2}),
    get("deleted", {"seq": 2}),
    stream("N"),
    get("not allowed", {"seq": 1}, subject=f"{GET}.N"),
    Call(name="disallow", subject="$JS.API.STREAM.UPDATE.D", payload={"name": "D", "subjects": ["d.>"]}),
    get("no longer allowed", {"seq": 1}),
)
BATCH: tuple[Step, ...] = (
    stream("D", allow_direct=True),
    *messages("d.a", "1", "2", "3"),
    *messages("d.b", "4", "5"),
    *messages("d.a", "6"),
    Call(name="delete one", subject="$JS.API.STREAM.MSG.DELETE.D", payload={"seq": 2}),
    get("batch from a sequence", {"seq": 1, "batch": 3}, replies=4),
    get("batch to the end", {"seq": 4, "batch": 100}, replies=4),
    get("batch beyond the end", {"seq": 50, "batch": 3}),
    get("batch by subject", {"seq": 1, "batch": 10, "next_by_subj": "d.b"}, replies=3),
    get("batch by wildcard", {"batch": 2, "next_by_subj": "d.*"}, replies=3),
    get("batch by unknown subject", {"batch": 2, "next_by_subj": "x"}),
    get("batch of one", {"seq": 1, "batch": 1}, replies=2),
    get("negative batch", {"seq": 1, "batch": -1}, replies=1),
    get("max_bytes", {"seq": 1, "batch": 10, "max_bytes": 20}, replies=6),
    get("max_bytes without batch", {"seq": 1, "max_bytes": 20}, replies=1),
    get("from a time", {"start_time": "2001-01-01T00:00:00Z", "batch": 2}, replies=3),
    get("from a time to come", {"start_time": "2199-01-01T00:00:00Z", "batch": 2}),
    get("time and sequence", {"start_time": "2001-01-01T00:00:00Z", "seq": 1, "batch": 2}, replies=1),
    get("time in a bad format", {"start_time": "yesterday", "batch": 2}),
    get("last of many", {"multi_last": ["d.a", "d.b"]}, replies=3),
    get("last of many by wildcard", {"multi_last": ["d.*"]}, replies=3),
    get("last of everything", {"multi_last": [">"]}, replies=3),
    get("last of many unknown", {"multi_last": ["x"]}),
    get("last of many in a batch", {"multi_last": ["d.*"], "batch": 1}, replies=2),
    get("last of many up to a sequence", {"multi_last": ["d.*"], "up_to_seq": 4}, replies=3),
    get("last of many up to a time", {"multi_last": ["d.*"], "up_to_time": "2199-01-01T00:00:00Z"}, replies=3),
    get("last of many up to an old time", {"multi_last": ["d.*"], "up_to_time": "2001-01-01T00:00:00Z"}),
    get("up to sequence and time", {"multi_last": ["d.*"], "up_to_seq": 4, "up_to_time": "2199-01-01T00:00:00Z"}),
    get("up to a sequence without many", {"seq": 1, "up_to_seq": 4}),
    get("many and a sequence", {"multi_last": ["d.*"], "seq": 1}, replies=3),
    get("many and last", {"multi_last": ["d.*"], "last_by_subj": "d.a"}),
    get("many empty", {"multi_last": []}),
)

SCENES = (
    Scene(name="direct/single", steps=SINGLE),
    Scene(name="direct/batch", steps=BATCH),
)
